package release

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// shelf is the part of a machine store that a release reads.
type shelf struct {
	app.MachineStore
	inv json.RawMessage
	err error
}

// Inventory gives what is on the shelf.
func (s shelf) Inventory(context.Context, string) (json.RawMessage, time.Time, error) {
	return s.inv, time.Time{}, s.err
}

func inventory(t *testing.T, disks ...agentv1.Disk) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(agentv1.Inventory{Disks: disks})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

var (
	sda = agentv1.Disk{Name: "sda", Serial: "A", WWN: "0x5000000000000001", Bytes: 10, SectorSize: 512}
	sdb = agentv1.Disk{Name: "sdb", Serial: "B", Bytes: 20, SectorSize: 4096}
	sdc = agentv1.Disk{Name: "sdc", Serial: "B", WWN: "0x5000000000000003", Bytes: 20, SectorSize: 512} // a serial of its controller
	vda = agentv1.Disk{Name: "vda", Bytes: 30, SectorSize: 512}
)

func TestTargets(t *testing.T) {
	raw := inventory(t, sda, sdb, sdc, vda)
	target := func(d agentv1.Disk) agentv1.DiskTarget {
		out := agentv1.DiskTarget{Serial: d.Serial, WWN: d.WWN, Bytes: d.Bytes, SectorSize: d.SectorSize}
		if d.Serial+d.WWN == "" {
			out.Name = d.Name
		}
		return out
	}
	for name, c := range map[string]struct {
		own, more []app.DiskID
		want      []agentv1.DiskTarget
		reason    string
	}{
		"nothing of ours":                   {},
		"ours":                              {own: []app.DiskID{{Serial: "A", Name: "sda"}}, want: []agentv1.DiskTarget{target(sda)}},
		"ours, renamed by the kernel":       {own: []app.DiskID{{Serial: "A", WWN: sda.WWN, Name: "sdx"}}, want: []agentv1.DiskTarget{target(sda)}},
		"serial in other case":              {own: []app.DiskID{{Serial: "a"}}, want: []agentv1.DiskTarget{target(sda)}},
		"without serial and WWN, by name":   {own: []app.DiskID{{Name: "vda"}}, want: []agentv1.DiskTarget{target(vda)}},
		"ours and one that is listed":       {own: []app.DiskID{{Serial: "A"}}, more: []app.DiskID{{WWN: sdc.WWN}}, want: []agentv1.DiskTarget{target(sda), target(sdc)}},
		"listed twice":                      {own: []app.DiskID{{Serial: "A"}}, more: []app.DiskID{{WWN: sda.WWN}}, want: []agentv1.DiskTarget{target(sda)}},
		"two disks with one serial":         {own: []app.DiskID{{Serial: "B"}}, reason: "disk-not-found"},
		"that serial with its WWN":          {own: []app.DiskID{{Serial: "B", WWN: sdc.WWN}}, want: []agentv1.DiskTarget{target(sdc)}},
		"ours, and it is gone":              {own: []app.DiskID{{Serial: "A"}, {Serial: "GONE"}}, reason: "disk-not-found"},
		"another disk under our name":       {own: []app.DiskID{{Serial: "GONE", Name: "sda"}}, reason: "disk-not-found"},
		"a name that says nothing":          {more: []app.DiskID{{}}, reason: "invalid-field"},
		"a model alone":                     {more: []app.DiskID{{Model: "Example"}}, reason: "invalid-field"},
		"listed by a name that is not ours": {more: []app.DiskID{{Name: "sdz"}}, reason: "disk-not-found"},
	} {
		v := &Verbs{p: &metal.Ports{Machines: shelf{inv: raw}}}
		got, err := v.targets(t.Context(), &app.Machine{ID: "m-1", OwnDisks: c.own}, Options{Disks: c.more})
		if e, _ := app.AsError(err); (c.reason == "") != (err == nil) || (e != nil && e.Reason != c.reason) {
			t.Errorf("%s: %v", name, err)
		}
		if diff := cmp.Diff(c.want, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
}

func TestTargetsNeedAnInventory(t *testing.T) {
	m := &app.Machine{ID: "m-1", Name: "node1", OwnDisks: []app.DiskID{{Serial: "A"}}}
	for name, s := range map[string]shelf{"none": {err: app.Missing("inventory", "m-1")}, "damaged": {inv: json.RawMessage(`{"disks":3}`)}} {
		v := &Verbs{p: &metal.Ports{Machines: s}}
		if _, err := v.targets(t.Context(), m, Options{}); err == nil {
			t.Errorf("%s: disks of ours would be left unwiped", name)
		}
	}
}

func TestStepsOfARelease(t *testing.T) {
	v := &Verbs{p: &metal.Ports{}}
	ids := func(targets []agentv1.DiskTarget) (out []string) {
		for _, s := range v.steps(&app.Machine{ID: "m-1"}, nil, targets, nil) {
			out = append(out, s.ID)
			if s.ID == "wipe" && (s.RetrySafe || !s.Destructive || !s.Rewrites || s.Stall == 0) {
				t.Errorf("the wipe is %+v", s)
			}
		}
		return out
	}
	if diff := cmp.Diff([]string{"revoke", "off-again"}, ids(nil)); diff != "" {
		t.Errorf("nothing to wipe: %s", diff)
	}
	want := []string{"off", "permit", "boot-network", "on", "agent", "clock", "before-boot-order", "before-boot-order-note", "wipe", "certificate", "proof",
		"boot-order", "boot-order-note", "revoke", "off-again"}
	if diff := cmp.Diff(want, ids([]agentv1.DiskTarget{{Serial: "A"}})); diff != "" {
		t.Error(diff)
	}
}
