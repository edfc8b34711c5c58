package metal

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// KindRemember reads the power that a machine has before a verb borrows it, so that it can be left as it was found.
const KindRemember = "power.remember"

// StepRemember is the first step of such a verb. A retry does not make it again: the machine is off by then.
const StepRemember = "before"

// remembered is what it found.
type remembered struct {
	Power app.Power `json:"power"`
}

// Remember is the step that reads the power, with the id StepRemember.
func Remember() workflow.Step {
	return workflow.Step{ID: StepRemember, Title: "Read the power", Kind: KindRemember, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true}
}

func (p *Ports) runRemember(ctx context.Context, s workflow.StepContext) (any, error) {
	m, h, err := p.hardware(ctx, s)
	if err != nil {
		return nil, err
	}
	pw, err := h.Power(ctx)
	if err != nil {
		return nil, err
	}
	p.SawPower(ctx, m.ID, pw, "")
	return remembered{pw}, nil
}

// WasOn reports whether a machine ran before the last workflow of verb borrowed it from the state before. One whose power
// was not told ran if it was deployed.
func (p *Ports) WasOn(ctx context.Context, machineID, verb string, before app.State) (bool, error) {
	last, err := p.Flows.List(ctx, workflow.Filter{MachineID: machineID, Verb: verb, Limit: 1})
	if err != nil {
		return false, err
	}
	pw := app.PowerUnknown
	if len(last) > 0 {
		pw = powerBefore(&last[0])
	}
	return pw == app.PowerOn || pw != app.PowerOff && before == app.StateDeployed, nil
}

func powerBefore(w *workflow.Workflow) app.Power {
	i := slices.IndexFunc(w.Steps, func(s workflow.Step) bool { return s.ID == StepRemember })
	if i < 0 {
		return app.PowerUnknown
	}
	var r remembered
	if json.Unmarshal(w.Steps[i].Result, &r) != nil {
		return app.PowerUnknown
	}
	return r.Power
}

// AsFound is the cleanup of a verb that borrowed a machine, and failed or was aborted: no permission to netboot is left, and
// a machine whose power was changed, by the step "off", runs again if it ran before.
func (p *Ports) AsFound(ctx context.Context, s workflow.StepContext) error {
	w := s.Workflow()
	if !Reached(&w, "off") {
		return p.Boots.Revoke(ctx, s.Command().MachineID)
	}
	if err := p.PowerDown(ctx, s); err != nil || powerBefore(&w) != app.PowerOn {
		return err
	}
	m, h, err := p.hardware(ctx, s)
	if err != nil {
		return err
	}
	if m.State == app.StateDeployed {
		if err := h.SetBootDevice(ctx, "disk", true, m.Firmware); err != nil {
			return err
		}
	}
	if err := h.SetPower(ctx, "on"); err != nil {
		return err
	}
	p.SawPower(ctx, m.ID, app.PowerOn, "")
	return nil
}
