// Package release wipes the disks that a machine's deploys wrote, proves it, and gives the machine back.
package release

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Verb is the name of the workflow.
const Verb = "release"

const (
	kindCertificate = "release.certificate"
	kindProof       = "release.proof"
)

// from are the states that a release starts from.
var from = []app.State{app.StateDeployed, app.StateFailed, app.StateISO}

// Options of a release.
type Options struct {
	// Disks names further disks to wipe, by serial or WWN. Disks that deploys of the machine wrote are always wiped.
	Disks []app.DiskID `json:"disks,omitempty"`
}

// Verbs releases machines.
type Verbs struct{ p *metal.Ports }

// New registers the verb.
func New(p *metal.Ports) *Verbs {
	v := &Verbs{p}
	p.Complete(operation, metal.Arguments{Plan: v.planStep, Deliver: v.deliverStep})
	p.Flows.Register(workflow.Kind{Name: kindCertificate, Budget: time.Minute, Run: v.certify})
	p.Flows.Register(workflow.Kind{Name: kindProof, Budget: time.Minute, Run: v.proof})
	p.Flows.RegisterVerb(workflow.Verb{
		Name: Verb, Version: 1,
		Begin: func(m *app.Machine, w *workflow.Workflow) error {
			if err := metal.From(m, Verb, true, from...); err != nil {
				return err
			}
			metal.Enter(m, w, app.StateReleasing, p.Now().UTC())
			return nil
		},
		End: func(m *app.Machine, w *workflow.Workflow) error {
			metal.Leave(m, w, app.StateReady, metal.Reached(w, "wipe"), p.Now().UTC())
			if w.State == workflow.Done {
				m.Deployment, m.OwnDisks = nil, nil
			}
			return nil
		},
		Cleanup: p.PowerDown,
		// The machine was powered off, and its agent with it.
		RetryFrom: func(*workflow.Workflow) int { return 0 },
	})
	return v
}

// Start starts a release.
func (v *Verbs) Start(ctx context.Context, actor, machineID string, o Options) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if err := metal.From(m, Verb, true, from...); err != nil {
		return nil, err
	}
	targets, err := v.targets(ctx, m, o)
	if err != nil {
		return nil, err
	}
	if len(targets) > 0 {
		err = v.p.CanNetboot(ctx, m)
	} else {
		err = v.p.Supports(ctx, m, metal.NetbootOperations...)
	}
	if err != nil {
		return nil, err
	}
	profile, err := v.p.Drivers.ProfileFor(ctx, m)
	if err != nil {
		return nil, err
	}
	steps := append(eject(m), v.steps(m, profile, targets, o.Disks)...)
	return v.p.Flows.Start(ctx, workflow.New{Verb: Verb, MachineID: m.ID, Actor: actor, Steps: steps, Input: o})
}

// eject empties the virtual drive of a machine that runs a CD image from it.
func eject(m *app.Machine) []workflow.Step {
	if m.ISO == nil || m.ISO.Via != app.ISOByMedia {
		return nil
	}
	return []workflow.Step{metal.EjectCD()}
}

// steps reads the boot order before the wipe, while the partitions that its entries are for still tell whose they are, and
// removes those entries after it.
func (v *Verbs) steps(m *app.Machine, profile *app.Profile, targets []agentv1.DiskTarget, more []app.DiskID) []workflow.Step {
	var out []workflow.Step
	if len(targets) > 0 {
		wipe := metal.OnAgent("wipe", fmt.Sprintf("Wipe %d disk(s) and look for what was planted", len(targets)), agentv1.KindWipe, agentv1.Wipe{Disks: targets})
		wipe.RetrySafe, wipe.Destructive, wipe.Rewrites = false, true, true
		wipe.Stall = app.Duration(metal.WriteStall)
		before := v.p.BootOrderSteps(m, profile, metal.BootOrderUse{Prefix: "before-", Title: "Read the boot order", Wiped: more})
		out = append(append(v.p.Ramdisk(m), before...), wipe,
			workflow.Step{ID: "certificate", Title: "Write down what became of each disk", Kind: kindCertificate, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true},
			workflow.Step{ID: "proof", Title: "Check the proof of each disk", Kind: kindProof, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true})
		out = append(out, v.p.BootOrderSteps(m, profile, metal.BootOrderUse{Title: "Remove entries of the wiped disks from the boot order", Drop: true})...)
	}
	return append(out,
		workflow.Step{ID: "revoke", Title: "Withdraw the permission to netboot", Kind: metal.KindRevoke, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true},
		metal.Power("off-again", "Power off", "off"))
}

// targets lists the disks to wipe: those our deploys wrote and those the operator named. A disk of ours that the last
// inventory does not show is refused, because it would leave unwiped.
func (v *Verbs) targets(ctx context.Context, m *app.Machine, o Options) ([]agentv1.DiskTarget, error) {
	if len(m.OwnDisks)+len(o.Disks) == 0 {
		return nil, nil
	}
	raw, _, err := v.p.Machines.Inventory(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	var inv agentv1.Inventory
	if err := json.Unmarshal(raw, &inv); err != nil {
		return nil, app.Errorf(app.Conflict, "bad-inventory", "the stored inventory cannot be read: %w", err).Do("commission %s again", m.Name)
	}
	var out []agentv1.DiskTarget
	seen := map[string]bool{}
	for _, id := range append(slices.Clone(m.OwnDisks), o.Disks...) {
		d, err := one(&inv, id)
		if err != nil {
			return nil, err
		}
		if !seen[d.Name] {
			seen[d.Name] = true
			out = append(out, metal.Target(d))
		}
	}
	return out, nil
}

// one finds a disk by serial and WWN, and by kernel name only when it has neither.
func one(inv *agentv1.Inventory, r app.DiskID) (agentv1.Disk, error) {
	if r.Serial == "" && r.WWN == "" && r.Name == "" {
		return agentv1.Disk{}, app.Invalid("disks", "a disk to wipe is named by serial, WWN or kernel name")
	}
	fit := metal.Find(inv, r)
	if len(fit) != 1 {
		return agentv1.Disk{}, app.Errorf(app.Conflict, "disk-not-found", "%d disks of the last inventory match serial %q, wwn %q, name %q", len(fit), r.Serial, r.WWN, r.Name).
			At("disks").Do("name the disk by serial and WWN; if it was removed, override with a reason")
	}
	return fit[0], nil
}

// certify writes the certificate of what the agent reported, and keeps it: the workflow goes with its machine.
func (v *Verbs) certify(ctx context.Context, s workflow.StepContext) (any, error) {
	var r agentv1.WipeResult
	if !s.Result("wipe", &r) || len(r.Disks) == 0 {
		return nil, app.Errorf(app.Conflict, "no-proof", "the agent gave no proof of the wipe").Do("retry the wipe")
	}
	m, err := v.p.Machines.Machine(ctx, s.Command().MachineID)
	if err != nil {
		return nil, err
	}
	c := app.Certificate{
		WorkflowID: s.Command().WorkflowID, MachineID: m.ID, Machine: m.Name, UUID: m.UUID, Serial: m.Serial, Vendor: m.Vendor, Model: m.Model,
		Operator: s.Workflow().Actor, Issued: v.p.Now().UTC(),
	}
	for _, d := range r.Disks {
		c.Disks = append(c.Disks, app.ErasedDisk{
			Disk:   app.DiskID{Serial: d.Disk.Serial, WWN: d.Disk.WWN, Model: d.Model, Name: d.Disk.Name, Bytes: d.Bytes},
			Erased: d.Erased, Method: d.Method, Sentinels: d.Sentinels, Started: d.Started.UTC(), Ended: d.Ended.UTC(), Note: d.Note,
		})
	}
	return c, v.p.Certificates.PutCertificate(ctx, &c)
}

// proof fails the release unless every disk was proven erased.
func (v *Verbs) proof(_ context.Context, s workflow.StepContext) (any, error) {
	var c app.Certificate
	if !s.Result("certificate", &c) {
		return nil, app.Errorf(app.Conflict, "no-proof", "there is no proof of the wipe").Do("retry the wipe")
	}
	var not []string
	for _, d := range c.Disks {
		if d.Erased {
			s.Log("disk serial %q erased by %s: none of %d planted sentinels was found again", d.Disk.Serial, d.Method, d.Sentinels)
			continue
		}
		not = append(not, fmt.Sprintf("%s (serial %q): %s", d.Disk.Name, d.Disk.Serial, d.Note))
	}
	if len(not) > 0 || len(c.Disks) == 0 {
		return nil, app.Errorf(app.Conflict, "not-erased", "NOT erased: %s", strings.Join(not, "; ")).
			Do("retry the wipe, or take the disk out and destroy it")
	}
	return map[string]int{"erased": len(c.Disks)}, nil
}
