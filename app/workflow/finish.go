package workflow

import (
	"context"
	"errors"
	"fmt"

	"github.com/better-compute/bcd/app"
)

// cleanupStep names the cleanup in the journal and in its command's key.
const cleanupStep = "cleanup"

// finish cleans up after a failure or an abort, then ends the workflow and changes the machine.
func (r *run) finish(final State) error {
	w := r.snapshot()
	verb, known := r.e.verb(w.Verb, w.Version)
	var untidy *app.Error
	if final != Done && known && verb.Cleanup != nil {
		var err error
		if untidy, err = r.cleanUp(verb, &w); err != nil {
			return err
		}
	}
	err := r.persist(func() error { return r.endOnce(final, verb, untidy) })
	if errors.Is(err, errAgain) {
		return nil
	}
	if err != nil {
		return err
	}
	w = r.snapshot()
	level, text := "info", w.Verb+" "+string(w.State)
	if w.State == Failed {
		level, text = "error", text+": "+w.Error.Error()
	}
	r.e.tell("workflow.end", level, &w, nil, "%s", text)
	return errParked
}

// cleanUp runs the verb's Cleanup with a time limit, journaled before and after. A crash in between repeats it. err is
// that of the journal, or ErrStopped.
func (r *run) cleanUp(verb Verb, w *Workflow) (untidy *app.Error, err error) {
	if err := r.noteCleanup("cleanup", nil); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.stop, cleanupLimit)
	defer cancel()
	c := &cleanupContext{r, Command{Key: fmt.Sprintf("wf:%s:%s#0", w.ID, cleanupStep), Kind: cleanupStep, WorkflowID: w.ID,
		StepID: cleanupStep, MachineID: w.MachineID, Lane: LaneBMC, NotAfter: r.e.now().Add(cleanupLimit), TraceParent: w.TraceParent}}
	_, failed := bounded(ctx, func() (any, error) {
		release, err := r.e.lanes.acquire(ctx, c.cmd.MachineID, LaneBMC)
		if err != nil {
			return nil, err
		}
		defer release()
		return nil, verb.Cleanup(ctx, c)
	})
	if r.stop.Err() != nil {
		return nil, ErrStopped
	}
	if failed == nil {
		return nil, nil
	}
	untidy, written := app.AsError(failed)
	switch {
	case written && untidy.Code != app.Internal:
	case ctx.Err() != nil:
		untidy = app.Errorf(app.Timeout, "deadline", "it did not end within %s", cleanupLimit)
	default:
		untidy = r.e.internal(r.id, "cleaning up", failed)
	}
	r.e.tell("workflow.cleanup", "error", w, nil, "cleaning up after %s failed: %s", w.Verb, untidy.Error())
	return untidy, r.noteCleanup("error", untidy)
}

func (r *run) noteCleanup(what string, data any) error {
	return r.save(func(w *Workflow) (int, []Entry, error) {
		return w.at(), []Entry{entry(&Step{ID: cleanupStep}, what, data)}, nil
	})
}

// endOnce writes the end. An abort that came while steps were still to run makes it look again.
func (r *run) endOnce(final State, verb Verb, untidy *app.Error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := clone(&r.w)
	switch {
	case next.State == Aborting && final == Done:
		return &refused{errAgain}
	case next.State == Aborting:
		final = Aborted
	case final == Failed && next.Error == nil:
		next.Error = next.Steps[next.at()].Error
	case final == Done:
		next.Error = nil
	}
	if untidy != nil && next.Error != nil {
		both := *next.Error
		both.Message += "; cleaning up after it failed too: " + untidy.Message
		next.Error = &both
	}
	next.State, next.Ended = final, r.e.now()
	line := r.e.dated(&next, entry(&Step{}, "end", map[string]any{"state": final}))
	err := r.e.store.EndWorkflow(context.WithoutCancel(r.stop), &next, func(m *app.Machine) error {
		r.e.release(m, verb, &next)
		return nil
	}, line)
	if err != nil {
		return err
	}
	r.w = next
	r.e.changed(r.id)
	return nil
}

// release gives the machine its state after the workflow. A verb that is unknown, or whose End fails, leaves it failed: a
// machine is never stuck in between.
func (e *Engine) release(m *app.Machine, verb Verb, w *Workflow) {
	if m.WorkflowID != w.ID && m.WorkflowID != "" {
		return
	}
	m.WorkflowID = ""
	if verb.Name != "" && verb.End == nil {
		return
	}
	was := *m
	err := errors.New("the definition is unknown")
	if verb.End != nil {
		err = guarded(func() error { return verb.End(m, w) })
	}
	if err == nil {
		m.WorkflowID = ""
		return
	}
	e.log.Error("a verb could not end; its machine is marked failed", "workflow", w.ID, "verb", w.Verb, "error", err)
	*m = was
	m.State, m.StateSince, m.FailedVerb = app.StateFailed, e.now(), w.Verb
	m.StateReason = fmt.Sprintf("%s ended as %s in a way this bcd cannot judge", w.Verb, w.State)
}
