package workflow

import (
	"context"
	"math"
	"time"
)

const (
	rateOver     = 5 * time.Second        // the span a rate is averaged over
	rateEvery    = 200 * time.Millisecond // shorter spans are joined: their rates are noise
	progressKeep = time.Second            // how often progress is written to the store
)

// meter computes the rate of the running step.
type meter struct {
	step  int
	begun bool // there was a sample
	phase string
	top   int64 // the most that was done
	done  int64 // at the last sample that counted for the rate
	at    time.Duration
	rate  float64
}

// startMeter forgets the rate of the step before.
func (r *run) startMeter(i int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.meter = meter{step: i}
}

// add takes a sample at a monotonic time, fills in rate and ETA, and reports whether the work moved on: another phase, or
// more done than ever in this one.
func (m *meter) add(p *Progress, now time.Duration) (moved bool) {
	span := now - m.at
	switch {
	case !m.begun || p.Phase != m.phase || p.Done < m.done:
		if moved = !m.begun || p.Phase != m.phase; moved {
			m.top = p.Done
		}
		*m = meter{step: m.step, begun: true, phase: p.Phase, top: m.top, done: p.Done, at: now}
	case span >= rateEvery:
		sample := float64(p.Done-m.done) / span.Seconds()
		weight := 1 - math.Exp(-float64(span)/float64(rateOver))
		if m.rate == 0 {
			weight = 1
		}
		m.rate += weight * (sample - m.rate)
		m.done, m.at = p.Done, now
	}
	moved = moved || p.Done > m.top
	m.top = max(m.top, p.Done)
	p.Rate, p.ETA = m.rate, 0
	if left := p.Total - p.Done; p.Total > 0 && left > 0 && m.rate > 0 {
		p.ETA = float64(left) / m.rate
	}
	return moved
}

// progress shows how far step i is and reports whether it moved on.
func (r *run) progress(i int, p Progress) bool {
	now := r.e.clock.Mono()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w.Steps[i].State != StepRunning || r.meter.step != i {
		return false
	}
	if p.At.IsZero() {
		p.At = r.e.now()
	}
	moved := r.meter.add(&p, now)
	r.w.Steps[i].Progress = &p
	return moved
}

// keepProgress writes the progress of all running steps to the store, at most once a second.
func (e *Engine) keepProgress(ctx context.Context) {
	t := time.NewTicker(progressKeep)
	defer t.Stop()
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		for _, r := range e.allRunning() {
			step, p := r.unkept()
			if p == nil {
				continue
			}
			if err := e.store.SaveProgress(ctx, r.id, step, *p); err != nil && ctx.Err() == nil {
				e.log.Warn("saving progress", "workflow", r.id, "error", err)
			}
		}
	}
}

// unkept gives the running step's progress if it changed since the last call.
func (r *run) unkept() (step string, p *Progress) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.w.Cursor >= len(r.w.Steps) {
		return "", nil
	}
	s := &r.w.Steps[r.w.Cursor]
	if s.State != StepRunning || s.Progress == nil || s.Progress == r.kept {
		return "", nil
	}
	r.kept = s.Progress
	return s.ID, s.Progress
}
