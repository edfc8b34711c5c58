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

const keyedSchema = `{"type":"object","required":["address"],"properties":{"address":{"type":"string"},"tlsSpkiSha256":{"type":"string"},
	"options":{"type":"object","properties":{"kg":{"type":"string","x-bc":{"kind":"secret"}},"note":{"type":"string"}}}}}`

// A BMC's driver gets the secrets that its options refer to, beside the login and nothing else.
func TestSecretsOfOptions(t *testing.T) {
	f := &fakeBMC{}
	r := newRegistry(t, f)
	d := mustDefine(t, driver.Definition{ID: "keyed", Version: "1.0.0", RunsOn: "site", Config: []byte(keyedSchema),
		Implements: map[string]driver.Factory{"power": func(json.RawMessage) (any, error) { return f, nil }}})
	if err := r.Register(d, ""); err != nil {
		t.Fatal(err)
	}
	var names []string
	var key string
	f.log = func(c *driver.Context) {
		names = c.Secrets.(driver.SecretMap).Names()
		key, _ = c.Secret("secret://root/token")
	}
	with := func(options string) *app.BMC {
		b := bmc()
		b.Driver, b.Options = "keyed", json.RawMessage(options)
		return b
	}
	m := enrolled(t, r, Input{BMC: with(`{"kg":"secret://root/token"}`)})
	if _, err := r.For(m, Options{}).Power().Get(t.Context()); err != nil {
		t.Fatal(err)
	}
	if want := []string{"password", "secret://root/token", "username"}; !slices.Equal(names, want) || key != "t0ken" {
		t.Errorf("the driver got %q and the key %q, want %q", names, key, want)
	}
	login := secret.Login("admin", "typed")
	names = nil
	if _, err := r.Probe(t.Context(), ProbeInput{BMC: *with(`{"kg":"secret://root/token"}`), Login: &login}); err != nil || !slices.Contains(names, "secret://root/token") {
		t.Errorf("the probe got %q (%v)", names, err)
	}
	_, err := r.Resolve(t.Context(), Input{BMC: with(`{"note":"secret://root/token"}`)})
	wantError(t, err, app.InvalidInput, "", "drivers.power.config.options.note")
	m.Drivers["power"] = app.Binding{Driver: "keyed", Config: json.RawMessage(`{"address":"192.0.2.10","options":{"kg":"secret://root/gone"}}`)}
	_, err = r.For(m, Options{}).Power().Get(t.Context())
	wantError(t, err, app.InvalidConfig, "secret-unavailable", "")
}

// away is a keeper of secrets that says why it opens none.
type away struct{ err error }

// Resolve fails.
func (a away) Resolve(context.Context, string) (secret.Value, error) { return secret.Value{}, a.err }

func TestWhyASecretIsNotOpened(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		code   app.Code
		wayOut string
		retry  bool
	}{
		"missing": {app.Missing("secret", "bmc"), app.InvalidConfig, "bcd secret list shows those there are", false},
		"denied":  {app.Errorf(app.InvalidConfig, "vault-denied", "no").Do("give it a policy"), app.InvalidConfig, "give it a policy", false},
		"sealed":  {app.Errorf(app.Unavailable, "vault-sealed", "sealed").Do("unseal it").Retryable(), app.Unavailable, "unseal it", true},
		"else":    {errors.New("disk on fire"), app.Unavailable, "look at the log", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRegistry(t, &fakeBMC{})
			m := enrolled(t, r, Input{BMC: bmc()})
			r.cfg.Secrets = away{c.err}
			_, err := r.For(m, Options{}).Power().Get(t.Context())
			wantError(t, err, c.code, "secret-unavailable", "")
			if e, _ := app.AsError(err); e.WayOut != c.wayOut || e.Retry != c.retry || strings.Count(e.Error(), c.wayOut) != 1 || !strings.Contains(e.Message, "secret://root/bmc") {
				t.Errorf("%+v", e)
			}
		})
	}
}
