package drivers

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

func TestRegisterRefusesDoubles(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	wantError(t, r.Register(define(t, "redfish", "1.0.0", &fakeBMC{}, "power"), ""), app.InvalidConfig, "driver-registered", "")
	wantError(t, r.Register(define(t, "redfish", "9.0.0", &fakeBMC{}, "power"), "evil"), app.InvalidConfig, "driver-id-built-in", "")
	wantError(t, r.Register(define(t, "acme", "1.0.1", &fakeBMC{}, "power"), "acme-bmc"), app.InvalidConfig, "driver-id-built-in", "")
}

func TestNoPluginTakesABuiltInID(t *testing.T) {
	r := New(Config{})
	for _, id := range []string{"redfish", "ipxe", "virtual-media-boot", "image-stream", "ramdisk"} {
		wantError(t, r.Register(define(t, id, "9.0.0", &fakeBMC{}, "power"), "evil"), app.InvalidConfig, "driver-id-built-in", "")
		if err := r.Register(define(t, id, "1.0.0", &fakeBMC{}, "power"), ""); err != nil {
			t.Errorf("the built-in %s was refused: %v", id, err)
		}
	}
}

func TestActiveVersion(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	for _, v := range []string{"1.9.0", "1.10.0-rc.1", "1.10.0-rc.11", "1.10.0-rc.2"} {
		if err := r.Register(define(t, "ipmi", v, &fakeBMC{}, "power"), "bcx-ipmi"); err != nil {
			t.Fatal(err)
		}
	}
	want := func(v string) {
		t.Helper()
		if d, err := r.Driver("ipmi"); err != nil || d.Version() != v {
			t.Fatalf("active is %v (%v), want %s", d.Version(), err, v)
		}
	}
	want("1.10.0-rc.11")
	if err := r.Register(define(t, "ipmi", "1.10.0", &fakeBMC{}, "power"), "bcx-ipmi"); err != nil {
		t.Fatal(err)
	}
	want("1.10.0")
	if err := r.Pick(t.Context(), "ipmi", "1.9.0"); err != nil {
		t.Fatal(err)
	}
	want("1.9.0")
	wantError(t, r.Pick(t.Context(), "ipmi", "3.0.0"), app.NotFound, "", "")
	r.Unregister("ipmi", "1.9.0")
	want("1.10.0")
	r.Unregister("ipmi", "1.10.0")
	want("1.10.0-rc.11")
}

func TestCompareVersions(t *testing.T) {
	ordered := []string{"0.0.1", "0.1.0", "1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0-rc.1", "1.0.0", "1.2.0", "1.10.0", "2.0.0"}
	for i, a := range ordered {
		for j, b := range ordered {
			if got, want := compareVersions(a, b), compareInts(i, j); got != want {
				t.Errorf("compare %s %s: %d, want %d", a, b, got, want)
			}
		}
	}
	if compareVersions("1.0.0+a", "1.0.0+b") != 0 {
		t.Error("build metadata counts")
	}
}

func compareInts(a, b int) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func TestListIsSortedAndHoldsNoConfig(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	if err := r.Register(define(t, "redfish", "0.9.0", &fakeBMC{}, "power"), ""); err != nil {
		t.Fatal(err)
	}
	list, err := r.List("power")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range list {
		got = append(got, e.ID+"@"+e.Version)
	}
	if want := []string{"acme@1.0.0", "redfish@0.9.0", "redfish@1.0.0"}; !slices.Equal(got, want) {
		t.Fatalf("list is %v, want %v", got, want)
	}
	if list[1].Active || !list[2].Active {
		t.Error("the highest version is not the active one")
	}
	if b, _ := json.Marshal(list); strings.Contains(string(b), "schema") || strings.Contains(string(b), "address") {
		t.Errorf("the list shows configuration: %s", b)
	}
	if _, err := r.List("Power!"); app.CodeOf(err) != app.InvalidInput {
		t.Errorf("a bad kind gave %v", err)
	}
	if all, _ := r.List(""); len(all) != 5 {
		t.Errorf("%d drivers, want 5", len(all))
	}
	if none, err := r.List("acme-cooling"); err != nil || none == nil || len(none) != 0 {
		t.Errorf("an unserved kind gave %v, %v; want an empty list", none, err)
	}
}

// foreign makes a plugin's driver of the kinds; those that bcd does not know have the operations.
func foreign(t *testing.T, id string, kinds, operations, capabilities []string) *driver.Driver {
	t.Helper()
	f := func(json.RawMessage) (any, error) { return &fakeBMC{}, nil }
	def := driver.Definition{ID: id, Version: "1.0.0", RunsOn: driver.RunsOnSite, Foreign: true, Capabilities: capabilities,
		Implements: map[string]driver.Factory{}, RetrySafe: map[string][]string{}}
	for _, k := range kinds {
		def.Implements[k] = f
		if _, known := driver.LookupKind(k); !known {
			def.RetrySafe[k] = operations
		}
	}
	return mustDefine(t, def)
}

func TestAListedDriversWordsAreSorted(t *testing.T) {
	r := New(Config{})
	d := foreign(t, "zeta", []string{"power", "zeta-fans", "acme-cooling", "inspect"}, []string{"setFan", "getFan", "list"}, []string{"z-cap", "b-cap", "m-cap"})
	if err := r.Register(d, "zeta"); err != nil {
		t.Fatal(err)
	}
	list, err := r.List("")
	if err != nil {
		t.Fatal(err)
	}
	e := list[0]
	if want := []string{"acme-cooling", "inspect", "power", "zeta-fans"}; !slices.Equal(e.Kinds, want) {
		t.Errorf("kinds %q, want %q", e.Kinds, want)
	}
	if want := []string{"b-cap", "m-cap", "z-cap"}; !slices.Equal(e.Capabilities, want) {
		t.Errorf("capabilities %q, want %q", e.Capabilities, want)
	}
	for kind, ops := range e.Operations {
		if !slices.IsSorted(ops) {
			t.Errorf("operations of %s are not sorted: %q", kind, ops)
		}
	}
	if got, want := e.Operations["acme-cooling"], []string{"getFan", "list", "setFan"}; !slices.Equal(got, want) {
		t.Errorf("operations %q, want %q", got, want)
	}
}

func TestADriverAdvertises32Kinds(t *testing.T) {
	var kinds []string
	for i := range 40 {
		kinds = append(kinds, fmt.Sprintf("acme-%02d", i))
	}
	r := New(Config{})
	if err := r.Register(foreign(t, "acme", kinds, nil, nil), "acme"); err != nil {
		t.Fatal(err)
	}
	site := r.SiteLabels()
	for i := range 40 {
		_, has := site[fmt.Sprintf("bc.dev/driver-kind.acme.acme-%02d", i)]
		if has != (i < 32) {
			t.Errorf("label of kind %d: %v", i, has)
		}
	}
	if len(site) != 1+32 || site["bc.dev/driver.acme"] != "1.0.0" {
		t.Errorf("%d labels: %v", len(site), site)
	}
	m := &app.Machine{Drivers: map[string]app.Binding{"acme-00": {Driver: "acme"}}, Labels: map[string]string{"rack": "2", "bc.dev/cap.gone": "1"}}
	r.Label(m)
	if len(m.Labels) != 1+33 || m.Labels["rack"] != "2" || m.Labels["bc.dev/cap.gone"] != "" {
		t.Errorf("the machine's labels are %v", m.Labels)
	}
	r.Unregister("acme", "1.0.0")
	r.Label(m)
	if left := r.SiteLabels(); len(left) != 0 || len(m.Labels) != 1 || m.Labels["rack"] != "2" {
		t.Errorf("labels that nobody advertises stay: site %v, machine %v", left, m.Labels)
	}
}

func TestLabels(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	site := r.SiteLabels()
	for _, k := range []string{"bc.dev/driver.redfish", "bc.dev/driver-kind.redfish.power", "bc.dev/cap.netboot"} {
		if site[k] == "" {
			t.Errorf("the site lacks the label %s: %v", k, site)
		}
	}
	if _, has := site["bc.dev/driver.ramdisk"]; has {
		t.Error("the site advertises the ramdisk's driver")
	}
	r.SetUp("acme", "1.0.0", false, "it exited")
	if _, has := r.SiteLabels()["bc.dev/driver.acme"]; has {
		t.Error("the site advertises a driver that is down")
	}
}
