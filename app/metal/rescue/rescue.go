// Package rescue boots a machine into the ramdisk's shell and back to where it was.
package rescue

import (
	"context"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
)

// Names of the workflows.
const (
	Verb = "rescue"
	Exit = "exit-rescue"
)

// Options of a rescue.
type Options struct {
	AuthorizedKeys []string `json:"authorizedKeys,omitempty"`
}

// Verbs rescues machines.
type Verbs struct{ p *metal.Ports }

// New registers both verbs.
func New(p *metal.Ports) *Verbs {
	v := &Verbs{p}
	p.Flows.RegisterVerb(workflow.Verb{Name: Verb, Version: 1, Cleanup: p.AsFound, RetryFrom: func(*workflow.Workflow) int { return 1 },
		Begin: func(m *app.Machine, w *workflow.Workflow) error {
			if err := metal.From(m, Verb, false, from...); err != nil {
				return err
			}
			m.Before, m.WorkflowID = m.State, w.ID
			return nil
		},
		End: func(m *app.Machine, w *workflow.Workflow) error {
			m.WorkflowID = ""
			switch {
			case w.State == workflow.Done:
				m.State, m.StateSince, m.StateReason = app.StateRescue, p.Now().UTC(), ""
			case w.State == workflow.Failed && w.Error != nil && m.State != app.StateFailed:
				m.StateReason = "a rescue failed, and the machine is left as it was found: " + w.Error.Message
			}
			return nil // the machine is where it was
		}})
	p.Flows.RegisterVerb(workflow.Verb{Name: Exit, Version: 1,
		Begin: func(m *app.Machine, w *workflow.Workflow) error {
			if err := metal.From(m, Exit, false, app.StateRescue); err != nil {
				return err
			}
			m.WorkflowID = w.ID
			return nil
		},
		End: func(m *app.Machine, w *workflow.Workflow) error {
			m.WorkflowID = ""
			if w.State != workflow.Done {
				return nil
			}
			m.State, m.Before, m.StateSince, m.StateReason = m.Before, "", p.Now().UTC(), ""
			if m.State == app.StateFailed {
				m.StateReason = m.FailedVerb + " had failed before the rescue"
			}
			return nil
		}})
	return v
}

// Start boots the rescue shell.
func (v *Verbs) Start(ctx context.Context, actor, machineID string, o Options) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	for _, k := range o.AuthorizedKeys {
		if err := app.ValidLine("authorizedKeys", k, 16<<10); err != nil {
			return nil, err
		}
	}
	if err := metal.From(m, Verb, false, from...); err != nil {
		return nil, err
	}
	if err := v.p.CanNetboot(ctx, m); err != nil {
		return nil, err
	}
	steps := append([]workflow.Step{metal.Remember()}, v.p.RamdiskRescue(m, o.AuthorizedKeys)...)
	return v.p.Flows.Start(ctx, workflow.New{Verb: Verb, MachineID: m.ID, Actor: actor, Steps: steps, Input: o})
}

// from lists the states that a rescue starts from.
var from = []app.State{app.StateEnrolled, app.StateReady, app.StateDeployed, app.StateFailed}

// Leave takes the machine back to where it was: to its disk when it was deployed, and on when it was on.
func (v *Verbs) Leave(ctx context.Context, actor, machineID string) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if err := metal.From(m, Exit, false, app.StateRescue); err != nil {
		return nil, err
	}
	if err := v.p.Supports(ctx, m, metal.NetbootOperations...); err != nil {
		return nil, err
	}
	steps := []workflow.Step{
		metal.Revoke(),
		metal.Power("off", "Power off", "off"),
	}
	if m.Before == app.StateDeployed {
		steps = append(steps, metal.BootDevice("boot-disk", "Boot from the disk from now on", "disk", true))
	}
	on, err := v.p.WasOn(ctx, m.ID, Verb, m.Before)
	if err != nil {
		return nil, err
	}
	if on {
		steps = append(steps, metal.Power("on", "Power on", "on"))
	}
	return v.p.Flows.Start(ctx, workflow.New{Verb: Exit, MachineID: m.ID, Actor: actor, Steps: steps})
}
