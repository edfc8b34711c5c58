package drivers

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// Options go with the calls made through a Handle.
type Options struct {
	Key         string                // idempotency key of the attempt, the same on every delivery
	TraceParent string                // W3C
	OnProgress  func(driver.Progress) // called from the call's goroutine
}

// Handle is a machine's drivers, callable. Errors are *app.Errors whose reason is the driver's code.
type Handle struct {
	r *Registry
	m *app.Machine
	o Options
}

// For makes a machine's drivers callable, as it is bound now.
func (r *Registry) For(m *app.Machine, o Options) *Handle { return &Handle{r: r, m: m, o: o} }

// bound is a call's driver, its configuration and secrets, and the lane of its BMC ("" none).
type bound struct {
	driver  *driver.Driver
	config  json.RawMessage
	secrets driver.SecretMap
	lane    string
}

// bind finds what an operation of a kind runs on, which the site must have at this moment.
func (h *Handle) bind(ctx context.Context, kind string) (*bound, error) {
	b, err := h.binding(kind)
	if err == nil {
		err = h.r.here(b.Driver, kind, reasonNotHere)
	}
	if err != nil {
		return nil, err
	}
	return h.bindTo(ctx, kind, b)
}

// bindTo finds the driver of a binding and opens its secrets.
func (h *Handle) bindTo(ctx context.Context, kind string, b app.Binding) (*bound, error) {
	ctx = h.use(ctx)
	e := h.r.active(b.Driver)
	switch {
	case e == nil:
		return nil, app.Errorf(app.Unsupported, "unsupported-driver", "the driver %q, which serves %s of %s, is not registered", b.Driver, kind, h.m.Name).
			Do("install its plugin, or bind another driver")
	case !e.driver.Has(kind):
		return nil, app.Errorf(app.Unsupported, "unsupported-driver", "the driver %q does not serve %s", b.Driver, kind).
			Do("bind another driver for %s", kind)
	case !e.up:
		return nil, down(b.Driver, e)
	}
	out := &bound{driver: e.driver, config: b.Config}
	if addr := addressOf(b.Config); addr != "" {
		h.r.Remember(ctx, addr)
		out.lane = laneOf(addr)
	}
	var err error
	if h.reachesBMC(kind, b) {
		out.secrets, err = h.r.bmcSecrets(ctx, e.driver, b.Config, h.m.BMC.CredentialRef)
	} else {
		out.secrets, err = h.r.declared(ctx, e.driver, b.Config)
	}
	return out, err
}

// binding is the machine's binding of a kind. Inspection goes out of band, to the enrolled BMC by its driver, whatever
// driver inspects the machine from inside.
func (h *Handle) binding(kind string) (app.Binding, error) {
	if kind == "inspect" && h.m.BMC != nil {
		config, err := connection(h.m.BMC)
		return app.Binding{Driver: h.m.BMC.Driver, Config: config, Layer: LayerBMC}, err
	}
	b, ok := h.m.Drivers[kind]
	if !ok {
		return b, unsupported(kind, "%s has no driver for %s", h.m.Name, kind).Do("give it a BMC with bcd machine set-bmc, or bind a driver for %s", kind)
	}
	return b, nil
}

// reachesBMC reports whether a binding goes to the machine's enrolled BMC: those calls, and no others, are given its
// credential. A job of the BMC may have another driver than the BMC itself, such as power by IPMI; then the host alone counts,
// because each protocol has a port of its own.
func (h *Handle) reachesBMC(kind string, b app.Binding) bool {
	switch address := addressOf(b.Config); {
	case h.m.BMC == nil:
		return false
	case b.Driver == h.m.BMC.Driver:
		return laneOf(address) == laneOf(h.m.BMC.Address)
	default:
		return slices.Contains(bmcKinds, kind) && hostOf(address) == hostOf(h.m.BMC.Address)
	}
}

// invoke runs a call in the lane of its BMC.
func (r *Registry) invoke(ctx context.Context, b *bound, c driver.Call, o Options) (out json.RawMessage, err error) {
	err = r.inLane(ctx, b, c.Name(), func(ctx context.Context) error {
		out, err = b.driver.Invoke(r.contextFor(ctx, b, o), c)
		return err
	})
	return out, err
}

// inLane runs f when the BMC's turn comes, bounded in time, and words its error for people.
func (r *Registry) inLane(ctx context.Context, b *bound, doing string, f func(context.Context) error) error {
	if _, bounded := ctx.Deadline(); !bounded {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, r.cfg.CallTimeout)
		defer cancel()
	}
	if b.lane != "" {
		inner, leave, err := r.lanes.enter(ctx, b.lane, doing)
		if err != nil {
			return err
		}
		defer leave()
		ctx = inner
	}
	err := f(ctx)
	if err != nil && errors.Is(context.Cause(ctx), errHalted) {
		return stopped()
	}
	return Error(err)
}

func (r *Registry) contextFor(ctx context.Context, b *bound, o Options) *driver.Context {
	return &driver.Context{
		Context: ctx, Secrets: b.secrets, Logger: r.log.With("driver", b.driver.ID()),
		IdempotencyKey: o.Key, TraceParent: o.TraceParent, OnProgress: o.OnProgress,
	}
}

// Stream opens a byte stream, such as console.open. The BMC's lane is held while it opens, not while it is open; ctx
// bounds its life.
func (h *Handle) Stream(ctx context.Context, kind, operation string, args json.RawMessage) (io.ReadWriteCloser, error) {
	b, err := h.bind(ctx, kind)
	if err != nil {
		return nil, Error(err)
	}
	if b.lane != "" {
		_, leave, err := h.r.lanes.enter(ctx, b.lane, kind+"."+operation)
		if err != nil {
			return nil, err
		}
		defer leave()
	}
	s, err := b.driver.Stream(h.r.contextFor(ctx, b, h.o), driver.Call{Kind: kind, Operation: operation, Config: b.config, Args: args})
	if err != nil {
		return nil, Error(err)
	}
	return worded{s}, nil
}

// worded is an open stream whose errors are for people.
type worded struct{ io.ReadWriteCloser }

// Read gives io.EOF at the proper end.
func (w worded) Read(p []byte) (int, error) {
	n, err := w.ReadWriteCloser.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		err = Error(err)
	}
	return n, err
}

// Halt ends every call to a BMC at once, running and waiting, for a forced delete.
func (r *Registry) Halt(address string) { r.lanes.halt(laneOf(address)) }

// decode reads a result into T. Nothing, null and {} leave the zero value.
func decode[T any](op string, raw json.RawMessage) (T, error) {
	var v T
	if isEmpty(raw) || bytes.Equal(bytes.TrimSpace(raw), []byte("{}")) {
		return v, nil
	}
	if err := json.Unmarshal(raw, &v); err != nil {
		return v, app.Errorf(app.Unavailable, driver.CodeBMCError, "the result of %s is not what the contract says: %w", op, err).
			Do("report it to the author of the driver")
	}
	return v, nil
}

// call operates on the BMC, under a command, with positional arguments and decodes the result.
func call[T any](ctx context.Context, h *Handle, command, kind, op string, args ...any) (T, error) {
	var zero T
	if args == nil {
		args = []any{}
	}
	a, err := json.Marshal(args)
	if err != nil {
		return zero, app.Invalid(kind+"."+op, "the arguments cannot be written as JSON")
	}
	raw, err := h.operate(ctx, command, kind, op, a, nil)
	if err != nil {
		return zero, err
	}
	return decode[T](kind+"."+op, raw)
}
