package tftp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"
)

// An answer that is there counts, however late the process looks: neither way of answering takes its client for silent.
func TestAPeerThatStoodStillHearsItsClient(t *testing.T) {
	here, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	own, err := newSocketPeer("", netip.Addr{}, here.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	defer own.close()
	if err := own.send([]byte("question")); err != nil {
		t.Fatal(err)
	}
	_, client, err := here.ReadFrom(make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	inbox := make(chan []byte, 1)
	for name, c := range map[string]struct {
		peer   peer
		answer func()
	}{
		"a port each": {own, func() { _, _ = here.WriteTo([]byte("answer"), client) }},
		"one port":    {sharedPeer{to: func([]byte) error { return nil }, from: inbox}, func() { inbox <- []byte("answer") }},
	} {
		for range 100 { // whichever of two events is looked at first
			c.answer()
			if b, err := c.peer.receive(make([]byte, 64), time.Unix(1, 0)); err != nil || string(b) != "answer" {
				t.Fatalf("%s: %q, %v", name, b, err)
			}
			if b, err := c.peer.receive(make([]byte, 64), time.Unix(1, 0)); !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatalf("%s: %q, %v", name, b, err)
			}
		}
	}
}

// A transfer that is ended waits no longer, whether it is told before it reads or while it does; what is told after its end
// touches no socket.
func TestAPeerIsStopped(t *testing.T) {
	here, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	for range 20 {
		p, err := newSocketPeer("", netip.Addr{}, here.LocalAddr().(*net.UDPAddr).AddrPort())
		if err != nil {
			t.Fatal(err)
		}
		go p.stop()
		if _, err := p.receive(make([]byte, 64), time.Now().Add(patience)); !errors.Is(err, net.ErrClosed) {
			t.Fatal(err)
		}
		p.close()
		p.stop()
	}
}

// A client that is gone is told from one that is silent, and an empty datagram from a transfer that is ended.
func TestAPeerThatIsGone(t *testing.T) {
	here, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	p, err := newSocketPeer("", netip.Addr{}, here.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	defer p.close()
	if err := p.send([]byte("question")); err != nil {
		t.Fatal(err)
	}
	_, client, err := here.ReadFrom(make([]byte, 64))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := here.WriteTo(nil, client); err != nil {
		t.Fatal(err)
	}
	if b, err := p.receive(make([]byte, 64), time.Now().Add(patience)); err != nil || len(b) != 0 {
		t.Errorf("%q, %v", b, err)
	}
	_ = here.Close()
	_ = p.send([]byte("question"))
	if _, err := p.receive(make([]byte, 64), time.Now().Add(patience)); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
}
