package workflow

import (
	"encoding/json"

	"github.com/better-compute/bcd/app"
)

var (
	_ StepContext = (*attempt)(nil)
	_ StepContext = (*cleanupContext)(nil)
)

// Command gives the attempt's command.
func (a *attempt) Command() Command { return a.cmd }

// Workflow gives a copy of the workflow as it is now.
func (a *attempt) Workflow() Workflow { return a.r.snapshot() }

// Result decodes an earlier step's result, or reports that there is none.
func (a *attempt) Result(stepID string, into any) bool { return a.r.result(stepID, into) }

// Data decodes what steps have left for later ones.
func (a *attempt) Data(into any) bool { return a.r.data(into) }

// SetData replaces what steps leave for later ones.
func (a *attempt) SetData(v any) error {
	if a.over.Load() {
		return app.Errorf(app.Conflict, "attempt-over", "the attempt %s is over", a.cmd.Key)
	}
	return a.r.setData(v)
}

// Progress tells how far the step is.
func (a *attempt) Progress(p Progress) {
	if !a.over.Load() && a.r.progress(a.i, p) {
		a.deadline.advanced()
	}
}

// Log puts a line on the machine's timeline.
func (a *attempt) Log(format string, args ...any) { a.r.logLine(&a.step, format, args...) }

// cleanupContext is what a verb's Cleanup sees.
type cleanupContext struct {
	r   *run
	cmd Command
}

func (c *cleanupContext) Command() Command                    { return c.cmd }
func (c *cleanupContext) Workflow() Workflow                  { return c.r.snapshot() }
func (c *cleanupContext) Result(stepID string, into any) bool { return c.r.result(stepID, into) }
func (c *cleanupContext) Data(into any) bool                  { return c.r.data(into) }
func (c *cleanupContext) SetData(v any) error                 { return c.r.setData(v) }
func (c *cleanupContext) Progress(Progress)                   {} // it has no step to show it on
func (c *cleanupContext) Log(format string, args ...any) {
	c.r.logLine(&Step{ID: cleanupStep}, format, args...)
}

func (r *run) result(stepID string, into any) bool {
	w := r.snapshot()
	for i := range w.Steps {
		if s := &w.Steps[i]; s.ID == stepID && len(s.Result) > 0 {
			return json.Unmarshal(s.Result, into) == nil
		}
	}
	return false
}

func (r *run) data(into any) bool {
	w := r.snapshot()
	return len(w.Data) > 0 && json.Unmarshal(w.Data, into) == nil
}

func (r *run) setData(v any) error {
	data, err := encodeBounded("the data of the workflow", v)
	if err != nil {
		return err
	}
	return r.save(func(w *Workflow) (int, []Entry, error) {
		w.Data = data
		return w.at(), nil, nil
	})
}

// at is the index of the current step, or of the last one after it.
func (w *Workflow) at() int { return min(w.Cursor, len(w.Steps)-1) }
