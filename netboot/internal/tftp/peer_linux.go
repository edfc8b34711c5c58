package tftp

import (
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/netboot/internal/socket"
)

// socketPeer is a client with a socket of its own, connected to it.
//
// TFTP is a packet there and a packet back, so what each round costs is what a transfer takes. The last packet of a round is
// sent once the wait for its answer has been prepared: then no read finds the socket empty. The deadline is moved
// once in a while only.
type socketPeer struct {
	conn  *net.UDPConn
	raw   syscall.RawConn
	armed time.Time // the deadline that is set
	last  []byte    // to be sent when the wait begins
	into  []byte    // where the answer goes
	n     int
	err   error // of the last call of step
	steps func(fd uintptr) bool
}

func newSocketPeer(conn *net.UDPConn) (*socketPeer, error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return nil, fmt.Errorf("reaching the socket: %w", err)
	}
	p := &socketPeer{conn: conn, raw: raw}
	p.steps = p.step
	return p, nil
}

func (p *socketPeer) send(b []byte, more bool) error {
	if !more {
		p.last = b
		return nil
	}
	_, err := p.conn.Write(b)
	return err
}

func (p *socketPeer) receive(b []byte, until time.Time) ([]byte, error) {
	if slack := until.Sub(p.armed); slack < 0 || slack > time.Until(until)/4 {
		if err := p.conn.SetReadDeadline(until); err != nil {
			return nil, err
		}
		p.armed = until
	}
	p.into, p.n, p.err = b, 0, nil
	err := p.raw.Read(p.steps)
	if errors.Is(err, os.ErrDeadlineExceeded) {
		return p.late(b)
	}
	if err == nil {
		err = p.err
	}
	return b[:p.n], err
}

// late looks once more after the deadline, without waiting: a process that stood still finds it past though the answer is
// there. What was not sent yet is sent, as the client is about to be counted as one that did not answer it.
func (p *socketPeer) late(b []byte) ([]byte, error) {
	p.armed = time.Time{}
	if last := p.last; last != nil {
		p.last = nil
		if _, err := p.conn.Write(last); err != nil {
			return nil, err
		}
	}
	n, err := socket.Pending(p.raw, b)
	if errors.Is(err, unix.EAGAIN) {
		err = os.ErrDeadlineExceeded
	}
	return b[:n], err
}

// step sends what is to be sent, then reads. It reports false to wait until the socket can be read.
func (p *socketPeer) step(fd uintptr) bool {
	if p.last != nil {
		_, err := unix.Write(int(fd), p.last)
		p.last = nil
		if err != nil && !errors.Is(err, unix.EAGAIN) { // what finds no room is lost, as on the wire
			p.err = err
			return true
		}
		return false
	}
	n, err := unix.Read(int(fd), p.into)
	if errors.Is(err, unix.EAGAIN) {
		return false
	}
	p.n, p.err = max(n, 0), err
	return true
}
