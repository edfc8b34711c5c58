package lab

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/osimage"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/web/api"
)

// ipmiCommand makes this test binary the plugin bcx-ipmi.
const ipmiCommand = "__bcx-ipmi"

// behindIPMI is a virtual machine as OpenIPMI's simulator drives it. The simulator knows neither how long a boot device
// holds nor the firmware mode: it holds once, in the machine's own mode.
type behindIPMI struct {
	*virtual.Machine
	mode virtual.Mode
}

func (m behindIPMI) On() bool        { return m.PowerState() == "On" || m.PowerState() == "PoweringOff" }
func (m behindIPMI) Reset() error    { return m.Machine.Reset("ForceRestart") }
func (m behindIPMI) Shutdown() error { return m.Machine.Reset("GracefulShutdown") }

func (m behindIPMI) SetPower(on bool) error {
	if on {
		return m.Machine.Reset("On")
	}
	return m.Machine.Reset("ForceOff")
}

func (m behindIPMI) BootDevice() string {
	switch m.Override().Target {
	case virtual.Pxe:
		return "pxe"
	case virtual.Hdd:
		return "default"
	}
	return "none"
}

func (m behindIPMI) SetBootDevice(device string) error {
	o := virtual.Override{Target: virtual.NoTarget, Enabled: virtual.Disabled, Mode: m.mode}
	switch device {
	case "pxe":
		o.Target, o.Enabled = virtual.Pxe, virtual.Once
	case "default":
		o.Target, o.Enabled = virtual.Hdd, virtual.Once
	}
	return m.SetOverride(o)
}

// serve ties the simulator's serial line to the machine's console.
func (m behindIPMI) serve(l net.Listener) {
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		line, err := net.Dial("unix", m.Console().SocketPath())
		if err != nil {
			_ = c.Close()
			continue
		}
		go func() { _, _ = io.Copy(line, c); _ = line.Close() }()
		go func() { _, _ = io.Copy(c, line); _ = c.Close() }()
	}
}

func TestBehindIPMI(t *testing.T) {
	m, err := virtual.New(virtual.Config{Name: "ipmi-1", UUID: "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5", Password: BMCPassword, Hypervisor: &virtual.Fake{}})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	b := behindIPMI{m, virtual.Legacy}
	for device, want := range map[string]string{"pxe": "pxe", "default": "default", "none": "none", "cdrom": "none"} {
		if err := b.SetBootDevice(device); err != nil || b.BootDevice() != want {
			t.Errorf("%s: %v, and the boot device is %s", device, err, b.BootDevice())
		}
	}
	if b.On() {
		t.Error("it is on")
	}
}

// TestMainJobOverIPMI takes one machine through its life by IPMI alone: the appliance hosts the driver as a confined plugin,
// ipmitool speaks to OpenIPMI's simulator, and the simulator's machine is a virtual one. Its BMC tells the product UUID in
// another byte order than the firmware, and no MAC: the port it netboots from is proposed, and confirmed. Its image is a
// qcow2 of 10 GiB, ten times its memory.
func TestMainJobOverIPMI(t *testing.T) {
	work, ramdisk := folders(t)
	if err := ipmi.New(ipmi.Config{}).Health(t.Context()); err != nil {
		t.Skipf("left out: %v", err)
	}
	for _, tool := range []string{"qemu-img", "sgdisk"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("left out: %v", err)
		}
	}
	const name, uuid = "ipmi-1", app.UUID("4c4c4544-0042-3010-8031-c7c04f313233")
	img, err := osimage.Build(t.Context(), osimage.Config{Cache: filepath.Join(work, "images")})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	rack, err := NewRack(RackConfig{Dir: filepath.Join(dir, "machines"), Network: NetworkConfig{Name: "bcdt-ipmi-lab"}, Log: log,
		Machines: []MachineSpec{{Name: name, Firmware: app.FirmwareUEFI, UUID: uuid, MemoryMiB: 1024, DiskBytes: 11 << 30}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rack.Close() })
	machine := behindIPMI{rack.Machine(name), virtual.UEFI}
	sim := simulate(t, machine, uuid)
	go machine.serve(sim.Serial())
	d, client, _ := start(t, rack, Program{Ramdisk: ramdisk, Output: io.Discard, Builtins: map[string]host.Bundled{"ipmi": {Name: "bcx-ipmi", Args: []string{ipmiCommand}}}}, log)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(d.explain(name, err))
		}
	}
	ok(d.PrepareNetwork(t.Context()))
	imported, err := d.ImportImage(t.Context(), large(t, img.Path, 10<<30))
	ok(err)
	if imported.RawBytes != 10<<30 {
		t.Errorf("an image of 10 GiB is one of %d bytes", imported.RawBytes)
	}
	m := enrollOverIPMI(t, d, sim, name)
	if m.UUID == uuid || !m.UUID.Same(uuid) {
		t.Fatalf("the BMC told the UUID %s, which is to be %s in another byte order", m.UUID, uuid)
	}
	if len(m.NICs) > 0 {
		t.Fatalf("the machine has ports already: %+v", m.NICs)
	}
	ok(d.commission(t.Context(), Plan{Machine: name}))
	m, err = d.machine(t.Context(), name)
	ok(err)
	if len(m.NICs) != 1 || m.NICs[0].MAC != MAC(0) {
		t.Fatalf("the machine's ports are %+v", m.NICs)
	}
	ok(client.Call(t.Context(), http.MethodPost, "/api/v1/machines/"+name+"/confirm-mac", api.ConfirmInput{MAC: MAC(0)}, nil))
	ok(d.deploy(t.Context(), Plan{Machine: name}))
	ok(d.heartbeat(t.Context(), Plan{Machine: name}))
	ok(d.Release(t.Context(), name))
	if machine.On() {
		t.Error("a released machine is on")
	}
}

// large makes a qcow2 of a raw image on a disk of so many bytes.
func large(t *testing.T, raw string, bytes int64) string {
	t.Helper()
	dir := t.TempDir()
	disk, out := filepath.Join(dir, "disk.raw"), filepath.Join(dir, "image.qcow2")
	for _, c := range [][]string{
		{"qemu-img", "convert", "-O", "raw", raw, disk}, {"qemu-img", "resize", "-q", "-f", "raw", disk, strconv.FormatInt(bytes, 10)},
		{"sgdisk", "--move-second-header", disk}, {"qemu-img", "convert", "-O", "qcow2", disk, out},
	} {
		if said, err := exec.CommandContext(t.Context(), c[0], c[1:]...).CombinedOutput(); err != nil {
			t.Fatalf("%s: %v\n%s", strings.Join(c, " "), err, said)
		}
	}
	return out
}

// simulate starts a BMC for a machine, which sends the octets of the machine's UUID as they are printed.
func simulate(t *testing.T, m bmctest.SimulatedMachine, uuid app.UUID) *bmctest.Simulator {
	t.Helper()
	guid, err := hex.DecodeString(strings.ReplaceAll(string(uuid), "-", ""))
	if err != nil {
		t.Fatal(err)
	}
	fru := bmctest.FRU(bmctest.FRUText{Maker: "Better Compute", Name: "Virtual Machine", Serial: "LAB0001"})
	return bmctest.NewSimulator(t, bmctest.SimulatorConfig{Machine: m, GUID: guid, FRU: fru})
}

// enrollOverIPMI enrolls the machine with its BMC's address and login, and nothing else.
func enrollOverIPMI(t *testing.T, d *Driver, sim *bmctest.Simulator, name string) *app.Machine {
	t.Helper()
	in := api.EnrollInput{Name: name, BMC: &api.BMCInput{
		Driver: ipmi.ID, Address: sim.Address(), Options: json.RawMessage(`{"cipherSuite":3}`),
		Credentials: &api.Credentials{Username: bmctest.User, Password: bmctest.SimulatorPassword},
	}}
	var m *app.Machine
	err := poll(t.Context(), pollInterval, func() (bool, error) {
		m = &app.Machine{}
		err := d.API.Call(t.Context(), http.MethodPost, "/api/v1/machines", in, m)
		if e, ok := app.AsError(err); ok && bytes.Contains([]byte(e.Message), []byte("there is no driver")) {
			return false, nil // the plugin starts beside the appliance
		}
		return true, err
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}
