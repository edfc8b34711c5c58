package metal_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// desk registers step kinds and nothing else.
type desk struct {
	workflow.API
	kinds map[string]workflow.Kind
}

func (d *desk) Register(k workflow.Kind)     { d.kinds[k.Name] = k }
func (d *desk) RegisterVerb(k workflow.Verb) {}

// shelf is a store of one machine.
type shelf struct {
	app.MachineStore
	m *app.Machine
}

func (s shelf) Machine(_ context.Context, id string) (*app.Machine, error) {
	if id != s.m.ID {
		return nil, app.Missing("machine", id)
	}
	return s.m, nil
}

func (s shelf) UpdateMachine(_ context.Context, _ string, change func(*app.Machine) error) (*app.Machine, error) {
	return s.m, change(s.m)
}

// attempt is what a step sees.
type attempt struct {
	workflow.StepContext
	cmd      workflow.Command
	progress []workflow.Progress
}

func (a *attempt) Command() workflow.Command    { return a.cmd }
func (a *attempt) Progress(p workflow.Progress) { a.progress = append(a.progress, p) }
func (a *attempt) Log(string, ...any)           {}

// rack is a driver of every kind that a test plugs in.
type rack struct {
	calls []string
	key   string
	trace string
	until time.Time
}

func (r *rack) Invoke(ctx *driver.Context, op string, args []json.RawMessage) (any, error) {
	raw, _ := json.Marshal(args)
	r.calls, r.key = append(r.calls, op+string(raw)), ctx.IdempotencyKey
	r.trace = ctx.TraceParent
	r.until, _ = ctx.Deadline()
	ctx.Emit(driver.Progress{Phase: "turning", Done: 1, Total: 2})
	switch op {
	case "getPower":
		return "off", nil
	case "refuse":
		return nil, driver.Errorf("fan-stuck", "fan 3 does not turn")
	}
	return map[string]int{"rpm": 900}, nil
}

type noSecrets struct{}

func (noSecrets) Resolve(context.Context, string) (secret.Value, error) {
	return secret.Login("admin", "pw"), nil
}

type noProfiles struct{}

func (noProfiles) Profile(_ context.Context, n string) (*app.Profile, error) {
	return nil, app.Missing("profile", n)
}
func (noProfiles) Pool(_ context.Context, n string) (*app.Pool, error) {
	return nil, app.Missing("pool", n)
}

// shop is a machine whose BMC is driven by acme-bmc, which also cools it.
func shop(t *testing.T) (*metal.Ports, *desk, *rack, *app.Machine) {
	t.Helper()
	r, d := &rack{}, &desk{kinds: map[string]workflow.Kind{}}
	reg := drivers.New(drivers.Config{Secrets: noSecrets{}, Profiles: noProfiles{}})
	def := driver.Definition{ID: "acme-bmc", Version: "1.0.0", RunsOn: "site", Foreign: true, Implements: map[string]driver.Factory{},
		Config: []byte(`{"type":"object","properties":{"address":{"type":"string"},"zone":{"type":"integer"}}}`)}
	for _, k := range []string{"power", "management", "virtual-media", "acme-cooling"} {
		def.Implements[k] = func(json.RawMessage) (any, error) { return r, nil }
	}
	for _, def := range []driver.Definition{def, drivers.Ramdisk(nil)} {
		x, err := driver.Define(def)
		if err == nil {
			err = reg.Register(x, map[bool]string{true: "acme"}[def.Foreign])
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	m := &app.Machine{ID: "m-1", Name: "node1", BMC: &app.BMC{Driver: "acme-bmc", Address: "192.0.2.10", CredentialRef: "secret://root/bmc"}}
	res, err := reg.Resolve(t.Context(), drivers.Input{BMC: m.BMC, Overrides: map[string]app.Binding{"acme-cooling": {Driver: "acme-bmc", Config: json.RawMessage(`{"zone":3}`)}}})
	if err != nil {
		t.Fatal(err)
	}
	m.Drivers = res.Bindings
	p := &metal.Ports{Machines: shelf{m: m}, Drivers: reg, Flows: d, Now: time.Now,
		Supports: func(_ context.Context, m *app.Machine, ops ...string) error { return reg.Check(m, ops...) },
		Hardware: func(_ context.Context, m *app.Machine, call drivers.Options) (metal.Hardware, error) {
			return reg.For(m, call).Hardware(), nil
		}}
	p.Register()
	return p, d, r, m
}

var fanCurve = app.ProfileStep{Step: "acme-cooling.setFanCurve", Title: "Turn the fans up", With: json.RawMessage(`[30,60,100]`), Timeout: app.Duration(time.Minute)}

// traceParent is the span of every attempt here.
const traceParent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

// command is the attempt of a planned step.
func command(s workflow.Step) *attempt {
	return &attempt{cmd: workflow.Command{Key: "wf:wf-1:" + s.ID + "#2", Kind: s.Kind, WorkflowID: "wf-1", StepID: s.ID, Attempt: 2, MachineID: "m-1", Lane: s.Lane, TraceParent: traceParent,
		NotAfter: time.Now().Add(time.Duration(s.Budget)).Round(0), Payload: s.Payload}}
}

func TestAProfileStepIsOneDriverInvoke(t *testing.T) {
	p, d, r, m := shop(t)
	steps, err := p.ProfileSteps(t.Context(), m, "profile", []app.ProfileStep{fanCurve, {Step: "acme-cooling.getFanCurve"}})
	if err != nil || len(steps) != 2 {
		t.Fatalf("%+v, %v", steps, err)
	}
	s := steps[0]
	if s.ID != "profile-0" || s.Kind != "driver.invoke" || s.On != workflow.OnSite || s.Lane != workflow.LaneProvision || !s.Destructive || s.RetrySafe ||
		time.Duration(s.Budget) != time.Minute || s.Title != "Turn the fans up" || time.Duration(steps[1].Budget) != 10*time.Minute {
		t.Errorf("planned %+v", s)
	}
	a := command(s)
	out, err := d.kinds["driver.invoke"].Run(t.Context(), a)
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := json.Marshal(out); string(raw) != `{"resultJson":{"rpm":900}}` {
		t.Errorf("result %s", raw)
	}
	if len(r.calls) != 1 || r.calls[0] != "setFanCurve[[30,60,100]]" || r.key != "wf:wf-1:profile-0#2" || r.trace != traceParent || !r.until.Equal(a.cmd.NotAfter) {
		t.Errorf("calls %q, key %q, until %s of %s", r.calls, r.key, r.until, a.cmd.NotAfter)
	}
	if len(a.progress) != 1 || a.progress[0].Phase != "turning" {
		t.Errorf("progress %+v", a.progress)
	}
	refuse, err := p.ProfileSteps(t.Context(), m, "x", []app.ProfileStep{{Step: "acme-cooling.refuse"}})
	if err != nil {
		t.Fatal(err)
	}
	_, err = d.kinds["driver.invoke"].Run(t.Context(), command(refuse[0]))
	if e, _ := app.AsError(err); e == nil || e.Reason != "fan-stuck" {
		t.Errorf("a driver's own code became %v", err)
	}
	if k := d.kinds["driver.invoke"]; k.Check != nil || k.Budget != 10*time.Minute {
		t.Errorf("an interrupted call is settled by itself, or has %s", k.Budget)
	}
}

// A machine is asked to boot the way it is known to boot, from its first boot device on.
func TestABootDeviceIsSetForTheMachinesFirmware(t *testing.T) {
	for firmware, want := range map[app.Firmware]string{"": `setBootDevice["pxe",{}]`, app.FirmwareUEFI: `setBootDevice["pxe",{"uefi":true}]`, app.FirmwareBIOS: `setBootDevice["pxe",{"uefi":false}]`} {
		_, d, r, m := shop(t)
		m.Firmware = firmware
		steps := new(metal.Ports).Ramdisk(&app.Machine{})
		first := steps[slices.IndexFunc(steps, func(s workflow.Step) bool { return s.Kind == metal.KindSetBoot })]
		if _, err := d.kinds[first.Kind].Run(t.Context(), command(first)); err != nil || !slices.Equal(r.calls, []string{want}) {
			t.Errorf("firmware %q: calls %q, want %q; %v", firmware, r.calls, want, err)
		}
	}
}

// The payload is the reference's, member for member: a machine's own agent gets no targetNodeId.
func TestThePayloadOfADriverInvoke(t *testing.T) {
	p, d, _, m := shop(t)
	m.Drivers["inspect"] = app.Binding{Driver: "ramdisk", Config: json.RawMessage(`{}`)}
	if _, err := p.ProfileSteps(t.Context(), m, "main", []app.ProfileStep{{Step: "inspect.inspect", On: "ramdisk", With: json.RawMessage(`{"deep":true}`)}}); err == nil {
		t.Fatal("inspect takes no arguments")
	}
	steps, err := p.ProfileSteps(t.Context(), m, "main", []app.ProfileStep{{Step: "inspect.inspect", On: "ramdisk"}})
	if err != nil {
		t.Fatal(err)
	}
	if s := steps[0]; s.On != workflow.OnAgent || s.Lane != workflow.LaneProvision || !s.Destructive || s.RetrySafe {
		t.Errorf("planned %+v", s)
	}
	once, err := d.kinds["driver.invoke"].Prepare(t.Context(), command(steps[0]))
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(once)
	if want := `{"workflowId":"wf-1","stepId":"main-0","attempt":2,"args":{"concern":"inspect","operation":"inspect","driver":"ramdisk","config":{}}}`; err != nil || string(raw) != want {
		t.Errorf("payload %s, want %s (%v)", raw, want, err)
	}
	again, _ := d.kinds["driver.invoke"].Prepare(t.Context(), command(steps[0]))
	if cmp.Diff(once, again) != "" {
		t.Error("the payload of one key changed")
	}
	site := agentv1.DriverInvoke{WorkflowID: "wf-1", StepID: "main-3", Attempt: 0, TargetNodeID: "m-1", Args: agentv1.DriverInvokeArgs{Concern: "bios", Operation: "applySettings",
		Args: json.RawMessage(`{"a":1}`), Driver: "acme-bmc"}}
	raw, _ = json.Marshal(site)
	if want := `{"workflowId":"wf-1","stepId":"main-3","attempt":0,"targetNodeId":"m-1","args":{"concern":"bios","operation":"applySettings","args":{"a":1},"driver":"acme-bmc"}}`; string(raw) != want {
		t.Errorf("payload %s, want %s", raw, want)
	}
}

func TestRegisteredStepsActThroughTheirOwnCode(t *testing.T) {
	p, d, r, m := shop(t)
	steps, err := p.ProfileSteps(t.Context(), m, "profile", []app.ProfileStep{
		{Step: "power.setPower", With: json.RawMessage(`{"action":"shutdown"}`)},
		{Step: "management.setBootDevice", With: json.RawMessage(`{"device":"hdd","persistent":true}`)},
		{Step: "media.insert", With: json.RawMessage(`{"iso":"https://images.example/a.iso"}`)}, {Step: "media.eject"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var kinds []string
	for _, s := range steps {
		kinds = append(kinds, s.Kind)
		if s.Lane != workflow.LaneBMC {
			t.Errorf("%s is in lane %s", s.Kind, s.Lane)
		}
	}
	if want := []string{"power.setPower", "management.setBootDevice", "media.insert", "media.eject"}; !slices.Equal(kinds, want) {
		t.Fatalf("kinds %q", kinds)
	}
	for _, s := range steps {
		r.key, r.trace = "", ""
		a := command(s)
		if _, err := d.kinds[s.Kind].Run(t.Context(), a); err != nil {
			t.Errorf("%s: %v", s.Kind, err)
		}
		if r.key != a.cmd.Key || r.trace != traceParent {
			t.Errorf("%s: its driver was called with key %q and traceparent %q", s.Kind, r.key, r.trace)
		}
	}
	want := []string{`setPower["soft"]`, `getPower[]`, `setBootDevice["disk",{"persistent":true}]`, `insert["https://images.example/a.iso"]`, `eject[]`}
	if !slices.Equal(r.calls, want) {
		t.Errorf("calls %q, want %q", r.calls, want)
	}
	for name, s := range map[string]app.ProfileStep{
		"no action":      {Step: "power.setPower"},
		"another action": {Step: "power.setPower", With: json.RawMessage(`{"action":"explode"}`)},
		"no device":      {Step: "management.setBootDevice"},
		"a boot mode":    {Step: "management.setBootDevice", With: json.RawMessage(`{"device":"pxe","uefi":true}`)},
		"a file":         {Step: "media.insert", With: json.RawMessage(`{"iso":"/etc/shadow"}`)},
		"a password":     {Step: "media.insert", With: json.RawMessage(`{"iso":"https://u:p@images.example/a.iso"}`)},
		"too much":       {Step: "media.eject", With: json.RawMessage(`{"a":1}`)},
		"on the machine": {Step: "power.setPower", On: "ramdisk", With: json.RawMessage(`{"action":"off"}`)},
	} {
		_, err := p.ProfileSteps(t.Context(), m, "x", []app.ProfileStep{s})
		if e, ok := app.AsError(err); !ok || e.Code != app.InvalidInput && e.Code != app.Unsupported {
			t.Errorf("%s: %v", name, err)
		}
	}
	delete(m.Drivers, "virtual-media")
	_, err = p.ProfileSteps(t.Context(), m, "x", []app.ProfileStep{{Step: "media.eject"}})
	if e, _ := app.AsError(err); e == nil || e.Reason != "bmc-driver-unsupported" || errors.Is(err, context.Canceled) {
		t.Errorf("without a drive: %v", err)
	}
}
