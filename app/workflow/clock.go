package workflow

import (
	"context"
	"errors"
	"sync"
	"time"
)

// Clock tells the time in two ways. Timers run by the runtime's monotonic clock; a Clock that is not the system's lets
// tests set the wall clock.
type Clock interface {
	Wall() time.Time     // what people see; may be set at any time
	Mono() time.Duration // since some fixed moment; never set
}

type systemClock struct{ start time.Time }

// SystemClock is the clock of this machine.
func SystemClock() Clock { return systemClock{time.Now()} }

func (systemClock) Wall() time.Time       { return time.Now().Round(0) }
func (c systemClock) Mono() time.Duration { return time.Since(c.start) }

const (
	clockEvery = time.Second
	clockStep  = 2 * time.Second  // wall and monotonic apart by more since the last look: the clock was set
	clockGap   = 10 * time.Second // nobody looked for longer: the process stood still
	clockCalm  = time.Minute      // how long a disturbance is remembered
)

// clockWatch compares the clocks at short intervals. mu protects the rest.
type clockWatch struct {
	mu        sync.Mutex
	wall      time.Time
	mono      time.Duration
	disturbed time.Duration // when, on the monotonic clock; negative: never
}

func (c *clockWatch) reset(clock Clock) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.wall, c.mono, c.disturbed = clock.Wall().Round(0), clock.Mono(), -1
}

// look compares the clocks with the last look and tells by how much the wall clock was set, 0 when it was not.
func (c *clockWatch) look(clock Clock) (set time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	wall, mono := clock.Wall().Round(0), clock.Mono()
	passed := mono - c.mono
	if drift := wall.Sub(c.wall) - passed; drift > clockStep || drift < -clockStep {
		set = drift
	}
	if set != 0 || passed > clockGap {
		c.disturbed = mono
	}
	c.wall, c.mono = wall, mono
	return set
}

func (c *clockWatch) disturbedBefore(mono time.Duration) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.disturbed >= 0 && mono-c.disturbed < clockCalm
}

// disturbed tells whether the clocks were set, or the process stood still, within the last minute.
func (e *Engine) disturbed() bool {
	e.lookAtClock()
	return e.watch.disturbedBefore(e.clock.Mono())
}

// watchClock looks at the clocks every second. A look moves the stored beginnings of running steps along when the wall
// clock was set, so that a later process still computes right what is left of their budgets.
func (e *Engine) watchClock(ctx context.Context) {
	t := time.NewTicker(clockEvery)
	defer t.Stop()
	for {
		select {
		case <-t.C:
			e.lookAtClock()
		case <-ctx.Done():
			return
		}
	}
}

func (e *Engine) lookAtClock() {
	set := e.watch.look(e.clock)
	if set == 0 {
		return
	}
	e.log.Warn("the wall clock was set", "by", set)
	e.tell("clock.step", "warn", nil, nil, "the clock of this site was set by %s; running deadlines are unchanged", set.Round(time.Millisecond))
	for _, r := range e.allRunning() {
		r.reanchor(set)
	}
}

// reanchor moves the beginning of the running step with the wall clock.
func (r *run) reanchor(by time.Duration) {
	err := r.saveOnce(func(w *Workflow) (int, []Entry, error) {
		if w.Cursor >= len(w.Steps) || w.Steps[w.Cursor].State != StepRunning {
			return 0, nil, errAgain
		}
		s := &w.Steps[w.Cursor]
		s.Started = s.Started.Add(by)
		return w.Cursor, []Entry{entry(s, "clock", map[string]any{"setBy": by.String()})}, nil
	})
	var own *refused
	if err != nil && !errors.As(err, &own) {
		r.e.log.Error("moving a deadline with the clock", "workflow", r.id, "error", err)
	}
}
