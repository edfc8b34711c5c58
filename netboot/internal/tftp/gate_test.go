package tftp

import (
	"net/netip"
	"testing"
)

// One client that asks and never acknowledges leaves room for the others, and gets its room back as its transfers end.
func TestOneClientCannotTakeEveryTransfer(t *testing.T) {
	g := gate{from: map[netip.Addr]int{}}
	bad, good := netip.MustParseAddr("192.0.2.66"), netip.MustParseAddr("::ffff:192.0.2.1")
	var leave []func()
	for range 10 * maxUnderWayClient {
		if l, ok := g.enter(bad); ok {
			leave = append(leave, l)
		}
	}
	if len(leave) != maxUnderWayClient {
		t.Errorf("%d transfers of one client", len(leave))
	}
	l, ok := g.enter(good)
	if !ok {
		t.Fatal("another client found no room")
	}
	l()
	for _, l := range leave {
		l()
	}
	if g.all != 0 || len(g.from) != 0 {
		t.Errorf("%d transfers of %d clients are left", g.all, len(g.from))
	}
	// Invented senders are bounded too.
	taken := 0
	for a := netip.MustParseAddr("10.0.0.0"); a != netip.MustParseAddr("10.1.0.0"); a = a.Next() {
		if _, ok := g.enter(a); ok {
			taken++
		}
	}
	if taken != maxUnderWay {
		t.Errorf("%d transfers in all", taken)
	}
}
