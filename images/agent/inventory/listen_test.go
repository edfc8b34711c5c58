package inventory

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/mdlayher/packet"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// inside marks the test process that runs in the network namespace.
const inside = "BCD_TEST_IN_NAMESPACE"

// TestListen hears a neighbour over a cable of two virtual ports, in a namespace of its own.
func TestListen(t *testing.T) {
	if os.Getenv(inside) != "" {
		hear(t)
		return
	}
	if os.Geteuid() != 0 {
		t.Skip("left out: a network namespace needs root")
	}
	ip := func(args ...string) {
		t.Helper()
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Skipf("left out: ip %s: %v %s", strings.Join(args, " "), err, out)
		}
	}
	ns := fmt.Sprintf("bcdt-agent-lldp-%d", os.Getpid())
	ip("netns", "add", ns)
	t.Cleanup(func() { ip("netns", "del", ns) })
	ip("-n", ns, "link", "add", "switch0", "type", "veth", "peer", "name", "port0")
	ip("-n", ns, "link", "set", "switch0", "up")
	ip("-n", ns, "link", "set", "port0", "up")
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", ns, os.Args[0], "-test.run=^TestListen$", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func hear(t *testing.T) {
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	l := NewListener(t.TempDir(), quiet)
	done := make(chan error, 1)
	go func() { done <- l.listen(ctx, "port0") }()
	sw, err := net.InterfaceByName("switch0")
	if err != nil {
		t.Fatal(err)
	}
	conn, err := packet.Listen(sw, packet.Raw, etherLLDP, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	frame := lldp(tlv(1, "\x04\x00\x00\x5e\x00\x53\x10"), tlv(2, "\x05Eth1/7"), tlv(0, ""))
	copy(frame, groups[0][:])
	every := time.NewTicker(50 * time.Millisecond) // as a switch repeats it; the listener may not have opened its socket yet
	defer every.Stop()
	for l.Heard()["port0"].Port != "Eth1/7" {
		if _, err := conn.WriteTo(frame, &packet.Addr{HardwareAddr: frame[:6]}); err != nil {
			t.Fatal(err)
		}
		select {
		case <-every.C:
		case err := <-done:
			t.Fatalf("the listener ended: %v", err)
		case <-ctx.Done():
			t.Fatal("the neighbour was not heard")
		}
	}
	if got := l.Heard()["port0"]; got != (agentv1.LLDP{Chassis: "00:00:5e:00:53:10", Port: "Eth1/7"}) {
		t.Errorf("%+v", got)
	}
	stop()
	if err := <-done; err != nil {
		t.Error(err)
	}
}
