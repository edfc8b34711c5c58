package drivers

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

func textLogger(b *strings.Builder) *slog.Logger {
	return slog.New(slog.NewTextHandler(b, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

func TestCheckProfile(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	plug(t, r, "acme-bmc", "site", &cooler{})
	step := func(name, with string) app.ProfileStep {
		return app.ProfileStep{Step: name, With: json.RawMessage(with)}
	}
	good := app.Profile{Name: "gpu", Drivers: map[string]app.Binding{"power": {Driver: "redfish"}, "boot": {Driver: "ipxe"},
		"acme-cooling": {Driver: "acme-bmc", Config: json.RawMessage(`{"zone":2,"token":"secret://root/token"}`)}},
		Steps: app.ProfileSteps{Commission: []app.ProfileStep{step("acme-cooling.setFanCurve", `[1]`), step("power.setPower", `{"action":"off"}`),
			step("bios.applySettings", `{"settings":{}}`), {Step: "inspect.inspect", On: "ramdisk"}}}}
	if w, err := r.CheckProfile(&good); err != nil || len(w) != 0 {
		t.Fatalf("%v, %v", w, err)
	}
	r.SetUp("acme-bmc", "1.0.0", false, "it is being started again")
	if w, err := r.CheckProfile(&good); err != nil || len(w) != 1 || !strings.Contains(w[0], "unavailable") {
		t.Errorf("with a plugin that is down: %v, %v", w, err)
	}
	bad := app.Profile{Name: "gpu", Drivers: map[string]app.Binding{"power": {Driver: "nothing"}, "boot": {Driver: "redfish"},
		"management":   {Driver: "redfish", Config: json.RawMessage(`{"tlsSpkiSha256":"x"}`)},
		"acme-cooling": {Driver: "acme-bmc", Config: json.RawMessage(`{"zone":"two","note":"secret://root/token"}`)}},
		Steps: app.ProfileSteps{BeforeWrite: []app.ProfileStep{step("acme-fans.set", ""), {Step: "acme-cooling.x", On: "node"}, {Step: "power.setPower", With: json.RawMessage(`{}`)}}}}
	_, err := r.CheckProfile(&bad)
	var fields []string
	for _, e := range app.Problems(err) {
		fields = append(fields, e.Field)
	}
	got := " " + strings.Join(fields, " ") + " "
	for _, want := range []string{"drivers.power.driver", "drivers.boot.driver", "drivers.management.config", "drivers.acme-cooling.config.zone", "steps.beforeWrite.0", "steps.beforeWrite.1"} {
		if !strings.Contains(got, " "+want) {
			t.Errorf("%s is not reported: %s", want, got)
		}
	}
	_, err = r.CheckProfile(&app.Profile{Name: "gpu", Drivers: map[string]app.Binding{"acme-cooling": {Driver: "acme-bmc", Config: json.RawMessage(`{"note":"secret://root/token"}`)}}})
	wantError(t, err, app.InvalidInput, "", "drivers.acme-cooling.config.note")
}
