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

// With the lines, another server sends iPXE to its script by itself.
func TestLinesSendIPXEToItsScript(t *testing.T) {
	need(t, "udhcpc")
	w := newWire(t)
	w.bridge()
	w.up()
	other := namespace(t, "d")
	w.plug(other, "d0", "10.77.0.2/24")
	conf := write(t, "dnsmasq.conf", strings.Join(linesFor(t, "dnsmasq"), "\n")+"\n")
	dnsmasq(t, other, "--conf-file="+conf)
	for name, c := range map[string]struct {
		args []string
		want []string
	}{
		"iPXE":      {[]string{"-V", "PXEClient:Arch:00007:UNDI:003010", "-x", "0x4d:69505845"}, []string{"boot_file=http://10.77.0.1:8080/boot/script?mac=${mac:hexhyp}"}},
		"BIOS":      {[]string{"-V", "PXEClient:Arch:00000:UNDI:002001"}, []string{"boot_file=undionly.kpxe", "siaddr=10.77.0.1"}},
		"UEFI":      {[]string{"-V", "PXEClient:Arch:00007:UNDI:003016"}, []string{"boot_file=snponly.efi", "siaddr=10.77.0.1"}},
		"HTTP Boot": {[]string{"-V", "HTTPClient:Arch:00016:UNDI:003001"}, []string{"boot_file=http://10.77.0.1:8080/ipxe/snponly.efi"}},
	} {
		out, err := udhcpc(t, w.cli, "cli0", c.args...)
		for _, want := range c.want {
			if err != nil || !strings.Contains(out, want+"\n") {
				t.Errorf("%s: %v, no %q", name, err, want)
			}
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
