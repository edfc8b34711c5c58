package bcx

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/better-compute/bcd/plugins/driver"
)

// Remote makes the definition of a plugin's driver: a foreign one whose implementations are proxies. conn is asked for the
// connection at every call, with the call's context; it may wait, and its error becomes the call's.
//
// The secrets that go with a call are those that ctx.Secrets lists with a method Names() []string, as driver.SecretMap
// does; of other Secrets, the references in configuration fields that the schema declares secret.
func Remote(m Manifest, conn func(*driver.Context) (*Conn, error)) driver.Definition {
	r := remote{manifest: m, conn: conn}
	def := driver.Definition{ID: m.ID, Version: m.Version, RunsOn: m.RunsOn, Config: m.ConfigSchema, Capabilities: m.Capabilities,
		Implements: map[string]driver.Factory{}, RetrySafe: m.RetrySafe, Foreign: true}
	for _, kind := range m.Kinds {
		def.Implements[kind] = func(config json.RawMessage) (any, error) { return &proxy{remote: &r, kind: kind, config: config}, nil }
	}
	def.Validate = r.validate
	if d, err := driver.Define(def); err == nil {
		r.secretFields = d.SecretFields()
	}
	return def
}

// remote is a driver in a plugin.
type remote struct {
	manifest     Manifest
	conn         func(*driver.Context) (*Conn, error)
	secretFields []string
}

// proxy is one kind of it with one configuration.
type proxy struct {
	*remote
	kind   string
	config json.RawMessage
}

// Invoke passes an operation to the plugin: as a byte stream when the plugin advertises it so.
func (p *proxy) Invoke(ctx *driver.Context, operation string, args []json.RawMessage) (any, error) {
	r := Request{DriverID: p.manifest.ID, Call: driver.Call{Kind: p.kind, Operation: operation, Config: p.config}}
	var err error
	if r.Args, err = array(args); err != nil {
		return nil, err
	}
	if r.Secrets, err = p.secrets(ctx, p.config); err != nil {
		return nil, err
	}
	c, err := p.conn(ctx)
	if err != nil {
		return nil, err
	}
	if slices.Contains(p.manifest.Streams, r.Name()) {
		return c.Stream(ctx, r)
	}
	return c.Invoke(ctx, r)
}

// array makes the positional array. Arguments that were left out travel as null.
func array(args []json.RawMessage) (json.RawMessage, error) {
	out := make([]json.RawMessage, len(args))
	for i, a := range args {
		if out[i] = a; len(a) == 0 {
			out[i] = json.RawMessage("null")
		}
	}
	b, err := json.Marshal(out)
	if err != nil {
		return nil, driver.Errorf(driver.CodeInvalidArgs, "the arguments are not JSON: %w", err)
	}
	return b, nil
}

// validate is the plugin's own check of a configuration. Its error carries the first live code.
func (r *remote) validate(ctx *driver.Context, config json.RawMessage) error {
	secrets, err := r.secrets(ctx, config)
	if err != nil {
		return err
	}
	c, err := r.conn(ctx)
	if err != nil {
		return err
	}
	issues, err := c.Validate(ctx, r.manifest.ID, config, secrets)
	if err != nil || len(issues) == 0 {
		return err
	}
	code := driver.CodeInvalidConfig
	var said []string
	for _, i := range issues {
		if i.Code != "" && code == driver.CodeInvalidConfig {
			code = i.Code
		}
		said = append(said, i.String())
	}
	return driver.Errorf(code, "%s", clean(strings.Join(said, "; "), maxText))
}

// secrets resolves what goes with a call.
func (r *remote) secrets(ctx *driver.Context, config json.RawMessage) (map[string]string, error) {
	var names []string
	switch s := ctx.Secrets.(type) {
	case nil:
		return nil, nil
	case interface{ Names() []string }:
		names = s.Names()
	default:
		names = references(config, r.secretFields)
	}
	if len(names) > maxSecrets {
		return nil, driver.Errorf(driver.CodeInvalidConfig, "a call takes at most %d secrets, not %d", maxSecrets, len(names))
	}
	out := make(map[string]string, len(names))
	for _, name := range names {
		v, err := ctx.Secrets.Resolve(ctx, name)
		if err != nil {
			return nil, driver.AsError(err)
		}
		out[name] = v
	}
	return out, nil
}

// references lists the references to secrets in the named top-level fields of a configuration.
func references(config json.RawMessage, fields []string) []string {
	var object map[string]json.RawMessage
	if json.Unmarshal(config, &object) != nil {
		return nil
	}
	var out []string
	for _, f := range fields {
		var v string
		if json.Unmarshal(object[f], &v) != nil {
			continue
		}
		for _, scheme := range []string{"secret://", "vault://", "env://"} {
			if strings.HasPrefix(v, scheme) {
				out = append(out, v)
			}
		}
	}
	return sorted(out)
}
