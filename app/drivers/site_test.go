package drivers

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// siteCase is a way in which the site has a driver, or not: what is said before a workflow, and right before a call.
type siteCase struct {
	id          string
	make        func(t *testing.T, r *Registry)
	code        app.Code // "": it can be called
	front, call string   // reasons
}

func siteCases() map[string]siteCase {
	plug := func(id, runsOn string, kinds ...string) func(*testing.T, *Registry) {
		return func(t *testing.T, r *Registry) {
			t.Helper()
			def := driver.Definition{ID: id, Version: "1.0.0", RunsOn: runsOn, Foreign: true, Implements: map[string]driver.Factory{}}
			for _, k := range kinds {
				def.Implements[k] = func(json.RawMessage) (any, error) { return &cooler{}, nil }
			}
			if err := r.Register(mustDefine(t, def), "plugin-"+id); err != nil {
				t.Fatal(err)
			}
		}
	}
	all := []string{"power", "management", "inspect", "console", "virtual-media", "bios", "raid", "firmware", "acme-cooling"}
	return map[string]siteCase{
		"advertised": {id: "one", make: plug("one", "site", all...)},
		"its plugin is down": {id: "one", code: app.Unavailable, front: "unavailable", call: "unavailable", make: func(t *testing.T, r *Registry) {
			plug("one", "site", all...)(t, r)
			r.SetUp("one", "1.0.0", false, "it exited with status 1")
		}},
		"gone": {id: "one", code: app.Unsupported, front: "bmc-driver-unsupported", call: "unsupported-driver", make: func(t *testing.T, r *Registry) {
			plug("one", "site", all...)(t, r)
			r.Unregister("one", "1.0.0")
		}},
		"never there":            {id: "one", code: app.Unsupported, front: "bmc-driver-unsupported", call: "unsupported-driver", make: func(*testing.T, *Registry) {}},
		"it runs on ramdisks":    {id: "one", code: app.Unsupported, front: "bmc-driver-unsupported", call: "unsupported-driver", make: plug("one", "ramdisk", all...)},
		"it serves another kind": {id: "one", code: app.Unsupported, front: "bmc-driver-unsupported", call: "unsupported-driver", make: plug("one", "site", "runtime")},
		"the active version fell": {id: "one", code: app.Unavailable, front: "unavailable", call: "unavailable", make: func(t *testing.T, r *Registry) {
			plug("one", "site", all...)(t, r)
			plugVersion(t, r, "2.0.0", all...)
			r.SetUp("one", "2.0.0", false, "it crashed")
		}},
	}
}

// plugVersion registers another version of the driver one.
func plugVersion(t *testing.T, r *Registry, version string, kinds ...string) {
	t.Helper()
	def := driver.Definition{ID: "one", Version: version, RunsOn: "site", Foreign: true, Implements: map[string]driver.Factory{}}
	for _, k := range kinds {
		def.Implements[k] = func(json.RawMessage) (any, error) { return &cooler{}, nil }
	}
	if err := r.Register(mustDefine(t, def), "other"); err != nil {
		t.Fatal(err)
	}
}

// Every operation on the site is held against the site's labels, when it is planned and again right before it is made.
func TestEveryCallOnTheSiteIsHeldAgainstItsLabels(t *testing.T) {
	for name, c := range siteCases() {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t, &fakeBMC{})
			c.make(t, r)
			m := &app.Machine{Name: "m1", Drivers: map[string]app.Binding{}}
			for _, kind := range []string{"power", "management", "inspect", "console", "virtual-media", "bios", "raid", "firmware", "acme-cooling"} {
				m.Drivers[kind] = app.Binding{Driver: c.id}
			}
			_, labelled := r.SiteLabels()["bc.dev/driver-kind.one.power"]
			if labelled != (c.code == "") {
				t.Errorf("the site's labels are %v", r.SiteLabels())
			}
			check := func(what string, err error, reason string) {
				t.Helper()
				e, _ := app.AsError(err)
				switch {
				case c.code == "":
					if e != nil && (e.Reason == "bmc-driver-unsupported" || e.Reason == "unsupported-driver" || e.Reason == "unavailable") {
						t.Errorf("%s was refused: %v", what, err)
					}
				case e == nil || e.Code != c.code || e.Reason != reason || e.WayOut == "" || e.Retry != (c.code == app.Unavailable):
					t.Errorf("%s gave %+v, want %s %s", what, e, c.code, reason)
				}
			}
			for _, ops := range allowlists {
				for _, op := range ops {
					if op != "management.rotateCredential" { // which looks at the credential first
						check("planning "+op, r.Check(m, op), c.front)
					}
				}
			}
			check("planning console.open", r.Check(m, "console.open"), c.front)
			h := r.For(m, Options{})
			for command, ops := range allowlists {
				for _, op := range ops {
					kind, operation := (&app.ProfileStep{Step: op}).Parts()
					_, err := h.operate(t.Context(), command, kind, operation, json.RawMessage(`["on"]`), nil)
					check("calling "+op, err, c.call)
				}
			}
			_, err := h.Console(t.Context())
			check("calling console.open", err, c.call)
		})
	}
}

func TestEveryStepOnTheSiteIsHeldAgainstItsLabels(t *testing.T) {
	r, fan := newRegistry(t, &fakeBMC{}), &cooler{}
	plug(t, r, "one", "site", fan)
	m := &app.Machine{Name: "m1", Drivers: map[string]app.Binding{"acme-cooling": {Driver: "one"}}}
	step := app.ProfileStep{Step: "acme-cooling.setFanCurve"}
	planned, err := r.PlanStep(m, step)
	if err != nil {
		t.Fatal(err)
	}
	r.SetUp("one", "1.0.0", false, "it crashed")
	_, err = r.PlanStep(m, step)
	wantError(t, err, app.Unavailable, "unavailable", "")
	_, err = r.For(m, Options{}).InvokeStep(t.Context(), planned) // it fell after it was planned
	wantError(t, err, app.Unavailable, "unavailable", "")
	r.Unregister("one", "1.0.0")
	_, err = r.For(m, Options{}).InvokeStep(t.Context(), planned)
	wantError(t, err, app.Unsupported, ReasonNoDriver, "")
	if len(fan.calls) != 0 {
		t.Errorf("a refused step was called: %q", fan.calls)
	}
}

// What [bmc_drivers] says of a driver says nothing of whether the site has it.
func TestATableOfOperationsIsNoDriver(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	r.cfg.BMCDrivers = map[string][]string{"acme-bmc": {"power.getPower"}}
	m := &app.Machine{Name: "m1", Drivers: map[string]app.Binding{"power": {Driver: "acme-bmc"}}}
	wantError(t, r.Check(m, "power.getPower"), app.Unsupported, "bmc-driver-unsupported", "power.getPower")
}

// Kinds that labels leave out are not refused for it.
func TestKindsWithoutALabelAreCalled(t *testing.T) {
	r := New(Config{})
	var kinds []string
	for i := range 40 {
		kinds = append(kinds, fmt.Sprintf("acme-%02d", i))
	}
	plugVersion(t, r, "1.0.0", kinds...)
	if _, has := r.SiteLabels()["bc.dev/driver-kind.one.acme-39"]; has {
		t.Fatal("the kind has a label")
	}
	if err := r.here("one", "acme-39", reasonNotServed); err != nil {
		t.Error(err)
	}
	wantError(t, r.here("one", "acme-40", reasonNotServed), app.Unsupported, reasonNotServed, "")
}

func TestWhatTheSiteLacksIsNamedByMachine(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	plug(t, r, "one", "site", &cooler{})
	m := enrolled(t, r, Input{BMC: bmc(), Overrides: map[string]app.Binding{"acme-cooling": {Driver: "one"}, "inspect": {Driver: "ramdisk"}}})
	if l := r.Lacks(m); len(l) != 0 {
		t.Fatalf("lacks %+v", l)
	}
	r.SetUp("one", "1.0.0", false, "it crashed")
	r.Unregister("redfish", "1.0.0")
	got := r.Lacks(m)
	var ids []string
	for _, p := range got {
		ids = append(ids, p.Driver+" "+p.Error.Reason)
	}
	if want := []string{"one unavailable", "redfish bmc-driver-unsupported"}; !slices.Equal(ids, want) {
		t.Errorf("lacks %q, want %q", ids, want)
	}
}
