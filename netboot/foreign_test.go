package netboot

import (
	"bufio"
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/child"
)

// namespace makes one more namespace, with its loopback up.
func namespace(t *testing.T, name string) string {
	t.Helper()
	ns := fmt.Sprintf("bcdt-netboot-%s%d", name, os.Getpid())
	run(t, "ip", "netns", "add", ns)
	t.Cleanup(func() { run(t, "ip", "netns", "del", ns) })
	run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	return ns
}

// bridge puts the server's end of the wire on a bridge "br0", which has its address from then on.
func (w *wire) bridge() {
	for _, args := range []string{
		"addr flush dev srv0", "link add br0 type bridge stp_state 0 forward_delay 0", "link set br0 address 02:77:00:00:00:01 up",
		"addr add 10.77.0.1/24 dev br0", "link set srv0 master br0 up",
	} {
		run(w.t, "ip", append([]string{"-n", w.srv}, strings.Fields(args)...)...)
	}
}

// plug joins a namespace to the server's bridge, by "eth0" with an address.
func (w *wire) plug(ns, port, addr string) {
	run(w.t, "ip", "-n", w.srv, "link", "add", port, "type", "veth", "peer", "name", "eth0", "netns", ns)
	run(w.t, "ip", "-n", w.srv, "link", "set", port, "master", "br0", "up")
	if addr != "" {
		run(w.t, "ip", "-n", ns, "addr", "add", addr, "dev", "eth0")
	}
	run(w.t, "ip", "-n", ns, "link", "set", "eth0", "up")
}

// daemon runs a program in a namespace until the test ends, and waits until it says that it is ready.
func daemon(t *testing.T, ns, ready, name string, args ...string) {
	t.Helper()
	cmd := exec.Command("ip", append([]string{"netns", "exec", ns, name}, args...)...)
	out, err := cmd.StderrPipe()
	if err == nil {
		cmd.Stdout = cmd.Stderr
		err = child.Start(cmd)
	}
	if err != nil {
		t.Fatal(err)
	}
	up, ended, said := make(chan struct{}), make(chan struct{}), &strings.Builder{}
	go func() {
		defer close(ended)
		waiting := true
		for l := bufio.NewScanner(out); l.Scan(); {
			if waiting {
				said.WriteString(l.Text() + "\n")
			}
			if waiting && strings.Contains(l.Text(), ready) {
				waiting = false
				close(up)
			}
		}
	}()
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		<-ended
		_ = cmd.Wait()
	})
	select {
	case <-up:
	case <-ended:
		t.Fatalf("%s ended before it was ready:\n%s", name, said)
	case <-time.After(patience):
		t.Fatalf("%s was not ready within %v", name, patience)
	}
}

// dnsmasq runs the foreign DHCP server of the lab network.
func dnsmasq(t *testing.T, ns string, more ...string) {
	t.Helper()
	dnsmasqOf(t, ns, "DHCP, IP range", append([]string{"--dhcp-range=10.77.0.50,10.77.0.60,255.255.255.0,1h"}, more...)...)
}

func dnsmasqOf(t *testing.T, ns, ready string, args ...string) {
	t.Helper()
	need(t, "dnsmasq")
	daemon(t, ns, ready, "dnsmasq", append([]string{"--no-daemon", "--conf-file=/dev/null", "--port=0", "--interface=eth0", "--bind-interfaces", "--no-ping",
		"--user=root", "--dhcp-leasefile=" + filepath.Join(t.TempDir(), "leases")}, args...)...)
}

func udhcpc(t *testing.T, ns, iface string, more ...string) (string, error) {
	t.Helper()
	script := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nenv\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	args := append([]string{"netns", "exec", ns, "udhcpc", "-i", iface, "-n", "-q", "-f", "-s", script, "-t", "30", "-T", "1"}, more...)
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	return string(out), err
}

// seek looks for rivals until there is one: on a loaded machine their answers may come late.
func seek(t *testing.T, s *Server) (found []app.Rival, err error) {
	t.Helper()
	for end := time.Now().Add(patience); len(found) == 0 && err == nil && time.Now().Before(end); {
		found, err = s.SeekRivals(t.Context(), "br0")
	}
	return found, err
}

func TestRivalsAreFoundAndNamed(t *testing.T) {
	w := newWire(t)
	w.bridge()
	other := namespace(t, "d")
	w.plug(other, "d0", "10.77.0.2/24")
	dnsmasq(t, other, "--dhcp-option=3,10.77.0.3", "--dhcp-boot=theirs.efi,,10.77.0.4")
	s, e := w.serve(newMemStore(labSubnet("br0", "off")), &fakePort{})
	found, err := seek(t, s)
	if err != nil || len(found) != 1 {
		t.Fatalf("%+v, %v", found, err)
	}
	r := found[0]
	if r.Server.String() != "10.77.0.2" || !r.Offered.IsValid() || r.Gateway.String() != "10.77.0.3" || r.BootFile != "theirs.efi" || r.Next.String() != "10.77.0.4" || r.MAC == "" {
		t.Errorf("%+v", r)
	}
	x := e.wait(t, "dhcp.rival", patience, kind("dhcp.rival"))
	if x.Level != "info" || !strings.Contains(x.Message, "10.77.0.2") || !strings.Contains(x.Message, r.Offered.String()) {
		t.Errorf("%s %s", x.Level, x.Message)
	}
	if all := s.Rivals(); len(all) != 1 || all[0].Server != r.Server {
		t.Errorf("remembered: %+v", all)
	}
	if _, err := s.SeekRivals(t.Context(), "eth9"); app.CodeOf(err) != app.Unavailable {
		t.Errorf("on an interface that is not there: %v", err)
	}
}

// A proxy is found by the PXE question: it overlooks the plain one.
func TestProxyIsFoundAsARivalWithoutAddresses(t *testing.T) {
	w := newWire(t)
	w.bridge()
	other := namespace(t, "d")
	w.plug(other, "d0", "10.77.0.2/24")
	dnsmasqOf(t, other, "DHCP, proxy on subnet", "--dhcp-range=10.77.0.0,proxy", "--pxe-service=x86-64_EFI,theirs,theirs.efi")
	s, _ := w.serve(newMemStore(labSubnet("br0", "off")), &fakePort{})
	found, err := seek(t, s)
	if err != nil || len(found) != 1 || found[0].Offered.IsValid() || found[0].Server.String() != "10.77.0.2" {
		t.Fatalf("%+v, %v", found, err)
	}
}

func TestOrdinaryClientsAreLeftToTheOtherServer(t *testing.T) {
	need(t, "udhcpc")
	w := newWire(t)
	w.bridge()
	w.up()
	other := namespace(t, "d")
	w.plug(other, "d0", "10.77.0.2/24")
	dnsmasq(t, other)
	store := newMemStore(labSubnet("br0", app.SubnetProxy))
	s, e := w.serve(store, &fakePort{})
	out, err := udhcpc(t, w.cli, "cli0")
	if err != nil || !strings.Contains(out, "serverid=10.77.0.2") {
		t.Fatalf("%v\n%s", err, out)
	}
	if len(store.leases) != 0 {
		t.Errorf("leases %v", store.leases)
	}
	e.wait(t, "dhcp.rival", patience, kind("dhcp.rival"))
	if n := s.Notes(store.subnets[0]); len(n) != 0 {
		t.Errorf("notes beside a server: %q", n)
	}
	if a, ok := s.AddressFor(cliMAC); !ok || a.String() != "10.77.0.1" {
		t.Errorf("our address there is %v", a)
	}
}

// relayed makes a network behind a relay: the client's namespace of the wire becomes the relay, with 198.51.100.1 on "far0".
func (w *wire) relayed() (far string) {
	w.t.Helper()
	need(w.t, "dhcrelay")
	need(w.t, "udhcpc")
	w.up()
	far = namespace(w.t, "f")
	run(w.t, "ip", "-n", w.cli, "addr", "add", "10.77.0.7/24", "dev", "cli0")
	run(w.t, "ip", "-n", w.cli, "link", "add", "far0", "type", "veth", "peer", "name", "eth0", "netns", far)
	run(w.t, "ip", "-n", w.cli, "addr", "add", "198.51.100.1/24", "dev", "far0")
	run(w.t, "ip", "-n", w.cli, "link", "set", "far0", "up")
	run(w.t, "ip", "-n", far, "link", "set", "eth0", "up")
	run(w.t, "ip", "netns", "exec", w.cli, "sysctl", "-qw", "net.ipv4.ip_forward=1")
	run(w.t, "ip", "-n", w.srv, "route", "add", "198.51.100.0/24", "via", "10.77.0.7")
	return far
}

func farSubnet(mode string) app.Subnet {
	a := netip.MustParseAddr
	return app.Subnet{ID: "net-far", CIDR: netip.MustParsePrefix("198.51.100.0/24"), Mode: mode, PoolStart: a("198.51.100.10"), PoolEnd: a("198.51.100.20"),
		Gateway: a("198.51.100.1"), LeaseTime: app.Duration(time.Hour)}
}

// Case 7, with a relay that others wrote.
func TestClientsBehindAForeignRelay(t *testing.T) {
	for name, c := range map[string]struct {
		subnets []app.Subnet
		args    []string
	}{
		"relayed only":            {[]app.Subnet{farSubnet("full")}, nil},
		"beside a local subnet":   {[]app.Subnet{labSubnet("srv0", "full"), farSubnet("full")}, []string{"-a"}}, // option 82
		"beside one that is off":  {[]app.Subnet{labSubnet("srv0", "off"), farSubnet("full")}, []string{"-a"}},
		"several on a wire, full": {[]app.Subnet{labSubnet("srv0", "proxy"), farSubnet("full")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWire(t)
			far := w.relayed()
			s, e := w.serve(newMemStore(c.subnets...), &fakePort{})
			daemon(t, w.cli, "Sending on", "dhcrelay", append(append([]string{"-4", "-d", "--no-pid"}, c.args...), "-id", "far0", "-iu", "cli0", "10.77.0.1")...)
			out, err := udhcpc(t, far, "eth0")
			if err != nil || !strings.Contains(out, "ip=198.51.100.") || !strings.Contains(out, "serverid=10.77.0.1") || !strings.Contains(out, "router=198.51.100.1") {
				t.Fatalf("%v\n%s", err, out)
			}
			x := e.wait(t, "dhcp.ack", patience, kind("dhcp.ack"))
			mac := strings.Split(string(x.Data), `"`)[3]
			if a, ok := s.AddressFor(app.MAC(mac)); !ok || a.String() != "10.77.0.1" {
				t.Errorf("our address for %s is %v", mac, a)
			}
		})
	}
}

// An address that answers a ping behind the relay is not offered.
func TestAddressInUseBehindARelay(t *testing.T) {
	w := newWire(t)
	far := w.relayed()
	squatter := namespace(t, "q")
	run(t, "ip", "-n", far, "link", "add", "br0", "type", "bridge", "stp_state", "0", "forward_delay", "0")
	run(t, "ip", "-n", far, "link", "set", "br0", "up")
	run(t, "ip", "-n", far, "link", "set", "eth0", "master", "br0")
	run(t, "ip", "-n", far, "link", "add", "q0", "type", "veth", "peer", "name", "eth0", "netns", squatter)
	run(t, "ip", "-n", far, "link", "set", "q0", "master", "br0", "up")
	run(t, "ip", "-n", squatter, "addr", "add", "198.51.100.10/24", "dev", "eth0")
	run(t, "ip", "-n", squatter, "link", "set", "eth0", "up")
	run(t, "ip", "-n", squatter, "route", "add", "default", "via", "198.51.100.1")
	sub := farSubnet("full")
	sub.PoolEnd = sub.PoolStart.Next() // one address is taken, the other free
	_, e := w.serve(newMemStore(sub), &fakePort{})
	daemon(t, w.cli, "Sending on", "dhcrelay", "-4", "-d", "--no-pid", "-id", "far0", "-iu", "cli0", "10.77.0.1")
	out, err := udhcpc(t, far, "br0", "-r", "198.51.100.10")
	if err != nil || !strings.Contains(out, "ip=198.51.100.11") {
		t.Fatalf("%v\n%s", err, out)
	}
	e.wait(t, "dhcp.conflict", patience, kind("dhcp.conflict"))
}

func TestSeveralInterfacesAnswerForThemselves(t *testing.T) {
	need(t, "udhcpc")
	w := newWire(t)
	w.up()
	other := namespace(t, "o")
	run(t, "ip", "-n", w.srv, "link", "add", "srv1", "type", "veth", "peer", "name", "eth0", "netns", other)
	run(t, "ip", "-n", w.srv, "addr", "add", "203.0.113.1/24", "dev", "srv1")
	run(t, "ip", "-n", w.srv, "addr", "add", "203.0.113.2/24", "dev", "srv1")
	run(t, "ip", "-n", w.srv, "link", "set", "srv1", "up")
	run(t, "ip", "-n", other, "link", "set", "eth0", "up")
	second := farSubnet("full")
	a := netip.MustParseAddr
	second.ID, second.CIDR, second.Interface, second.Gateway = "net-2", netip.MustParsePrefix("203.0.113.0/24"), "srv1", netip.Addr{}
	second.PoolStart, second.PoolEnd = a("203.0.113.10"), a("203.0.113.20")
	_, e := w.serve(newMemStore(labSubnet("srv0", "full"), second), &fakePort{})
	e.waitFor(t, "of both interfaces", patience, 2, kind("netboot.interface"))
	for ns, want := range map[[2]string]string{{w.cli, "cli0"}: "serverid=10.77.0.1", {other, "eth0"}: "serverid=203.0.113.1"} {
		out, err := udhcpc(t, ns[0], ns[1])
		if err != nil || !strings.Contains(out, want) {
			t.Errorf("%v: %v\n%s", ns, err, out)
		}
	}
}

// Case 19, with a client that sends a DUID of its own.
func TestDhcpcdGetsAnAddress(t *testing.T) {
	need(t, "dhcpcd")
	w := newWire(t)
	w.up()
	sub := labSubnet("srv0", "full")
	reserved := netip.MustParseAddr("10.77.0.42") // outside the pool
	sub.Reservations = []app.Reservation{{MAC: cliMAC, Addr: reserved}}
	sub.Routes = []app.StaticRoute{{To: netip.MustParsePrefix("203.0.113.0/24"), Via: netip.MustParseAddr("10.77.0.9")}}
	store := newMemStore(sub)
	_, e := w.serve(store, &fakePort{})
	t.Cleanup(func() { _ = os.Remove("/var/lib/dhcpcd/cli0.lease") })
	out, err := w.client("dhcpcd", "-4", "-1", "-B", "-f", "/dev/null", "-c", "/bin/true", "-o", "classless_static_routes,routers", "-t", "60", "cli0")
	if err != nil || !strings.Contains(out, "leased 10.77.0.42") {
		t.Fatalf("%v\n%s", err, out)
	}
	e.wait(t, "dhcp.ack", patience, kind("dhcp.ack"))
	if l := store.leases[cliMAC]; l.Addr != reserved {
		t.Errorf("stored %+v", l)
	}
	routes := run(t, "ip", "-n", w.cli, "route", "show")
	if !strings.Contains(routes, "203.0.113.0/24 via 10.77.0.9") || !strings.Contains(routes, "default via 10.77.0.254") {
		t.Errorf("the client's routes are\n%s", routes)
	}
}
