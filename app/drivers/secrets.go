package drivers

import (
	"context"
	"encoding/json"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
)

// login opens a BMC's credential into the secrets of its operations.
func (r *Registry) login(ctx context.Context, ref string) (driver.SecretMap, error) {
	v, err := r.cfg.Secrets.Resolve(ctx, ref)
	if err != nil {
		return nil, secretUnavailable(ref, err)
	}
	return loginOf(v)
}

func loginOf(v secret.Value) (driver.SecretMap, error) {
	user, hasUser := v.Field("username")
	password, hasPassword := v.Field("password")
	if !hasUser || !hasPassword {
		return nil, app.Errorf(app.InvalidConfig, driver.CodeNoCredentials, "the BMC's secret holds no user name and password").
			Do("store it as an object with username and password")
	}
	return driver.SecretMap{"username": user, "password": password}, nil
}

// declared opens the references that stand in the top-level fields a driver declares secret. Each value is delivered
// under its reference; an object of strings as its JSON.
func (r *Registry) declared(ctx context.Context, d *driver.Driver, config json.RawMessage) (driver.SecretMap, error) {
	out := driver.SecretMap{}
	var c map[string]any
	if len(config) == 0 || json.Unmarshal(config, &c) != nil {
		return out, nil
	}
	for _, name := range d.SecretFields() {
		ref, _ := c[name].(string)
		if !isReference(ref) {
			continue
		}
		v, err := r.cfg.Secrets.Resolve(ctx, ref)
		if err != nil {
			return nil, secretUnavailable(ref, err)
		}
		if text, ok := v.Text(); ok {
			out[ref] = text
			continue
		}
		b, err := json.Marshal(v.Map())
		if err != nil {
			return nil, err
		}
		out[ref] = string(b)
	}
	return out, nil
}

func secretUnavailable(ref string, err error) error {
	code := app.Unavailable
	if app.CodeOf(err) == app.NotFound {
		code = app.InvalidConfig
	}
	return app.Errorf(code, "secret-unavailable", "the secret %s cannot be opened: %w", ref, err).Do("store it again")
}
