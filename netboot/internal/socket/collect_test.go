package socket

import (
	"errors"
	"net"
	"net/netip"
	"strconv"
	"testing"
	"time"
)

// pair opens a socket and one that writes to it.
func pair(t *testing.T) (in, out *net.UDPConn) {
	t.Helper()
	in, err := UDP("", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = in.Close() })
	if out, err = net.DialUDP("udp4", nil, in.LocalAddr().(*net.UDPAddr)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = out.Close() })
	return in, out
}

func say(t *testing.T, c *net.UDPConn, text string) {
	t.Helper()
	if _, err := c.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
}

// What came while the process stood still past the deadline is an answer, and so is what comes before it.
func TestCollectTakesWhatCameBeforeALateLook(t *testing.T) {
	for name, until := range map[string]time.Time{"long past": time.Unix(1, 0), "ahead": time.Now().Add(time.Hour)} {
		in, out := pair(t)
		for i := range 3 {
			say(t, out, strconv.Itoa(i))
		}
		got := ""
		err := Collect(in, until, make([]byte, 64), func(b []byte) bool { got += string(b); return len(got) == 3 })
		if err != nil || got != "012" {
			t.Errorf("%s: %q, %v", name, got, err)
		}
	}
}

// A reader that has what it wants leaves the rest; one that has not ends without an error.
func TestCollectEnds(t *testing.T) {
	in, out := pair(t)
	if err := Collect(in, time.Unix(1, 0), make([]byte, 64), func([]byte) bool { return true }); err != nil {
		t.Error(err)
	}
	say(t, out, "a")
	say(t, out, "b")
	n := 0
	if err := Collect(in, time.Unix(1, 0), make([]byte, 64), func([]byte) bool { n++; return true }); err != nil || n != 1 {
		t.Errorf("%d, %v", n, err)
	}
}

// A flood does not keep a reader whose time is up.
func TestCollectIsBounded(t *testing.T) {
	in, out := pair(t)
	say(t, out, "x")
	n := 0
	err := Collect(in, time.Unix(1, 0), make([]byte, 64), func([]byte) bool { n++; say(t, out, "x"); return false })
	if err != nil || n != maxLate {
		t.Errorf("%d, %v", n, err)
	}
}

func TestCollectTellsOfAClosedSocket(t *testing.T) {
	in, _ := pair(t)
	stopped := time.AfterFunc(0, func() { _ = in.Close() })
	defer stopped.Stop()
	if err := Collect(in, time.Now().Add(time.Hour), make([]byte, 64), func([]byte) bool { return false }); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}
