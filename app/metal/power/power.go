// Package power changes a machine's power outside of the other verbs, and asks its BMC what it is.
package power

import (
	"context"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
)

// Verb is the name of the workflow.
const Verb = "power"

// Verbs changes power.
type Verbs struct{ p *metal.Ports }

// New registers the verb.
func New(p *metal.Ports) *Verbs {
	p.Flows.RegisterVerb(workflow.Verb{Name: Verb, Version: 1,
		Begin: func(m *app.Machine, w *workflow.Workflow) error {
			if m.WorkflowID != "" {
				return metal.From(m, Verb, false)
			}
			if m.BMC == nil {
				return app.Errorf(app.Unsupported, "no-bmc", "%s has no BMC", m.Name).Do("give it one with bcd machine set-bmc")
			}
			m.WorkflowID = w.ID
			return nil
		},
		End: func(m *app.Machine, _ *workflow.Workflow) error {
			m.WorkflowID = ""
			return nil
		}})
	return &Verbs{p}
}

// Start sets the power: "on", "off", "soft", "cycle" or "reset". A cycle is off, verified, then on, verified.
func (v *Verbs) Start(ctx context.Context, actor, machineID, action string) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if m.WorkflowID != "" {
		return nil, metal.From(m, Verb, false)
	}
	var steps []workflow.Step
	switch action {
	case "on", "off", "reset":
		steps = []workflow.Step{metal.Power(action, "Power "+action, action)}
	case "soft", "shutdown":
		steps = []workflow.Step{metal.Power("soft", "Ask the system to power off", "soft")}
	case "cycle":
		steps = []workflow.Step{metal.Power("off", "Power off", "off"), metal.Power("on", "Power on", "on")}
	default:
		return nil, app.Invalid("action", "there is no power action %.40q", action).Do("use on, off, soft, cycle or reset")
	}
	if err := v.p.Supports(ctx, m, "power.setPower", "power.getPower"); err != nil {
		return nil, err
	}
	return v.p.Flows.Start(ctx, workflow.New{Verb: Verb, MachineID: m.ID, Actor: actor, Steps: steps, Input: map[string]string{"action": action}})
}

// Read asks the BMC and notes the answer on the machine.
func (v *Verbs) Read(ctx context.Context, machineID string) (app.Power, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return app.PowerUnknown, err
	}
	h, err := v.p.Hardware(ctx, m, drivers.Options{Key: "read:" + m.ID})
	if err != nil {
		return app.PowerUnknown, err
	}
	pw, err := h.Power(ctx)
	if err != nil {
		v.p.SawPower(ctx, m.ID, app.PowerUnknown, err.Error())
		return app.PowerUnknown, err
	}
	v.p.SawPower(ctx, m.ID, pw, "")
	return pw, nil
}
