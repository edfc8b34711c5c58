package bcx

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// plugin serves drivers over gRPC.
type plugin struct {
	driverv1.UnimplementedDriverPluginServer
	drivers map[string]*driver.Driver
	about   *driverv1.DescribeResponse
	health  func(context.Context) error
	log     *slog.Logger
}

func newPlugin(o Options, defs []driver.Definition) (*plugin, error) {
	p := &plugin{drivers: map[string]*driver.Driver{}, health: o.Health, log: o.Logger}
	p.about = &driverv1.DescribeResponse{PluginVersion: clean(o.PluginVersion, 64), ProtocolVersion: ProtocolVersion}
	if len(defs) == 0 || len(defs) > maxDrivers {
		return nil, fmt.Errorf("a plugin serves 1 to %d drivers, not %d", maxDrivers, len(defs))
	}
	streams := map[string]bool{}
	for _, s := range o.Streams {
		streams[s] = false
	}
	for _, def := range defs {
		if err := p.add(def, streams); err != nil {
			return nil, err
		}
	}
	for name, used := range streams {
		if !used {
			return nil, fmt.Errorf("the stream %q is an operation of no driver of this plugin", name)
		}
	}
	return p, nil
}

// add defines a driver and its manifest. It notes which of the streams the driver serves.
func (p *plugin) add(def driver.Definition, streams map[string]bool) error {
	for kind := range def.Implements {
		if _, known := driver.LookupKind(kind); !known {
			if err := driver.RegisterKind(driver.Kind{Name: kind}); err != nil {
				return fmt.Errorf("driver %s: %w", def.ID, err)
			}
		}
	}
	d, err := driver.Define(def)
	if err != nil {
		return fmt.Errorf("driver %s: %w", def.ID, err)
	}
	if p.drivers[d.ID()] != nil {
		return fmt.Errorf("driver %s is served twice", d.ID())
	}
	p.drivers[d.ID()] = d
	m := &driverv1.DriverManifest{Id: d.ID(), Version: d.Version(), Kinds: d.Kinds(), RunsOn: d.RunsOn(),
		ConfigSchemaJson: string(d.Schema()), Capabilities: d.Capabilities()}
	for kind, ops := range d.RetrySafe() {
		for _, op := range ops {
			m.RetrySafeOperations = append(m.RetrySafeOperations, kind+"."+op)
		}
	}
	slices.Sort(m.RetrySafeOperations)
	for _, s := range streamsOf(d, def, streams) {
		m.Capabilities = append(m.Capabilities, StreamCapability+s)
	}
	p.about.Drivers = append(p.about.Drivers, m)
	return nil
}

// streamsOf lists the operations of a driver that give a byte stream: those its kinds say so, and those the author names.
func streamsOf(d *driver.Driver, def driver.Definition, named map[string]bool) []string {
	var out []string
	for _, name := range d.Kinds() {
		kind, _ := driver.LookupKind(name)
		for _, op := range kind.Operations {
			certain := !op.Optional || slices.Contains(def.Operations[name], op.Name)
			if op.Stream && certain && d.Serves(name, op.Name) {
				out = append(out, name+"."+op.Name)
			}
		}
	}
	for s := range named {
		kind, op, _ := strings.Cut(s, ".")
		if op != "" && d.Serves(kind, op) {
			named[s] = true
			out = append(out, s)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Describe gives the manifests.
func (p *plugin) Describe(context.Context, *driverv1.DescribeRequest) (*driverv1.DescribeResponse, error) {
	return p.about, nil
}

// Health asks the author's check.
func (p *plugin) Health(ctx context.Context, _ *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	if p.health != nil {
		_, err := heard(ctx, p.log, func() (struct{}, error) { return struct{}{}, p.health(ctx) })
		if err != nil {
			return &driverv1.HealthResponse{Status: driverv1.HealthResponse_NOT_SERVING, Message: clean(err.Error(), maxText)}, nil
		}
	}
	return &driverv1.HealthResponse{Status: driverv1.HealthResponse_SERVING}, nil
}

// Validate checks a configuration against the schema, then by the driver's live check.
func (p *plugin) Validate(ctx context.Context, r *driverv1.ValidateRequest) (*driverv1.ValidateResponse, error) {
	d, err := p.find(r.GetDriverId())
	if err != nil {
		return refusal(err), nil
	}
	if issues := d.ValidateConfig([]byte(r.GetConfigJson())); len(issues) > 0 {
		out := &driverv1.ValidateResponse{}
		for _, i := range issues {
			out.Issues = append(out.Issues, &driverv1.Issue{Pointer: clean(i.Pointer, maxText), Message: clean(i.Message, maxText)})
		}
		return out, nil
	}
	ctx, cancel := limited(ctx, r.GetTimeoutMs())
	defer cancel()
	c := p.context(ctx, d, r.GetSecrets())
	c.TraceParent = r.GetTraceparent()
	_, err = heard(ctx, p.log, func() (struct{}, error) { return struct{}{}, d.ValidateLive(c, []byte(r.GetConfigJson())) })
	if err != nil {
		return refusal(err), nil
	}
	return &driverv1.ValidateResponse{Valid: true}, nil
}

func refusal(err error) *driverv1.ValidateResponse {
	e := wireError(err)
	return &driverv1.ValidateResponse{Issues: []*driverv1.Issue{{Message: e.GetMessage(), Code: e.GetCode()}}}
}

func (p *plugin) find(id string) (*driver.Driver, error) {
	if d := p.drivers[id]; d != nil {
		return d, nil
	}
	return nil, driver.Errorf(codeNotFound, "the plugin serves no driver %q", clean(id, 64))
}

// context makes what an operation is told of its call.
func (p *plugin) context(ctx context.Context, d *driver.Driver, secrets []*driverv1.SecretValue) *driver.Context {
	given := make(driver.SecretMap, len(secrets))
	for _, s := range secrets {
		given[s.GetName()] = s.GetValue()
	}
	return &driver.Context{Context: ctx, Secrets: given, Logger: p.log.With("driver", d.ID())}
}

// limited bounds a call by the host's timeout in milliseconds; 0 is none.
func limited(ctx context.Context, ms int64) (context.Context, context.CancelFunc) {
	if ms == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, milliseconds(ms))
}

// milliseconds reads a duration of the wire; one that is too long for Go is the longest.
func milliseconds(ms int64) time.Duration {
	return time.Duration(min(ms, math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// heard runs f and gives what it gives, or the end of ctx when that comes first: f then goes on unheard, and its panic
// harms nobody.
func heard[T any](ctx context.Context, log *slog.Logger, f func() (T, error)) (T, error) {
	type answer struct {
		value T
		err   error
	}
	done := make(chan answer, 1)
	go func() {
		var a answer
		defer func() { done <- a }()
		defer contain(log, &a.err)
		a.value, a.err = f()
	}()
	select {
	case a := <-done:
		return a.value, a.err
	case <-ctx.Done():
		var none T
		return none, ctx.Err()
	}
}

// contain turns a panic of the author's code into an error. It is deferred.
func contain(log *slog.Logger, err *error) {
	if r := recover(); r != nil {
		log.Error("driver panicked", "panic", fmt.Sprint(r), "stack", string(debug.Stack()))
		*err = driver.Errorf(driver.CodeDriverError, "the driver crashed")
	}
}

// wireError makes any error fit for the wire.
func wireError(err error) *driverv1.DriverError {
	e := driver.AsError(err)
	if e == nil {
		e = driver.AsError(errors.New("it failed without a reason"))
	}
	return &driverv1.DriverError{Code: cleanCode(e.Code), Message: clean(e.Message, maxText), Retryable: e.Retryable}
}

// cleanCode gives a kebab-case code as it is, else driver-error.
func cleanCode(code string) string { return driver.Errorf(code, "").Code }
