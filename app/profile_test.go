package app_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

func TestABindingIsAnIDOrAnObject(t *testing.T) {
	for in, want := range map[string]string{
		`"redfish"`:            "redfish",
		`{"driver":"redfish"}`: "redfish",
		`{"driver":"acme","config":{"address":"192.0.2.1"}}`: "acme",
	} {
		var b app.Binding
		if err := json.Unmarshal([]byte(in), &b); err != nil || b.Driver != want || (want == "acme") != (len(b.Config) > 0) {
			t.Errorf("%s: %+v, %v", in, b, err)
		}
	}
	for _, in := range []string{`7`, `{"driver":"a","password":"x"}`, `["a"]`} {
		var b app.Binding
		if err := json.Unmarshal([]byte(in), &b); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%s: %+v, %v", in, b, err)
		}
	}
}

func TestProfileReportsEveryProblem(t *testing.T) {
	good := app.Profile{Name: "gpu", Drivers: map[string]app.Binding{"acme-cooling": {Driver: "acme-bmc", Config: json.RawMessage(`{"zone":1}`)}},
		BIOS: map[string]json.RawMessage{"BootMode": json.RawMessage(`"Uefi"`), "Cores": json.RawMessage(`4`), "SMT": json.RawMessage(`false`)},
		RAID: &app.RAIDLayout{Volumes: []app.RAIDVolume{{Level: "1", Drives: []string{"0", "1"}}}}, Firmware: []app.FirmwareBaseline{{Component: "BIOS", Version: "2.1"}},
		Steps: app.ProfileSteps{Commission: []app.ProfileStep{{Step: "acme-cooling.setFanCurve", With: json.RawMessage(`[1,2]`), Timeout: app.Duration(time.Minute)}}}}
	if err := good.Validate(); err != nil {
		t.Fatal(err)
	}
	bad := app.Profile{Name: "Not A Name", Description: "a\nb", KernelArgs: "${x}",
		Drivers:  map[string]app.Binding{"Power": {Driver: "x"}, "power": {Driver: "No.Dots"}, "boot": {Driver: "ipxe", Config: json.RawMessage(`[]`)}},
		BIOS:     map[string]json.RawMessage{"A": json.RawMessage(`{"nested":1}`), "=": json.RawMessage(`1`)},
		RAID:     &app.RAIDLayout{Volumes: []app.RAIDVolume{{Level: "7", SizeBytes: -1}}},
		Firmware: []app.FirmwareBaseline{{Component: "BIOS", Version: "1"}, {Component: "BIOS", Version: "2"}, {Component: "NIC", Version: "1", URL: "file:///x"}, {Component: "X", Version: "1", SHA256: "AB"}},
		Steps: app.ProfileSteps{BeforeWrite: []app.ProfileStep{{Step: "power", On: "moon", With: json.RawMessage(`{`), Timeout: 1}},
			AfterWrite: make([]app.ProfileStep, 33)}}
	var fields []string
	for _, e := range app.Problems(bad.Validate()) {
		fields = append(fields, e.Field)
	}
	got := strings.Join(fields, " ")
	for _, want := range []string{"name", "description", "kernelArgs", "drivers", "drivers.power.driver", "drivers.boot.config", "biosSettings.A", "biosSettings",
		"raidLayout.volumes.0.level", "raidLayout.volumes.0", "firmwareBaseline.1", "firmwareBaseline.2.url", "firmwareBaseline.3.sha256",
		"steps.beforeWrite.0.step", "steps.beforeWrite.0.on", "steps.beforeWrite.0.with", "steps.beforeWrite.0.timeout", "steps.afterWrite"} {
		if !strings.Contains(" "+got+" ", " "+want+" ") {
			t.Errorf("%s is not reported: %s", want, got)
		}
	}
}

// A password in a URL would stand in the profile, in workflows and on pages.
func TestURLsOfAProfileCarryNoPassword(t *testing.T) {
	for name, c := range map[string]struct {
		profile app.Profile
		field   string
	}{
		"firmware":         {app.Profile{Firmware: []app.FirmwareBaseline{{Component: "BIOS", Version: "2", URL: "https://u:Pl4nted@images.example/b"}}}, "firmwareBaseline.0.url"},
		"no host":          {app.Profile{Firmware: []app.FirmwareBaseline{{Component: "BIOS", Version: "2", URL: "https:///b"}}}, "firmwareBaseline.0.url"},
		"a line end":       {app.Profile{Firmware: []app.FirmwareBaseline{{Component: "BIOS", Version: "2", URL: "https://images.example/\nb"}}}, "firmwareBaseline.0.url"},
		"a step":           {app.Profile{Steps: app.ProfileSteps{Commission: []app.ProfileStep{{Step: "media.insert", With: json.RawMessage(`{"iso":"http://u:Pl4nted@images.example/a.iso"}`)}}}}, "steps.commission.0.with"},
		"deep in a step":   {app.Profile{Steps: app.ProfileSteps{AfterWrite: []app.ProfileStep{{Step: "firmware.update", With: json.RawMessage(`["BIOS",{"url":"https://u:Pl4nted@images.example/b"}]`)}}}}, "steps.afterWrite.0.with"},
		"no URL":           {app.Profile{Steps: app.ProfileSteps{Commission: []app.ProfileStep{{Step: "acme-cooling.label", With: json.RawMessage(`{"text":"a@b: 7 // x","mail":"a@images.example"}`)}}}}, ""},
		"an ordinary step": {app.Profile{Steps: app.ProfileSteps{Commission: []app.ProfileStep{{Step: "media.insert", With: json.RawMessage(`["https://images.example:8443/a.iso?x=@y"]`)}}}}, ""},
	} {
		c.profile.Name = "gpu"
		err := c.profile.Validate()
		if e, _ := app.AsError(err); (err == nil) != (c.field == "") || err != nil && (e.Field != c.field || strings.Contains(err.Error(), "Pl4nted")) {
			t.Errorf("%s: %v, want an error at %q", name, err, c.field)
		}
	}
}

// Whatever a profile holds, checking it ends without a panic, and what passes is small enough to be kept.
func FuzzProfile(f *testing.F) {
	f.Add(`{"name":"gpu","drivers":{"power":"redfish"},"biosSettings":{"A":1},"steps":{"commission":[{"step":"a.b","with":{"c":1}}]}}`)
	f.Add(`{"name":"x","raidLayout":{"volumes":[{"level":"1"}]},"firmwareBaseline":[{"component":"a","version":"b"}]}`)
	f.Fuzz(func(t *testing.T, doc string) {
		var p app.Profile
		if json.Unmarshal([]byte(doc), &p) != nil || p.Validate() != nil {
			return
		}
		for _, s := range p.Steps.Commission {
			if concern, op := s.Parts(); concern == "" || op == "" {
				t.Errorf("a step %q has no parts", s.Step)
			}
		}
		for kind, b := range p.Drivers {
			if kind == "" || b.Driver == "" || strings.ContainsAny(kind+b.Driver, " ./\n") {
				t.Errorf("%q is bound to %q", kind, b.Driver)
			}
		}
	})
}
