package bootiso

import (
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
)

// ExitOptions say what became of the machine.
type ExitOptions struct {
	// Installed says that the image installed a system, which runs: the machine is deployed, and its power is left alone.
	Installed bool `json:"installed,omitempty"`
}

func beginExit(m *app.Machine, w *workflow.Workflow) error {
	if err := metal.From(m, Exit, false, app.StateISO); err != nil {
		return err
	}
	m.WorkflowID = w.ID
	return nil
}

func (v *Verbs) endExit(m *app.Machine, w *workflow.Workflow) error {
	m.WorkflowID = ""
	if w.State != workflow.Done {
		return nil // it is in the image still
	}
	var o ExitOptions
	if err := json.Unmarshal(w.Input, &o); err != nil {
		return err
	}
	run := runOf(m)
	m.State, m.StateSince, m.StateReason, m.ISO = run.Before, v.p.Now().UTC(), "", nil
	switch {
	case o.Installed:
		m.State, m.Deployment, m.FailedVerb = app.StateDeployed, nil, ""
		m.StateReason = "its system was installed from the ISO " + run.ImageName + ": it was not put there by bcd"
	case m.State == app.StateFailed:
		m.StateReason = m.FailedVerb + " had failed before an ISO was booted"
	}
	return nil
}

// runOf is what a machine was started from. Without it, which no version of this program leaves, it is taken as enrolled.
func runOf(m *app.Machine) app.ISORun {
	if m.ISO == nil {
		return app.ISORun{Before: app.StateEnrolled}
	}
	return *m.ISO
}

// Leave takes a machine out of its image: to its disk when it was deployed, and on when it was on.
func (v *Verbs) Leave(ctx context.Context, actor, machineID string, o ExitOptions) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if err := metal.From(m, Exit, false, app.StateISO); err != nil {
		return nil, err
	}
	if err := v.p.Supports(ctx, m, metal.NetbootOperations...); err != nil {
		return nil, err
	}
	run := runOf(m)
	disk := metal.BootDevice("boot-disk", "Boot from the disk from now on", "disk", true)
	steps := []workflow.Step{metal.Revoke()}
	if !o.Installed {
		steps = append(steps, metal.Power("off", "Power off", "off"))
	}
	if run.Via == app.ISOByMedia {
		steps = append(steps, metal.EjectCD())
	}
	if o.Installed || run.Before == app.StateDeployed {
		steps = append(steps, disk)
	}
	on, err := v.p.WasOn(ctx, m.ID, Verb, run.Before)
	if err != nil {
		return nil, err
	}
	if on && !o.Installed {
		steps = append(steps, metal.Power("on", "Power on", "on"))
	}
	return v.p.Flows.Start(ctx, workflow.New{Verb: Exit, MachineID: m.ID, Actor: actor, Steps: steps, Input: o})
}
