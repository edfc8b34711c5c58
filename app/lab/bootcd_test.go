package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/images/osimage"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
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
	if err := child.Start(cmd); err != nil {
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

// TestMainJobFromVirtualCD takes a machine through its life without a single answer of ours by DHCP or TFTP: the subnet is
// known and off, another's DHCP server gives addresses alone, and the ramdisk comes each time from a CD in the BMC's virtual
// drive, which is empty again when it has ended. The installed system is entered by kexec. Before that, its profile has
// the driver image-stream wipe the disk and put the image on it.
func TestMainJobFromVirtualCD(t *testing.T) {
	work, ramdisk := folders(t)
	const name = "cd-1"
	img, err := osimage.Build(t.Context(), osimage.Config{Cache: filepath.Join(work, "images")})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	rack, err := NewRack(RackConfig{Dir: filepath.Join(t.TempDir(), "machines"), Network: NetworkConfig{Name: "bcdt-media-lab"}, Log: log,
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
	_, err = d.ImportImage(t.Context(), img.Path)
	ok(err)
	m := rack.Machine(name)
	in := api.EnrollInput{Name: name, Drivers: map[string]app.Binding{"boot": {Driver: drivers.IDVirtualMediaBoot}}, BMC: &api.BMCInput{
		Driver: "redfish", Address: m.URL(), SPKI: m.SPKI(), Credentials: &api.Credentials{Username: BMCUser, Password: BMCPassword},
	}}
	ok(client.Call(t.Context(), http.MethodPost, "/api/v1/machines", in, nil))
	ok(d.commission(t.Context(), Plan{Machine: name}))
	given := d.bootedFromCD(t, name, 0)

	machine, err := d.machine(t.Context(), name)
	ok(err)
	if machine.Firmware != app.FirmwareUEFI || machine.Summary.Disks != 1 {
		t.Errorf("commissioned as %s with %+v", machine.Firmware, machine.Summary)
	}
	ok(client.Call(t.Context(), http.MethodPut, "/api/v1/profiles/streams", json.RawMessage(`{"drivers":{"deploy":"image-stream"},"steps":{"beforeWrite":[
		{"step":"deploy.tearDown","on":"ramdisk","with":{"wipe":"secure"}},
		{"step":"deploy.deploy","on":"ramdisk","with":{"image":"`+ImageName+`","disk":{"serial":"LABDISK0001"}}}]}}`), nil))
	ok(client.Call(t.Context(), http.MethodPatch, "/api/v1/machines/"+name, json.RawMessage(`{"hardwareProfile":"streams"}`), nil))
	w, err := d.Verb(t.Context(), name, api.Deploy, app.DeploySpec{Image: ImageName, Boot: app.BootKexec})
	ok(err)
	streamed(t, w, img)
	ok(d.heartbeat(t.Context(), Plan{Machine: name}))
	given = d.bootedFromCD(t, name, given)
	ok(d.Release(t.Context(), name))
	d.bootedFromCD(t, name, given)

	story := d.timeline(t, name)
	if m := regexp.MustCompile(`/boot/([A-Za-z0-9_-]+)/boot\.iso`).FindStringSubmatch(story); m != nil && m[1] != "KEY" {
		t.Errorf("the timeline has a boot's key: %s", m[0])
	}
	for _, never := range []string{"dhcp.ack", "http.script", "tftp.get", "/boot/KEY/boot.efi"} {
		if strings.Contains(story, never) {
			t.Errorf("the timeline has %q: %s", never, story)
		}
	}
}

// bootedFromCD checks that a machine was given a boot CD since its timeline told of it so many times, and holds none now. It
// gives how many times that is told by now.
func (d *Driver) bootedFromCD(t *testing.T, machine string, before int) int {
	t.Helper()
	story := d.timeline(t, machine)
	in, out := strings.Count(story, "insert the boot CD"), strings.Count(story, "eject the boot CD")
	if in <= before || in != out {
		t.Errorf("the timeline tells %d times of a CD put in, before it was %d, and %d times of one taken out: %s", in, before, out, story)
	}
	if !strings.Contains(story, "/boot/KEY/boot.iso") {
		t.Errorf("the timeline has no CD: %s", story)
	}
	if image := d.Rack.Machine(machine).Medium("CD"); image != "" {
		t.Errorf("the drive still holds %s", image)
	}
	return in
}

// streamed checks that the steps of the profile put the image on the disk by the driver image-stream, in the ramdisk.
func streamed(t *testing.T, w *workflow.Workflow, img *osimage.Image) {
	t.Helper()
	at := slices.IndexFunc(w.Steps, func(s workflow.Step) bool { return s.ID == "before-1" })
	if at < 0 {
		t.Fatalf("the workflow has no second step of the profile: %+v", w.Steps)
	}
	var out agentv1.DriverInvokeResult
	var written driver.DeployResult
	s := w.Steps[at]
	if err := errors.Join(json.Unmarshal(s.Result, &out), json.Unmarshal(out.Result, &written)); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %+v", s.Title, written)
	if s.On != workflow.OnAgent || written.Bytes < img.Used/2 || written.Bytes > img.RawBytes {
		t.Errorf("the step %+v wrote %+v of an image that uses %d bytes", s, written, img.Used)
	}
}
