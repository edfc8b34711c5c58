package tftp

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/better-compute/bcd/netboot/internal/socket"
)

// An answer that is there counts, however late the process looks: neither way of answering takes its client for silent.
func TestAPeerThatStoodStillHearsItsClient(t *testing.T) {
	here, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = here.Close() }()
	conn, err := socket.Connected("", netip.Addr{}, here.LocalAddr().(*net.UDPAddr).AddrPort())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	own, err := newSocketPeer(conn)
	if err != nil {
		t.Fatal(err)
	}
	inbox := make(chan []byte, 1)
	for name, c := range map[string]struct {
		peer   peer
		answer func()
	}{
		"a port each": {own, func() { _, _ = here.WriteTo([]byte("answer"), conn.LocalAddr()) }},
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

	// What was to be sent is sent, and the deadline that was missed does not stay.
	if err := own.send([]byte("question"), false); err != nil {
		t.Fatal(err)
	}
	if _, err := own.receive(make([]byte, 64), time.Unix(1, 0)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Fatal(err)
	}
	buf := make([]byte, 64)
	n, from, err := here.ReadFrom(buf)
	if err != nil || string(buf[:n]) != "question" {
		t.Fatalf("%q, %v", buf[:n], err)
	}
	if _, err := here.WriteTo([]byte("answer"), from); err != nil {
		t.Fatal(err)
	}
	if b, err := own.receive(make([]byte, 64), time.Now().Add(patience)); err != nil || string(b) != "answer" {
		t.Errorf("%q, %v", b, err)
	}
}
