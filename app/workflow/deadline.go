package workflow

import (
	"context"
	"errors"
	"sync"
	"time"
)

// deadline ends an attempt's context when its time is up or when it made no progress for too long. It runs on the
// monotonic clock. When it would fire right after the clocks were disturbed (set, or the process stood still), it first
// gives one grace: no destructive action may follow from a clock alone.
type deadline struct {
	e      *Engine
	cancel context.CancelCauseFunc
	stall  time.Duration

	mu      sync.Mutex
	budget  *time.Timer
	silence *time.Timer // nil without a stall limit
	graced  map[error]bool
}

func newDeadline(ctx context.Context, e *Engine, left, stall time.Duration) (context.Context, *deadline) {
	ctx, cancel := context.WithCancelCause(ctx)
	d := &deadline{e: e, cancel: cancel, stall: stall, graced: map[error]bool{}}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.budget = time.AfterFunc(left, func() { d.fire(ErrDeadline) })
	if stall > 0 {
		d.silence = time.AfterFunc(stall, func() { d.fire(ErrStalled) })
	}
	return ctx, d
}

func (d *deadline) fire(cause error) {
	disturbed := d.e.disturbed()
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.graced[cause] || !disturbed {
		d.cancel(cause)
		return
	}
	d.graced[cause] = true
	if errors.Is(cause, ErrStalled) {
		d.silence.Reset(resumeGrace)
	} else {
		d.budget.Reset(resumeGrace)
	}
}

// advanced restarts the wait for progress.
func (d *deadline) advanced() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.silence != nil && d.silence.Stop() {
		d.silence.Reset(d.stall)
	}
}

func (d *deadline) stop() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.budget.Stop()
	if d.silence != nil {
		d.silence.Stop()
	}
	d.cancel(context.Canceled)
}
