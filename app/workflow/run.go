package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// run is the goroutine of one workflow. mu protects w, which is what the store holds but for progress.
type run struct {
	e      *Engine
	id     string
	ctx    context.Context // ends when the engine stops or the workflow is aborted
	cancel context.CancelCauseFunc
	stop   context.Context // ends when the engine stops or the workflow is dropped
	leave  context.CancelCauseFunc
	gone   chan struct{} // closed when the goroutine is done with the workflow

	mu     sync.Mutex
	w      Workflow
	closed bool // the goroutine takes no more orders
	meter  meter
	kept   *Progress // what SaveProgress was last given
}

func newRun(e *Engine, ctx context.Context, w Workflow) *run {
	r := &run{e: e, id: w.ID, gone: make(chan struct{}), w: clone(&w)}
	r.stop, r.leave = context.WithCancelCause(ctx)
	r.ctx, r.cancel = context.WithCancelCause(r.stop)
	return r
}

// drive runs steps until the workflow ends, is interrupted or the engine stops.
func (r *run) drive() {
	defer close(r.gone)
	defer r.leave(ErrStopped)
	for {
		err := r.turn()
		switch {
		case err == nil:
		case permanent(err):
			r.e.log.Error("a workflow can no longer be saved and is given up", "workflow", r.id, "error", err)
			r.park(true)
			return
		case errors.Is(err, errParked), errors.Is(err, ErrStopped):
			if r.park(false) {
				return
			}
		default:
			r.e.log.Error("running a workflow", "workflow", r.id, "error", err)
			pause(r.stop, time.Second)
		}
	}
}

// errParked says that the workflow waits for a person or is over.
var errParked = errors.New("parked")

// park gives the workflow up, unless an abort came in the meantime.
func (r *run) park(always bool) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w.State == Aborting && r.stop.Err() == nil && !always {
		return false
	}
	r.closed = true
	r.e.mu.Lock()
	defer r.e.mu.Unlock()
	delete(r.e.runs, r.id)
	return true
}

// turn does the next thing: a step, or the end.
func (r *run) turn() error {
	w := r.snapshot()
	if r.stop.Err() != nil {
		return ErrStopped
	}
	switch {
	case w.State == Interrupted || !w.State.Active():
		return errParked
	case w.State == Aborting && w.Cursor < len(w.Steps) && w.Steps[w.Cursor].State == StepRunning:
		return r.giveUp(&w)
	case w.State == Aborting:
		return r.finish(Aborted)
	case w.Cursor >= len(w.Steps):
		return r.finish(Done)
	}
	verb, ok := r.e.verb(w.Verb, w.Version)
	if !ok {
		return r.interrupt(app.Errorf(app.Interrupted, "unknown-definition",
			"%s was started as version %d, which this build does not know", w.Verb, w.Version).
			Do("abort it and start %s again, or run the bcd that started it", w.Verb))
	}
	switch s := &w.Steps[w.Cursor]; s.State {
	case StepDone, StepSkipped:
		return r.save(func(w *Workflow) (int, []Entry, error) { w.Cursor++; return w.Cursor - 1, nil, nil })
	case StepFailed:
		return r.finish(Failed)
	default:
		if why := verb.unneeded(&w); why != "" {
			return r.skip(w.Cursor, why)
		}
		return r.step(w.Cursor)
	}
}

// giveUp ends a step that an earlier process left running in a workflow that is being aborted.
func (r *run) giveUp(w *Workflow) error {
	s := &w.Steps[w.Cursor]
	if s.On == OnAgent && r.e.agents != nil {
		ctx, cancel := context.WithTimeout(r.stop, returnLimit)
		defer cancel()
		_, err := bounded(ctx, func() (any, error) {
			r.e.agents.Cancel(ctx, Command{Key: commandKey(w.ID, s), Kind: s.Kind, WorkflowID: w.ID, StepID: s.ID, Attempt: s.Attempt, MachineID: w.MachineID})
			return nil, nil
		})
		if err != nil {
			r.e.log.Warn("telling an agent to stop", "workflow", w.ID, "error", err)
		}
	}
	return r.fail(w.Cursor, app.Errorf(app.Interrupted, "aborted", "%s was under way when the workflow was aborted", s.Title))
}

func (r *run) snapshot() Workflow {
	r.mu.Lock()
	defer r.mu.Unlock()
	return clone(&r.w)
}

// clone copies a workflow so far that changing the copy's fields and steps leaves the original alone.
func clone(w *Workflow) Workflow {
	out := *w
	out.Steps = slices.Clone(w.Steps)
	return out
}

// change edits a copy of the workflow and names the step it touched and the journal's lines.
type change func(w *Workflow) (step int, entries []Entry, err error)

// save makes a change durable. While the store refuses (a full disk), it waits and tries again: nothing may happen that is
// not written down. It ends with ErrStopped, the change's own error, or a permanent one.
func (r *run) save(c change) error {
	return r.persist(func() error { return r.saveOnce(c) })
}

func (r *run) persist(try func() error) error {
	for wait := time.Second / 2; ; wait = min(2*wait, 10*time.Second) {
		err := try()
		var own *refused
		if errors.As(err, &own) {
			return own.err
		}
		if err == nil || permanent(err) {
			return err
		}
		r.e.log.Error("saving a workflow; trying again", "workflow", r.id, "error", err, "wait", wait)
		if !pause(r.stop, wait) {
			return ErrStopped
		}
	}
}

// refused carries the error of a change itself past the retries of persist.
type refused struct{ err error }

func (r *refused) Error() string { return r.err.Error() }

// saveOnce makes a change durable or fails.
func (r *run) saveOnce(c change) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	next := clone(&r.w)
	step, entries, err := c(&next)
	if err != nil {
		return &refused{err}
	}
	for i := range entries {
		entries[i].WorkflowID, entries[i].Time = r.id, r.e.now()
	}
	if err := r.e.store.SaveStep(context.WithoutCancel(r.stop), &next, step, entries...); err != nil {
		return err
	}
	r.w = next
	r.e.changed(r.id)
	return nil
}

// permanent reports errors that saving again cannot mend: the row is gone or belongs to another.
func permanent(err error) bool {
	switch app.CodeOf(err) {
	case app.NotFound, app.Conflict, app.InvalidInput:
		return true
	}
	return false
}

// pause waits, or reports that ctx ended first.
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

// interrupt hands the workflow to a person.
func (r *run) interrupt(why *app.Error) error {
	err := r.save(func(w *Workflow) (int, []Entry, error) {
		if w.State != Running {
			return 0, nil, errAgain
		}
		s := &w.Steps[w.Cursor]
		w.State, w.Error = Interrupted, why
		if s.State == StepRunning {
			s.State, s.Ended, s.Error = StepInterrupted, r.e.now(), why
		}
		return w.Cursor, []Entry{entry(s, "interrupted", why)}, nil
	})
	if errors.Is(err, errAgain) {
		return nil
	}
	if err != nil {
		return err
	}
	w := r.snapshot()
	r.e.tell("workflow.interrupted", "warn", &w, &w.Steps[w.Cursor], "%s waits for a decision: %s", w.Verb, why.Error())
	return errParked
}

// errAgain says that the workflow changed while a change was made: look again.
var errAgain = errors.New("the workflow changed meanwhile")

func entry(s *Step, what string, data any) Entry {
	b, err := json.Marshal(data)
	if err != nil || data == nil {
		b = nil
	}
	return Entry{StepID: s.ID, Attempt: s.Attempt, What: what, Data: b}
}
