package site_test

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/images/ramdisk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
)

// debianStub is what boot programs are made with.
const debianStub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"

// cdRamdisk makes the directory of a ramdisk that no computer runs: what is read of its CD is the boot data.
func cdRamdisk(t *testing.T) string {
	t.Helper()
	stub, err := os.ReadFile(debianStub)
	if err != nil {
		t.Skipf("left out: %v (Debian's systemd-boot-efi has it)", err)
	}
	dir := t.TempDir()
	m := ramdisk.Manifest{Format: ramdisk.ManifestFormat, Flavour: "custom"}
	put := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(b)
		m.Files = append(m.Files, ramdisk.FileInfo{Name: name, Bytes: int64(len(b)), SHA256: hex.EncodeToString(sum[:])})
	}
	put(ramdisk.InitramfsFile, bytes.Repeat([]byte("initramfs"), 1000))
	put(ramdisk.StubFile, stub)
	put(ramdisk.KernelFile, bytes.Repeat([]byte("kernel"), 1000))
	raw, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, ramdisk.ManifestFile), raw, 0o600); err != nil {
		t.Fatal(err)
	}
	return dir
}

// onCD binds the machine to the boot driver for virtual CDs.
func onCD(t *testing.T) (*rig, *computer) {
	t.Helper()
	dir := cdRamdisk(t)
	r, c := ready(t)
	r.cfg.Ramdisk, c.firmware = dir, app.FirmwareUEFI
	syscall.ForkLock.RLock() // as in moveBMC
	defer syscall.ForkLock.RUnlock()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(r.dir, "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	_, err = db.UpdateMachine(t.Context(), machineName, func(m *app.Machine) error {
		m.Firmware = app.FirmwareUEFI
		m.Drivers["boot"] = app.Binding{Driver: drivers.IDVirtualMediaBoot, Layer: drivers.LayerMachine}
		m.Drivers["virtual-media"] = m.Drivers["power"]
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	return r, c
}

// bootCD starts the ramdisk from the CD in the drive, or gives false when there is none of ours.
func (c *computer) bootCD() *agentv1.BootData {
	if c.stuck {
		return nil
	}
	boots := c.fake.Boots()
	b, err := os.ReadFile(boots[len(boots)-1].CD)
	if err != nil {
		return nil
	}
	for at := 0; ; {
		i := bytes.Index(b[at:], []byte("070701"))
		if i < 0 {
			return nil
		}
		if boot, err := readBootData(b[at+i:]); err == nil {
			return boot
		}
		at += i + 1
	}
}

// TestVerbsFromAVirtualCD commissions, rescues and brings back a machine whose ramdisk comes on a CD. The drive is empty as
// soon as the agent has called, and no answer or file of the appliance holds the boot's key.
func TestVerbsFromAVirtualCD(t *testing.T) {
	t.Parallel()
	r, c := onCD(t)
	r.start("")
	done := func(v api.Verb, options any) string {
		t.Helper()
		id := r.verb(machineName, v, options)
		if n := r.await(newsOver); n.State != "done" {
			t.Fatalf("%s is %s\n%s", v, n.State, r.story())
		}
		return id
	}
	id := done(api.Commission, nil)
	var steps []string
	for _, s := range r.workflow(id).Steps[:8] {
		steps = append(steps, s.ID)
	}
	if got := strings.Join(steps, " "); got != "off permit boot-cd boot-from-cd on agent eject-cd clock" {
		t.Errorf("commissioning began with %s", got)
	}
	if medium(c) {
		t.Error("the CD is still in the drive")
	}
	done(api.Rescue, struct{}{})
	done(api.ExitRescue, struct{}{})
	if got := c.seen().Boots; got != "Cd Cd" {
		t.Errorf("it was powered on as %q", got)
	}
	r.settle()
	said := r.timeline("?limit=500")
	raw, err := json.Marshal(said)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"insert the boot CD", "eject the boot CD", "/boot/KEY/boot.iso"} {
		if !strings.Contains(string(raw), want) {
			t.Errorf("the timeline has no %q: %s", want, raw)
		}
	}
	for _, s := range r.workflow(id).Steps {
		var permit struct{ Boot string }
		if s.ID == "permit" && json.Unmarshal(s.Result, &permit) == nil && permit.Boot != "" && strings.Contains(string(raw), permit.Boot) {
			t.Errorf("the timeline holds the boot's key %s", permit.Boot)
		}
	}
}

// An abort while the ramdisk is awaited takes the CD out.
func TestAbortTakesTheCDOut(t *testing.T) {
	t.Parallel()
	r, c := onCD(t)
	c.stuck = true
	r.start("")
	id := r.verb(machineName, api.Commission, nil)
	r.eventually("it waits for the ramdisk", func() bool { return step(t, r.workflow(id), "agent").State == workflow.StepRunning })
	if !medium(c) {
		t.Error("the CD is not in the drive")
	}
	r.must(http.MethodPost, "/api/v1/machines/"+machineName+"/abort", api.ReasonOptions{Reason: "changed my mind"}, nil)
	if n := r.await(newsOver); n.State != "aborted" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	if medium(c) || c.bmc.PowerState() != "Off" {
		t.Errorf("the drive holds %v, the power is %s", medium(c), c.bmc.PowerState())
	}
}
