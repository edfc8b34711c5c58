package network

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/server4"
	"github.com/vishvananda/netlink"
)

// inside marks the test process that runs in the network namespace.
const inside = "BCD_TEST_IN_NAMESPACE"

// TestKernel runs a DHCP exchange through a real cable of two virtual ports, in a namespace of its own.
func TestKernel(t *testing.T) {
	if os.Getenv(inside) != "" {
		exchange(t)
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
	ns := fmt.Sprintf("bcdt-agent-dhcp-%d", os.Getpid())
	ip("netns", "add", ns)
	t.Cleanup(func() { ip("netns", "del", ns) })
	ip("-n", ns, "link", "add", "server0", "type", "veth", "peer", "name", "client0")
	ip("-n", ns, "addr", "add", "192.0.2.1/24", "dev", "server0")
	ip("-n", ns, "link", "set", "server0", "up")
	cmd := exec.CommandContext(t.Context(), "ip", "netns", "exec", ns, os.Args[0], "-test.run=^TestKernel$", "-test.v", "-test.timeout=5m")
	cmd.Env = append(os.Environ(), inside+"=1")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func exchange(t *testing.T) {
	var offered atomic.Pointer[net.IP]
	answer := func(conn net.PacketConn, peer net.Addr, m *dhcpv4.DHCPv4) {
		kind := dhcpv4.MessageTypeOffer
		if m.MessageType() == dhcpv4.MessageTypeRequest {
			kind = dhcpv4.MessageTypeAck
		}
		r, err := dhcpv4.NewReplyFromRequest(m, dhcpv4.WithMessageType(kind), dhcpv4.WithYourIP(*offered.Load()), dhcpv4.WithServerIP(net.IPv4(192, 0, 2, 1)),
			dhcpv4.WithOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 1))), dhcpv4.WithNetmask(net.CIDRMask(24, 32)),
			dhcpv4.WithRouter(net.IPv4(192, 0, 2, 254)), dhcpv4.WithLeaseTime(600))
		if err != nil {
			t.Error(err)
			return
		}
		if _, err := conn.WriteTo(r.ToBytes(), &net.UDPAddr{IP: net.IPv4bcast, Port: 68}); err != nil {
			t.Error(err)
		}
	}
	srv, err := server4.NewServer("server0", &net.UDPAddr{Port: 67}, answer)
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve() }() // ends with Close
	defer func() { srv.Close(); <-done }()
	if err := raise("client0"); err != nil {
		t.Fatal(err)
	}
	client, err := net.InterfaceByName("client0")
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithTimeout(t.Context(), 2*time.Minute)
	defer stop()
	if !New(Config{Sys: "/sys", Log: quiet}).carrier(ctx, "client0", time.Minute) {
		t.Fatal("no link")
	}
	for _, want := range []net.IP{net.IPv4(192, 0, 2, 50), net.IPv4(192, 0, 2, 51)} { // the second time with another address
		offered.Store(&want)
		l, err := dora(ctx, "client0", client.HardwareAddr)
		if err != nil {
			t.Fatal(err)
		}
		if err := apply("client0", l); err != nil {
			t.Fatal(err)
		}
		link, _ := netlink.LinkByName("client0")
		addrs, err := netlink.AddrList(link, netlink.FAMILY_V4)
		if err != nil || len(addrs) != 1 || !addrs[0].IP.Equal(want) {
			t.Fatalf("addresses %v %v", addrs, err)
		}
		routes, err := netlink.RouteList(link, netlink.FAMILY_V4)
		if err != nil || !strings.Contains(routes[0].Gw.String()+routes[len(routes)-1].Gw.String(), "192.0.2.254") {
			t.Errorf("routes %v %v", routes, err)
		}
	}
}
