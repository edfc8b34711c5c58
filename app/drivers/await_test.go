package drivers

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// A workflow that is taken up waits for just the plugins that may serve what its machine calls.
func TestAwaits(t *testing.T) {
	serve := func(t *testing.T, r *Registry, plugin, id, version string, up bool, kinds ...string) {
		t.Helper()
		def := driver.Definition{ID: id, Version: version, RunsOn: "site", Foreign: true, Implements: map[string]driver.Factory{}}
		for _, k := range kinds {
			def.Implements[k] = func(json.RawMessage) (any, error) { return &cooler{}, nil }
		}
		if err := r.Register(mustDefine(t, def), plugin); err != nil {
			t.Fatal(err)
		}
		r.SetUp(id, version, up, "it has not started yet")
	}
	one := Needs{Drivers: []string{"one"}}
	fans := Needs{Kinds: []string{"acme-cooling"}}
	for name, c := range map[string]struct {
		needs    Needs
		make     func(*testing.T, *Registry)
		starting []string
		want     string
	}{
		"up, others start":                     {one, func(t *testing.T, r *Registry) { serve(t, r, "a", "one", "1.0.0", true, "power") }, []string{"b"}, ""},
		"down, its plugin starts":              {one, func(t *testing.T, r *Registry) { serve(t, r, "a", "one", "1.0.0", false, "power") }, []string{"a", "b"}, "one"},
		"down, its plugin failed":              {one, func(t *testing.T, r *Registry) { serve(t, r, "a", "one", "1.0.0", false, "power") }, []string{"b"}, ""},
		"never served, plugins start":          {one, func(*testing.T, *Registry) {}, []string{"b"}, "one"},
		"never served, all answered":           {one, func(*testing.T, *Registry) {}, nil, ""},
		"built in":                             {Needs{Drivers: []string{"redfish"}}, func(*testing.T, *Registry) {}, []string{"b"}, ""},
		"its active version's plugin starts":   {one, twoVersions(serve, true, false), []string{"b"}, "one"},
		"another version's plugin starts":      {one, twoVersions(serve, false, true), []string{"a"}, ""},
		"one of two":                           {Needs{Drivers: []string{"redfish", "one"}}, func(*testing.T, *Registry) {}, []string{"b"}, "one"},
		"a kind that is served":                {fans, func(t *testing.T, r *Registry) { serve(t, r, "a", "one", "1.0.0", true, "acme-cooling") }, []string{"b"}, ""},
		"a kind whose plugin starts":           {fans, func(t *testing.T, r *Registry) { serve(t, r, "a", "one", "1.0.0", false, "acme-cooling") }, []string{"a"}, "acme-cooling"},
		"a kind whose plugin failed":           {fans, func(t *testing.T, r *Registry) { serve(t, r, "a", "one", "1.0.0", false, "acme-cooling") }, []string{"b"}, ""},
		"a kind that nobody served":            {fans, func(*testing.T, *Registry) {}, []string{"b"}, "acme-cooling"},
		"a kind that nobody served, all there": {fans, func(*testing.T, *Registry) {}, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t, &fakeBMC{})
			c.make(t, r)
			if got := r.Awaits(c.needs, c.starting); got != c.want {
				t.Errorf("it waits for %q, want %q", got, c.want)
			}
		})
	}
}

type server func(t *testing.T, r *Registry, plugin, id, version string, up bool, kinds ...string)

// twoVersions has plugin a serve one driver's version 1 and plugin b its version 2, which is the active one.
func twoVersions(serve server, up1, up2 bool) func(*testing.T, *Registry) {
	return func(t *testing.T, r *Registry) {
		t.Helper()
		serve(t, r, "a", "one", "1.0.0", up1, "power")
		serve(t, r, "b", "one", "2.0.0", up2, "power")
	}
}

func TestNeeds(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	r.cfg.Profiles = shelf{profiles: map[string]app.Profile{"gpu": {
		Name: "gpu", Drivers: map[string]app.Binding{"boot": {Driver: "ipxe"}, "bios": {Driver: "vendor-a"}, "raid": {Driver: "vendor-b"}},
		Steps: app.ProfileSteps{
			Commission: []app.ProfileStep{{Step: "acme-cooling.setFanCurve"}, {Step: "raid.clear"}, {Step: "inspect.inspect", On: "ramdisk"}},
			AfterWrite: []app.ProfileStep{{Step: "power.setPower", On: "site"}},
		}}}, pools: map[string]app.Pool{"gpu": {Name: "gpu", Policy: app.PoolPolicy{HardwareProfile: "gpu"}}}}
	bound := map[string]app.Binding{"power": {Driver: "acme", Layer: LayerBMC}, "raid": {Driver: "own", Layer: LayerMachine}, "bios": {Driver: "acme", Layer: LayerBMC}}
	for name, c := range map[string]struct {
		m              app.Machine
		drivers, kinds []string
	}{
		"nothing":               {app.Machine{}, nil, nil},
		"a BMC alone":           {app.Machine{BMC: &app.BMC{Driver: "ipmi"}}, []string{"ipmi"}, nil},
		"bindings and a pool's": {app.Machine{BMC: &app.BMC{Driver: "acme"}, Pool: "gpu", Drivers: bound}, []string{"acme", "ipxe", "own", "vendor-a"}, []string{"acme-cooling"}},
		"a profile of its own":  {app.Machine{Profile: "gpu"}, []string{"ipxe", "vendor-a", "vendor-b"}, []string{"acme-cooling", "power"}},
		"a profile that is not": {app.Machine{Profile: "gone", Drivers: bound}, []string{"acme", "own"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			if n := r.Needs(t.Context(), &c.m); !slices.Equal(n.Drivers, c.drivers) || !slices.Equal(n.Kinds, c.kinds) {
				t.Errorf("it needs %+v, want %v, %v", n, c.drivers, c.kinds)
			}
		})
	}
}
