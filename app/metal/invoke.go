package metal

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Kinds of a profile's steps that have code of their own. All others become one driver.invoke.
const (
	KindMediaInsert = "media.insert" // insertMedia
	KindMediaEject  = "media.eject"  // nothing
)

// invokeBudget is how long one attempt of a driver.invoke may take when its step does not say.
const invokeBudget = 10 * time.Minute

type insertMedia struct {
	ISO string `json:"iso"`
}

// planner plans one step of a profile for a machine.
type planner func(ctx context.Context, m *app.Machine, s app.ProfileStep) (workflow.Step, error)

// registered are the steps that act through their own code: drivers.OwnSteps.
func (p *Ports) registered() map[string]planner {
	return map[string]planner{KindSetPower: p.planSetPower, KindSetBoot: p.planSetBoot, KindMediaInsert: p.planInsert, KindMediaEject: p.planEject}
}

// ProfileSteps plans a list of a hardware profile's steps for a machine, with ids that begin with prefix. It refuses, before
// anything happens, a step that no driver of the machine serves, or that cannot run where it shall.
func (p *Ports) ProfileSteps(ctx context.Context, m *app.Machine, prefix string, steps []app.ProfileStep) ([]workflow.Step, error) {
	var out []workflow.Step
	for i, s := range steps {
		plan := planner(p.planInvoke)
		if own, ok := p.registered()[s.Step]; ok {
			if s.On != "" && s.On != app.StepOnSite {
				return nil, app.Errorf(app.Unsupported, "role-unsupported", "%s runs on the site, not on %q", s.Step, s.On).At(s.Step).Do("leave on: out")
			}
			plan = own
		}
		step, err := plan(ctx, m, s)
		if err != nil {
			return nil, err
		}
		step.ID, step.Title = fmt.Sprintf("%s-%d", prefix, i), s.Name()
		if s.Timeout != 0 {
			step.Budget = s.Timeout
		}
		out = append(out, step)
	}
	return out, nil
}

// planInvoke makes the one command that an operation of a driver becomes.
func (p *Ports) planInvoke(ctx context.Context, m *app.Machine, s app.ProfileStep) (workflow.Step, error) {
	c, err := p.Drivers.PlanStep(m, s)
	if err != nil {
		return workflow.Step{}, err
	}
	in := agentv1.DriverInvokeArgs{Concern: c.Concern, Operation: c.Operation, Args: c.With, Driver: c.Driver, Config: c.Config}
	step := workflow.Step{Kind: agentv1.KindDriverInvoke, On: workflow.OnSite, Lane: workflow.LaneProvision, Destructive: true, Budget: app.Duration(invokeBudget)}
	if c.On == driver.RunsOnRamdisk {
		step.On = workflow.OnAgent
		if !ramdiskServes(c) {
			return step, app.Errorf(app.Unsupported, "bmc-driver-unsupported", "the ramdisk's agent does not serve %s", s.Step).At(s.Step).Do("let the step run on the site")
		}
		if err := p.planArguments(ctx, m, &in); err != nil {
			return step, err
		}
	}
	step.Payload = payload(in)
	if changesDisks(step) { // it may begin again on the same disk, and shows progress all the time
		step.Rewrites, step.Stall = true, app.Duration(WriteStall)
	}
	return step, nil
}

// ramdiskServes reports whether the agent of this build has the operation.
func ramdiskServes(c drivers.StepCall) bool {
	for _, d := range agentv1.RamdiskDrivers() {
		for _, op := range d.Operations[c.Concern] {
			if op == c.Operation && (c.Driver == "" || c.Driver == d.ID) {
				return true
			}
		}
	}
	return false
}

// invokePayload completes the payload of a driver.invoke for one attempt: the same bytes for the same key.
func invokePayload(c workflow.Command, onSite bool) (agentv1.DriverInvoke, error) {
	in := agentv1.DriverInvoke{WorkflowID: c.WorkflowID, StepID: c.StepID, Attempt: c.Attempt}
	if onSite {
		in.TargetNodeID = c.MachineID
	}
	return in, json.Unmarshal(c.Payload, &in.Args)
}

func (p *Ports) prepareInvoke(ctx context.Context, s workflow.StepContext) (any, error) {
	in, err := invokePayload(s.Command(), false)
	if err == nil {
		err = p.deliverArguments(ctx, s.Command(), &in.Args)
	}
	return in, err
}

// runInvoke runs an operation on the site. The command's expiry is the call's deadline.
func (p *Ports) runInvoke(ctx context.Context, s workflow.StepContext) (any, error) {
	c := s.Command()
	in, err := invokePayload(c, true)
	if err != nil {
		return nil, err
	}
	m, err := p.Machines.Machine(ctx, in.TargetNodeID)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithDeadline(ctx, c.NotAfter)
	defer cancel()
	h := p.Drivers.For(m, drivers.Options{Key: c.Key, TraceParent: c.TraceParent, OnProgress: func(pr driver.Progress) {
		s.Progress(workflow.Progress{Phase: Clip(pr.Phase), Message: Clip(pr.Message), Done: pr.Done, Total: pr.Total})
	}})
	out, err := h.InvokeStep(ctx, drivers.StepCall{Concern: in.Args.Concern, Operation: in.Args.Operation, On: driver.RunsOnSite,
		With: in.Args.Args, Driver: in.Args.Driver, Config: in.Args.Config})
	if err != nil {
		return nil, err
	}
	return agentv1.DriverInvokeResult{Result: out}, nil
}

// arguments reads a registered step's arguments by the operation's parameters.
func arguments(kind, operation string, with json.RawMessage) ([]json.RawMessage, error) {
	k, _ := driver.LookupKind(kind)
	op, _ := k.Operation(operation)
	args, err := op.Positional(with)
	return args, drivers.Error(err)
}

func (p *Ports) planSetPower(ctx context.Context, m *app.Machine, s app.ProfileStep) (workflow.Step, error) {
	args, err := arguments("power", "setPower", s.With)
	if err != nil {
		return workflow.Step{}, err
	}
	var action driver.PowerAction
	if len(args) == 1 {
		err = json.Unmarshal(args[0], &action)
	}
	switch action {
	case driver.ActionOn, driver.ActionOff, driver.ActionSoft, driver.ActionCycle, driver.ActionReset:
	default:
		return workflow.Step{}, app.Invalid(s.Step, "%q is no power action", Clip(string(action))).Do("use on, off, soft, cycle or reset")
	}
	if err == nil {
		err = p.Supports(ctx, m, operPower, operPowerRead)
	}
	return Power("", "", string(action)), err
}

func (p *Ports) planSetBoot(ctx context.Context, m *app.Machine, s app.ProfileStep) (workflow.Step, error) {
	args, err := arguments("management", "setBootDevice", s.With)
	if err != nil {
		return workflow.Step{}, err
	}
	var device driver.BootDevice
	var o driver.BootOptions
	for i, to := range []any{&device, &o} {
		if i < len(args) && err == nil {
			err = json.Unmarshal(args[i], to)
		}
	}
	switch {
	case err != nil || device == "":
		return workflow.Step{}, app.Invalid(s.Step, "names no boot device").Do("write with: {device: pxe, persistent: false}")
	case o.UEFI != nil:
		return workflow.Step{}, app.Invalid(s.Step, "the boot mode is the machine's own").Do("leave uefi out")
	}
	return BootDevice("", "", string(device), o.Persistent), p.Supports(ctx, m, operBoot)
}

func (p *Ports) planInsert(ctx context.Context, m *app.Machine, s app.ProfileStep) (workflow.Step, error) {
	args, err := arguments("virtual-media", "insert", s.With)
	var in insertMedia
	if err == nil && len(args) == 1 {
		err = json.Unmarshal(args[0], &in.ISO)
	}
	if err != nil || app.ValidURL(s.Step, in.ISO) != nil {
		return workflow.Step{}, app.Invalid(s.Step, "names no http or https URL of an ISO image that is served without a password").Do("write with: {iso: https://…}")
	}
	return media(KindMediaInsert, in), p.Supports(ctx, m, "virtual-media.insert")
}

func (p *Ports) planEject(ctx context.Context, m *app.Machine, s app.ProfileStep) (workflow.Step, error) {
	if _, err := arguments("virtual-media", "eject", s.With); err != nil {
		return workflow.Step{}, err
	}
	return media(KindMediaEject, struct{}{}), p.Supports(ctx, m, "virtual-media.eject")
}

func media(kind string, p any) workflow.Step {
	return workflow.Step{Kind: kind, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true, Payload: payload(p)}
}

// runMedia fills or empties the machine's virtual drive.
func (p *Ports) runMedia(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	drive := p.Drivers.For(m, CallOf(s.Command())).VirtualMedia()
	if s.Command().Kind == KindMediaEject {
		return nil, drive.Eject(ctx)
	}
	var in insertMedia
	if err := json.Unmarshal(s.Command().Payload, &in); err != nil {
		return nil, err
	}
	return nil, drive.Insert(ctx, in.ISO)
}
