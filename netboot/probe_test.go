package netboot

import (
	"fmt"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// An address that a host on the same wire answers for by ARP, though it answers no ping, is not offered. A probe waits for a
// fifth of a second, for which a loaded machine may hold its reader up: one of some tries must see the host.
func TestAddressInUseOnTheWire(t *testing.T) {
	need(t, "udhcpc")
	const tries = 5
	for n := 1; ; n++ {
		seen, said := false, ""
		t.Run(fmt.Sprint("try ", n), func(t *testing.T) { seen, said = squatted(t, false) })
		if seen {
			return
		}
		if n == tries {
			t.Fatalf("the taken address was offered %d times\n%s", tries, said)
		}
	}
}

// Where addresses are not to be asked for, the taken one is offered.
func TestAddressInUseThatIsNotAskedFor(t *testing.T) {
	need(t, "udhcpc")
	if seen, said := squatted(t, true); seen {
		t.Error(said)
	}
}

// squatted reports whether a client that asks for an address that another host has is given another, and what it said.
func squatted(t *testing.T, noProbe bool) (seen bool, said string) {
	w := newWire(t)
	w.bridge()
	w.up()
	squatter := namespace(t, "q")
	w.plug(squatter, "q0", "10.77.0.100/24")
	run(t, "ip", "netns", "exec", squatter, "sysctl", "-qw", "net.ipv4.icmp_echo_ignore_all=1")
	sub := labSubnet("br0", "full")
	sub.PoolEnd, sub.NoProbe = sub.PoolStart.Next(), noProbe // one address is taken, the other free
	_, e := w.serve(newMemStore(sub), &fakePort{})
	out, err := udhcpc(t, w.cli, "cli0", "-r", "10.77.0.100")
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if strings.Contains(out, "ip=10.77.0.100") {
		return false, out
	}
	x := e.wait(t, "dhcp.conflict", patience, func(x app.Event) bool { return x.Kind == "dhcp.conflict" })
	if x.Level != "warn" || !strings.Contains(x.Message, "10.77.0.100") || !strings.Contains(out, "ip=10.77.0.101") {
		t.Errorf("%s %s\n%s", x.Level, x.Message, out)
	}
	return true, out
}
