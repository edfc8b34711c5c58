package baseline_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/baseline"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/store"
)

// server is a machine with settings, volumes and firmware. What is asked of it takes effect when it boots.
type server struct {
	settings, pending map[string]any
	volumes           []driver.RAIDVolume
	firmware          map[string]string
	stuck             bool // accepts settings and never takes them
	writes            []string
}

func (s *server) GetSettings(*driver.Context) (map[string]any, error) { return s.settings, nil }

func (s *server) ApplySettings(_ *driver.Context, in map[string]any) (driver.BIOSResult, error) {
	var names []string
	for k := range in {
		names = append(names, k)
	}
	slices.Sort(names)
	s.writes, s.pending = append(s.writes, "bios "+strings.Join(names, ",")), in
	return driver.BIOSResult{Changed: names, OnReboot: true}, nil
}

func (s *server) ApplyLayout(_ *driver.Context, l driver.RAIDLayout) (driver.RAIDLayout, error) {
	s.writes, s.volumes = append(s.writes, "raid"), l.Volumes
	return l, nil
}

func (s *server) Clear(*driver.Context) error { s.volumes = nil; return nil }

func (s *server) GetLayout(*driver.Context) (driver.RAIDLayout, error) {
	return driver.RAIDLayout{Volumes: s.volumes}, nil
}

func (s *server) Components(*driver.Context) ([]driver.FirmwareComponent, error) {
	var out []driver.FirmwareComponent
	for id, v := range s.firmware {
		out = append(out, driver.FirmwareComponent{ID: id, Version: v})
	}
	return out, nil
}

func (s *server) Update(_ *driver.Context, c string, img driver.FirmwareImage) (driver.FirmwareResult, error) {
	s.writes = append(s.writes, "firmware "+c)
	s.firmware[c] = strings.TrimPrefix(img.URL, "https://fw.example/")
	return driver.FirmwareResult{OnReboot: true}, nil
}

type nothing struct{}

func (nothing) Resolve(context.Context, string) (secret.Value, error) {
	return secret.Login("admin", "pw"), nil
}
func (nothing) Profile(_ context.Context, n string) (*app.Profile, error) {
	return nil, app.Missing("profile", n)
}
func (nothing) Pool(_ context.Context, n string) (*app.Pool, error) {
	return nil, app.Missing("pool", n)
}

// bench runs a profile's steps on a server, which boots between those before and those after.
type bench struct {
	s     *server
	m     *app.Machine
	steps *baseline.Steps
	flows *workflow.Engine
}

const kindBoot = "test.boot"

func newBench(t *testing.T, kinds ...string) *bench {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	x := &bench{s: &server{settings: map[string]any{"BootMode": "Legacy", "Cores": 32, "SMT": true}, firmware: map[string]string{"BIOS": "1.0", "NIC": "7"},
		volumes: []driver.RAIDVolume{{Level: "0", Drives: []string{"0"}}}}}
	def := driver.Definition{ID: "acme", Version: "1.0.0", RunsOn: "site", Config: []byte(`{"type":"object"}`), Implements: map[string]driver.Factory{"power": func(json.RawMessage) (any, error) { return nil, nil }}}
	for _, k := range kinds {
		def.Implements[k] = func(json.RawMessage) (any, error) { return x.s, nil }
	}
	reg := drivers.New(drivers.Config{Secrets: nothing{}, Profiles: nothing{}})
	d, err := driver.Define(def)
	if err == nil {
		err = reg.Register(d, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	x.m = &app.Machine{ID: "m-1", Name: "node1", State: app.StateReady, BMC: &app.BMC{Driver: "acme", Address: "192.0.2.10", CredentialRef: "secret://root/bmc"}}
	res, err := reg.Resolve(t.Context(), drivers.InputOf(x.m))
	if err == nil {
		x.m.Drivers = res.Bindings
		err = db.CreateMachine(t.Context(), x.m)
	}
	if err != nil {
		t.Fatal(err)
	}
	x.flows = workflow.NewEngine(workflow.Config{Store: db, Log: slog.New(slog.DiscardHandler), Record: func(app.Event) {}})
	x.steps = baseline.New(&metal.Ports{Machines: db, Drivers: reg, Flows: x.flows, Now: time.Now,
		Supports: func(_ context.Context, m *app.Machine, ops ...string) error { return reg.Check(m, ops...) }})
	x.flows.Register(workflow.Kind{Name: kindBoot, Budget: time.Minute, Run: func(context.Context, workflow.StepContext) (any, error) {
		for k, v := range x.s.pending {
			if !x.s.stuck {
				x.s.settings[k] = v
			}
		}
		return nil, nil
	}})
	x.flows.RegisterVerb(workflow.Verb{Name: "commission", Version: 1})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.flows.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *bench) run(t *testing.T, p *app.Profile) *workflow.Workflow {
	t.Helper()
	before, after, err := x.steps.Plan(t.Context(), x.m, p)
	if err != nil {
		t.Fatal(err)
	}
	steps := append(slices.Clone(before), workflow.Step{ID: "boot", Kind: kindBoot, On: workflow.OnSite, Lane: workflow.LaneQuery})
	w, err := x.flows.Start(t.Context(), workflow.New{Verb: "commission", MachineID: x.m.ID, Actor: "alice", Steps: append(steps, after...)})
	if err != nil {
		t.Fatal(err)
	}
	if w, err = x.flows.Wait(t.Context(), w.ID); err != nil {
		t.Fatal(err)
	}
	return w
}

func profile() *app.Profile {
	return &app.Profile{Name: "gpu",
		BIOS:     map[string]json.RawMessage{"BootMode": json.RawMessage(`"Uefi"`), "Cores": json.RawMessage(`32`), "SMT": json.RawMessage(`false`)},
		RAID:     &app.RAIDLayout{Volumes: []app.RAIDVolume{{Level: "1", Drives: []string{"1", "0"}}}},
		Firmware: []app.FirmwareBaseline{{Component: "BIOS", Version: "2.1", URL: "https://fw.example/2.1"}, {Component: "NIC", Version: "7"}}}
}

func TestOnlyWhatDiffersIsChangedAndReadBack(t *testing.T) {
	x := newBench(t, "bios", "raid", "firmware")
	if w := x.run(t, profile()); w.State != workflow.Done {
		t.Fatalf("%s: %v", w.State, w.Error)
	}
	if want := []string{"firmware BIOS", "bios BootMode,SMT", "raid"}; !slices.Equal(x.s.writes, want) {
		t.Errorf("writes %q, want %q", x.s.writes, want)
	}
	x.s.writes = nil
	if w := x.run(t, profile()); w.State != workflow.Done || len(x.s.writes) != 0 {
		t.Errorf("once more: %s, writes %q", w.State, x.s.writes)
	}
}

func TestWhatIsNotAppliedIsNoSuccess(t *testing.T) {
	x := newBench(t, "bios", "raid", "firmware")
	x.s.stuck = true
	w := x.run(t, profile())
	if w.State != workflow.Failed || w.Error.Reason != "not-applied" || !strings.Contains(w.Error.Message, "BIOS setting BootMode") {
		t.Errorf("%s: %v", w.State, w.Error)
	}
}

func TestWhatTheMachineDoesNotHave(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*app.Profile)
		reason string
	}{
		"a setting":                   {func(p *app.Profile) { p.BIOS["Turbo"] = json.RawMessage(`true`) }, "unknown-setting"},
		"a component":                 {func(p *app.Profile) { p.Firmware[0].Component = "GPU" }, "unknown-component"},
		"a version without its image": {func(p *app.Profile) { p.Firmware[1].Version = "8" }, "firmware-differs"},
	} {
		x := newBench(t, "bios", "raid", "firmware")
		p := profile()
		c.change(p)
		if w := x.run(t, p); w.State != workflow.Failed || w.Error.Reason != c.reason || w.Error.WayOut == "" {
			t.Errorf("%s: %s %v", name, w.State, w.Error)
		}
	}
}

func TestDriversThatCannotAreRefusedUpFront(t *testing.T) {
	for _, kinds := range [][]string{nil, {"bios", "raid"}, {"bios", "firmware"}, {"raid", "firmware"}} {
		x := newBench(t, kinds...)
		_, _, err := x.steps.Plan(t.Context(), x.m, profile())
		if e, _ := app.AsError(err); e == nil || e.Code != app.Unsupported || e.Reason != "bmc-driver-unsupported" {
			t.Errorf("%v: %v", kinds, err)
		}
	}
	x := newBench(t)
	before, after, err := x.steps.Plan(t.Context(), x.m, &app.Profile{Name: "plain"})
	if len(before)+len(after) != 0 || err != nil {
		t.Errorf("a profile that says nothing: %v %v %v", before, after, err)
	}
	if b, a, err := x.steps.Plan(t.Context(), x.m, nil); len(b)+len(a) != 0 || err != nil {
		t.Errorf("no profile: %v", err)
	}
}
