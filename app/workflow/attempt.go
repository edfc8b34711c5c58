package workflow

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/better-compute/bcd/app"
)

// attempt is one attempt of a step within this process.
type attempt struct {
	r         *run
	i         int
	kind      Kind
	step      Step // as journaled when the attempt was taken up
	cmd       Command
	ctx       context.Context
	deadline  *deadline
	delivered string // hex SHA-256 of the payload an agent was last given under this key; "" never
	unbegun   bool   // the agent said last that it lives and never began this attempt
	doubt     string // for errUndecided: what could not be told
	over      atomic.Bool
}

// errUndecided says that only a person can tell whether the step's effect is there.
var errUndecided = errors.New("the end of the attempt is unknown")

// attempt sets up the command and the clock of the step's attempt: what is left of its budget.
func (r *run) attempt(i int, kind Kind) *attempt {
	w := r.snapshot()
	s := w.Steps[i]
	a := &attempt{r: r, i: i, kind: kind, step: s}
	left := remaining(s.Started, time.Duration(s.Budget), r.e.now())
	a.ctx, a.deadline = newDeadline(r.ctx, r.e, left, time.Duration(s.Stall))
	key := commandKey(w.ID, &s)
	a.cmd = Command{Key: key, Kind: s.Kind, WorkflowID: w.ID, StepID: s.ID, Attempt: s.Attempt, MachineID: w.MachineID, Lane: s.Lane,
		Destructive: s.Destructive, RetrySafe: s.RetrySafe, NotAfter: r.e.now().Add(left), TraceParent: spanOf(w.TraceParent, key), Payload: s.Payload}
	r.startMeter(i)
	return a
}

// remaining is what an attempt has left of its budget by the wall clock, which may have been set since it began: never
// more than the budget, never less than a grace in which a step that ended meanwhile can be found to have.
func remaining(started time.Time, budget time.Duration, now time.Time) time.Duration {
	left := budget - now.Sub(started)
	return min(max(left, min(budget, resumeGrace)), budget)
}

func (a *attempt) end() {
	a.over.Store(true)
	a.deadline.stop()
}

// perform does the step, or finds out how it went. An attempt whose end turns out unknown on the way is settled and, when
// that is allowed, done again with the same key, a few times.
func (a *attempt) perform(fresh bool) (json.RawMessage, error) {
	for again := 0; ; again++ {
		if !fresh || again > 0 {
			if result, settled, err := a.settle(); settled || err != nil {
				return result, err
			}
		}
		if a.ctx.Err() != nil {
			return nil, context.Cause(a.ctx)
		}
		result, err := a.execute()
		if err == nil || a.ctx.Err() != nil || app.CodeOf(err) != app.Interrupted {
			return result, err
		}
		a.doubt = err.Error()
		if again == maxRepeats {
			return nil, errUndecided
		}
		if !pause(a.ctx, time.Second<<again) {
			return nil, context.Cause(a.ctx)
		}
	}
}

func (a *attempt) execute() (json.RawMessage, error) {
	a.r.startMeter(a.i)
	if a.step.On == OnAgent {
		return a.deliver()
	}
	return a.outcome(func() (any, error) { return a.kind.Run(a.ctx, a) })
}

// outcome calls f in a goroutine of its own, so that one that ignores its context holds up neither abort nor stop.
func (a *attempt) outcome(f func() (any, error)) (json.RawMessage, error) {
	v, err := bounded(a.ctx, f)
	if errors.Is(err, errAbandoned) {
		a.r.e.log.Error("a step did not return after its context ended and is left behind", "workflow", a.r.id, "step", a.step.ID)
	}
	if err != nil {
		return nil, err
	}
	if raw, ok := v.(json.RawMessage); ok && len(raw) <= maxResult {
		return raw, nil
	}
	return encodeBounded("the result of "+a.step.ID, v)
}

var errAbandoned = errors.New("it did not return in time")

// bounded calls f and waits for it, but once ctx has ended no longer than returnLimit. A panic of f is an error.
func bounded(ctx context.Context, f func() (any, error)) (any, error) {
	type outcome struct {
		v   any
		err error
	}
	done := make(chan outcome, 1)
	go func() {
		var o outcome
		if err := guarded(func() error { o.v, o.err = f(); return nil }); err != nil {
			o = outcome{err: err}
		}
		done <- o
	}()
	select {
	case o := <-done:
		return o.v, o.err
	case <-ctx.Done():
	}
	t := time.NewTimer(returnLimit)
	defer t.Stop()
	select {
	case o := <-done:
		return o.v, o.err
	case <-t.C:
		return nil, fmt.Errorf("%w: %w", errAbandoned, context.Cause(ctx))
	}
}

// deliver gives the command to the machine's agent, journaled with the digest of its payload, and waits for its end.
func (a *attempt) deliver() (json.RawMessage, error) {
	if err := a.prepare(); err != nil {
		return nil, err
	}
	sum := sha256.Sum256(a.cmd.Payload)
	digest, what := hex.EncodeToString(sum[:]), "deliver"
	if a.delivered != "" {
		what = "redeliver"
	}
	if a.delivered != "" && a.delivered != digest && !a.step.RetrySafe {
		a.doubt = "the command would not be the one that was delivered before: another disk, or another image"
		return nil, errUndecided
	}
	if err := a.note(what, delivery{digest}); err != nil {
		return nil, err
	}
	a.delivered = digest
	return a.await()
}

// delivery is the journal's data of a "deliver" or "redeliver".
type delivery struct {
	PayloadSHA256 string `json:"payloadSha256"` // hex; the payload itself may hold secrets
}

// await delivers the command as it stands and waits. When time is up or the workflow is aborted, the agent is told to stop.
func (a *attempt) await() (json.RawMessage, error) {
	told := make(chan struct{})
	stop := context.AfterFunc(a.ctx, func() {
		defer close(told)
		if !errors.Is(context.Cause(a.ctx), ErrStopped) {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(a.ctx), returnLimit)
			defer cancel()
			a.r.e.agents.Cancel(ctx, a.cmd)
		}
	})
	defer func() {
		if !stop() {
			<-told
		}
	}()
	return a.outcome(func() (any, error) { return a.r.e.agents.Deliver(a.ctx, a.cmd, a.Progress) })
}

func (a *attempt) prepare() error {
	if a.kind.Prepare == nil {
		return nil
	}
	payload, err := a.outcome(func() (any, error) { return a.kind.Prepare(a.ctx, a) })
	if err == nil {
		a.cmd.Payload = payload
	}
	return err
}

// note appends a line about the attempt to the journal.
func (a *attempt) note(what string, data any) error {
	return a.r.save(func(w *Workflow) (int, []Entry, error) {
		return a.i, []Entry{entry(&w.Steps[a.i], what, data)}, nil
	})
}
