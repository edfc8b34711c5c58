package socket

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxLate bounds what is read after the deadline: more than a socket of the usual size holds, so that a flood does not keep
// the reader for ever.
const maxLate = 1024

// Conn is a datagram socket.
type Conn interface {
	syscall.Conn
	SetReadDeadline(t time.Time) error
}

// Collect hands each datagram that comes to take, in buf, until that reports that it has what it wants, or until the
// deadline. A process that stood still may find the deadline past though the answers came in time: what the kernel holds by
// then is handed out too. The end of the wait is no error. A raw IPv4 socket gives its IP header along.
func Collect(c Conn, until time.Time, buf []byte, take func(b []byte) (done bool)) error {
	raw, err := c.SyscallConn()
	if err == nil {
		err = c.SetReadDeadline(until)
	}
	for done := false; err == nil && !done; {
		var n int
		if n, err = next(raw, buf); err == nil {
			done = take(buf[:n])
		}
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = late(raw, buf, take)
	}
	if err != nil {
		return fmt.Errorf("reading answers: %w", err)
	}
	return nil
}

// next waits for a datagram.
func next(raw syscall.RawConn, buf []byte) (n int, err error) {
	waited := raw.Read(func(fd uintptr) bool {
		n, err = receive(fd, buf)
		return !errors.Is(err, unix.EAGAIN)
	})
	if waited != nil {
		return 0, waited
	}
	return n, err
}

// late hands out what is there, without waiting.
func late(raw syscall.RawConn, buf []byte, take func(b []byte) (done bool)) error {
	for range maxLate {
		n, err := pending(raw, buf)
		if errors.Is(err, unix.EAGAIN) {
			return nil
		}
		if err != nil || take(buf[:n]) {
			return err
		}
	}
	return nil
}

// pending reads a datagram that is there already, whatever the deadline, or gives EAGAIN.
func pending(raw syscall.RawConn, buf []byte) (n int, err error) {
	if e := raw.Control(func(fd uintptr) { n, err = receive(fd, buf) }); e != nil {
		return 0, e
	}
	return n, err
}

func receive(fd uintptr, buf []byte) (int, error) {
	for {
		n, _, err := unix.Recvfrom(int(fd), buf, unix.MSG_DONTWAIT)
		if !errors.Is(err, unix.EINTR) {
			return max(n, 0), err
		}
	}
}
