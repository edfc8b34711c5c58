package netboot

import (
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

func linesFor(t *testing.T, server string) []string {
	t.Helper()
	for _, k := range keepYours(netip.MustParsePrefix("10.77.0.0/24"), netip.MustParseAddr("10.77.0.1"), "http://10.77.0.1:8080/ipxe/snponly.efi", "http://10.77.0.1:8080/boot/script?mac=${mac:hexhyp}") {
		if k.Server == server {
			return k.Lines
		}
	}
	t.Fatalf("nothing for %s", server)
	return nil
}

func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// Other servers take the lines that we tell their operators to add.
func TestOtherServersTakeTheLines(t *testing.T) {
	t.Run("dnsmasq", func(t *testing.T) {
		need(t, "dnsmasq")
		conf := write(t, "dnsmasq.conf", "dhcp-range=10.77.0.50,10.77.0.60,1h\n"+strings.Join(linesFor(t, "dnsmasq"), "\n")+"\n")
		if out, err := exec.Command("dnsmasq", "--test", "--conf-file="+conf).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("Kea", func(t *testing.T) {
		need(t, "kea-dhcp4")
		conf := write(t, "kea.json", `{"Dhcp4": {`+strings.Join(linesFor(t, "Kea"), "\n")+` "lease-database": {"type": "memfile", "persist": false}, "subnet4": [{"subnet": "10.77.0.0/24", "id": 1}]}}`)
		if out, err := exec.Command("kea-dhcp4", "-t", conf).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
	t.Run("ISC dhcpd", func(t *testing.T) {
		need(t, "dhcpd")
		conf := write(t, "dhcpd.conf", "subnet 10.77.0.0 netmask 255.255.255.0 {\n"+strings.Join(linesFor(t, "ISC dhcpd"), "\n")+"\n}\n")
		if out, err := exec.Command("dhcpd", "-t", "-cf", conf).CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
	})
}

// With the lines, another server sends each kind of firmware to what it can load, and iPXE to its script by itself, however
// that writes its user class.
func TestLinesSendEachFirmwareToItsFile(t *testing.T) {
	need(t, "udhcpc")
	for server, run := range map[string]func(t *testing.T, ns string, lines []string){
		"dnsmasq": func(t *testing.T, ns string, lines []string) {
			dnsmasq(t, ns, "--conf-file="+write(t, "dnsmasq.conf", strings.Join(lines, "\n")+"\n"))
		},
		"ISC dhcpd": dhcpdWith, "Kea": keaWith,
	} {
		t.Run(server, func(t *testing.T) {
			w := newWire(t)
			w.bridge()
			w.up()
			other := namespace(t, "d")
			w.plug(other, "d0", "10.77.0.2/24")
			run(t, other, linesFor(t, server))
			eachFirmware(t, w)
		})
	}
}

func eachFirmware(t *testing.T, w *wire) {
	t.Helper()
	script := []string{"boot_file=http://10.77.0.1:8080/boot/script?mac=${mac:hexhyp}"}
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"iPXE":              {[]string{"-V", "PXEClient:Arch:00007:UNDI:003010", "-x", "0x4d:69505845"}, script},
		"iPXE, as RFC 3004": {[]string{"-V", "PXEClient:Arch:00007:UNDI:003010", "-x", "0x4d:0469505845"}, script},
		"iPXE of a BIOS":    {[]string{"-V", "PXEClient:Arch:00000:UNDI:002001", "-x", "0x4d:0469505845"}, script},
		"iPXE with a NUL":   {[]string{"-V", "PXEClient:Arch:00007:UNDI:003010", "-x", "0x4d:6950584500"}, script},
		"another class":     {[]string{"-V", "PXEClient:Arch:00007:UNDI:003016", "-x", "0x4d:03666f6f"}, []string{"boot_file=snponly.efi"}},
		"BIOS":              {[]string{"-V", "PXEClient:Arch:00000:UNDI:002001"}, []string{"boot_file=undionly.kpxe", "siaddr=10.77.0.1"}},
		"UEFI":              {[]string{"-V", "PXEClient:Arch:00007:UNDI:003016"}, []string{"boot_file=snponly.efi", "siaddr=10.77.0.1"}},
		"HTTP Boot":         {[]string{"-V", "HTTPClient:Arch:00016:UNDI:003001"}, []string{"boot_file=http://10.77.0.1:8080/ipxe/snponly.efi"}},
	} {
		out, err := udhcpc(t, w.cli, "cli0", c.args...)
		for _, want := range c.want {
			if err != nil || !strings.Contains(out, want+"\n") {
				t.Errorf("%s: %v, no %q\n%s", name, err, want, out)
			}
		}
	}
}

// dhcpdWith runs ISC dhcpd with lines in its subnet.
func dhcpdWith(t *testing.T, ns string, lines []string) {
	t.Helper()
	need(t, "dhcpd")
	conf := write(t, "dhcpd.conf", "subnet 10.77.0.0 netmask 255.255.255.0 {\nrange 10.77.0.50 10.77.0.60;\n"+strings.Join(lines, "\n")+"\n}\n")
	leases := write(t, "leases", "")
	daemon(t, ns, "Server starting service", "dhcpd", "-4", "-f", "-d", "-cf", conf, "-lf", leases, "-pf", filepath.Join(t.TempDir(), "pid"), "eth0")
}

// keaWith runs Kea with lines in its configuration.
func keaWith(t *testing.T, ns string, lines []string) {
	t.Helper()
	need(t, "kea-dhcp4")
	t.Setenv("KEA_PIDFILE_DIR", t.TempDir())
	t.Setenv("KEA_LOCKFILE_DIR", "none")
	conf := write(t, "kea.json", `{"Dhcp4": {`+strings.Join(lines, "\n")+` "interfaces-config": {"interfaces": ["eth0"]},
		"lease-database": {"type": "memfile", "persist": false}, "loggers": [{"name": "kea-dhcp4", "severity": "INFO", "output_options": [{"output": "stderr"}]}],
		"subnet4": [{"subnet": "10.77.0.0/24", "id": 1, "pools": [{"pool": "10.77.0.50 - 10.77.0.60"}]}]}}`)
	daemon(t, ns, "DHCP4_STARTED", "kea-dhcp4", "-c", conf)
}

// Windows DHCP is not to be had here: its lines are read by eye, and this keeps them whole. Every class has its policy, every
// policy its boot file, and HTTP Boot the class that it wants back.
func TestLinesForWindows(t *testing.T) {
	all := strings.Join(linesFor(t, "Windows DHCP"), "\n") + "\n"
	for _, want := range []string{
		"-Name bcd-ipxe -Type User -Data iPXE\n", `-Name bcd-ipxe-list -Type User -Data "$([char]4)iPXE"`, `-Name bcd-http -Type Vendor -Data "HTTPClient"`,
		"-UserClass EQ,bcd-ipxe,bcd-ipxe-list -ProcessingOrder 1\n", "-VendorClass EQ,bcd-http* -ProcessingOrder 2\n", "-VendorClass EQ,bcd-bios* -ProcessingOrder 3\n",
		"-OptionId 60 -Type String\n", "-PolicyName bcd-http -OptionId 60 -Value HTTPClient\n", "-PolicyName bcd-http -OptionId 67 -Value 'http://10.77.0.1:8080/ipxe/snponly.efi'\n",
		"-PolicyName bcd-ipxe -OptionId 67 -Value 'http://10.77.0.1:8080/boot/script?mac=${mac:hexhyp}'\n", "-PolicyName bcd-bios -OptionId 67 -Value undionly.kpxe\n",
		"-ScopeId 10.77.0.0 -OptionId 66 -Value 10.77.0.1\n", "-ScopeId 10.77.0.0 -OptionId 67 -Value snponly.efi\n",
	} {
		if !strings.Contains(all, want) {
			t.Errorf("no %q in\n%s", want, all)
		}
	}
}

func TestNotes(t *testing.T) {
	s, err := New(Config{Port: &fakePort{}, Store: newMemStore(), Loaders: loaders, Log: discard(), Record: func(app.Event) {}})
	if err != nil {
		t.Fatal(err)
	}
	ours := []netip.Addr{netip.MustParseAddr("10.77.0.1")}
	for name, c := range map[string]struct {
		mode  string
		st    *Status
		rival bool
		want  string
	}{
		"full, all well":        {app.SubnetFull, &Status{Present: true, Carrier: true, Addrs: ours}, false, ""},
		"off":                   {app.SubnetOff, nil, false, ""},
		"not looked at":         {app.SubnetFull, nil, false, "not looked at"},
		"no such interface":     {app.SubnetFull, &Status{Error: `interface "srv0" is not there`}, false, "is not there"},
		"no address":            {app.SubnetFull, &Status{Present: true, Carrier: true}, false, "no address in 10.77.0.0/24"},
		"no link":               {app.SubnetFull, &Status{Present: true, Addrs: ours}, false, "no link"},
		"proxy beside a server": {app.SubnetProxy, &Status{Present: true, Carrier: true, Addrs: ours}, true, ""},
		"proxy beside nobody":   {app.SubnetProxy, &Status{Present: true, Carrier: true, Addrs: ours}, false, "No DHCP server was heard"},
	} {
		t.Run(name, func(t *testing.T) {
			s.status, s.rivals = map[string]Status{}, map[string][]app.Rival{}
			if c.st != nil {
				s.status["srv0"] = *c.st
			}
			if c.rival {
				s.rivals["srv0"] = []app.Rival{{Interface: "srv0", Server: netip.MustParseAddr("10.77.0.2"), Offered: netip.MustParseAddr("10.77.0.50")}}
			}
			got := strings.Join(s.Notes(labSubnet("srv0", c.mode)), " ")
			if (c.want == "") != (got == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}
