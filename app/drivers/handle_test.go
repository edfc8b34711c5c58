package drivers

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
)

func TestCallsReachTheBoundDriver(t *testing.T) {
	f := &fakeBMC{}
	var got []string
	f.log = func(c *driver.Context) {
		user, _ := c.Secret("username")
		password, _ := c.Secret("password")
		got = append(got, user+":"+password+" "+c.IdempotencyKey)
	}
	r := newRegistry(t, f)
	h := r.For(enrolled(t, r, Input{BMC: bmc(), Overrides: map[string]app.Binding{"inspect": {Driver: "ramdisk"}}}), Options{Key: "k1"})
	if p, err := h.Power().Get(t.Context()); err != nil || p.Power != "on" {
		t.Fatalf("power %+v, %v", p, err)
	}
	if err := h.Hardware().SetPower(t.Context(), "shutdown"); err != nil {
		t.Fatal(err)
	}
	if err := h.Hardware().SetBootDevice(t.Context(), "hdd", false, app.FirmwareUEFI); err != nil {
		t.Fatal(err)
	}
	if inv, err := h.Inspect(t.Context()); err != nil || inv.Model != "M1" {
		t.Fatalf("inspect %+v, %v", inv, err)
	}
	if want := []string{"getPower", "setPower soft", "setBootDevice disk", "inspect"}; !slices.Equal(f.calls, want) {
		t.Errorf("calls %v, want %v", f.calls, want)
	}
	for _, g := range got {
		if g != "admin:pw k1" {
			t.Errorf("a call saw %q", g)
		}
	}
}

func TestRotationCarriesThePasswordAsSecret(t *testing.T) {
	f := &fakeBMC{}
	r := newRegistry(t, f)
	m := enrolled(t, r, Input{BMC: bmc()})
	if err := r.For(m, Options{}).Management().Rotate(t.Context(), "n3w", ""); err != nil {
		t.Fatal(err)
	}
	if want := "rotate n3w "; f.calls[0] != want {
		t.Errorf("call %q, want %q: the password is a secret, not an argument", f.calls[0], want)
	}
	m.BMC.CredentialRef = "env://BCD_SECRET_BMC"
	wantError(t, r.For(m, Options{}).Management().Rotate(t.Context(), "x", ""), app.Unsupported, "rotation-unsupported", "")
}

func TestOtherDriversGetDeclaredSecretsOnly(t *testing.T) {
	f := &fakeBMC{}
	var token, password string
	f.log = func(c *driver.Context) {
		token, _ = c.Secret("secret://root/token")
		password, _ = c.Secret("password")
	}
	r := newRegistry(t, f)
	m := enrolled(t, r, Input{BMC: bmc(), Overrides: map[string]app.Binding{
		"power": {Driver: "acme", Config: json.RawMessage(`{"address":"192.0.2.11","token":"secret://root/token"}`)},
	}})
	if _, err := r.For(m, Options{}).Power().Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if token != "t0ken" || password != "" {
		t.Errorf("token %q, password %q: the BMC's credential went to another driver", token, password)
	}
	m.Drivers["power"] = app.Binding{Driver: "acme", Config: json.RawMessage(`{"address":"192.0.2.11","token":"secret://root/gone"}`)}
	_, err := r.For(m, Options{}).Power().Get(t.Context())
	wantError(t, err, app.InvalidConfig, "secret-unavailable", "")
}

// A machine whose BMC is driven by Redfish, and whose power by another driver on the same BMC, as IPMI is.
func TestAnotherDriverOfTheSameBMCGetsItsCredential(t *testing.T) {
	for name, c := range map[string]struct {
		kind, address, want string
	}{
		"the same host":        {"power", "192.0.2.10", "pw"},
		"another port of it":   {"power", "https://192.0.2.10:623", "pw"},
		"another host":         {"power", "192.0.2.11", ""},
		"a host that looks so": {"power", "192.0.2.10.attacker.example", ""},
		"no job of a BMC":      {"acme-cooling", "192.0.2.10", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeBMC{}
			got := "never called"
			f.log = func(c *driver.Context) { got, _ = c.Secret("password") }
			r := newRegistry(t, f)
			cooling := &cooler{seen: f.log}
			d := mustDefine(t, driver.Definition{ID: "acme-cooler", Version: "1.0.0", RunsOn: "site", Config: []byte(bmcSchema), Foreign: true,
				Implements: map[string]driver.Factory{"acme-cooling": func(json.RawMessage) (any, error) { return cooling, nil }}})
			if err := r.Register(d, "plugin"); err != nil {
				t.Fatal(err)
			}
			id := map[string]string{"power": "acme", "acme-cooling": "acme-cooler"}[c.kind]
			m := enrolled(t, r, Input{BMC: bmc(), Overrides: map[string]app.Binding{c.kind: {Driver: id, Config: json.RawMessage(`{"address":"` + c.address + `"}`)}}})
			var err error
			if c.kind == "power" {
				_, err = r.For(m, Options{}).Power().Get(t.Context())
			} else {
				_, err = run(t, r, m, app.ProfileStep{Step: "acme-cooling.setFanCurve"})
			}
			if err != nil || got != c.want {
				t.Errorf("password %q, want %q: %v", got, c.want, err)
			}
		})
	}
	for _, config := range []string{
		`{"address":"192.0.2.11","Address":"192.0.2.10"}`, `{"Address":"192.0.2.10","address":"192.0.2.11"}`, `{"addreſs":"192.0.2.11","address":"192.0.2.10"}`,
	} {
		h := newRegistry(t, &fakeBMC{}).For(&app.Machine{BMC: bmc()}, Options{})
		for _, id := range []string{"acme", bmc().Driver} {
			if h.reachesBMC("power", app.Binding{Driver: id, Config: json.RawMessage(config)}) {
				t.Errorf("%s gets the credential by %s, whichever of the two it reads", id, config)
			}
		}
	}
	for _, address := range []string{"192.0.2.10", "https://192.0.2.10:443", "192.0.2.10:623"} {
		if laneOf(address) != "192.0.2.10" {
			t.Errorf("%s has the lane %s: one BMC has one", address, laneOf(address))
		}
	}
}

func TestErrorsKeepTheDriversCode(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	h := r.For(enrolled(t, r, Input{BMC: bmc()}), Options{})
	err := h.Power().Set(t.Context(), "fail")
	wantError(t, err, app.Unavailable, "busy", "")
	if e, _ := app.AsError(err); e.Retry || e.WayOut == "" {
		t.Errorf("retryable %v though a power change is not retry-safe, way out %q", e.Retry, e.WayOut)
	}
	_, err = h.InvokeStep(t.Context(), StepCall{Concern: "power", Operation: "explode", On: "site", Driver: "acme", Config: json.RawMessage(`{"address":"192.0.2.11"}`)})
	wantError(t, err, app.Unsupported, "unsupported-operation", "")
	_, err = h.Query(t.Context(), "bios.getSettings")
	wantError(t, err, app.Unsupported, "bmc-driver-unsupported", "")
}

func TestOneCallAtATimePerBMC(t *testing.T) {
	f := &fakeBMC{block: make(chan struct{}), enter: make(chan struct{}, 8)}
	r := newRegistry(t, f)
	m := enrolled(t, r, Input{BMC: bmc()})
	first := make(chan error, 1)
	go func() { first <- r.For(m, Options{}).Power().Set(context.Background(), "on") }()
	<-f.enter

	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	_, err := r.For(m, Options{}).Power().Get(ctx)
	wantError(t, err, app.Unavailable, "busy", "")
	if !strings.Contains(err.Error(), "power.setPower") {
		t.Errorf("the error does not say what the BMC is busy with: %v", err)
	}
	other := bmc()
	other.Address = "192.0.2.99"
	if _, err := r.For(enrolled(t, r, Input{BMC: other}), Options{}).Power().Get(t.Context()); err != nil {
		t.Fatalf("another BMC waits too: %v", err)
	}
	close(f.block)
	if err := <-first; err != nil {
		t.Fatal(err)
	}
	if len(r.lanes.m) != 0 {
		t.Errorf("%d lanes are left", len(r.lanes.m))
	}
}

func TestHaltStopsAllTraffic(t *testing.T) {
	f := &fakeBMC{block: make(chan struct{}), enter: make(chan struct{}, 8)}
	r := newRegistry(t, f)
	m := enrolled(t, r, Input{BMC: bmc()})
	done := make(chan error, 2)
	go func() { done <- r.For(m, Options{}).Power().Set(context.Background(), "on") }()
	<-f.enter
	go func() { done <- r.For(m, Options{}).Power().Set(context.Background(), "off") }()
	for waiting := 0; waiting < 2; {
		r.lanes.mu.Lock()
		waiting = r.lanes.m["192.0.2.10"].users
		r.lanes.mu.Unlock()
	}
	r.Halt("https://192.0.2.10:443")
	for range 2 {
		wantError(t, <-done, app.Conflict, "bmc-traffic-stopped", "")
	}
}

func TestProbeWithoutAProber(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	login := secret.Login("admin", "typed")
	card, err := r.Probe(t.Context(), ProbeInput{BMC: app.BMC{Driver: "redfish", Address: "192.0.2.10"}, Login: &login})
	if err != nil || card.Model != "M1" || card.Power.Power != "on" {
		t.Fatalf("card %+v, %v", card, err)
	}
	text := secret.Text("not a login")
	_, err = r.Probe(t.Context(), ProbeInput{BMC: app.BMC{Driver: "redfish", Address: "192.0.2.10"}, Login: &text})
	wantError(t, err, app.InvalidConfig, "credentials-unavailable", "")
}

func TestValidateLive(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	checks := 0
	def := driver.Definition{ID: "live", Version: "1.0.0", RunsOn: "site", Config: []byte(bmcSchema),
		Implements: map[string]driver.Factory{}, Validate: func(c *driver.Context, _ json.RawMessage) error {
			checks++
			if p, _ := c.Secret("password"); p != "pw" {
				return errors.New("no password")
			}
			return driver.Errorf(driver.CodeAuthFailed, "refused")
		}}
	for _, k := range []string{"power", "management"} {
		def.Implements[k] = func(json.RawMessage) (any, error) { return &fakeBMC{}, nil }
	}
	if err := r.Register(mustDefine(t, def), "live"); err != nil {
		t.Fatal(err)
	}
	b := bmc()
	b.Driver = "live"
	failed := r.Validate(t.Context(), enrolled(t, r, Input{BMC: b}))
	if len(failed) != 2 || checks != 1 {
		t.Fatalf("failed %v after %d checks, want two kinds after one", failed, checks)
	}
	wantError(t, failed["power"], app.InvalidConfig, "auth-failed", "")
}

// answering is a plugin's proxy that answers what it is told.
type answering map[string]string

func (a answering) Invoke(_ *driver.Context, op string, _ []json.RawMessage) (any, error) {
	return json.RawMessage(a[op]), nil
}

func TestPluginResults(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	a := answering{"getPower": `"on"`, "setPower": `null`, "setBootDevice": `{}`, "inspect": `{"macs":7}`}
	if err := r.Register(define(t, "ipmi", "1.0.0", a, "power", "management", "inspect"), "bcx-ipmi"); err != nil {
		t.Fatal(err)
	}
	b := bmc()
	b.Driver = "ipmi"
	h := r.For(enrolled(t, r, Input{BMC: b}), Options{})
	if p, err := h.Power().Get(t.Context()); err != nil || p.Power != "on" {
		t.Errorf("a bare string: %+v, %v", p, err)
	}
	if err := h.Power().Set(t.Context(), "on"); err != nil {
		t.Errorf("null: %v", err)
	}
	if err := h.Hardware().SetBootDevice(t.Context(), "pxe", true, ""); err != nil {
		t.Errorf("an empty object: %v", err)
	}
	_, err := h.Inspect(t.Context())
	wantError(t, err, app.Unavailable, "bmc-error", "")
	a["getPower"] = `{"power":"warp"}`
	if p, err := h.Power().Get(t.Context()); err != nil || p.Power != "unknown" || !strings.Contains(p.Reason, "warp") {
		t.Errorf("an unknown state: %+v, %v", p, err)
	}
	a["getPower"] = `{`
	_, err = h.Power().Get(t.Context())
	wantError(t, err, app.Unavailable, "bmc-error", "")
}
