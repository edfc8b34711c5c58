package rescue

import (
	"context"
	"encoding/json"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
)

// kindRemember reads the power that a machine has before it is rescued, so that it can be left as it was found.
const kindRemember = "rescue.remember"

// stepRemember is the first step of a rescue. A retry does not make it again: the machine is off by then.
const stepRemember = "before"

// remembered is what it found.
type remembered struct {
	Power app.Power `json:"power"`
}

func (v *Verbs) remember(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	h, err := v.p.Hardware(ctx, m, metal.CallOf(s.Command()))
	if err != nil {
		return nil, err
	}
	pw, err := h.Power(ctx)
	if err != nil {
		return nil, err
	}
	v.p.SawPower(ctx, m.ID, pw, "")
	return remembered{pw}, nil
}

// wasOn reports whether a machine that is in rescue ran before. One whose power was not told ran if it is deployed.
func (v *Verbs) wasOn(ctx context.Context, m *app.Machine) (bool, error) {
	last, err := v.p.Flows.List(ctx, workflow.Filter{MachineID: m.ID, Verb: Verb, Limit: 1})
	if err != nil {
		return false, err
	}
	pw := app.PowerUnknown
	if len(last) > 0 {
		pw = powerBefore(&last[0])
	}
	return pw == app.PowerOn || pw != app.PowerOff && m.Before == app.StateDeployed, nil
}

func powerBefore(w *workflow.Workflow) app.Power {
	i := slices.IndexFunc(w.Steps, func(s workflow.Step) bool { return s.ID == stepRemember })
	if i < 0 {
		return app.PowerUnknown
	}
	var r remembered
	if json.Unmarshal(w.Steps[i].Result, &r) != nil {
		return app.PowerUnknown
	}
	return r.Power
}

// asFound is the cleanup of a rescue that failed or was aborted: no permission to netboot is left, and a machine whose power
// was changed runs again if it ran before.
func (v *Verbs) asFound(ctx context.Context, s workflow.StepContext) error {
	w := s.Workflow()
	if !metal.Reached(&w, "off") {
		return v.p.Boots.Revoke(ctx, s.Command().MachineID)
	}
	if err := v.p.PowerDown(ctx, s); err != nil || powerBefore(&w) != app.PowerOn {
		return err
	}
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return err
	}
	h, err := v.p.Hardware(ctx, m, metal.CallOf(s.Command()))
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
	v.p.SawPower(ctx, m.ID, app.PowerOn, "")
	return nil
}
