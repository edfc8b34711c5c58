package driver

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
)

// Where a driver runs.
const (
	RunsOnSite    = "site"
	RunsOnRamdisk = "ramdisk"
	RunsOnNode    = "node"
)

// Factory makes the implementation of one kind for one configuration, which has passed the schema and carries its
// defaults. The implementation satisfies the kind's Go interface, or is an Invoker. It is used for one call.
type Factory func(config json.RawMessage) (any, error)

// Definition declares a driver.
type Definition struct {
	ID           string                                // [a-z][a-z0-9-]{0,62}
	Version      string                                // semantic version without "v"
	RunsOn       string                                // RunsOnSite, RunsOnRamdisk or RunsOnNode
	Config       []byte                                // JSON Schema 2020-12 of its configuration; empty: it takes none
	Capabilities []string                              // free words, such as "virtual-media"
	Implements   map[string]Factory                    // by kind
	RetrySafe    map[string][]string                   // operations by kind that may run twice without harm
	Operations   map[string][]string                   // operations by kind, where it serves fewer than the whole kind; else all
	Validate     func(*Context, json.RawMessage) error // a live check of a configuration, such as one login; may be nil

	// Foreign marks a definition read from a plugin's manifest: kinds that nobody registered are accepted, and
	// defaults are left to the plugin.
	Foreign bool
}

// Driver is a checked definition. It never changes.
type Driver struct {
	def    Definition
	schema *configSchema
}

var (
	idRE      = regexp.MustCompile(`^[a-z][a-z0-9-]{0,62}$`)
	versionRE = regexp.MustCompile(`^(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(-[0-9A-Za-z.-]{1,64})?(\+[0-9A-Za-z.-]{1,64})?$`)
	wordRE    = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9._:-]{0,127}$`)
)

// FieldError is a mistake in a definition: Field is the path to it in Go's spelling ("RetrySafe[power]").
type FieldError struct {
	Field   string
	Message string
}

// Error gives "ID: ...".
func (e *FieldError) Error() string { return e.Field + ": " + e.Message }

func invalid(field, format string, args ...any) error {
	return &FieldError{Field: field, Message: fmt.Sprintf(format, args...)}
}

// Define checks a definition and returns its driver, or all mistakes joined, each a *FieldError.
func Define(def Definition) (*Driver, error) {
	var errs []error
	check := func(ok bool, field, format string, args ...any) {
		if !ok {
			errs = append(errs, invalid(field, format, args...))
		}
	}
	check(idRE.MatchString(def.ID), "ID", "%q is not an id: use 1 to 63 lower-case letters, digits and hyphens, a letter first", clip(def.ID))
	check(versionRE.MatchString(def.Version), "Version", "%q is not a semantic version such as 1.0.0", clip(def.Version))
	check(slices.Contains([]string{RunsOnSite, RunsOnRamdisk, RunsOnNode}, def.RunsOn), "RunsOn", "%q must be site, ramdisk or node", clip(def.RunsOn))
	check(len(def.Implements) > 0, "Implements", "names no kind")
	for _, c := range def.Capabilities {
		check(wordRE.MatchString(c), "Capabilities", "%q is not a capability: use letters, digits, dots, colons and hyphens", clip(c))
	}
	for _, name := range slices.Sorted(maps.Keys(def.Implements)) {
		field := fmt.Sprintf("Implements[%s]", clip(name))
		check(kindRE.MatchString(name), field, "is not a kind's name")
		_, known := LookupKind(name)
		check(known || def.Foreign, field, "nobody registered this kind")
		check(def.Implements[name] != nil, field, "has no factory")
	}
	errs = append(errs, def.checkOperations("RetrySafe", def.RetrySafe)...)
	errs = append(errs, def.checkOperations("Operations", def.Operations)...)
	schema, err := compileSchema(def.Config)
	check(err == nil, "Config", "%v", err)
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	return &Driver{def: def.clone(), schema: schema}, nil
}

// checkOperations checks a map of operations by kind against what the definition implements.
func (d Definition) checkOperations(field string, ops map[string][]string) []error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(ops)) {
		at := fmt.Sprintf("%s[%s]", field, clip(name))
		if _, ok := d.Implements[name]; !ok {
			errs = append(errs, invalid(at, "the driver does not implement this kind"))
			continue
		}
		kind, known := LookupKind(name)
		for _, op := range ops[name] {
			if _, ok := kind.Operation(op); known && len(kind.Operations) > 0 && !ok {
				errs = append(errs, invalid(at, "the kind has no operation %q", clip(op)))
			}
		}
	}
	return errs
}

func (d Definition) clone() Definition {
	c := d
	c.Config = slices.Clone(d.Config)
	c.Capabilities = slices.Sorted(slices.Values(d.Capabilities))
	c.Implements = maps.Clone(d.Implements)
	c.RetrySafe = cloneOps(d.RetrySafe)
	c.Operations = cloneOps(d.Operations)
	return c
}

func cloneOps(m map[string][]string) map[string][]string {
	out := make(map[string][]string, len(m))
	for k, v := range m {
		if len(v) > 0 {
			out[k] = slices.Sorted(slices.Values(v))
		}
	}
	return out
}

// ID is the driver's id.
func (d *Driver) ID() string { return d.def.ID }

// Version is the driver's version.
func (d *Driver) Version() string { return d.def.Version }

// RunsOn is where the driver runs.
func (d *Driver) RunsOn() string { return d.def.RunsOn }

// Foreign reports whether a plugin serves the driver.
func (d *Driver) Foreign() bool { return d.def.Foreign }

// Kinds are the kinds it implements, sorted.
func (d *Driver) Kinds() []string { return slices.Sorted(maps.Keys(d.def.Implements)) }

// Has reports whether it implements a kind.
func (d *Driver) Has(kind string) bool { _, ok := d.def.Implements[kind]; return ok }

// Capabilities are its capabilities, sorted.
func (d *Driver) Capabilities() []string { return slices.Clone(d.def.Capabilities) }

// RetrySafe are the operations by kind that may run twice, sorted.
func (d *Driver) RetrySafe() map[string][]string { return cloneOps(d.def.RetrySafe) }

// IsRetrySafe reports whether an operation may run twice without harm.
func (d *Driver) IsRetrySafe(kind, operation string) bool {
	return slices.Contains(d.def.RetrySafe[kind], operation)
}

// Serves reports whether it serves an operation: its kind is implemented and, where the definition lists
// operations of the kind, the list has it.
func (d *Driver) Serves(kind, operation string) bool {
	if !d.Has(kind) {
		return false
	}
	if ops, listed := d.def.Operations[kind]; listed {
		return slices.Contains(ops, operation)
	}
	k, known := LookupKind(kind)
	if !known || len(k.Operations) == 0 {
		return true
	}
	_, ok := k.Operation(operation)
	return ok
}

// Schema is the JSON Schema of its configuration.
func (d *Driver) Schema() json.RawMessage { return slices.Clone(d.schema.raw) }

// SecretFields are the configuration fields declared secret, sorted: top-level ones, and members of options as
// "options.NAME".
func (d *Driver) SecretFields() []string { return slices.Clone(d.schema.secrets) }

// ValidateConfig checks a configuration against the schema. No issues means it is fine.
func (d *Driver) ValidateConfig(config json.RawMessage) []Issue { return d.schema.validate(config) }

// ValidateLive runs the driver's own check of a configuration, after the schema's. It is bounded by ctx.
func (d *Driver) ValidateLive(ctx *Context, config json.RawMessage) (err error) {
	config, err = d.prepare(config)
	if err != nil || d.def.Validate == nil {
		return err
	}
	defer recovered(ctx, d, "validate", &err)
	if err := d.def.Validate(ctx, config); err != nil {
		return AsError(err)
	}
	return nil
}

// prepare validates a configuration and fills its defaults.
func (d *Driver) prepare(config json.RawMessage) (json.RawMessage, error) {
	if issues := d.ValidateConfig(config); len(issues) > 0 {
		return nil, Errorf(CodeInvalidConfig, "the configuration of driver %s is wrong: %s", d.ID(), issues[0])
	}
	if d.def.Foreign {
		return config, nil
	}
	return d.schema.withDefaults(config)
}

// deadlineOf ends a context error as the contract's error.
func deadlineOf(ctx context.Context, err error) *Error {
	if err != nil && ctx.Err() != nil {
		if e := AsError(err); e.Code == CodeDriverError {
			return AsError(ctx.Err())
		}
	}
	return AsError(err)
}
