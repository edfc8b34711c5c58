package release

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// owner is a shelf with a machine.
type owner struct {
	shelf
	m *app.Machine
}

func (o owner) Machine(context.Context, string) (*app.Machine, error) { return o.m, nil }

// A step wipes the disks that deploys of its machine wrote, and no others.
func TestAStepThatWipes(t *testing.T) {
	m := &app.Machine{ID: "m-1", Name: "node1", OwnDisks: []app.DiskID{{Serial: "A"}}}
	v := &Verbs{p: &metal.Ports{Machines: owner{shelf{inv: inventory(t, sda, sdb)}, m}}}
	c := workflow.Command{MachineID: "m-1", WorkflowID: "wf-1"}
	for with, want := range map[string]agentv1.TearDownSpec{
		`{"wipe":"secure"}`: {Machine: "m-1", Wipe: "secure", Disks: []agentv1.DiskTarget{metal.Target(sda)}},
		`{"wipe":""}`:       {Machine: "m-1"},
		``:                  {Machine: "m-1"},
	} {
		planned, err := v.planStep(t.Context(), m, json.RawMessage(with))
		if err != nil {
			t.Fatal(err)
		}
		kept, err := json.Marshal(planned)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // deliveries
			got, err := v.deliverStep(t.Context(), c, kept)
			if d := cmp.Diff(want, got); err != nil || d != "" {
				t.Errorf("%s: %v %s", with, err, d)
			}
		}
	}
	for with, reason := range map[string]string{`{"wipe":"shred"}`: "invalid-field", `{"disks":["sda"]}`: "invalid-args", `3`: "invalid-args"} {
		_, err := v.planStep(t.Context(), m, json.RawMessage(with))
		if e, _ := app.AsError(err); e == nil || e.Reason != reason {
			t.Errorf("%s: %v, want %s", with, err, reason)
		}
	}
	m.Deployment = &app.Deployment{WorkflowID: "wf-1", Disk: app.DiskID{Serial: "A"}}
	_, err := v.deliverStep(t.Context(), c, json.RawMessage(`{"wipe":"secure"}`))
	if e, _ := app.AsError(err); e == nil || e.Reason != "disk-just-written" {
		t.Errorf("of the disk that this deploy wrote: %v", err)
	}
	m.Deployment, m.OwnDisks = nil, append(m.OwnDisks, app.DiskID{Serial: "GONE"})
	_, err = v.deliverStep(t.Context(), c, json.RawMessage(`{"wipe":"secure"}`))
	if e, _ := app.AsError(err); e == nil || e.Reason != "disk-not-found" {
		t.Errorf("of a disk of ours that is gone: %v", err)
	}
}
