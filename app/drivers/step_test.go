package drivers

import (
	"context"
	"encoding/json"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// cooler is a plugin's driver of a kind that nobody registered.
type cooler struct {
	mu    sync.Mutex
	calls []string
	keys  []string
	fails []error // of the first calls
	seen  func(*driver.Context)
}

// Invoke notes the call.
func (c *cooler) Invoke(ctx *driver.Context, op string, args []json.RawMessage) (any, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, err
	}
	c.calls, c.keys = append(c.calls, op+" "+string(raw)), append(c.keys, ctx.IdempotencyKey)
	if c.seen != nil {
		c.seen(ctx)
	}
	if len(c.fails) > 0 {
		err := c.fails[0]
		c.fails = c.fails[1:]
		return nil, err
	}
	return map[string]bool{"set": true}, nil
}

const coolerSchema = `{"type":"object","additionalProperties":false,"properties":{"zone":{"type":"integer"},"token":{"type":"string","x-bc":{"kind":"secret"}},"note":{"type":"string"}}}`

// plug registers a plugin's driver.
func plug(t testing.TB, r *Registry, id, runsOn string, impl driver.Invoker, retrySafe ...string) {
	t.Helper()
	d := mustDefine(t, driver.Definition{ID: id, Version: "1.0.0", RunsOn: runsOn, Config: []byte(coolerSchema), Foreign: true,
		Implements: map[string]driver.Factory{"acme-cooling": func(json.RawMessage) (any, error) { return impl, nil }},
		RetrySafe:  map[string][]string{"acme-cooling": retrySafe}})
	if err := r.Register(d, "plugin-"+id); err != nil {
		t.Fatal(err)
	}
}

// run plans a step for a machine and makes its call.
func run(t *testing.T, r *Registry, m *app.Machine, s app.ProfileStep) (json.RawMessage, error) {
	t.Helper()
	c, err := r.PlanStep(m, s)
	if err != nil {
		return nil, err
	}
	return r.For(m, Options{Key: "wf:wf-1:profile-0#0"}).InvokeStep(t.Context(), c)
}

func TestAStepOfAKindNobodyRegisteredIsInvoked(t *testing.T) {
	r, c := newRegistry(t, &fakeBMC{}), &cooler{}
	plug(t, r, "acme-bmc", "site", c)
	var token, password string
	c.seen = func(ctx *driver.Context) {
		token, _ = ctx.Secret("secret://root/token")
		password, _ = ctx.Secret("password")
	}
	m := enrolled(t, r, Input{BMC: bmc(), Overrides: map[string]app.Binding{"acme-cooling": {Driver: "acme-bmc", Config: json.RawMessage(`{"zone":1,"token":"secret://root/token"}`)}}})
	for with, want := range map[string]string{`[30,60]`: `setFanCurve [[30,60]]`, `{"curve":[1]}`: `setFanCurve [{"curve":[1]}]`, ``: `setFanCurve []`, `"fast"`: `setFanCurve ["fast"]`} {
		c.calls, c.keys = nil, nil
		out, err := run(t, r, m, app.ProfileStep{Step: "acme-cooling.setFanCurve", With: json.RawMessage(with)})
		if err != nil || string(out) != `{"set":true}` || len(c.calls) != 1 || c.calls[0] != want || c.keys[0] != "wf:wf-1:profile-0#0" {
			t.Errorf("with %s: %s, %v, calls %q keys %q", with, out, err, c.calls, c.keys)
		}
	}
	if token != "t0ken" || password != "" {
		t.Errorf("token %q, password %q: only declared references are opened", token, password)
	}
}

func TestAStepBoundToTheBMCsDriverGetsItsCredential(t *testing.T) {
	f := &fakeBMC{}
	var password string
	f.log = func(c *driver.Context) { password, _ = c.Secret("password") }
	r := newRegistry(t, f)
	m := enrolled(t, r, Input{BMC: bmc()})
	if _, err := run(t, r, m, app.ProfileStep{Step: "power.setPower", With: json.RawMessage(`{"action":"off"}`)}); err != nil {
		t.Fatal(err)
	}
	if password != "pw" || f.calls[0] != "setPower off" {
		t.Errorf("password %q, calls %q", password, f.calls)
	}
}

func TestStepsThatCannotRunAreRefusedUpFront(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	plug(t, r, "in-ramdisk", "ramdisk", &cooler{})
	m := enrolled(t, r, Input{BMC: bmc()})
	plan := func(step, on, with string) error {
		_, err := r.PlanStep(m, app.ProfileStep{Step: step, On: on, With: json.RawMessage(with)})
		return err
	}
	wantError(t, plan("acme-cooling.setFanCurve", "", ""), app.Unsupported, "driver-not-found", "")
	wantError(t, plan("acme-cooling.setFanCurve", "ramdisk", ""), app.Unsupported, "role-unsupported", "")
	wantError(t, plan("acme-cooling.setFanCurve", "node", ""), app.Unsupported, "role-unsupported", "")
	wantError(t, plan("power.explode", "", ""), app.Unsupported, "bmc-driver-unsupported", "")
	wantError(t, plan("power.getPower", "ramdisk", ""), app.Unsupported, "role-unsupported", "")
	wantError(t, plan("management.setBootDevice", "", `{"speed":"fast"}`), app.InvalidInput, "invalid-args", "")
	if err := plan("inspect.inspect", "ramdisk", ""); err != nil {
		t.Errorf("the ramdisk's own driver: %v", err)
	}
	plug(t, r, "one", "site", &cooler{})
	if err := plan("acme-cooling.setFanCurve", "", ""); err != nil {
		t.Errorf("the one driver there is: %v", err)
	}
	plug(t, r, "two", "site", &cooler{})
	err := plan("acme-cooling.setFanCurve", "", "")
	wantError(t, err, app.InvalidConfig, "ambiguous-driver", "")
	if !strings.Contains(err.Error(), "one, two") {
		t.Errorf("the drivers are not named: %v", err)
	}
	m.Drivers["acme-cooling"] = app.Binding{Driver: "two"}
	if err := plan("acme-cooling.setFanCurve", "", ""); err != nil {
		t.Errorf("the bound one: %v", err)
	}
	m.Drivers["acme-cooling"] = app.Binding{Driver: "in-ramdisk"}
	wantError(t, plan("acme-cooling.setFanCurve", "ramdisk", ""), app.Unsupported, "role-unsupported", "")
	m.Drivers["acme-cooling"] = app.Binding{Driver: "gone"}
	wantError(t, plan("acme-cooling.setFanCurve", "", ""), app.Unsupported, "driver-not-found", "")
}

// A rotation as a step would keep a password in the profile, and the site's own secret would be wrong ever after.
func TestOperationsThatAreNoSteps(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	if err := r.Register(define(t, "serial", "1.0.0", &fakeBMC{}, "console"), ""); err != nil {
		t.Fatal(err)
	}
	m := enrolled(t, r, Input{BMC: bmc()})
	for _, s := range []app.ProfileStep{
		{Step: "management.rotateCredential", With: json.RawMessage(`{"newPassword":"Pl4nted"}`)}, {Step: "management.probe"}, {Step: "console.open"}, {Step: "runtime.console", With: json.RawMessage(`"vm-1"`)},
	} {
		_, err := r.PlanStep(m, s)
		wantError(t, err, app.Unsupported, "step-unsupported", s.Step)
		_, err = r.CheckProfile(&app.Profile{Name: "p", Steps: app.ProfileSteps{BeforeWrite: []app.ProfileStep{s}}})
		wantError(t, err, app.Unsupported, "step-unsupported", "steps.beforeWrite.0")
		if strings.Contains(err.Error(), "Pl4nted") {
			t.Errorf("the error holds the password: %v", err)
		}
	}
}

func TestFailuresOfStepsKeepTheirCodes(t *testing.T) {
	r, c := newRegistry(t, &fakeBMC{}), &cooler{}
	plug(t, r, "acme-bmc", "site", c)
	m := enrolled(t, r, Input{BMC: bmc()})
	step := app.ProfileStep{Step: "acme-cooling.setFanCurve"}
	c.fails = []error{driver.Errorf("fan-stuck", "fan 3 does not turn"), context.Canceled}
	_, err := run(t, r, m, step)
	wantError(t, err, app.Unavailable, "fan-stuck", "")
	c.fails = []error{errFoo{}}
	_, err = run(t, r, m, step)
	wantError(t, err, app.Unavailable, "driver-error", "")
	m.Drivers["acme-cooling"] = app.Binding{Driver: "acme-bmc", Config: json.RawMessage(`{"token":"secret://root/gone"}`)}
	_, err = run(t, r, m, step)
	wantError(t, err, app.InvalidConfig, "secret-unavailable", "")
	r.SetUp("acme-bmc", "1.0.0", false, "it crashed")
	_, err = run(t, r, m, step)
	wantError(t, err, app.Unavailable, "unavailable", "")
}

type errFoo struct{}

func (errFoo) Error() string { return "something" }

func TestOnlyWhatIsRetrySafeIsRepeated(t *testing.T) {
	for name, c := range map[string]struct {
		safe  []string
		err   *driver.Error
		calls int
	}{
		"retry-safe and retryable":     {[]string{"setFanCurve"}, driver.Errorf("busy", "later").Again(), 3},
		"retry-safe, not retryable":    {[]string{"setFanCurve"}, driver.Errorf("busy", "later"), 1},
		"retryable, but not safe":      {nil, driver.Errorf("busy", "later").Again(), 1},
		"another operation than asked": {[]string{"getFanCurve"}, driver.Errorf("busy", "later").Again(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r, k := newRegistry(t, &fakeBMC{}), &cooler{fails: []error{c.err, c.err}}
				plug(t, r, "acme-bmc", "site", k, c.safe...)
				_, err := run(t, r, enrolled(t, r, Input{BMC: bmc()}), app.ProfileStep{Step: "acme-cooling.setFanCurve"})
				if len(k.calls) != c.calls || (c.calls == 3) != (err == nil) {
					t.Errorf("%d calls, %v", len(k.calls), err)
				}
				for _, key := range k.keys {
					if key != "wf:wf-1:profile-0#0" {
						t.Errorf("a repeat has the key %q", key)
					}
				}
			})
		})
	}
}

func TestTheCommandsExpiryIsTheDeadline(t *testing.T) {
	r, c := newRegistry(t, &fakeBMC{}), &cooler{}
	plug(t, r, "acme-bmc", "site", c)
	want := time.Now().Add(3 * time.Hour)
	var got time.Time
	c.seen = func(ctx *driver.Context) { got, _ = ctx.Deadline() }
	ctx, cancel := context.WithDeadline(t.Context(), want)
	defer cancel()
	m := enrolled(t, r, Input{BMC: bmc()})
	if _, err := r.For(m, Options{}).InvokeStep(ctx, StepCall{Concern: "acme-cooling", Operation: "setFanCurve", On: "site"}); err != nil {
		t.Fatal(err)
	}
	if !got.Equal(want) {
		t.Errorf("the deadline is %s, the command ends at %s", got, want)
	}
}
