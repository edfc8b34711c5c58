package bcx

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// Request is one operation of one driver of a plugin.
type Request struct {
	DriverID string
	driver.Call
	Secrets map[string]string // what goes with the call, by name
}

// Issue is one thing wrong with a configuration. Code is empty for a mistake against the schema, else the live check's.
type Issue struct {
	driver.Issue
	Code string
}

// Validate has a configuration checked by the plugin: against its schema, then by its live check. No issues: it is fine.
func (c *Conn) Validate(ctx *driver.Context, driverID string, config json.RawMessage, secrets map[string]string) ([]Issue, error) {
	b := c.bound(ctx)
	defer b.done()
	r, err := c.plugin.Validate(b.wire, &driverv1.ValidateRequest{DriverId: driverID, ConfigJson: jsonText(config),
		Secrets: secretValues(secrets), Traceparent: ctx.TraceParent, TimeoutMs: b.left})
	if err != nil {
		return nil, c.failure(b.caller, err)
	}
	var out []Issue
	for _, i := range r.GetIssues()[:min(len(r.GetIssues()), maxIssues)] {
		issue := Issue{Issue: driver.Issue{Pointer: clean(i.GetPointer(), 256), Message: clean(i.GetMessage(), maxText)}}
		if i.GetCode() != "" {
			issue.Code = cleanCode(i.GetCode())
		}
		out = append(out, issue)
	}
	switch {
	case r.GetValid() && len(out) > 0:
		return nil, foul("it calls a configuration valid and names what is wrong with it")
	case !r.GetValid() && len(out) == 0:
		out = []Issue{{Issue: driver.Issue{Message: "the driver refuses the configuration without a reason"}, Code: driver.CodeInvalidConfig}}
	}
	return out, nil
}

// Invoke runs an operation. Progress goes to ctx.Emit, in order; what a plugin sends beyond 50 a second, after the first
// thousand, is dropped. The result is JSON as the plugin gave it; every error is a *driver.Error.
func (c *Conn) Invoke(ctx *driver.Context, r Request) (json.RawMessage, error) {
	if err := ctx.Err(); err != nil {
		return nil, driver.AsError(err)
	}
	b := c.bound(ctx)
	defer b.done()
	s, err := c.plugin.Invoke(b.wire, r.wire(ctx, b.left))
	if err != nil {
		return nil, c.failure(b.caller, err)
	}
	end, err := progress(ctx, s)
	if err != nil {
		return nil, c.failure(b.caller, err)
	}
	if goesOn(s, b.done) {
		return nil, foul("it went on after the end of %s", r.Name())
	}
	if e := end.GetError(); e != nil {
		return nil, reported(e)
	}
	return result(r, end.GetResultJson())
}

// answers is what a plugin sends during one Invoke.
type answers = grpc.ServerStreamingClient[driverv1.InvokeResponse]

// progress passes progress on until the result or the error comes, which it returns.
func progress(ctx *driver.Context, s answers) (*driverv1.InvokeResponse, error) {
	var pace pace
	for range maxProgress {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			return nil, foul("it ended without a result")
		}
		if err != nil {
			return nil, err
		}
		switch e := m.GetEvent().(type) {
		case *driverv1.InvokeResponse_Progress:
			if pace.allows(time.Now()) {
				ctx.Emit(driver.Progress{Phase: clean(e.Progress.GetPhase(), 64), Message: clean(e.Progress.GetMessage(), maxText),
					Done: max(e.Progress.GetDone(), 0), Total: max(e.Progress.GetTotal(), 0)})
			}
		case nil:
			return nil, foul("it sent an empty message")
		default:
			return m, nil
		}
	}
	return nil, foul("it sent more than %d progress messages", maxProgress)
}

// goesOn reports whether something follows the end of a call. A plugin that says nothing, not even that it is done, is
// left alone.
func goesOn(s answers, cancel func()) bool {
	late := time.AfterFunc(patience, cancel)
	defer late.Stop()
	_, err := s.Recv()
	return err == nil
}

// result checks a result.
func result(r Request, s string) (json.RawMessage, error) {
	switch s = strings.TrimSpace(s); {
	case s == "":
		return json.RawMessage("null"), nil
	case len(s) > maxPayload:
		return nil, driver.Errorf(driver.CodeBMCError, "the result of %s is %d bytes long, the limit is %d", r.Name(), len(s), maxPayload)
	case !json.Valid([]byte(s)):
		return nil, driver.Errorf(driver.CodeBMCError, "the result of %s is not JSON: %q", r.Name(), clean(s, 80))
	}
	return json.RawMessage(s), nil
}

// reported reads an error of the plugin's.
func reported(e *driverv1.DriverError) *driver.Error {
	message := clean(e.GetMessage(), maxText)
	if message == "" {
		message = "the driver failed without a reason"
	}
	out := driver.Errorf(e.GetCode(), "%s", message)
	out.Retryable = e.GetRetryable()
	return out
}

// foul says how a plugin broke the protocol.
func foul(format string, args ...any) *driver.Error {
	return driver.Errorf(driver.CodeDriverError, "the plugin does not keep to the protocol: "+format, args...)
}

func (r Request) wire(ctx *driver.Context, left int64) *driverv1.InvokeRequest {
	return &driverv1.InvokeRequest{DriverId: r.DriverID, Kind: r.Kind, Operation: r.Operation, ConfigJson: jsonText(r.Config),
		ArgsJson: jsonText(r.Args), Secrets: secretValues(r.Secrets), IdempotencyKey: ctx.IdempotencyKey,
		Traceparent: ctx.TraceParent, TimeoutMs: left}
}

func secretValues(m map[string]string) []*driverv1.SecretValue {
	var out []*driverv1.SecretValue
	for _, name := range slices.Sorted(maps.Keys(m)) {
		out = append(out, &driverv1.SecretValue{Name: name, Value: m[name]})
	}
	return out
}

// jsonText is JSON as a protobuf string, which must be UTF-8.
func jsonText(b []byte) string { return strings.ToValidUTF8(string(b), "\ufffd") }

// bound is how long a call may take.
type bound struct {
	caller context.Context // ends when the caller cancels, and at the deadline
	wire   context.Context // ends when the caller cancels, and a moment after the deadline: the plugin may say timeout itself
	left   int64           // time until the deadline in milliseconds, 0 for none
	done   context.CancelFunc
}

func (c *Conn) bound(ctx context.Context) bound {
	b := bound{caller: ctx}
	release := func() {}
	if _, has := ctx.Deadline(); !has && c.timeout > 0 {
		b.caller, release = context.WithTimeout(ctx, c.timeout)
	}
	var cancel context.CancelFunc
	if deadline, has := b.caller.Deadline(); has {
		b.wire, cancel = context.WithDeadline(context.WithoutCancel(ctx), deadline.Add(patience))
		b.left = max(time.Until(deadline).Milliseconds(), 1)
	} else {
		b.wire, cancel = context.WithCancel(context.WithoutCancel(ctx))
	}
	forget := context.AfterFunc(b.caller, func() {
		if !errors.Is(b.caller.Err(), context.DeadlineExceeded) {
			cancel()
		}
	})
	b.done = func() { forget(); cancel(); release() }
	return b
}

// pace lets a thousand messages through at once and then 50 a second.
type pace struct {
	left float64
	at   time.Time
}

func (p *pace) allows(now time.Time) bool {
	const burst, rate = 1000, 50
	if p.at.IsZero() {
		p.left = burst
	} else {
		p.left = min(burst, p.left+rate*now.Sub(p.at).Seconds())
	}
	p.at = now
	if p.left < 1 {
		return false
	}
	p.left--
	return true
}
