package netboot

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
)

// wire is two network namespaces joined by a veth pair: the server's with 10.77.0.1 on "srv0", the client's "cli0".
type wire struct {
	t        *testing.T
	srv, cli string
}

const cliMAC = app.MAC("00:00:5e:00:53:77")

func newWire(t *testing.T) *wire {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("left out: network namespaces need root")
	}
	w := &wire{t: t, srv: fmt.Sprintf("bcdt-netboot-s%d", os.Getpid()), cli: fmt.Sprintf("bcdt-netboot-c%d", os.Getpid())}
	for _, ns := range []string{w.srv, w.cli} {
		run(t, "ip", "netns", "add", ns)
		t.Cleanup(func() { run(t, "ip", "netns", "del", ns) })
		run(t, "ip", "-n", ns, "link", "set", "lo", "up")
	}
	run(t, "ip", "-n", w.srv, "link", "add", "srv0", "type", "veth", "peer", "name", "cli0", "netns", w.cli)
	run(t, "ip", "-n", w.srv, "addr", "add", "10.77.0.1/24", "dev", "srv0")
	run(t, "ip", "-n", w.srv, "link", "set", "srv0", "up")
	run(t, "ip", "-n", w.cli, "link", "set", "cli0", "address", string(cliMAC))
	return w
}

// up raises the client's link.
func (w *wire) up() { run(w.t, "ip", "-n", w.cli, "link", "set", "cli0", "up") }

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// client runs a program in the client's namespace.
func (w *wire) client(name string, args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(w.t.Context(), 2*patience)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", w.cli, name}, args...)...).CombinedOutput()
	return string(out), err
}

// within runs f on a thread of the namespace, which ends with it.
func within(ns string, f func() error) error {
	done := make(chan error, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread dies with this goroutine
		h, err := os.Open(filepath.Join("/run/netns", ns))
		if err == nil {
			err = unix.Setns(int(h.Fd()), unix.CLONE_NEWNET)
			_ = h.Close()
		}
		if err == nil {
			err = f()
		}
		done <- err
	}()
	return <-done
}

// serve runs a Server in the server's namespace until the test ends.
func (w *wire) serve(store *memStore, port *fakePort, change ...func(*Config)) (*Server, *events) {
	w.t.Helper()
	e := newEvents()
	cfg := Config{
		Port: port, Store: store, Loaders: loaders, Log: discard(), Record: e.record,
		Sockets: func(open func() error) error { return within(w.srv, open) },
		Handlers: []Handler{{Prefix: "/phone-home/", Handler: http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
			_, _ = io.WriteString(rw, r.URL.Path)
		})}},
	}
	for _, c := range change {
		c(&cfg)
	}
	s, err := New(cfg)
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	w.t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			w.t.Error(err)
		}
	})
	e.wait(w.t, "netboot.interface", patience, kind("netboot.interface"))
	return s, e
}

func need(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("left out: %s is not installed", program)
	}
}

func TestUdhcpcGetsAnAddress(t *testing.T) {
	need(t, "udhcpc")
	w := newWire(t)
	w.up()
	_, e := w.serve(newMemStore(labSubnet("srv0", "full")), &fakePort{})
	script := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nenv\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, flags := range [][]string{nil, {"-B"}} {
		out, err := w.client("udhcpc", append([]string{"-i", "cli0", "-n", "-q", "-f", "-s", script, "-t", "30", "-T", "1"}, flags...)...)
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, want := range []string{"ip=10.77.0.1", "router=10.77.0.254", "dns=10.77.0.53", "ntpsrv=10.77.0.1", "domain=lab.example", "lease=600", "serverid=10.77.0.1", "mask=24"} {
			if !strings.Contains(out, want) {
				t.Errorf("%v: no %q in\n%s", flags, want, out)
			}
		}
	}
	e.wait(t, "dhcp.ack", patience, kind("dhcp.ack"))
}

// A pool of two addresses and three clients: the third gets none, its own record says why, and it gets the first address
// that comes free. Two clients with one MAC address are one client: they never use up a pool.
func TestUdhcpcFindsThePoolExhausted(t *testing.T) {
	need(t, "udhcpc")
	w := newWire(t)
	w.up()
	two := labSubnet("srv0", "full")
	two.PoolStart, two.PoolEnd = netip.MustParseAddr("10.77.0.100"), netip.MustParseAddr("10.77.0.101")
	s, e := w.serve(newMemStore(two), &fakePort{})
	script := filepath.Join(t.TempDir(), "s")
	if err := os.WriteFile(script, []byte("#!/bin/sh\nenv\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	address := regexp.MustCompile(`(?m)^ip=(\S+)$`)
	ask := func(mac app.MAC, tries string) string {
		t.Helper()
		run(t, "ip", "-n", w.cli, "link", "set", "cli0", "address", string(mac))
		out, err := w.client("udhcpc", "-i", "cli0", "-n", "-q", "-f", "-s", script, "-t", tries, "-T", "1")
		m := address.FindStringSubmatch(out)
		if err != nil || m == nil {
			return ""
		}
		return m[1]
	}
	macs := []app.MAC{"00:00:5e:00:53:a1", "00:00:5e:00:53:a2", "00:00:5e:00:53:a3"}
	first, twin, second := ask(macs[0], "30"), ask(macs[0], "30"), ask(macs[1], "30")
	if first == "" || twin != first || second == "" || second == first {
		t.Fatalf("addresses %q, its twin %q, then %q", first, twin, second)
	}
	if got := ask(macs[2], "2"); got != "" {
		t.Fatalf("a third client got %s", got)
	}
	x := e.wait(t, "dhcp.exhausted", patience, kind("dhcp.exhausted"))
	if x.Level != "error" || !strings.Contains(string(x.Data), string(macs[2])) || !strings.Contains(x.Message, "widen the pool") {
		t.Errorf("told %+v %s", x, x.Data)
	}
	s.Free(macs[0], netip.MustParseAddr(first))
	if got := ask(macs[2], "30"); got != first {
		t.Errorf("once %s is free the third gets %q", first, got)
	}
}

func TestDhclientGetsAndReleasesAnAddress(t *testing.T) {
	need(t, "dhclient")
	w := newWire(t)
	w.up()
	_, e := w.serve(newMemStore(labSubnet("srv0", "full")), &fakePort{})
	dir := t.TempDir()
	script := filepath.Join(dir, "s")
	if err := os.WriteFile(script, []byte("#!/bin/sh\necho $reason $new_ip_address $new_routers\nexit 0\n"), 0o700); err != nil {
		t.Fatal(err)
	}
	args := []string{"-v", "-1", "-4", "-sf", script, "-lf", filepath.Join(dir, "leases"), "-pf", filepath.Join(dir, "pid"), "cli0"}
	out, err := w.client("dhclient", args...)
	if err != nil || !strings.Contains(out, "BOUND 10.77.0.1") || !strings.Contains(out, "10.77.0.254") {
		t.Fatalf("%v\n%s", err, out)
	}
	// The script set no address, so the release cannot be sent from one: give it what it was given.
	_, rest, _ := strings.Cut(out, "BOUND ")
	run(t, "ip", "-n", w.cli, "addr", "add", strings.Fields(rest)[0]+"/24", "dev", "cli0")
	if out, err := w.client("dhclient", append([]string{"-r"}, args...)...); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	e.wait(t, "dhcp.release", patience, kind("dhcp.release"))
}

func TestListenModeAnswersNothing(t *testing.T) {
	need(t, "udhcpc")
	w := newWire(t)
	w.up()
	store := newMemStore(labSubnet("srv0", "off"))
	s, e := w.serve(store, &fakePort{})
	if out, err := w.client("udhcpc", "-i", "cli0", "-n", "-q", "-f", "-s", "/bin/true", "-t", "2", "-T", "1"); err == nil {
		t.Fatalf("an address was given in listen mode:\n%s", out)
	}
	sub := labSubnet("srv0", "full")
	_ = store.PutSubnet(t.Context(), &sub)
	s.SubnetsChanged()
	e.wait(t, "of full service", patience, func(x app.Event) bool {
		return x.Kind == "netboot.interface" && strings.Contains(x.Message, "are answered")
	})
	if out, err := w.client("udhcpc", "-i", "cli0", "-n", "-q", "-f", "-s", "/bin/true", "-t", "30", "-T", "1"); err != nil {
		t.Fatalf("no address after the subnet was turned on: %v\n%s", err, out)
	}
}

func TestForeignFileClients(t *testing.T) {
	for _, p := range []string{"atftp", "tftp", "curl"} {
		need(t, p)
	}
	w := newWire(t)
	w.up()
	run(t, "ip", "-n", w.cli, "addr", "add", "10.77.0.7/24", "dev", "cli0")
	big := filepath.Join(t.TempDir(), "kernel")
	body := bytes.Repeat([]byte("kernel!!"), 1<<18)
	if err := os.WriteFile(big, body, 0o600); err != nil {
		t.Fatal(err)
	}
	_, e := w.serve(newMemStore(labSubnet("srv0", "full")), &fakePort{}, func(c *Config) {
		c.Loaders = os.DirFS(filepath.Dir(big))
		c.Mounts = []Mount{{Prefix: "/boot/kernel", Open: func(context.Context, string) (*os.File, error) { return os.Open(big) }}}
	})
	out := filepath.Join(t.TempDir(), "out")
	check := func(what, log string, err error) {
		t.Helper()
		got, _ := os.ReadFile(out)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %v, %d of %d bytes\n%s", what, err, len(got), len(body), log)
		}
		_ = os.Remove(out)
	}
	log, err := w.client("atftp", "--option", "blksize 1428", "--option", "tsize 0", "-g", "-r", "kernel", "-l", out, "10.77.0.1")
	check("atftp", log, err)
	log, err = w.client("atftp", "-g", "-r", `\kernel`, "-l", out, "10.77.0.1")
	check("atftp with a backslash", log, err)
	log, err = w.client("tftp", "-m", "binary", "10.77.0.1", "-c", "get", "kernel", out)
	check("tftp-hpa", log, err)
	log, err = w.client("curl", "-sS", "--max-redirs", "0", "-f", "-o", out, "http://10.77.0.1:8080/boot/kernel")
	check("curl", log, err)
	e.wait(t, "http.get", patience, kind("http.get"))
	if log, err = w.client("curl", "-sS", "http://10.77.0.1:8080/phone-home/s3cret"); log != "/phone-home/s3cret" {
		t.Errorf("handler: %v %q", err, log)
	}
}

// The same from port 69 alone, as a firewall between them would want it.
func TestForeignTFTPClientsOfOnePort(t *testing.T) {
	for _, p := range []string{"atftp", "tftp", "curl", "tcpdump"} {
		need(t, p)
	}
	w := newWire(t)
	w.up()
	run(t, "ip", "-n", w.cli, "addr", "add", "10.77.0.7/24", "dev", "cli0")
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	body := bytes.Repeat([]byte("loader!!"), 1<<15)
	if err := os.WriteFile(filepath.Join(dir, "loader"), body, 0o600); err != nil {
		t.Fatal(err)
	}
	sub := labSubnet("srv0", "full")
	sub.TFTPSinglePort = true
	w.serve(newMemStore(sub), &fakePort{}, func(c *Config) { c.Loaders = os.DirFS(dir) })
	daemon(t, w.cli, "listening on", "tcpdump", "-lnni", "cli0", "-w", filepath.Join(dir, "pcap"), "-U", "udp", "and", "src", "host", "10.77.0.1", "and", "not", "src", "port", "69", "and", "not", "port", "67")
	for name, args := range map[string][]string{
		"atftp": {"--option", "blksize 1428", "--option", "tsize 0", "-g", "-r", "loader", "-l", out, "10.77.0.1"},
		"tftp":  {"-m", "binary", "10.77.0.1", "-c", "get", "loader", out},
		"curl":  {"-sS", "--tftp-blksize", "1468", "-o", out, "tftp://10.77.0.1/loader"},
	} {
		log, err := w.client(name, args...)
		if got, _ := os.ReadFile(out); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %v, %d of %d bytes\n%s", name, err, len(got), len(body), log)
		}
		_ = os.Remove(out)
	}
	if info, err := os.Stat(filepath.Join(dir, "pcap")); err != nil || info.Size() > 24 { // the file's own header
		t.Errorf("packets came from other ports: %v, %v", info, err)
	}
}

// Foreign clients take the smaller blocks of a subnet whose path drops large packets.
func TestBlockSizeOfASubnet(t *testing.T) {
	for _, tool := range []string{"atftp", "curl"} {
		need(t, tool)
	}
	w := newWire(t)
	w.up()
	run(t, "ip", "-n", w.cli, "addr", "add", "10.77.0.7/24", "dev", "cli0")
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "out")
	body := bytes.Repeat([]byte("loader!!"), 1<<12)
	if err := os.WriteFile(filepath.Join(dir, "loader"), body, 0o600); err != nil {
		t.Fatal(err)
	}
	sub := labSubnet("srv0", "full")
	sub.TFTPBlockSize = 512
	_, e := w.serve(newMemStore(sub), &fakePort{}, func(c *Config) { c.Loaders = os.DirFS(dir) })
	n := 0
	for name, args := range map[string][]string{
		"atftp": {"--option", "blksize 1428", "-g", "-r", "loader", "-l", out, "10.77.0.1"},
		"curl":  {"-sS", "--tftp-blksize", "1468", "-o", out, "tftp://10.77.0.1/loader"},
	} {
		log, err := w.client(name, args...)
		if got, _ := os.ReadFile(out); err != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %v, %d of %d bytes\n%s", name, err, len(got), len(body), log)
		}
		_ = os.Remove(out)
		n++
		e.waitFor(t, "of transfers in small blocks", patience, n, func(x app.Event) bool {
			return x.Kind == "tftp.get" && strings.Contains(string(x.Data), `"blockSize":512`)
		})
	}
}

func TestInterfaceThatAppearsLaterIsTakenUp(t *testing.T) {
	need(t, "udhcpc")
	w := newWire(t)
	run(t, "ip", "-n", w.srv, "link", "set", "srv0", "name", "other0")
	s, e := w.serve(newMemStore(labSubnet("srv0", "full")), &fakePort{})
	if st := s.Status(); len(st) != 1 || st[0].Present || st[0].Error == "" {
		t.Errorf("status without the interface: %+v", st)
	}
	run(t, "ip", "-n", w.srv, "link", "set", "other0", "down")
	run(t, "ip", "-n", w.srv, "link", "set", "other0", "name", "srv0")
	run(t, "ip", "-n", w.srv, "link", "set", "srv0", "up") // no carrier: the other end is down
	e.wait(t, "of full service", patience, func(x app.Event) bool {
		return x.Kind == "netboot.interface" && strings.Contains(x.Message, "are answered")
	})
	if st := s.Status(); !st[0].Present || st[0].Carrier {
		t.Errorf("status without carrier: %+v", st)
	}
	w.up()
	if out, err := w.client("udhcpc", "-i", "cli0", "-n", "-q", "-f", "-s", "/bin/true", "-t", "30", "-T", "1"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

func TestRouterAdvertisementGivesLinuxNothing(t *testing.T) {
	w := newWire(t)
	port := &fakePort{targets: map[app.MAC]Target{cliMAC: {MachineID: "m-1", Name: "node1", Kind: KindRamdisk}}}
	_, e := w.serve(newMemStore(labSubnet("srv0", "full")), port)
	run(t, "ip", "netns", "exec", w.cli, "sysctl", "-qw", "net.ipv6.conf.cli0.accept_ra=2")
	w.up() // the kernel solicits routers once its link-local address is ready
	e.wait(t, "ra.sent", patience, kind("ra.sent"))
	heard := func() bool {
		return !strings.Contains(run(t, "ip", "netns", "exec", w.cli, "sh", "-c", "grep '^Icmp6InRouterAdvertisements' /proc/net/snmp6"), "\t0\n")
	}
	for deadline := time.Now().Add(patience); !heard(); {
		if time.Now().After(deadline) {
			t.Fatal("the kernel counted no router advertisement")
		}
	}
	if out := run(t, "ip", "-n", w.cli, "-6", "-o", "addr", "show", "dev", "cli0", "scope", "global"); out != "" {
		t.Errorf("the client gained an address: %s", out)
	}
	if out := run(t, "ip", "-n", w.cli, "-6", "route", "show", "default"); out != "" {
		t.Errorf("the client gained a route: %s", out)
	}
}

func TestNoRouterAdvertisementForOthers(t *testing.T) {
	w := newWire(t)
	_, _ = w.serve(newMemStore(labSubnet("srv0", "full")), &fakePort{})
	before := time.Now()
	w.up()
	sent := func(what string) bool {
		out := run(t, "ip", "netns", "exec", w.cli, "cat", "/proc/net/snmp6")
		for _, line := range strings.Split(out, "\n") {
			if f := strings.Fields(line); len(f) == 2 && f[0] == what {
				return f[1] != "0"
			}
		}
		return false
	}
	for !sent("Icmp6OutRouterSolicits") {
		if time.Since(before) > patience {
			t.Fatal("the kernel sent no solicitation")
		}
	}
	// An answer would be here before another exchange over the same wire is done.
	run(t, "ip", "-n", w.cli, "addr", "add", "10.77.0.7/24", "dev", "cli0")
	if out, err := w.client("curl", "-sS", "http://10.77.0.1:8080/phone-home/x"); err != nil {
		t.Fatalf("%v %s", err, out)
	}
	if sent("Icmp6InRouterAdvertisements") {
		t.Error("a machine that does not netboot got a router advertisement")
	}
}
