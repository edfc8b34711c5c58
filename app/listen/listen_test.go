package listen

import (
	"net"
	"net/netip"
	"testing"
)

func TestConnectionsOfOneClientAreLimited(t *testing.T) {
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	check(err)
	lim := Limit(l, 100, 2)
	defer func() { _ = lim.Close() }()
	accepted := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := lim.Accept()
			if err != nil {
				close(accepted)
				return
			}
			accepted <- c
		}
	}()
	dial := func() net.Conn { c, err := net.Dial("tcp4", l.Addr().String()); check(err); return c }
	first := dial()
	defer func() { _ = first.Close() }()
	a := <-accepted
	second := dial()
	defer func() { _ = second.Close() }()
	<-accepted
	third := dial()
	if _, err := third.Read(make([]byte, 1)); err == nil {
		t.Error("the third connection of one client was kept")
	}
	_ = a.Close()
	_ = a.Close() // releases once
	fourth := dial()
	defer func() { _ = fourth.Close() }()
	<-accepted
}

// One client is one IPv4 address or one IPv6 network, whose addresses it can change at will; link-local neighbours are many.
func TestWhatOneClientIs(t *testing.T) {
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"192.0.2.1", "192.0.2.1", true},
		{"192.0.2.1", "::ffff:192.0.2.1", true},
		{"192.0.2.1", "192.0.2.2", false},
		{"2001:db8::1", "2001:db8::2", true},
		{"2001:db8::1", "2001:db8:0:1::1", false},
		{"fe80::1%eth0", "fe80::2%eth0", false},
	} {
		if got := client(netip.MustParseAddr(c.a)) == client(netip.MustParseAddr(c.b)); got != c.same {
			t.Errorf("%s and %s: %v", c.a, c.b, got)
		}
	}
}
