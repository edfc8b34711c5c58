package workflow

import (
	"context"
	"fmt"

	"github.com/better-compute/bcd/app"
)

// Get finds a workflow, with the progress of its running step as of now.
func (e *Engine) Get(ctx context.Context, id string) (*Workflow, error) {
	w, err := e.store.Workflow(ctx, id)
	if err != nil {
		return nil, err
	}
	e.refresh(w)
	return w, nil
}

// List gives workflows, newest first.
func (e *Engine) List(ctx context.Context, f Filter) ([]Workflow, error) {
	all, err := e.store.ListWorkflows(ctx, f)
	for i := range all {
		e.refresh(&all[i])
	}
	return all, err
}

// refresh puts the running step's progress in, which the store has with a delay.
func (e *Engine) refresh(w *Workflow) {
	r := e.running(w.ID)
	if r == nil || w.Cursor >= len(w.Steps) {
		return
	}
	live := r.snapshot()
	if s := &w.Steps[w.Cursor]; live.Cursor == w.Cursor && s.State == StepRunning && live.Steps[w.Cursor].Attempt == s.Attempt {
		s.Progress = live.Steps[w.Cursor].Progress
	}
}

// Journal gives a workflow's journal, oldest first.
func (e *Engine) Journal(ctx context.Context, id string) ([]Entry, error) {
	if _, err := e.store.Workflow(ctx, id); err != nil {
		return nil, err
	}
	return e.store.Journal(ctx, id)
}

// Wait returns the workflow once it is over or interrupted.
func (e *Engine) Wait(ctx context.Context, id string) (*Workflow, error) {
	turns, cancel := e.bus.subscribe(topic{name: "workflow " + id})
	defer cancel()
	for {
		w, err := e.store.Workflow(ctx, id)
		if err != nil {
			return nil, err
		}
		if w.State == Interrupted || !w.State.Active() {
			return w, nil
		}
		select {
		case <-turns:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// tell records an event about a workflow; w and s may be nil.
func (e *Engine) tell(kind, level string, w *Workflow, s *Step, format string, args ...any) {
	e.tellOf("system", kind, level, w, s, format, args...)
}

// tellOf records what an actor did.
func (e *Engine) tellOf(actor, kind, level string, w *Workflow, s *Step, format string, args ...any) {
	ev := app.Event{Time: e.now(), Kind: kind, Level: level, Actor: actor, Message: fmt.Sprintf(format, args...)}
	if w != nil {
		ev.MachineID, ev.Workflow = w.MachineID, w.ID
	}
	if s != nil {
		ev.Data = entry(s, "", map[string]any{"step": s.ID, "attempt": s.Attempt, "state": s.State}).Data
	}
	e.record(ev)
}

// maxLine is the longest line of a step's log, in bytes.
const maxLine = 2000

// logLine records a line of a step's log.
func (r *run) logLine(s *Step, format string, args ...any) {
	w := r.snapshot()
	text := fmt.Sprintf(format, args...)
	if len(text) > maxLine {
		text = text[:maxLine] + "…"
	}
	r.e.record(app.Event{Time: r.e.now(), Kind: "workflow.log", Level: "info", MachineID: w.MachineID, Workflow: r.id, Actor: "system",
		Message: text, Data: entry(s, "", map[string]any{"step": s.ID}).Data})
}
