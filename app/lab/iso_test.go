package lab

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/web/api"
)

// startedISO is what the image says on the serial console once what it starts has read a file of the medium, and the file is
// well.
const startedISO = "ISO-READ-WELL"

// bootableISO makes a CD image with GRUB for BIOS and UEFI.
func bootableISO(t *testing.T) string {
	t.Helper()
	for _, tool := range []string{"grub-mkrescue", "xorriso", "mformat"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("left out: %s is not installed", tool)
		}
	}
	dir := t.TempDir()
	payload := make([]byte, 1<<20)
	_, _ = rand.Read(payload) // never fails
	for name, content := range map[string][]byte{
		"payload": payload, "sums": fmt.Appendf(nil, "%x  payload\n", sha256.Sum256(payload)),
		"boot/grub/grub.cfg": []byte("serial --unit=0 --speed=115200\nterminal_output serial\nif hashsum --hash sha256 --prefix / --check /sums; then echo " + startedISO + "; fi\nsleep 3600\n"),
	} {
		name = filepath.Join(dir, "tree", name)
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	iso := filepath.Join(dir, "image.iso")
	out, err := exec.CommandContext(t.Context(), "grub-mkrescue", "-o", iso,
		"--install-modules=serial terminal iso9660 hashsum gcry_sha256 echo test sleep normal part_msdos part_gpt fat all_video", filepath.Join(dir, "tree")).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return iso
}

// TestBootISO starts a CD image on virtual machines by each way: over the network on a BIOS machine whose BMC speaks IPMI, over
// the network on a UEFI machine, and from the virtual drive of that machine's BMC.
func TestBootISO(t *testing.T) {
	_, ramdisk := folders(t)
	if err := ipmi.New(ipmi.Config{}).Health(t.Context()); err != nil {
		t.Skipf("left out: %v", err)
	}
	iso := bootableISO(t)
	const uuid = app.UUID("4c4c4544-0042-3010-8031-c7c04f313233")
	dir := t.TempDir()
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	rack, err := NewRack(RackConfig{Dir: filepath.Join(dir, "machines"), Network: NetworkConfig{Name: "bcdt-iso-lab"}, Log: log, Machines: []MachineSpec{
		{Name: "ipmi-1", Firmware: app.FirmwareBIOS, UUID: uuid, MemoryMiB: 512, CPUs: 1}, {Name: "uefi-1", Firmware: app.FirmwareUEFI, MemoryMiB: 512, CPUs: 1},
	}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rack.Close() })
	machine := behindIPMI{rack.Machine("ipmi-1"), virtual.Legacy}
	sim := simulate(t, machine, uuid)
	go machine.serve(sim.Serial())
	d, _, _ := start(t, rack, Program{Ramdisk: ramdisk, Output: io.Discard, Builtins: map[string]host.Bundled{"ipmi": {Name: "bcx-ipmi", Args: []string{ipmiCommand}}}}, log)
	ok := func(machine string, err error) {
		t.Helper()
		if err != nil {
			t.Fatal(d.explain(machine, err))
		}
	}
	ok("ipmi-1", d.PrepareNetwork(t.Context()))
	_, err = d.ImportImage(t.Context(), iso)
	ok("ipmi-1", err)
	enrollOverIPMI(t, d, sim, "ipmi-1")
	ok("uefi-1", d.Enroll(t.Context(), "uefi-1"))
	for _, c := range []struct {
		machine   string
		asked, is app.ISOVia
	}{{"ipmi-1", "", app.ISOByNetwork}, {"uefi-1", app.ISOByNetwork, app.ISOByNetwork}, {"uefi-1", "", app.ISOByMedia}} {
		ok(c.machine, d.inISO(t.Context(), c.machine, c.asked, c.is))
	}
	if machine.On() || rack.Machine("uefi-1").PowerState() != "Off" {
		t.Error("a machine that was off is on after its image")
	}
}

// inISO starts the image on a machine, sees it read the medium, and leaves it.
func (d *Driver) inISO(ctx context.Context, machine string, asked, is app.ISOVia) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	was := strings.Count(d.Rack.Tail(machine, 1<<20), startedISO)
	if _, err := d.Verb(ctx, machine, api.BootISO, app.ISOSpec{Image: ImageName, Via: asked}); err != nil {
		return err
	}
	m, err := d.machine(ctx, machine)
	if err != nil {
		return err
	}
	if m.State != app.StateISO || m.ISO == nil || m.ISO.Via != is {
		return fmt.Errorf("%s is %s, %+v", machine, m.State, m.ISO)
	}
	err = poll(ctx, pollInterval, func() (bool, error) {
		return strings.Count(d.Rack.Tail(machine, 1<<20), startedISO) > was, nil
	})
	if err != nil {
		return fmt.Errorf("%s never said that it read the medium well: %w", machine, err)
	}
	d.Say("%s runs the image by %s", machine, is)
	if err := d.API.Call(ctx, http.MethodDelete, "/api/v1/images/"+ImageName, nil, nil); err == nil {
		return fmt.Errorf("an image that %s runs from was deleted", machine)
	}
	_, err = d.Verb(ctx, machine, api.ExitISO, nil)
	return err
}
