package metal

import (
	"context"
	"encoding/json"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/agent"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Step kinds shared by the verbs.
const (
	KindSetPower  = "power.setPower"           // setPower
	KindSetBoot   = "management.setBootDevice" // setBoot
	KindPermit    = "boot.permit"              // permit: mints a boot for the next power-on
	KindRevoke    = "boot.revoke"              // nothing: the machine boots its disk from now on
	KindAwaitUp   = "agent.await"              // nothing: waits for the agent
	operPower     = "power.setPower"
	operPowerRead = "power.getPower"
	operBoot      = "management.setBootDevice"
)

// NetbootOperations are the BMC operations every verb that boots the ramdisk needs.
var NetbootOperations = []string{operPowerRead, operPower, operBoot}

type setPower struct {
	Action string `json:"action"`
	// ThenOff lets a graceful off that the OS ignored become a forced one after two minutes: the caller asked for it.
	ThenOff bool `json:"thenOff,omitempty"`
}

type setBoot struct {
	Device     string `json:"device"`
	Persistent bool   `json:"persistent,omitempty"`
}

type permit struct {
	Rescue bool     `json:"rescue,omitempty"`
	Keys   []string `json:"authorizedKeys,omitempty"`
	ISO    string   `json:"iso,omitempty"`   // id of a CD image, in place of the ramdisk
	Media  bool     `json:"media,omitempty"` // its BMC reads it
}

// CanNetboot refuses, before anything happens, a verb on a machine that could not be brought into the ramdisk: a BMC driver
// that lacks an operation, or no subnet on which it would be answered.
func (p *Ports) CanNetboot(ctx context.Context, m *app.Machine) error {
	if err := p.Supports(ctx, m, NetbootOperations...); err != nil {
		return err
	}
	if _, err := p.SiteAddress(ctx, m); err != nil || !BootsFromCD(m) {
		return err
	}
	return p.canBootCD(ctx, m)
}

// Register registers the shared kinds with the engine.
func (p *Ports) Register() {
	p.Flows.Register(workflow.Kind{Name: KindSetPower, Budget: PowerChange, Run: p.runSetPower, Check: p.checkSetPower})
	p.Flows.Register(workflow.Kind{Name: KindSetBoot, Budget: BMCCall, Run: p.runSetBoot})
	p.Flows.Register(workflow.Kind{Name: KindPermit, Budget: time.Minute, Run: p.runPermit})
	p.Flows.Register(workflow.Kind{Name: KindRevoke, Budget: time.Minute, Run: p.runRevoke})
	p.Flows.Register(workflow.Kind{Name: KindRemember, Budget: BMCCall, Run: p.runRemember})
	p.Flows.Register(workflow.Kind{Name: KindAwaitUp, Budget: AgentUp, Run: p.runAwaitUp})
	p.registerBootCD()
	p.Flows.Register(workflow.Kind{Name: KindMediaInsert, Budget: insertBudget, Run: p.runMedia})
	p.Flows.Register(workflow.Kind{Name: KindMediaEject, Budget: insertBudget, Run: p.runMedia})
	p.Flows.Register(workflow.Kind{Name: agentv1.KindDriverInvoke, Budget: invokeBudget, Run: p.runInvoke, Prepare: p.prepareInvoke})
	for _, k := range []struct {
		name   string
		budget time.Duration
	}{
		{agentv1.KindInventory, 5 * time.Minute}, {agentv1.KindSetClock, time.Minute}, {agentv1.KindWrite, 12 * time.Hour},
		{agentv1.KindWipe, 5 * 24 * time.Hour}, // overwriting 30 TB takes two, and what is not proven is followed by another way
	} {
		p.Flows.Register(workflow.Kind{Name: k.name, Budget: k.budget})
	}
	p.registerBootOrder()
}

// Power is a step that sets the power.
func Power(id, title, action string) workflow.Step {
	return workflow.Step{ID: id, Title: title, Kind: KindSetPower, On: workflow.OnSite, Lane: workflow.LaneBMC, Destructive: true, Payload: payload(setPower{Action: action})}
}

// Shutdown is a step that asks the OS to stop and, when it does not, cuts the power.
func Shutdown(id, title string) workflow.Step {
	s := Power(id, title, "soft")
	s.Payload = payload(setPower{Action: "soft", ThenOff: true})
	return s
}

// BootDevice is a step that sets the boot device for the next boot, or for good.
func BootDevice(id, title, device string, persistent bool) workflow.Step {
	return workflow.Step{ID: id, Title: title, Kind: KindSetBoot, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true, Payload: payload(setBoot{Device: device, Persistent: persistent})}
}

// netboot is the run of steps that ends with a live agent: off, permit, boot device, on, agent, clock.
func netboot(pm permit) []workflow.Step {
	return []workflow.Step{
		Power("off", "Power off", "off"),
		permitting("Permit one network boot", pm),
		BootNetwork(),
		Power("on", "Power on", "on"),
		{ID: "agent", Title: "Wait for the ramdisk", Kind: KindAwaitUp, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true},
		OnAgent("clock", "Set the machine's clock", agentv1.KindSetClock, nil),
	}
}

func permitting(title string, pm permit) workflow.Step {
	return workflow.Step{ID: "permit", Title: title, Kind: KindPermit, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true, Payload: payload(pm)}
}

// PermitISO is a step that lets a machine read a CD image: through its BMC when media is set, else by a network boot.
func PermitISO(imageID string, media bool) workflow.Step {
	return permitting("Permit it to read the image", permit{ISO: imageID, Media: media})
}

// BootNetwork is a step that has the machine boot from the network once.
func BootNetwork() workflow.Step {
	return BootDevice("boot-network", "Boot from the network once", "pxe", false)
}

// Revoke is a step that withdraws what was permitted: from now on the machine boots its disk.
func Revoke() workflow.Step {
	return workflow.Step{ID: "revoke", Title: "Withdraw the permission to netboot", Kind: KindRevoke, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true}
}

// OnAgent is a step the machine's agent runs.
func OnAgent(id, title, kind string, p any) workflow.Step {
	s := workflow.Step{ID: id, Title: title, Kind: kind, On: workflow.OnAgent, Lane: workflow.LaneProvision, RetrySafe: true}
	if p != nil {
		s.Payload = payload(p)
	}
	return s
}

func payload(v any) json.RawMessage {
	b, err := json.Marshal(v)
	if err != nil { // the types above marshal
		panic(err)
	}
	return b
}

// Machine reads the machine of a step.
func (p *Ports) Machine(ctx context.Context, s workflow.StepContext) (*app.Machine, error) {
	return p.Machines.Machine(ctx, s.Command().MachineID)
}

func (p *Ports) hardware(ctx context.Context, s workflow.StepContext) (*app.Machine, Hardware, error) {
	m, err := p.Machine(ctx, s)
	if err != nil {
		return nil, nil, err
	}
	h, err := p.Hardware(ctx, m, CallOf(s.Command()))
	return m, h, err
}

// CallOf describes an attempt to the drivers that it calls.
func CallOf(c workflow.Command) drivers.Options {
	return drivers.Options{Key: c.Key, TraceParent: c.TraceParent}
}

// SawPower notes what the BMC said on the machine.
func (p *Ports) SawPower(ctx context.Context, id string, pw app.Power, reason string) {
	_, _ = p.Machines.UpdateMachine(ctx, id, func(m *app.Machine) error { // a note for people; the step's result stands without it
		m.Power, m.PowerSeen, m.PowerReason = pw, p.Now().UTC(), reason
		return nil
	})
}

func (p *Ports) runSetPower(ctx context.Context, s workflow.StepContext) (any, error) {
	var want setPower
	if err := json.Unmarshal(s.Command().Payload, &want); err != nil {
		return nil, err
	}
	m, h, err := p.hardware(ctx, s)
	if err != nil {
		return nil, err
	}
	s.Progress(workflow.Progress{Phase: "power", Message: "asking the BMC: " + want.Action})
	if err := p.setPower(ctx, h, want, s); err != nil {
		return nil, err
	}
	pw, err := h.Power(ctx)
	if err != nil {
		return nil, err
	}
	p.SawPower(ctx, m.ID, pw, "")
	return map[string]any{"power": pw}, nil
}

func (p *Ports) setPower(ctx context.Context, h Hardware, want setPower, s workflow.StepContext) error {
	if !want.ThenOff {
		return h.SetPower(ctx, want.Action)
	}
	soft, cancel := context.WithTimeout(ctx, 2*time.Minute)
	err := h.SetPower(soft, want.Action)
	cancel()
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.Log("the operating system did not power off when asked (%v); cutting the power", err)
	return h.SetPower(ctx, "off")
}

// checkSetPower reads the power. Only on and off leave a state behind that tells whether they happened.
func (p *Ports) checkSetPower(ctx context.Context, s workflow.StepContext) (workflow.Verdict, any, error) {
	var want setPower
	if err := json.Unmarshal(s.Command().Payload, &want); err != nil {
		return workflow.Unknown, nil, err
	}
	_, h, err := p.hardware(ctx, s)
	if err != nil {
		return workflow.Unknown, nil, err
	}
	pw, err := h.Power(ctx)
	if err != nil {
		return workflow.Unknown, nil, err
	}
	goal := app.PowerOff
	switch want.Action {
	case "on":
		goal = app.PowerOn
	case "off", "soft":
	default:
		return workflow.Unknown, nil, nil
	}
	switch pw {
	case goal:
		return workflow.Happened, map[string]any{"power": pw}, nil
	case app.PowerOn, app.PowerOff:
		return workflow.NotHappened, nil, nil
	}
	return workflow.Unknown, nil, nil
}

func (p *Ports) runSetBoot(ctx context.Context, s workflow.StepContext) (any, error) {
	var want setBoot
	if err := json.Unmarshal(s.Command().Payload, &want); err != nil {
		return nil, err
	}
	m, h, err := p.hardware(ctx, s)
	if err != nil {
		return nil, err
	}
	return nil, h.SetBootDevice(ctx, want.Device, want.Persistent, m.Firmware)
}

func (p *Ports) runPermit(ctx context.Context, s workflow.StepContext) (any, error) {
	var want permit
	if err := json.Unmarshal(s.Command().Payload, &want); err != nil {
		return nil, err
	}
	m, err := p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	boot := app.Boot{MachineID: m.ID, WorkflowID: s.Command().WorkflowID, IsRescue: want.Rescue, Rescue: want.Keys, ISO: want.ISO, Media: want.Media}
	if want.ISO == "" { // a ramdisk is told where we are
		if boot.Address, err = p.SiteAddress(ctx, m); err != nil {
			return nil, err
		}
	}
	b, err := p.Boots.Mint(ctx, boot)
	if err != nil {
		return nil, err
	}
	return map[string]string{"boot": b.Key}, nil
}

func (p *Ports) runRevoke(ctx context.Context, s workflow.StepContext) (any, error) {
	return nil, p.Boots.Revoke(ctx, s.Command().MachineID)
}

// runAwaitUp waits for a session of this workflow. It looks at the store first, so it can start over at any time.
func (p *Ports) runAwaitUp(ctx context.Context, s workflow.StepContext) (any, error) {
	c := s.Command()
	up, stop := p.Flows.Await(ctx, c.MachineID, agent.SignalUp)
	defer stop()
	alarm, stopAlarm := p.Flows.Await(ctx, c.MachineID, agent.SignalAlarm)
	defer stopAlarm()
	s.Progress(workflow.Progress{Phase: "netboot", Message: "waiting for the machine to boot the ramdisk and its agent to call"})
	for {
		ses, err := p.Agents.LiveAgentSession(ctx, c.MachineID)
		if err == nil && ses.WorkflowID == c.WorkflowID {
			return p.cameUp(ctx, ses)
		}
		if err != nil && app.CodeOf(err) != app.NotFound {
			return nil, err
		}
		b, err := p.Agents.LiveBoot(ctx, c.MachineID)
		switch {
		case err == nil && b.WorkflowID == c.WorkflowID && b.Refused != nil: // another machine answered
			return nil, b.Refused
		case err != nil && app.CodeOf(err) != app.NotFound:
			return nil, err
		}
		select {
		case <-up:
		case a := <-alarm:
			if err, ok := a.(error); ok {
				return nil, err
			}
		case <-ctx.Done():
			return nil, p.notUp(ctx, c.MachineID)
		}
	}
}

func (p *Ports) cameUp(ctx context.Context, ses *app.AgentSession) (any, error) {
	_, err := p.Machines.UpdateMachine(ctx, ses.MachineID, func(m *app.Machine) error {
		m.Firmware = ses.Firmware
		return nil
	})
	return map[string]any{"session": ses.ID, "firmware": ses.Firmware}, err
}

// PowerDown is the cleanup of a verb that failed or was aborted: no boot permission is left and the machine is off.
func (p *Ports) PowerDown(ctx context.Context, s workflow.StepContext) error {
	c := s.Command()
	if err := p.Boots.Revoke(ctx, c.MachineID); err != nil {
		return err
	}
	m, h, err := p.hardware(ctx, s)
	if err != nil {
		return err
	}
	if err := h.SetPower(ctx, "off"); err != nil {
		return err
	}
	p.SawPower(ctx, m.ID, app.PowerOff, "")
	return p.takeOut(ctx, s)
}
