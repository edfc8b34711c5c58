package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/better-compute/bcd/app"
)

// step runs the step at the cursor: an attempt that begins now, or one that an earlier process left open.
func (r *run) step(i int) error {
	w := r.snapshot()
	s := &w.Steps[i]
	kind, unsuited := r.e.kindOf(s)
	if unsuited != nil {
		why := *unsuited
		why.Code, why.WayOut = app.Interrupted, "mark it done if its effect is there, abort the workflow, or run the bcd that started it"
		return r.interrupt(&why)
	}
	release, err := r.e.lanes.acquire(r.ctx, w.MachineID, s.Lane)
	if err != nil {
		return r.ended(err)
	}
	defer release()
	fresh := s.State == StepWaiting
	if fresh {
		if err := r.intend(i); err != nil {
			return r.ended(err)
		}
	}
	a := r.attempt(i, kind)
	defer a.end()
	result, err := a.perform(fresh)
	return r.conclude(a, result, err)
}

// unneeded says why the step at the cursor need not begin. A verb that cannot tell needs it.
func (v Verb) unneeded(w *Workflow) (why string) {
	if v.Skip == nil || w.Steps[w.Cursor].State != StepWaiting {
		return ""
	}
	if guarded(func() error { why = v.Skip(w, w.Cursor); return nil }) != nil {
		return ""
	}
	return why
}

// skip journals that a step is not needed.
func (r *run) skip(i int, why string) error {
	err := r.save(func(w *Workflow) (int, []Entry, error) {
		s := &w.Steps[i]
		if w.State != Running {
			return 0, nil, errAgain
		}
		s.State, s.Ended, s.Error = StepSkipped, r.e.now(), nil
		s.Progress = &Progress{Phase: "skipped", Message: why, At: s.Ended}
		return i, []Entry{entry(s, "skip", map[string]string{"reason": why})}, nil
	})
	return r.ended(err)
}

// ended tells the end of the run's context apart: a stop ends the goroutine, an abort makes it look again.
func (r *run) ended(err error) error {
	if r.stop.Err() != nil {
		return ErrStopped
	}
	if r.ctx.Err() != nil || errors.Is(err, errAgain) {
		return nil
	}
	return err
}

// intend journals that the step is about to begin.
func (r *run) intend(i int) error {
	err := r.save(func(w *Workflow) (int, []Entry, error) {
		s := &w.Steps[i]
		if w.State != Running {
			return 0, nil, errAgain
		}
		s.State, s.Started, s.Ended, s.Progress, s.Error = StepRunning, r.e.now(), time.Time{}, nil, nil
		return i, []Entry{entry(s, "intent", map[string]any{"budget": s.Budget, "key": commandKey(w.ID, s)})}, nil
	})
	if err == nil {
		w := r.snapshot()
		r.e.tell("workflow.step", "info", &w, &w.Steps[i], "%s", w.Steps[i].Title)
	}
	return err
}

// conclude journals how an attempt ended, by what its context and its error say.
func (r *run) conclude(a *attempt, result json.RawMessage, err error) error {
	cause := context.Cause(a.ctx)
	switch {
	case err == nil:
		return r.succeed(a.i, result)
	case errors.Is(cause, ErrStopped):
		return ErrStopped // the step stays running in the store: the next process settles it
	case errors.Is(err, errUndecided):
		if !errors.Is(cause, ErrAborted) {
			return r.ended(r.interrupt(a.undecided()))
		}
	}
	return r.fail(a.i, a.explain(err, cause))
}

func (r *run) succeed(i int, result json.RawMessage) error {
	err := r.save(func(w *Workflow) (int, []Entry, error) {
		s := &w.Steps[i]
		s.State, s.Ended, s.Result, s.Error = StepDone, r.e.now(), result, nil
		if s.Progress != nil {
			last := *s.Progress
			last.ETA = 0
			s.Progress = &last
		}
		w.Cursor = i + 1
		return i, []Entry{entry(s, "result", brief(result))}, nil
	})
	if err == nil {
		w := r.snapshot()
		r.e.tell("workflow.step", "info", &w, &w.Steps[i], "%s: done", w.Steps[i].Title)
	}
	return err
}

// brief is what the journal keeps of a result: the step has the whole of it.
func brief(result json.RawMessage) any {
	const limit = 4 << 10
	switch {
	case len(result) == 0:
		return nil
	case len(result) > limit:
		return map[string]int{"bytes": len(result)}
	}
	return result
}

func (r *run) fail(i int, why *app.Error) error {
	err := r.save(func(w *Workflow) (int, []Entry, error) {
		s := &w.Steps[i]
		s.State, s.Ended, s.Error = StepFailed, r.e.now(), why
		if w.State == Running {
			w.Error = why
		}
		return i, []Entry{entry(s, "error", why)}, nil
	})
	if err == nil {
		w := r.snapshot()
		r.e.tell("workflow.step", "error", &w, &w.Steps[i], "%s: %s", w.Steps[i].Title, why.Error())
	}
	return err
}

// explain turns a step's error into one for people. What a step says itself about a deadline is better than what the
// engine could say.
func (a *attempt) explain(err, cause error) *app.Error {
	own, written := app.AsError(err)
	written = written && own.Code != app.Internal && own.Code != app.Interrupted
	switch {
	case errors.Is(cause, ErrAborted):
		return app.Errorf(app.Interrupted, "aborted", "%s was under way when the workflow was aborted", a.step.Title)
	case errors.Is(cause, ErrDeadline) && !written:
		return app.Errorf(app.Timeout, "deadline", "%s did not end within %s", a.step.Title, time.Duration(a.step.Budget)).
			Do("look at the machine's timeline and console, then retry")
	case errors.Is(cause, ErrStalled) && !written:
		return app.Errorf(app.Timeout, "stalled", "%s made no progress for %s", a.step.Title, time.Duration(a.step.Stall)).
			Do("look at the machine's timeline and console, then retry")
	case own != nil && own.Code != app.Internal:
		return own
	}
	return a.r.e.internal(a.r.id, a.step.Title, err)
}

// internal logs an error that was not written for people and gives the one that is shown, which holds the log line's id.
func (e *Engine) internal(workflow, doing string, err error) *app.Error {
	id, reason := app.NewID("err"), "step-failed"
	attrs := []any{"id", id, "workflow", workflow, "doing", doing, "error", err}
	var p *panicError
	if errors.As(err, &p) {
		reason = "panic"
		attrs = append(attrs, "stack", string(p.stack))
	}
	e.log.Error("an internal error", attrs...)
	return app.Errorf(app.Internal, reason, "%s failed inside bcd; the log has the details under %s", doing, id).
		Do("retry; if it fails again, report it with that part of the log")
}

// panicError is a panic of code the engine called.
type panicError struct {
	value any
	stack []byte
}

func (p *panicError) Error() string { return fmt.Sprintf("panic: %v", p.value) }

// guarded turns a panic into an error: a mistake in one step must not end the site.
func guarded(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = &panicError{p, debug.Stack()}
		}
	}()
	return f()
}

func commandKey(workflowID string, s *Step) string {
	return fmt.Sprintf("wf:%s:%s#%d", workflowID, s.ID, s.Attempt)
}
