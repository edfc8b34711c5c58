package tftp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/netboot/internal/socket"
)

// socketPeer is a client with a socket of its own, connected to it.
//
// TFTP is a packet there and a packet back, so what each round costs is what a transfer takes. The socket blocks: a thread
// that waits in the kernel is woken by the packet itself, where the runtime's poller would take two wake-ups of other
// threads, which compete with each other as soon as there are several transfers.
type socketPeer struct {
	fd    int
	armed time.Duration // how long a read waits
	ended atomic.Bool   // stop was called

	mu     sync.Mutex // protects what follows, and fd from stop
	closed bool
}

func newSocketPeer(device string, local netip.Addr, client netip.AddrPort) (*socketPeer, error) {
	fd, err := socket.Connected(device, local, client)
	if err != nil {
		return nil, err
	}
	return &socketPeer{fd: fd}, nil
}

// stop ends a read under way and all that follow.
func (p *socketPeer) stop() {
	p.ended.Store(true)
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.closed {
		_ = unix.Shutdown(p.fd, unix.SHUT_RD)
	}
}

func (p *socketPeer) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.closed = true
	_ = unix.Close(p.fd)
}

// send sends a packet. What finds no room is lost, as on the wire.
func (p *socketPeer) send(b []byte) error {
	for {
		switch _, err := unix.SendmsgN(p.fd, b, nil, nil, unix.MSG_DONTWAIT); {
		case errors.Is(err, unix.EINTR):
		case errors.Is(err, unix.EAGAIN):
			return nil
		default:
			return err
		}
	}
}

// receive reads the next datagram. Past the deadline, a process that stood still finds what came in time.
func (p *socketPeer) receive(b []byte, until time.Time) ([]byte, error) {
	for {
		wait := time.Until(until)
		if wait <= 0 {
			return p.pending(b)
		}
		if err := p.arm(wait); err != nil {
			return nil, err
		}
		switch n, err := unix.Read(p.fd, b); {
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // a signal of the runtime's, or the end of the wait
		case err != nil:
			return nil, err
		case n == 0 && p.ended.Load():
			return nil, net.ErrClosed
		default:
			return b[:n], nil
		}
	}
}

func (p *socketPeer) pending(b []byte) ([]byte, error) {
	n, _, err := unix.Recvfrom(p.fd, b, unix.MSG_DONTWAIT)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EINTR) {
		return nil, os.ErrDeadlineExceeded
	}
	return b[:max(n, 0)], err
}

// arm bounds reads by a wait, or a little more: it is not worth a call for each packet.
func (p *socketPeer) arm(wait time.Duration) error {
	if p.armed >= wait && p.armed <= wait+wait/4 {
		return nil
	}
	tv := unix.NsecToTimeval(int64(max(wait, time.Millisecond)))
	if err := unix.SetsockoptTimeval(p.fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		return fmt.Errorf("bounding the wait for a packet: %w", err)
	}
	p.armed = wait
	return nil
}
