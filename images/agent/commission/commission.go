// Package commission runs commissioning tests: it answers agent.test.
//
// Each test of the catalog (app.TestKinds) is one function here. It measures, writes down what it measured and holds it
// against its limits. A test that fails is a result; so is one that could not be made, which is never a pass. No test
// writes to a disk.
package commission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Handler is agent.Handler.
type Handler = func(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error)

// Config of a Tester. Disks, Ports and Log are required.
type Config struct {
	Disks    func(ctx context.Context) ([]agentv1.Disk, error) // the inventory of disks, at the time of the order
	Ports    func() ([]agentv1.NIC, error)                     // likewise of network ports, with their neighbours
	BootURLs []string                                          // http base URLs of the site's boot listener
	Log      *slog.Logger

	Sys, Proc, Dev string           // "": /sys, /proc, /dev
	Shell          []string         // "": u-root's; a script's file is the last argument
	Temp           string           // folder for a script's file; "": the system's
	Client         *http.Client     // nil: one without proxies and compression
	Now            func() time.Time // nil: time.Now

	Health func(path string, d agentv1.Disk) (Health, error) // nil: the disk's own commands; see smart.go
}

// Tester serves the test command.
type Tester struct{ cfg Config }

// New makes a Tester. It touches nothing.
func New(cfg Config) *Tester {
	for _, root := range []struct {
		at *string
		to string
	}{{&cfg.Sys, "/sys"}, {&cfg.Proc, "/proc"}, {&cfg.Dev, "/dev"}} {
		if *root.at == "" {
			*root.at = root.to
		}
	}
	if len(cfg.Shell) == 0 {
		cfg.Shell = []string{"/bbin/gosh"}
	}
	if cfg.Client == nil {
		cfg.Client = plainClient()
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Health == nil {
		cfg.Health = ownHealth
	}
	return &Tester{cfg}
}

// Handlers gives the commands this package serves, by kind.
func (t *Tester) Handlers() map[string]Handler {
	return map[string]Handler{agentv1.KindTest: func(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		var order agentv1.Test
		if err := json.Unmarshal(cmd.Payload, &order); err != nil {
			return nil, app.Errorf(app.InvalidInput, "bad-payload", "the payload of %s cannot be read: %w", cmd.Kind, err)
		}
		return t.Run(ctx, order, progress)
	}}
}

// errTimeUp is why a test's context ended when the test took too long.
var errTimeUp = errors.New("the test ran out of time")

// Run makes one test. An error means that it was cancelled, or is none that this agent has.
func (t *Tester) Run(parent context.Context, order agentv1.Test, progress func(agentv1.ProgressReport)) (*agentv1.TestResult, error) {
	kind, known := app.KindOfTest(order.Test)
	do := map[string]func(context.Context, *run) error{
		"link": t.link, "smart": t.smart, "throughput": t.throughput, "cpu": t.cpu, "disk-read": t.diskRead, "memory": t.memory, app.TestScript: t.script,
	}[order.Test]
	if !known || do == nil {
		return nil, app.Errorf(app.Unsupported, "no-such-test", "this ramdisk has no commissioning test %.40q", order.Test).Do("build the ramdisk of this version")
	}
	for _, v := range order.With {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return nil, app.Invalid("with", "holds what is no number")
		}
	}
	limit := kind.Timeout
	if order.Seconds > 0 {
		limit = time.Duration(order.Seconds) * time.Second
	}
	ctx, cancel := context.WithTimeoutCause(parent, limit, errTimeUp)
	defer cancel()
	r := &run{with: kind.Values(order.With), order: order, tell: progress, log: newTail(agentv1.MaxTestLog)}
	r.out = agentv1.TestResult{Test: order.Test, Started: t.cfg.Now()}
	r.progress(0, 0, "", "")
	err := do(ctx, r)
	if parent.Err() != nil {
		return nil, context.Cause(parent)
	}
	r.conclude(err)
	r.out.Ended = t.cfg.Now()
	t.cfg.Log.Info("commissioning test", "test", order.Test, "result", r.out.Result, "message", r.out.Message)
	return &r.out, nil
}

// Bounds of a result, so that it fits into a report whatever devices say.
const (
	maxValues  = 512
	maxSkipped = 64
	maxText    = 256 // bytes of one text
	maxMessage = 1024
)

// run is one test on its way. Its methods are safe for concurrent use.
type run struct {
	with  map[string]float64
	order agentv1.Test
	tell  func(agentv1.ProgressReport)
	log   *tail

	mu     sync.Mutex // protects what follows
	out    agentv1.TestResult
	tested int      // parts that were tested
	faults []string // sentences
}

// notRun is why a test could not be made.
type notRun struct{ why string }

func (n notRun) Error() string { return n.why }

// cannot ends a test that could not be made.
func cannot(format string, args ...any) error { return notRun{fmt.Sprintf(format, args...)} }

// conclude makes the outcome of what was measured and of how the test ended.
func (r *run) conclude(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	var n notRun
	switch {
	case r.out.Result != "": // the script said it
	case len(r.faults) > 0:
		r.out.Result = agentv1.TestFailed
		if err != nil {
			r.faults = append(r.faults, err.Error())
		}
	case errors.As(err, &n):
		r.out.Result, r.out.Message = agentv1.TestNotRun, n.why
	case errors.Is(err, context.DeadlineExceeded):
		r.out.Result, r.out.Message = agentv1.TestError, errTimeUp.Error()
	case err != nil:
		r.out.Result, r.out.Message = agentv1.TestError, err.Error()
	case r.tested == 0:
		r.out.Result = agentv1.TestNotRun
		if r.out.Message = strings.Join(r.out.Skipped, "; "); r.out.Message == "" {
			r.out.Message = "there was nothing to test"
		}
	default:
		r.out.Result = agentv1.TestPassed
	}
	if len(r.faults) > 0 {
		r.out.Message = strings.Join(r.faults, "; ")
	}
	r.out.Message, r.out.Log = clip(r.out.Message, maxMessage), r.log.String()
}

// did counts a part that was tested.
func (r *run) did() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.tested++
}

// skip notes a part that is not tested, and why.
func (r *run) skip(subject, format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := clip(subject+": "+fmt.Sprintf(format, args...), maxText)
	if len(r.out.Skipped) < maxSkipped {
		r.out.Skipped = append(r.out.Skipped, s)
	}
	r.log.line("not tested: %s", s)
}

// fail notes what is wrong with a part.
func (r *run) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, clip(fmt.Sprintf(format, args...), maxText))
}

func (r *run) add(v agentv1.TestValue) {
	v.Subject, v.Name, v.Text, v.Unit = clip(v.Subject, maxText), clip(v.Name, maxText), clip(v.Text, maxText), clip(v.Unit, 32)
	if math.IsNaN(v.Value) || math.IsInf(v.Value, 0) {
		v.Value = 0
	}
	v.Value = math.Round(v.Value*1000) / 1000
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.out.Values) < maxValues {
		r.out.Values = append(r.out.Values, v)
	}
	if v.Text != "" {
		r.log.line("%s %s: %s", v.Subject, v.Name, v.Text)
		return
	}
	r.log.line("%s %s: %g %s", v.Subject, v.Name, v.Value, v.Unit)
}

func (r *run) text(subject, name, format string, args ...any) {
	r.add(agentv1.TestValue{Subject: subject, Name: name, Text: fmt.Sprintf(format, args...)})
}

func (r *run) value(subject, name, unit string, v float64) {
	r.add(agentv1.TestValue{Subject: subject, Name: name, Unit: unit, Value: v})
}

// atMost writes a value down and holds it against a limit, if that is set.
func (r *run) atMost(subject, name, unit string, v float64, limit string) {
	l, set := r.with[limit]
	r.judge(agentv1.TestValue{Subject: subject, Name: name, Unit: unit, Value: v, Failed: set && v > l}, "at most", l, set)
}

// atLeast likewise.
func (r *run) atLeast(subject, name, unit string, v float64, limit string) {
	l, set := r.with[limit]
	r.judge(agentv1.TestValue{Subject: subject, Name: name, Unit: unit, Value: v, Failed: set && v < l}, "at least", l, set)
}

func (r *run) judge(v agentv1.TestValue, bound string, limit float64, set bool) {
	if set {
		v.Limit = fmt.Sprintf("%s %g", bound, limit)
	}
	r.add(v)
	if v.Failed {
		r.fail("%s: %g %s, %s %g is wanted", strings.TrimSpace(v.Subject+" "+v.Name), math.Round(v.Value*1000)/1000, v.Unit, bound, limit)
	}
}

func (r *run) progress(done, total int64, unit, message string) {
	r.tell(agentv1.ProgressReport{Phase: r.order.Test, Done: done, Total: total, Unit: unit, Message: message})
}

// everySecond calls tick until ctx ends or the returned func is called, which waits for the last call to end.
func everySecond(ctx context.Context, tick func()) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for pause(ctx, time.Second) {
			tick()
		}
	}()
	return func() { cancel(); <-ended }
}

// pause waits, and reports false when ctx ended first.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
