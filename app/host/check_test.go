package host

import (
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const udpTable = `   sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode ref pointer drops
  12: 00000000:0043 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4711 2 0000000000000000 0
  13: 0100007F:0035 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 4712 2 0000000000000000 0
 garbage
  14: zz:0043 00000000:0000 07 00000000:00000000 00:00000000 00000000     0        0 1 2 0 0
`

func tree(t *testing.T) string {
	t.Helper()
	root := t.TempDir()
	for name, body := range map[string]string{"net/udp": udpTable, "net/tcp": "x\n", "77/comm": "dnsmasq\n"} {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(body), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.MkdirAll(filepath.Join(root, "77/fd"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("socket:[4711]", filepath.Join(root, "77/fd/3")); err != nil {
		t.Fatal(err)
	}
	return root
}

func TestCheckNamesTheProcessThatHoldsAPort(t *testing.T) {
	socks, err := Sockets(tree(t))
	if err != nil {
		t.Fatal(err)
	}
	if len(socks) != 2 || socks[0].Port != 67 || socks[0].Process != "dnsmasq" || socks[1].Addr != netip.MustParseAddr("127.0.0.1") {
		t.Fatalf("sockets: %+v", socks)
	}
	got := Check(Facts{Sockets: socks, Self: 1, Root: true, ClockOK: true, FreeBytes: 1 << 40,
		Interfaces: []Interface{{Name: "eth1", Up: true, Addrs: []string{"192.0.2.1/24"}}}}, []Need{{"udp", 67, "DHCP"}, {"udp", 69, "TFTP"}})
	var all []string
	for _, f := range got {
		all = append(all, f.Level+" "+f.Code+" "+f.Message)
		if f.Level != "ok" && f.WayOut == "" {
			t.Errorf("%s has no way out", f.Code)
		}
	}
	text := strings.Join(all, "\n")
	for _, want := range []string{"fail port-taken udp port 67, for DHCP, is held by dnsmasq (pid 77)", "ok port-free udp port 69", "warn rival-service a DNS server"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}

// Each process that holds a port is named, and two checks of one host read the same.
func TestCheckNamesEveryHolder(t *testing.T) {
	any, one := netip.IPv4Unspecified(), netip.MustParseAddr("192.0.2.1")
	f := Facts{Self: 1, Sockets: []Socket{
		{"udp", any, 53, 0, 7, "named"}, {"udp", one, 53, 0, 8, "unbound"}, {"udp", any, 4011, 0, 9, "dnsmasq"}, {"udp", any, 69, 0, 9, "dnsmasq"},
		{"udp", any, 67, 0, 5, "bcd"}, {"udp", one, 67, 0, 5, "bcd"}, {"udp", one, 67, 0, 9, "dnsmasq"},
	}}
	var got []string
	for _, f := range Check(f, []Need{{"udp", 67, "DHCP"}}) {
		if f.Code != "disk-low" {
			got = append(got, f.Code+" "+f.Message)
		}
	}
	for i, want := range []string{
		"port-ours udp port 67, for DHCP, is held by bcd (pid 5)", "port-taken udp port 67, for DHCP, is held by dnsmasq (pid 9)",
		"rival-service a proxyDHCP server (dnsmasq (pid 9))", "rival-service a TFTP server (dnsmasq (pid 9))",
		"rival-service a DNS server (named (pid 7))", "rival-service a DNS server (unbound (pid 8))", "no-interface", "clock-unsynchronised",
		"no-ipmitool", "capability-missing CAP_NET_BIND_SERVICE", "capability-missing CAP_NET_RAW",
	} {
		if i >= len(got) || !strings.HasPrefix(got[i], want) {
			t.Fatalf("line %d is not %q:\n%s", i+1, want, strings.Join(got, "\n"))
		}
	}
}

func TestCheckRefusesWithoutCapabilities(t *testing.T) {
	var codes []string
	for _, f := range Check(Facts{}, nil) {
		codes = append(codes, f.Code)
	}
	got := strings.Join(codes, " ")
	for _, want := range []string{"capability-missing", "no-interface", "disk-low", "clock-unsynchronised"} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in %s", want, got)
		}
	}
}

func TestLookSeesThisHost(t *testing.T) {
	f, err := Look("/proc", filepath.Join(t.TempDir(), "not", "yet"))
	if err != nil {
		t.Fatal(err)
	}
	if f.FreeBytes <= 0 {
		t.Errorf("free bytes %d", f.FreeBytes)
	}
}

// Once installed, the check is run beside the appliance: its own ports are no fault.
func TestAnApplianceThatRunsIsNoFault(t *testing.T) {
	for _, n := range []Need{{"tcp", 8443, "the console"}, {"udp", 4011, "proxy DHCP"}} {
		ours := Socket{Proto: n.Proto, Port: n.Port, PID: 5, Process: program}
		for want, socks := range map[string][]Socket{"port-ours": {ours}, "port-free": nil} {
			var codes []string
			for _, f := range Check(Facts{Sockets: socks, Self: 1, FreeBytes: 1 << 40}, []Need{n}) {
				if strings.HasPrefix(f.Code, "port-") || f.Code == "rival-service" {
					codes = append(codes, f.Level+" "+f.Code)
				}
			}
			if len(codes) != 1 || codes[0] != "ok "+want {
				t.Errorf("%s port %d is %q, want %s", n.Proto, n.Port, codes, want)
			}
		}
	}
}
