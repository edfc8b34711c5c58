package drivers

import (
	"bytes"
	"context"
	"encoding/json"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
)

// The layers of a binding, lowest first.
const (
	LayerBMC     = "bmc"
	LayerProfile = "profile"
	LayerMachine = "machine"
)

// bmcKinds are the kinds that an enrolled BMC binds, of those its driver implements.
var bmcKinds = []string{"power", "management", "virtual-media", "console", "bios", "raid", "firmware"}

// Input is what bindings are made of. Overrides are the machine's own, by kind; a value's Config may be empty.
type Input struct {
	BMC       *app.BMC
	Profile   string // hardware profile named for the machine; "" takes the pool's
	Pool      string
	Overrides map[string]app.Binding
}

// InputOf takes the input from a stored machine.
func InputOf(m *app.Machine) Input {
	in := Input{BMC: m.BMC, Profile: m.Profile, Pool: m.Pool, Overrides: map[string]app.Binding{}}
	for kind, b := range m.Drivers {
		if b.Layer == LayerMachine {
			in.Overrides[kind] = own(m.BMC, b)
		}
	}
	return in
}

// own is a machine's own binding as its operator gave it: without the connection facts that were filled in.
func own(bmc *app.BMC, b app.Binding) app.Binding {
	if bmc == nil || b.Driver != bmc.Driver {
		return b
	}
	if filled, err := connection(bmc); err == nil && jsonEqual(filled, b.Config) {
		b.Config = nil
	}
	return b
}

// Overrides are the bindings of a machine's own layer, as its operator gave them.
func Overrides(m *app.Machine) map[string]app.Binding { return InputOf(m).Overrides }

// jsonEqual compares two JSON values, whatever their members' order and spacing.
func jsonEqual(a, b json.RawMessage) bool {
	var x, y any
	if json.Unmarshal(a, &x) != nil || json.Unmarshal(b, &y) != nil {
		return string(a) == string(b)
	}
	return reflect.DeepEqual(x, y)
}

// ProfileFor is the hardware profile that applies to a machine: the one named for it, else its pool's; nil when there is
// none.
func (r *Registry) ProfileFor(ctx context.Context, m *app.Machine) (*app.Profile, error) {
	return r.profileOf(ctx, Input{Profile: m.Profile, Pool: m.Pool})
}

// Resolved is what Resolve gives.
type Resolved struct {
	Bindings map[string]app.Binding // by kind, each with its layer and complete configuration
	Profile  string                 // the hardware profile that was applied; "" none
	Warnings []string               // sentences: drivers that are down
}

// Resolve builds the bindings of a machine in three layers, each replacing driver and configuration of the kinds below
// it, and checks every one against the registry. The first mistake is returned, with the field at fault.
func (r *Registry) Resolve(ctx context.Context, in Input) (Resolved, error) {
	profile, err := r.profileOf(ctx, in)
	if err != nil {
		return Resolved{}, err
	}
	return r.resolve(in, profile)
}

// resolve is Resolve with a hardware profile that may not be stored; nil: none.
func (r *Registry) resolve(in Input, profile *app.Profile) (Resolved, error) {
	out := Resolved{Bindings: map[string]app.Binding{}}
	if err := r.bindBMC(in.BMC, out.Bindings); err != nil {
		return out, err
	}
	if profile != nil {
		out.Profile = profile.Name
		if err := bindLayer(in.BMC, LayerProfile, profile.Drivers, out.Bindings); err != nil {
			return out, err
		}
	}
	if err := bindLayer(in.BMC, LayerMachine, in.Overrides, out.Bindings); err != nil {
		return out, err
	}
	for _, kind := range slices.Sorted(maps.Keys(out.Bindings)) {
		warning, err := r.check(kind, out.Bindings[kind])
		if err != nil {
			return out, err
		}
		if warning != "" && !slices.Contains(out.Warnings, warning) {
			out.Warnings = append(out.Warnings, warning)
		}
	}
	return out, nil
}

// bindBMC is the first layer.
func (r *Registry) bindBMC(bmc *app.BMC, into map[string]app.Binding) error {
	if bmc == nil {
		return nil
	}
	e := r.active(bmc.Driver)
	if e == nil {
		return app.Invalid("bmc.driver", "there is no driver %q", bmc.Driver).Do("choose one of: %s", r.choices("power"))
	}
	config, err := connection(bmc)
	if err != nil {
		return err
	}
	bound := false
	for _, kind := range bmcKinds {
		if e.driver.Has(kind) {
			into[kind] = app.Binding{Driver: bmc.Driver, Config: config, Layer: LayerBMC}
			bound = true
		}
	}
	if !bound {
		return app.Invalid("bmc.driver", "the driver %q drives no BMC", bmc.Driver).Do("choose one of: %s", r.choices("power"))
	}
	return nil
}

// isEmpty reports a JSON value that says nothing.
func isEmpty(raw json.RawMessage) bool {
	raw = bytes.TrimSpace(raw)
	return len(raw) == 0 || bytes.Equal(raw, []byte("null"))
}

// connection is the configuration of every operation on a BMC: {address, tlsSpkiSha256?, options?}, no credential.
func connection(bmc *app.BMC) (json.RawMessage, error) {
	if hostOf(bmc.Address) == "" {
		return nil, app.Invalid("bmc.address", "is empty").Do("give the BMC's host name or IP address")
	}
	if err := noLogin("bmc.address", bmc.Address); err != nil {
		return nil, err
	}
	c := struct {
		Address string          `json:"address"`
		SPKI    string          `json:"tlsSpkiSha256,omitempty"`
		Options json.RawMessage `json:"options,omitempty"`
	}{Address: bmc.Address, SPKI: bmc.SPKI}
	if !isEmpty(bmc.Options) {
		var object map[string]json.RawMessage
		if json.Unmarshal(bmc.Options, &object) != nil || object == nil {
			return nil, app.Errorf(app.InvalidInput, "invalid-payload", "the driver options are not a JSON object").At("bmc.driverOptions")
		}
		c.Options = bmc.Options
	}
	return json.Marshal(c)
}

// noLogin refuses an address with a login in it, and does not repeat it: addresses are shown and logged.
func noLogin(field, address string) error {
	if strings.Contains(address, "@") {
		return app.Invalid(field, "carries a login").Do("write the host alone: user name and password belong into the credentials")
	}
	return nil
}

// profileOf finds the hardware profile that applies: the input's, else the pool's.
func (r *Registry) profileOf(ctx context.Context, in Input) (*app.Profile, error) {
	name, field := in.Profile, "hardwareProfile"
	if in.Pool != "" {
		pool, err := r.cfg.Profiles.Pool(ctx, in.Pool)
		if app.CodeOf(err) == app.NotFound {
			return nil, app.Invalid("pool", "there is no pool %q", in.Pool).Do("create it first, or leave it out")
		}
		if err != nil {
			return nil, err
		}
		if name == "" {
			name, field = pool.Policy.HardwareProfile, "pool"
		}
	}
	if name == "" {
		return nil, nil
	}
	p, err := r.cfg.Profiles.Profile(ctx, name)
	if app.CodeOf(err) == app.NotFound {
		return nil, app.Invalid(field, "there is no hardware profile %q", name).Do("create it first, or name another")
	}
	return p, err
}

// bindLayer puts one layer over what is bound already.
func bindLayer(bmc *app.BMC, layer string, over, into map[string]app.Binding) error {
	for _, kind := range slices.Sorted(maps.Keys(over)) {
		b := over[kind]
		b.Layer = layer
		switch {
		case isEmpty(b.Config) && bmc != nil && b.Driver == bmc.Driver:
			config, err := connection(bmc) // a bare id of the BMC's driver keeps the connection facts
			if err != nil {
				return err
			}
			b.Config = config
		case !slices.Contains(bmcKinds, kind):
		case addressOf(b.Config) == "":
			return app.Invalid("drivers."+kind+".config", "the driver %q needs an address of its own", b.Driver).
				Do(`give {"driver": %q, "config": {"address": "..."}}`, b.Driver)
		default:
			if err := noLogin("drivers."+kind+".config.address", addressOf(b.Config)); err != nil {
				return err
			}
		}
		into[kind] = b
	}
	return nil
}

// addressOf is the address in a configuration, or "". One that is written twice, in letters of another case, is none: drivers
// differ in which of the two they read.
func addressOf(config json.RawMessage) (address string) {
	var c map[string]any
	if json.Unmarshal(config, &c) != nil {
		return ""
	}
	for name, v := range c {
		if !strings.EqualFold(name, "address") {
			continue
		}
		if name != "address" {
			return ""
		}
		address, _ = v.(string)
	}
	return address
}

// check validates one binding against the registry: the driver exists, implements the kind, accepts the configuration,
// and every secret reference stands in a field declared secret. A driver that is down gives a warning.
func (r *Registry) check(kind string, b app.Binding) (warning string, err error) {
	return r.checkBinding(kind, b, true)
}

// checkBinding is check; without whole the configuration may still be filled in, so an empty one is let through.
func (r *Registry) checkBinding(kind string, b app.Binding, whole bool) (warning string, err error) {
	field := "drivers." + kind
	e := r.active(b.Driver)
	if e == nil {
		return "", app.Invalid(field+".driver", "there is no driver %q", b.Driver).Do("choose one of: %s", r.choices(kind))
	}
	if !e.driver.Has(kind) {
		return "", app.Invalid(field+".driver", "the driver %q does not serve %s", b.Driver, kind).Do("choose one of: %s", r.choices(kind))
	}
	if issues := e.driver.ValidateConfig(b.Config); len(issues) > 0 && (whole || !isEmpty(b.Config)) {
		return "", configError(field+".config", b.Driver, issues)
	}
	if name := undeclaredReference(b.Config, e.driver.SecretFields()); name != "" {
		return "", app.Invalid(field+".config."+name, "holds a secret reference, and the driver %q does not declare the field a secret", b.Driver).
			Do("its secret fields are: %s", strings.Join(e.driver.SecretFields(), ", "))
	}
	if name := plainSecret(b.Config, e.driver.SecretFields()); name != "" {
		return "", app.Invalid(field+".config."+name, "must be a reference to a secret, not the secret itself").
			Do("keep it with bcd secret set NAME, and write secret://root/NAME")
	}
	if !e.up {
		return down(b.Driver, e).Message, nil
	}
	return "", nil
}

func configError(field, id string, issues []driver.Issue) error {
	texts := make([]string, len(issues))
	for i, is := range issues {
		texts[i] = is.String()
	}
	return app.Errorf(app.InvalidConfig, "invalid-config", "the configuration of driver %q is wrong: %s", id, strings.Join(texts, "; ")).
		At(field + strings.ReplaceAll(issues[0].Pointer, "/", ".")).Do("correct it, or leave it out")
}

// isReference reports whether a value is a secret reference.
func isReference(s string) bool {
	return slices.ContainsFunc([]string{"secret://", "vault://", "env://"}, func(scheme string) bool { return strings.HasPrefix(s, scheme) })
}

// undeclaredReference names the first field, not declared secret, under which a secret reference stands: a top-level one, or
// one of the options.
func undeclaredReference(config json.RawMessage, declared []string) string {
	var c map[string]any
	if json.Unmarshal(config, &c) != nil {
		return ""
	}
	if options, ok := c["options"].(map[string]any); ok {
		delete(c, "options")
		for name, v := range options {
			c[optionPrefix+name] = v
		}
	}
	for _, name := range slices.Sorted(maps.Keys(c)) {
		if _, text := c[name].(string); text && slices.Contains(declared, name) {
			continue
		}
		if holdsReference(c[name]) {
			return name
		}
	}
	return ""
}

// plainSecret names the first of the fields declared secret that holds a text which is no reference: it would be shown to
// everybody who may see a binding.
func plainSecret(config json.RawMessage, declared []string) string {
	var c map[string]any
	if json.Unmarshal(config, &c) != nil {
		return ""
	}
	for _, name := range declared {
		if v := fieldOf(c, name); v != "" && secret.ValidRef(v) != nil {
			return name
		}
	}
	return ""
}

func holdsReference(v any) bool {
	switch t := v.(type) {
	case string:
		return isReference(t)
	case []any:
		return slices.ContainsFunc(t, holdsReference)
	case map[string]any:
		for _, e := range t {
			if holdsReference(e) {
				return true
			}
		}
	}
	return false
}

// choices are the ids of drivers that serve a kind, for an error's way out.
func (r *Registry) choices(kind string) string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	var ids []string
	for _, e := range r.entries {
		if e.driver.Has(kind) && !slices.Contains(ids, e.driver.ID()) {
			ids = append(ids, e.driver.ID())
		}
	}
	slices.Sort(ids)
	if len(ids) == 0 {
		return "(none is registered)"
	}
	return strings.Join(ids, ", ")
}
