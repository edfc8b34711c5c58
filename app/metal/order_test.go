package metal_test

import (
	"context"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/commission"
	"github.com/better-compute/bcd/app/metal/power"
	"github.com/better-compute/bcd/app/metal/release"
	"github.com/better-compute/bcd/app/metal/rescue"
	"github.com/better-compute/bcd/app/metal/rotate"
	"github.com/better-compute/bcd/app/workflow"
)

// oneMachine is a store of one machine.
type oneMachine struct {
	app.MachineStore
	m app.Machine
}

func (s oneMachine) Machine(context.Context, string) (*app.Machine, error) { return &s.m, nil }

// unstarted is an engine that nothing gets to.
type unstarted struct{ workflow.API }

func (unstarted) Register(workflow.Kind)     {}
func (unstarted) RegisterVerb(workflow.Verb) {}

// A machine that cannot take a verb is told so before what its surroundings lack: putting those right would be in vain.
func TestTheMachinesStateIsSaidFirst(t *testing.T) {
	lacking := app.Errorf(app.Unsupported, "no-network", "nothing answers on its network")
	for name, c := range map[string]struct {
		state app.State
		busy  string
		start func(ctx context.Context, p *metal.Ports) error
		want  string
	}{
		"commission":           {app.StateDeployed, "", startCommission, "wrong-state"},
		"commission, busy":     {app.StateCommissioning, "w-1", startCommission, "machine-busy"},
		"commission, may":      {app.StateEnrolled, "", startCommission, "no-network"},
		"rescue":               {app.StateRetired, "", startRescue, "wrong-state"},
		"rescue, may":          {app.StateReady, "", startRescue, "no-network"},
		"exit-rescue":          {app.StateReady, "", leaveRescue, "wrong-state"},
		"exit-rescue, may":     {app.StateRescue, "", leaveRescue, "no-network"},
		"release":              {app.StateReady, "", startRelease, "wrong-state"},
		"power, busy":          {app.StateDeploying, "w-1", startPower, "machine-busy"},
		"power, may":           {app.StateDeployed, "", startPower, "no-network"},
		"change of password":   {app.StateDeploying, "w-1", startRotate, "machine-busy"},
		"change of one's, may": {app.StateReady, "", startRotate, "no-network"},
	} {
		p := &metal.Ports{Flows: unstarted{}, Supports: func(context.Context, *app.Machine, ...string) error { return lacking },
			Machines: oneMachine{m: app.Machine{ID: "m-1", Name: "node1", State: c.state, WorkflowID: c.busy, BMC: &app.BMC{CredentialRef: "secret://root/m-1"}}}}
		if e, ok := app.AsError(c.start(t.Context(), p)); !ok || e.Reason != c.want {
			t.Errorf("%s: %v, want %s", name, e, c.want)
		}
	}
}

func startCommission(ctx context.Context, p *metal.Ports) error {
	_, err := commission.New(p).Start(ctx, "alice", "m-1", nil)
	return err
}

func startRescue(ctx context.Context, p *metal.Ports) error {
	_, err := rescue.New(p).Start(ctx, "alice", "m-1", rescue.Options{})
	return err
}

func leaveRescue(ctx context.Context, p *metal.Ports) error {
	_, err := rescue.New(p).Leave(ctx, "alice", "m-1")
	return err
}

func startRelease(ctx context.Context, p *metal.Ports) error {
	_, err := release.New(p).Start(ctx, "alice", "m-1", release.Options{})
	return err
}

func startPower(ctx context.Context, p *metal.Ports) error {
	_, err := power.New(p).Start(ctx, "alice", "m-1", "on")
	return err
}

func startRotate(ctx context.Context, p *metal.Ports) error {
	_, err := rotate.New(p, rotate.Config{}).Start(ctx, "alice", "m-1")
	return err
}
