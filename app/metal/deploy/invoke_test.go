package deploy

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// rack is a store of one machine with an inventory, or none.
type rack struct {
	app.MachineStore
	m   *app.Machine
	inv json.RawMessage
}

func (r rack) Machine(context.Context, string) (*app.Machine, error) { return r.m, nil }

func (r rack) Inventory(context.Context, string) (json.RawMessage, time.Time, error) {
	if r.inv == nil {
		return nil, time.Time{}, app.Missing("inventory", r.m.ID)
	}
	return r.inv, time.Time{}, nil
}

func (r rack) UpdateMachine(_ context.Context, _ string, change func(*app.Machine) error) (*app.Machine, error) {
	return r.m, change(r.m)
}

// stepRig is a machine with two disks, the larger of which is rotational, and an image.
func stepRig(t *testing.T) (*Verbs, rack, map[string]*app.Image) {
	t.Helper()
	inv, err := json.Marshal(agentv1.Inventory{Disks: []agentv1.Disk{
		{Name: "sda", Serial: "S1", WWN: "0x5000000000000001", Bytes: 10 * gib, SectorSize: 512},
		{Name: "sdb", Serial: "S2", Bytes: 20 * gib, SectorSize: 512, Rotational: true}}})
	if err != nil {
		t.Fatal(err)
	}
	images := map[string]*app.Image{"data": {ID: "img-1", Name: "data", State: "ready", Index: "aa", SourceSHA: "bb", RawBytes: gib,
		Layout: app.Layout{Table: "gpt", SectorSize: 512, BIOS: true, UEFI: true, Partitions: []app.Partition{{Number: 1, FS: "ext4", FSUUID: "u-1"}, {Number: 2}}}}}
	images["img-1"] = images["data"]
	images["half"] = &app.Image{ID: "img-2", Name: "half", State: "importing"}
	r := rack{m: &app.Machine{ID: "m-1", Name: "node1"}, inv: inv}
	return &Verbs{p: &metal.Ports{Machines: r}, cfg: Config{Images: stored{images: images}, IndexPath: func(i *app.Image) string { return "/images/" + i.ID + "/index" }}}, r, images
}

func TestAStepThatPutsAnImageOnADisk(t *testing.T) {
	v, r, _ := stepRig(t)
	planned, err := v.planStep(t.Context(), r.m, json.RawMessage(`{"image":"data","disk":{"kind":"hdd"},"seed":{"user-data":"#cloud-config\n"},"wipeOthers":true,"sha256":"BB"}`))
	if err != nil {
		t.Fatal(err)
	}
	kept, err := json.Marshal(planned)
	if want := `{"machine":"m-1","image":"img-1","sha256":"aa","disk":{"kind":"hdd"},"seed":{"user-data":"#cloud-config\n"},"wipeOthers":true}`; err != nil || string(kept) != want {
		t.Errorf("kept %s, want %s (%v)", kept, want, err)
	}
	c := workflow.Command{MachineID: "m-1", WorkflowID: "wf-1", StepID: "before-0"}
	first, err := v.deliverStep(t.Context(), c, kept)
	if err != nil {
		t.Fatal(err)
	}
	want := agentv1.DeploySpec{Machine: "m-1", Image: "/images/img-1/index", SHA256: "aa", Disk: agentv1.DiskTarget{Serial: "S2", Bytes: 20 * gib, SectorSize: 512}, RawBytes: gib, SectorSize: 512,
		FSUUIDs: []string{"u-1"}, WipeOthers: true, Seed: map[string][]byte{"user-data": []byte("#cloud-config\n")}}
	if d := cmp.Diff(want, first); d != "" {
		t.Error(d)
	}
	if len(r.m.OwnDisks) != 1 || r.m.OwnDisks[0].Serial != "S2" {
		t.Errorf("the machine's own disks are %+v", r.m.OwnDisks)
	}
	again, err := v.deliverStep(t.Context(), c, kept)
	if err != nil || cmp.Diff(first, again) != "" || len(r.m.OwnDisks) != 1 {
		t.Errorf("another delivery: %s, %v; own disks %+v", cmp.Diff(first, again), err, r.m.OwnDisks)
	}
}

// Everything a deploy is refused for is refused of a step, before anything happens.
func TestStepsThatCannotWriteAreRefusedUpFront(t *testing.T) {
	v, r, _ := stepRig(t)
	for with, reason := range map[string]string{
		``:                                                 "invalid-args",
		`{"disk":{"serial":"S1"}}`:                         "invalid-field",
		`{"image":"https://images.example/a"}`:             "invalid-field",
		`{"image":"gone"}`:                                 "no-image",
		`{"image":"half"}`:                                 "image-not-ready",
		`{"image":"data","dsik":{}}`:                       "invalid-args",
		`{"image":"data","machine":"m-2"}`:                 "invalid-field",
		`{"image":"data","kexec":true}`:                    "kexec-unsupported",
		`{"image":"data","sha256":"cc"}`:                   "image-digest",
		`{"image":"data","disk":{"name":"sdz"}}`:           "no-disk",
		`{"image":"data","disk":{"minBytes":99999999999}}`: "no-disk",
		`{"image":"data","seed":{"../etc/passwd":"x"}}`:    "invalid-field",
		`{"image":"data","seed":{"user-data":"` + strings.Repeat("x", maxSeedFile+1) + `"}}`: "invalid-field",
	} {
		_, err := v.planStep(t.Context(), r.m, json.RawMessage(with))
		if e, _ := app.AsError(err); e == nil || e.Reason != reason {
			t.Errorf("%.60s: %v, want %s", with, err, reason)
		}
	}
	r.inv = nil // it was never commissioned: the disk is picked when there is an inventory
	v.p.Machines = r
	if _, err := v.planStep(t.Context(), r.m, json.RawMessage(`{"image":"data","disk":{"serial":"S1"}}`)); err != nil {
		t.Errorf("without an inventory: %v", err)
	}
}

// What came between planning and delivery is refused before the first byte, and no disk is claimed.
func TestStepsThatCannotWriteAnyMore(t *testing.T) {
	kept := json.RawMessage(`{"machine":"m-1","image":"img-1","sha256":"aa","disk":{"serial":"S1"}}`)
	for name, c := range map[string]struct {
		change func(*Verbs, rack, map[string]*app.Image)
		reason string
	}{
		"the image was deleted":       {func(_ *Verbs, _ rack, i map[string]*app.Image) { delete(i, "img-1") }, "image-gone"},
		"the image was imported anew": {func(_ *Verbs, _ rack, i map[string]*app.Image) { i["img-1"].Index = "zz" }, "image-gone"},
		"the disk is gone": {func(v *Verbs, r rack, _ map[string]*app.Image) {
			r.inv = json.RawMessage(`{"disks":[]}`)
			v.p.Machines = r
		}, "no-disk"},
		"the deploy has written it": {func(_ *Verbs, r rack, _ map[string]*app.Image) {
			r.m.Deployment = &app.Deployment{WorkflowID: "wf-1", Disk: app.DiskID{Serial: "S1", WWN: "0x5000000000000001"}}
		}, "disk-just-written"},
	} {
		v, r, images := stepRig(t)
		c.change(v, r, images)
		_, err := v.deliverStep(t.Context(), workflow.Command{MachineID: "m-1", WorkflowID: "wf-1"}, kept)
		if e, _ := app.AsError(err); e == nil || e.Reason != c.reason || len(r.m.OwnDisks) != 0 {
			t.Errorf("%s: %v, want %s; own disks %+v", name, err, c.reason, r.m.OwnDisks)
		}
	}
}

// An image that a step will write, or writes, is kept.
func TestAnImageOfAStepIsInUse(t *testing.T) {
	payload := json.RawMessage(`{"concern":"deploy","operation":"deploy","args":[{"image":"img-1"}]}`)
	w := &workflow.Workflow{Steps: []workflow.Step{{Kind: agentv1.KindDriverInvoke, State: workflow.StepWaiting, Payload: payload}}}
	if !Writes(w, "img-1") || Writes(w, "img-2") {
		t.Error("a step that waits")
	}
	if w.Steps[0].State = workflow.StepDone; Writes(w, "img-1") {
		t.Error("a step that is done needs its image no more")
	}
}
