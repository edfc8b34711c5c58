package driver

import (
	"encoding/json"
	"fmt"
	"io"
	"runtime/debug"
)

// Call names an operation and carries its configuration and arguments.
type Call struct {
	Kind      string
	Operation string
	Config    json.RawMessage // without any secret's value
	Args      json.RawMessage // see Operation.Positional
}

// Name gives "power.setPower".
func (c Call) Name() string { return c.Kind + "." + c.Operation }

// Invoke runs an operation and gives its result as JSON; {} when it has none. Every error is an *Error, retryable only
// when the driver lists the operation as retry-safe.
func (d *Driver) Invoke(ctx *Context, c Call) (json.RawMessage, error) {
	op, impl, args, err := d.open(c)
	if err != nil {
		return nil, AsError(err)
	}
	if op.Stream {
		return nil, Errorf(CodeUnsupported, "%s gives a byte stream, not a result", c.Name())
	}
	r, err := d.run(ctx, op, impl, c, args)
	if err != nil {
		return nil, d.judged(c, deadlineOf(ctx, err))
	}
	return result(c, r)
}

// judged clears the mark retryable from errors of operations that may not run twice.
func (d *Driver) judged(c Call, e *Error) *Error {
	if e.Retryable && !d.IsRetrySafe(c.Kind, c.Operation) {
		cleared := *e
		cleared.Retryable = false
		return &cleared
	}
	return e
}

// Stream runs an operation that gives a byte stream, which the caller closes.
func (d *Driver) Stream(ctx *Context, c Call) (io.ReadWriteCloser, error) {
	op, impl, args, err := d.open(c)
	if err != nil {
		return nil, AsError(err)
	}
	r, err := d.run(ctx, op, impl, c, args)
	if err != nil {
		return nil, deadlineOf(ctx, err)
	}
	s, ok := r.(io.ReadWriteCloser)
	if !ok {
		return nil, Errorf(CodeUnsupported, "%s of driver %s gives no byte stream", c.Name(), d.ID())
	}
	return s, nil
}

// open finds the operation, reads its arguments and makes the implementation.
func (d *Driver) open(c Call) (Operation, any, []json.RawMessage, error) {
	factory, ok := d.def.Implements[c.Kind]
	if !ok || !d.Serves(c.Kind, c.Operation) {
		return Operation{}, nil, nil, Errorf(CodeUnsupported, "driver %s does not serve %s", d.ID(), clip(c.Name()))
	}
	kind, _ := LookupKind(c.Kind)
	op, ok := kind.Operation(c.Operation)
	if !ok {
		op = Operation{Name: c.Operation}
	}
	args, err := op.Positional(c.Args)
	if err != nil {
		return op, nil, nil, err
	}
	config, err := d.prepare(c.Config)
	if err != nil {
		return op, nil, nil, err
	}
	impl, err := factory(config)
	return op, impl, args, err
}

// run calls the implementation, by name when it takes names. A panic in a driver is an error of its call.
func (d *Driver) run(ctx *Context, op Operation, impl any, c Call, args []json.RawMessage) (r any, err error) {
	defer recovered(ctx, d, c.Name(), &err)
	if inv, ok := impl.(Invoker); ok {
		return inv.Invoke(ctx, c.Operation, args)
	}
	if op.call == nil {
		return nil, Errorf(CodeUnsupported, "driver %s implements %s without an Invoker", d.ID(), c.Kind)
	}
	r, ok, err := op.call(ctx, impl, args)
	if !ok {
		return nil, Errorf(CodeUnsupported, "driver %s does not serve %s", d.ID(), c.Name())
	}
	return r, err
}

func recovered(ctx *Context, d *Driver, name string, err *error) {
	if p := recover(); p != nil {
		ctx.Log().Error("driver panicked", "driver", d.ID(), "operation", name, "panic", fmt.Sprint(p), "stack", string(debug.Stack()))
		*err = Errorf(CodeDriverError, "driver %s crashed in %s", d.ID(), name)
	}
}

// result marshals what an operation gave.
func result(c Call, r any) (json.RawMessage, error) {
	if r == nil {
		return json.RawMessage("{}"), nil
	}
	if s, ok := r.(io.ReadWriteCloser); ok {
		s.Close()
		return nil, Errorf(CodeUnsupported, "%s gives a byte stream, not a result", c.Name())
	}
	b, err := json.Marshal(r)
	switch {
	case err != nil:
		return nil, Errorf(CodeBMCError, "the result of %s is not JSON: %w", c.Name(), err)
	case len(b) > maxJSON:
		return nil, Errorf(CodeBMCError, "the result of %s is %d bytes long, the limit is %d", c.Name(), len(b), maxJSON)
	case string(b) == "null":
		return json.RawMessage("{}"), nil
	}
	return b, nil
}
