package lab

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/osimage"
	"github.com/better-compute/bcd/web/api"
)

// movesItselfFirst is the user-data of a system that puts itself first in the boot order, and what it says then.
const (
	movesItselfFirst = "testdata/movefirst.py"
	movedItselfFirst = "FIRST-IN-THE-BOOT-ORDER"
	addedByItself    = `debian (\EFI\debian\grubx64.efi)`
)

// TestMainJobByHTTPBoot takes a machine through its life whose BMC is asked for UEFI HTTP Boot: OVMF loads the machine's own
// program, which is loader, kernel and ramdisk, and its agent calls. Nothing goes by TFTP, and no script. The order in which it
// boots is what its firmware's variables hold, with the network first; the installed system puts itself before that.
func TestMainJobByHTTPBoot(t *testing.T) {
	work, ramdisk := folders(t)
	const name = "http-1"
	data, err := os.ReadFile(movesItselfFirst)
	if err != nil {
		t.Fatal(err)
	}
	img, err := osimage.Build(t.Context(), osimage.Config{Cache: filepath.Join(work, "images")})
	if err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelInfo}))
	rack, err := NewRack(RackConfig{Dir: filepath.Join(t.TempDir(), "machines"), Network: NetworkConfig{Name: "bcdt-uki-lab"}, Log: log,
		Machines: []MachineSpec{{Name: name, Firmware: app.FirmwareUEFI, HTTPBoot: true, OwnOrder: true}}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rack.Close() })
	d, client, _ := start(t, rack, Program{Ramdisk: ramdisk, Output: io.Discard}, log)
	ok := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(d.explain(name, err))
		}
	}
	ok(d.PrepareNetwork(t.Context()))
	_, err = d.ImportImage(t.Context(), img.Path)
	ok(err)
	ok(d.Enroll(t.Context(), name))
	first := app.BootNetworkFirst
	ok(client.Call(t.Context(), http.MethodPatch, "/api/v1/machines/"+name, api.MachineChange{BootOrder: &first}, nil))
	ok(d.commission(t.Context(), Plan{Machine: name}))
	ours := d.keepsOrder(t, name)

	_, err = d.Verb(t.Context(), name, api.Deploy, app.DeploySpec{Image: ImageName, Boot: app.BootReboot, UserData: string(data)})
	ok(err)
	ok(d.heartbeat(t.Context(), Plan{Machine: name}))
	ok(d.says(t.Context(), name, movedItselfFirst))
	ok(d.Release(t.Context(), name))
	d.sawItMove(t, name, ours)

	story := d.timeline(t, name)
	for _, want := range []string{"/boot/KEY/boot.efi", "http.begin"} {
		if !strings.Contains(story, want) {
			t.Errorf("the timeline has no %q: %s", want, story)
		}
	}
	for _, never := range []string{"ipxe.script", "tftp.get", "/boot/boot-", idleProgram} {
		if strings.Contains(story, never) {
			t.Errorf("the timeline has %q: %s", never, story)
		}
	}
	ok(d.bootsUsFirst(t, name))
}

// idleProgram is what a machine fetches that netboots by itself, and is to boot its disk.
const idleProgram = "/boot/disk.efi"

// keepsOrder checks that a commissioned machine has the network first in its boot order, put there by the agent, and gives
// that order.
func (d *Driver) keepsOrder(t *testing.T, machine string) []string {
	t.Helper()
	r := d.bootOrder(t, machine)
	t.Logf("the boot order is %q, kept by the %s: %s", r.Words, r.Writer, r.PolicyReason)
	if r.Problem != nil || r.Policy != app.BootNetworkFirst || r.Writer != app.BootByAgent || len(r.Own) < 2 {
		t.Fatalf("%+v", r.BootOrder)
	}
	if e := r.Agent.Ordered()[0]; e.Kind != app.BootNetwork || e.Protocol != "HTTP IPv4" {
		t.Fatalf("the first entry is %+v", e)
	}
	return r.Words
}

// sawItMove checks what is known of the boot order of a released machine whose system had put itself first: that it did, that
// ours was put back before the wipe, and that the entry went with the disk.
func (d *Driver) sawItMove(t *testing.T, machine string, ours []string) {
	t.Helper()
	r := d.bootOrder(t, machine)
	if r.Problem != nil || len(r.Notes) > 0 || len(r.Partitions) > 0 || !slices.Equal(r.Words, ours) {
		t.Errorf("the boot order of the released machine is %q, with %v: %v, and partitions %v; it was %q", r.Words, r.Problem, r.Notes, r.Partitions, ours)
	}
	if slices.ContainsFunc(r.Agent.Entries, func(e app.BootEntry) bool { return e.Name == "debian" }) {
		t.Errorf("the system's entry is left: %+v", r.Agent.Entries)
	}
	var told []app.BootReading
	for _, h := range r.History {
		t.Logf("%s: %q %+v", h.During, h.Order, h.Changes)
		if h.During == string(api.Release) {
			told = append(told, h)
		}
	}
	if len(told) != 2 { // newest first
		t.Fatalf("a release reads the boot order %d times", len(told))
	}
	if before := told[1]; len(before.Changes) != 2 || before.Changes[0].By != "system" || !slices.Contains(before.Changes[0].What, addedByItself+" was added, at 1") ||
		before.Changes[1].By != "bcd" || before.Order[0] != ours[0] || !slices.Contains(before.Order, addedByItself) {
		t.Errorf("before the wipe: %+v", before)
	}
	if after := told[0]; len(after.Changes) != 1 || after.Changes[0].By != "bcd" || !slices.Contains(after.Changes[0].What, addedByItself+" is gone from the order") {
		t.Errorf("after the wipe: %+v", after)
	}
	page, err := d.API.Get(t.Context(), "/machines/"+machine)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(page), addedByItself) {
		t.Errorf("the machine's page does not tell of the system's entry:\n%s", page)
	}
}

// bootsUsFirst switches a machine on at its power key, and returns once its firmware has asked us, of itself, what to boot.
func (d *Driver) bootsUsFirst(t *testing.T, machine string) error {
	t.Helper()
	m := d.Rack.Machine(machine)
	if o := m.Override(); o.Enabled != "Disabled" {
		t.Errorf("the BMC overrides the order: %+v", o)
	}
	if err := m.Reset("On"); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	begun := time.Now()
	if err := poll(ctx, pollInterval, func() (bool, error) { return strings.Contains(d.timeline(t, machine), idleProgram), nil }); err != nil {
		return err
	}
	d.Say("%-10s asked us first, after %.1f s", machine, time.Since(begun).Seconds())
	return m.Reset("ForceOff")
}

// says waits until a line with a text is on a machine's console.
func (d *Driver) says(ctx context.Context, machine, text string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	return poll(ctx, pollInterval, func() (bool, error) { return strings.Contains(d.Rack.Tail(machine, 1<<20), text), nil })
}

func (d *Driver) bootOrder(t *testing.T, machine string) *api.BootOrderReport {
	t.Helper()
	var r api.BootOrderReport
	if err := d.API.Call(t.Context(), http.MethodGet, "/api/v1/machines/"+machine+"/boot-order", nil, &r); err != nil {
		t.Fatal(err)
	}
	return &r
}

// timeline is a machine's whole, as JSON.
func (d *Driver) timeline(t *testing.T, machine string) string {
	t.Helper()
	var told json.RawMessage
	if err := d.API.Call(t.Context(), http.MethodGet, "/api/v1/machines/"+machine+"/timeline?limit=500", nil, &told); err != nil {
		t.Fatal(err)
	}
	return string(told)
}
