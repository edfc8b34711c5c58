package lab

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/web/api"
)

// plainDHCP runs another's DHCP server on the network, which hands out addresses and nothing to boot. It lives in a namespace
// of its own, as on a machine of its own.
func plainDHCP(t *testing.T, n *Network, ns string) {
	t.Helper()
	dnsmasq, err := exec.LookPath("dnsmasq")
	if err != nil {
		t.Skipf("left out: %v (install dnsmasq)", err)
	}
	ip := func(args ...string) { t.Helper(); run(t, "", "ip", args...) }
	_ = exec.Command("ip", "netns", "delete", ns).Run() // of a killed test
	ip("netns", "add", ns)
	t.Cleanup(func() { _ = exec.Command("ip", "netns", "delete", ns).Run() })
	ip("-n", n.Name(), "link", "add", "foreign0", "type", "veth", "peer", "name", "eth0", "netns", ns)
	ip("-n", n.Name(), "link", "set", "foreign0", "master", Bridge, "up")
	ip("-n", ns, "address", "add", "10.77.0.2/24", "dev", "eth0")
	ip("-n", ns, "link", "set", "lo", "up")
	ip("-n", ns, "link", "set", "eth0", "up")
	cmd := exec.Command("ip", "netns", "exec", ns, dnsmasq, "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--user=root", "--pid-file=",
		"--dhcp-leasefile="+filepath.Join(t.TempDir(), "leases"), "--interface=eth0", "--bind-interfaces", "--dhcp-range=10.77.0.50,10.77.0.90,1h", "--log-facility=-")
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("dnsmasq: %s", said.String())
		}
	})
}

// TestCommissionFromVirtualCD takes a machine through commissioning without a single answer of ours by DHCP or TFTP: the
// subnet is known and off, another's DHCP server gives addresses alone, and the ramdisk comes from a CD in the BMC's virtual
// drive. The CD is out again when it has ended.
func TestCommissionFromVirtualCD(t *testing.T) {
	_, ramdisk := folders(t)
	const name = "cd-1"
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	rack, err := NewRack(RackConfig{Dir: filepath.Join(dir, "machines"), Network: NetworkConfig{Name: "bcdt-media-lab"}, Log: log,
		Machines: []MachineSpec{{Name: name, Firmware: app.FirmwareUEFI}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rack.Close() })
	plainDHCP(t, rack.Network, "bcdt-media-dhcp")
	d, client, _ := start(t, rack, Program{Ramdisk: ramdisk, Output: io.Discard}, log)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(d.explain(name, err))
		}
	}
	ok(client.Call(t.Context(), http.MethodPost, "/api/v1/subnets", api.SubnetInput{CIDR: netip.MustParsePrefix("10.77.0.0/24"), Interface: Bridge}, nil))
	m := rack.Machine(name)
	in := api.EnrollInput{Name: name, Drivers: map[string]app.Binding{"boot": {Driver: drivers.IDVirtualMediaBoot}}, BMC: &api.BMCInput{
		Driver: "redfish", Address: m.URL(), SPKI: m.SPKI(), Credentials: &api.Credentials{Username: BMCUser, Password: BMCPassword},
	}}
	ok(client.Call(t.Context(), http.MethodPost, "/api/v1/machines", in, nil))
	ok(d.commission(t.Context(), Plan{Machine: name}))

	machine, err := d.machine(t.Context(), name)
	ok(err)
	if machine.Firmware != app.FirmwareUEFI || machine.Summary.Disks != 1 {
		t.Errorf("commissioned as %s with %+v", machine.Firmware, machine.Summary)
	}
	var told json.RawMessage
	ok(client.Call(t.Context(), http.MethodGet, "/api/v1/machines/"+name+"/timeline?limit=500", nil, &told))
	for _, want := range []string{"insert the boot CD", "eject the boot CD", "/boot/KEY/boot.iso"} {
		if !strings.Contains(string(told), want) {
			t.Errorf("the timeline has no %q: %s", want, told)
		}
	}
	if m := regexp.MustCompile(`/boot/([A-Za-z0-9_-]+)/boot\.iso`).FindSubmatch(told); m != nil && string(m[1]) != "KEY" {
		t.Errorf("the timeline has a boot's key: %s", m[0])
	}
	if image := m.Medium("CD"); image != "" {
		t.Errorf("the drive still holds %s", image)
	}
}
