package workflow

import (
	"context"
	"errors"
	"time"

	"github.com/better-compute/bcd/app"
)

// Retry takes an interrupted or failed workflow up again with a new attempt of its step, or, after a failure, of the run
// of steps that the verb's RetryFrom names. A failed workflow is taken up only while it is its machine's last one.
func (e *Engine) Retry(ctx context.Context, id, actor string) error {
	return e.decide(ctx, id, actor, "retried", func(w *Workflow) error {
		note := map[string]any{"actor": actor}
		switch {
		case w.State == Interrupted:
			s := &w.Steps[w.at()]
			if s.State == StepInterrupted {
				restart(s)
			}
			w.State, w.Error = Running, nil
			return e.store.SaveStep(ctx, w, w.at(), e.dated(w, entry(s, "retry", note)))
		case w.State == Failed && w.Cursor < len(w.Steps):
			return e.reopen(ctx, w, note)
		}
		return app.Errorf(app.Conflict, "not-retryable", "%s %s is %s: there is nothing to retry", w.Verb, w.ID, w.State)
	})
}

// restart makes a step wait for its next attempt.
func restart(s *Step) {
	s.State, s.Started, s.Ended = StepWaiting, time.Time{}, time.Time{}
	s.Attempt++
	s.Progress, s.Result, s.Error = nil, nil, nil
}

func (e *Engine) reopen(ctx context.Context, w *Workflow, note map[string]any) error {
	verb, ok := e.verb(w.Verb, w.Version)
	if !ok {
		return app.Errorf(app.Conflict, "unknown-definition", "this build does not know version %d of %s", w.Version, w.Verb).
			Do("start %s again instead", w.Verb)
	}
	last, err := e.store.ListWorkflows(ctx, Filter{MachineID: w.MachineID, Limit: 1})
	if err != nil {
		return err
	}
	if len(last) == 0 || last[0].ID != w.ID {
		return app.Errorf(app.Conflict, "not-the-last", "the machine has gone on since %s %s failed", w.Verb, w.ID).Do("start %s again instead", w.Verb)
	}
	from := w.Cursor
	if verb.RetryFrom != nil {
		from = min(max(verb.RetryFrom(w), 0), w.Cursor)
	}
	for i := from; i <= w.Cursor; i++ {
		restart(&w.Steps[i])
	}
	w.Cursor, w.State, w.Error, w.Ended = from, Running, nil, time.Time{}
	return e.store.ReopenWorkflow(ctx, w, func(m *app.Machine) error {
		if m.State == app.StateFailed && m.FailedVerb == w.Verb && m.Before != "" {
			m.State = m.Before // the verb begins again from where it began before
		}
		if err := guarded(func() error { return begin(verb, m, w) }); err != nil {
			return err
		}
		m.WorkflowID = w.ID
		return nil
	}, e.dated(w, entry(&w.Steps[from], "retry", note)))
}

// MarkDone takes an interrupted step as done: the operator looked and found its effect.
func (e *Engine) MarkDone(ctx context.Context, id, actor, reason string) error {
	if err := needReason(reason); err != nil {
		return err
	}
	return e.decide(ctx, id, actor, "step marked done: "+reason, func(w *Workflow) error {
		if w.State != Interrupted {
			return app.Errorf(app.Conflict, "not-interrupted", "%s %s is %s: no step waits for a decision", w.Verb, w.ID, w.State)
		}
		at := w.at()
		s := &w.Steps[at]
		s.State, s.Ended, s.Error = StepSkipped, e.now(), nil
		w.State, w.Error, w.Cursor = Running, nil, at+1
		return e.store.SaveStep(ctx, w, at, e.dated(w, entry(s, "mark-done", map[string]any{"actor": actor, "reason": reason})))
	})
}

// Abort ends a workflow: its step is told to stop, the verb cleans up, the machine returns. It returns once the abort
// is written down; Wait tells when it has ended. Aborting twice is no error.
func (e *Engine) Abort(ctx context.Context, id, actor, reason string) error {
	if err := needReason(reason); err != nil {
		return err
	}
	for r := e.running(id); r != nil; r = e.running(id) {
		if done, err := r.abort(actor, reason); done || err != nil {
			return err
		}
		if err := r.waitGone(ctx); err != nil {
			return err
		}
	}
	return e.decide(ctx, id, actor, "abort: "+reason, func(w *Workflow) error {
		switch {
		case w.State == Aborting:
			return nil
		case !w.State.Active():
			return app.Errorf(app.Conflict, "already-ended", "%s %s is %s already", w.Verb, w.ID, w.State)
		}
		line := aborting(w, actor, reason)
		return e.store.SaveStep(ctx, w, w.at(), e.dated(w, line))
	})
}

// Drop ends a workflow at once, without cleaning up: for a machine that is forgotten by force, whose BMC must see no
// more traffic. The machine should be deleted before, so that no other workflow begins.
func (e *Engine) Drop(ctx context.Context, id, actor, reason string) error {
	for r := e.running(id); r != nil; r = e.running(id) {
		r.leave(ErrStopped)
		if err := r.waitGone(ctx); err != nil {
			return err
		}
	}
	return e.decide(ctx, id, actor, "dropped: "+reason, func(w *Workflow) error {
		if !w.State.Active() {
			return nil
		}
		line := aborting(w, actor, reason)
		w.State, w.Ended = Aborted, e.now()
		verb, _ := e.verb(w.Verb, w.Version)
		return e.store.EndWorkflow(ctx, w, func(m *app.Machine) error { e.release(m, verb, w); return nil }, e.dated(w, line))
	})
}

func needReason(reason string) error {
	if reason == "" {
		return app.Invalid("reason", "a reason is needed").Do("say in a few words why; it goes into the journal")
	}
	return app.ValidLine("reason", reason, 1000)
}

// aborting marks a workflow as being aborted and gives the journal's line.
func aborting(w *Workflow, actor, reason string) Entry {
	w.State, w.Error = Aborting, app.Errorf(app.Conflict, "aborted", "aborted by %s: %s", actor, reason)
	return entry(&w.Steps[w.at()], "abort", map[string]any{"actor": actor, "reason": reason})
}

// abort journals the abort and then ends the step's context. done is false when the goroutine takes no more orders.
func (r *run) abort(actor, reason string) (done bool, err error) {
	err = r.saveOnce(func(w *Workflow) (int, []Entry, error) {
		switch {
		case r.closed || !w.State.Active():
			return 0, nil, errAgain
		case w.State == Aborting:
			return 0, nil, errAborting
		}
		line := aborting(w, actor, reason)
		return w.at(), []Entry{line}, nil
	})
	var own *refused
	if errors.As(err, &own) {
		return errors.Is(own.err, errAborting), nil
	}
	if err != nil {
		return true, err
	}
	r.cancel(ErrAborted)
	w := r.snapshot()
	r.e.tellOf(actor, "workflow.decision", "info", &w, nil, "%s: abort: %s", w.Verb, reason)
	return true, nil
}

var errAborting = errors.New("the workflow is aborting already")

func (r *run) waitGone(ctx context.Context) error {
	select {
	case <-r.gone:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// decide lets a person's decision change a workflow that no goroutine holds, and takes it up after. what names it for the
// timeline.
func (e *Engine) decide(ctx context.Context, id, actor, what string, decision func(w *Workflow) error) error {
	e.decisions.Lock()
	defer e.decisions.Unlock()
	e.starting.RLock()
	defer e.starting.RUnlock()
	if r := e.running(id); r != nil {
		if w := r.snapshot(); w.State == Running || w.State == Aborting {
			return app.Errorf(app.Conflict, "workflow-running", "%s %s is %s", w.Verb, w.ID, w.State).Do("wait for it, or abort it")
		}
		if err := r.waitGone(ctx); err != nil { // it is just leaving
			return err
		}
	}
	w, err := e.store.Workflow(ctx, id)
	if err != nil {
		return err
	}
	if err := decision(w); err != nil {
		return err
	}
	e.changed(id)
	e.tellOf(actor, "workflow.decision", "info", w, nil, "%s: %s", w.Verb, what)
	if w.State.Active() {
		e.launch(*w, nil)
	}
	return nil
}

// dated fills in a journal line's workflow and time.
func (e *Engine) dated(w *Workflow, line Entry) Entry {
	line.WorkflowID, line.Time = w.ID, e.now()
	return line
}
