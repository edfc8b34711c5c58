package drivers

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

func TestRegisterRefusesDoubles(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	wantError(t, r.Register(define(t, "redfish", "1.0.0", &fakeBMC{}, "power"), ""), app.InvalidConfig, "driver-registered", "")
	wantError(t, r.Register(define(t, "redfish", "9.0.0", &fakeBMC{}, "power"), "evil"), app.InvalidConfig, "driver-id-built-in", "")
	wantError(t, r.Register(define(t, "acme", "1.0.1", &fakeBMC{}, "power"), "acme-bmc"), app.InvalidConfig, "driver-id-built-in", "")
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
	if err := r.Pick("ipmi", "1.9.0"); err != nil {
		t.Fatal(err)
	}
	want("1.9.0")
	wantError(t, r.Pick("ipmi", "3.0.0"), app.NotFound, "", "")
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
