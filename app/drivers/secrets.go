package drivers

import (
	"cmp"
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

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

// optionPrefix begins the names of secret fields that are options of a BMC's driver.
const optionPrefix = "options."

// bmcSecrets are the secrets of operations on a BMC: its login, and what its driver's options refer to.
func (r *Registry) bmcSecrets(ctx context.Context, d *driver.Driver, config json.RawMessage, ref string) (driver.SecretMap, error) {
	out, err := r.login(ctx, ref)
	if err != nil {
		return nil, err
	}
	return out, r.addOptions(ctx, d, config, out)
}

// addOptions opens the references in the driver's options into a BMC's secrets.
func (r *Registry) addOptions(ctx context.Context, d *driver.Driver, config json.RawMessage, into driver.SecretMap) error {
	isOption := func(name string) bool { return strings.HasPrefix(name, optionPrefix) }
	options, err := r.opened(ctx, config, slices.DeleteFunc(d.SecretFields(), func(name string) bool { return !isOption(name) }))
	maps.Copy(into, options)
	return err
}

// declared opens the references that stand in the fields a driver declares secret.
func (r *Registry) declared(ctx context.Context, d *driver.Driver, config json.RawMessage) (driver.SecretMap, error) {
	return r.opened(ctx, config, d.SecretFields())
}

// opened opens the references that stand in the named fields. Each value is delivered under its reference; an object of
// strings as its JSON.
func (r *Registry) opened(ctx context.Context, config json.RawMessage, names []string) (driver.SecretMap, error) {
	out := driver.SecretMap{}
	var c map[string]any
	if len(config) == 0 || json.Unmarshal(config, &c) != nil {
		return out, nil
	}
	for _, name := range names {
		ref := fieldOf(c, name)
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

// fieldOf is the text of a field, by its name as SecretFields gives it.
func fieldOf(config map[string]any, name string) string {
	v := config[name]
	if member, isOption := strings.CutPrefix(name, optionPrefix); isOption {
		options, _ := config["options"].(map[string]any)
		v = options[member]
	}
	s, _ := v.(string)
	return s
}

// secretUnavailable words why a secret was not opened, in its keeper's words: a server that is away for a moment is no missing
// secret.
func secretUnavailable(ref string, err error) error {
	why, ok := app.AsError(err)
	if !ok {
		return app.Errorf(app.Unavailable, "secret-unavailable", "the secret %s cannot be opened: %w", ref, err).Do("look at the log")
	}
	out := app.Errorf(app.InvalidConfig, "secret-unavailable", "the secret %s cannot be opened: %s", ref, why.Message).Do("%s", cmp.Or(why.WayOut, "store it again"))
	if why.Code == app.Unavailable {
		out.Code, out.Retry = app.Unavailable, why.Retry
	}
	return out
}
