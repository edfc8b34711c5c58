package metal

import (
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Arguments are what this site makes of the arguments of an operation that the ramdisk serves, because the agent knows
// neither images nor inventories: where a hardware profile's step names an image and a rule for disks, the agent is sent an
// index and one disk's identity.
type Arguments struct {
	// Plan checks a step's one argument, nil for none, before anything happens, and gives what is kept of it in the workflow.
	// A machine that was never inventoried is checked as far as that goes.
	Plan func(ctx context.Context, m *app.Machine, with json.RawMessage) (any, error)
	// Deliver makes the argument that the agent is sent: the same for every delivery of an attempt. Disks that it orders to be
	// written are noted as the machine's own before it returns.
	Deliver func(ctx context.Context, c workflow.Command, planned json.RawMessage) (any, error)
}

// Complete registers the making of an operation's arguments, such as deploy.deploy. Call it while verbs are made.
func (p *Ports) Complete(operation string, a Arguments) {
	if p.arguments == nil {
		p.arguments = map[string]Arguments{}
	}
	p.arguments[operation] = a
}

// planArguments makes what is kept of a step's arguments on its way to the ramdisk.
func (p *Ports) planArguments(ctx context.Context, m *app.Machine, in *agentv1.DriverInvokeArgs) error {
	a, own := p.arguments[in.Concern+"."+in.Operation]
	if !own {
		return nil
	}
	list, err := arguments(in.Concern, in.Operation, in.Args)
	if err != nil {
		return err
	}
	var with json.RawMessage
	if len(list) > 0 {
		with = list[0]
	}
	planned, err := a.Plan(ctx, m, with)
	if err == nil {
		in.Args, err = json.Marshal([]any{planned})
	}
	return err
}

// deliverArguments completes the arguments of a call that is sent to the ramdisk.
func (p *Ports) deliverArguments(ctx context.Context, c workflow.Command, in *agentv1.DriverInvokeArgs) error {
	a, own := p.arguments[in.Concern+"."+in.Operation]
	if !own {
		return nil
	}
	var planned []json.RawMessage
	if err := json.Unmarshal(in.Args, &planned); err != nil || len(planned) != 1 {
		return app.Errorf(app.Internal, "bad-workflow-input", "the arguments of the step %s cannot be read", c.StepID)
	}
	sent, err := a.Deliver(ctx, c, planned[0])
	if err == nil {
		in.Args, err = json.Marshal([]any{sent})
	}
	return err
}

// changesDisks reports whether a step changes what disks hold.
func changesDisks(s workflow.Step) bool {
	if s.Kind == agentv1.KindWrite || s.Kind == agentv1.KindWipe {
		return true
	}
	var in agentv1.DriverInvokeArgs
	return s.Kind == agentv1.KindDriverInvoke && s.On == workflow.OnAgent && json.Unmarshal(s.Payload, &in) == nil && in.Concern == "deploy"
}

// ChangedDisks reports whether a step of the workflow that changes what disks hold was ever started.
func ChangedDisks(w *workflow.Workflow) bool {
	for _, s := range w.Steps {
		if s.State != workflow.StepWaiting && changesDisks(s) {
			return true
		}
	}
	return false
}

// JustWritten refuses to touch a disk that the deploy which the step is part of has written.
func JustWritten(m *app.Machine, c workflow.Command, serial, wwn, name string) error {
	if d := m.Deployment; d != nil && d.WorkflowID == c.WorkflowID && d.Disk.Is(serial, wwn, name) {
		return app.Errorf(app.Conflict, "disk-just-written", "%s (serial %q) holds the system that this deploy has written", name, serial).
			Do("let the step run before the write, or name another disk")
	}
	return nil
}
