package workflow_test

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// setClock is the bubble's clock with a wall time that can be set.
type setClock struct {
	start time.Time
	mu    sync.Mutex
	off   time.Duration
}

func newSetClock() *setClock { return &setClock{start: time.Now()} }

func (c *setClock) Wall() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Now().Round(0).Add(c.off)
}

func (c *setClock) Mono() time.Duration { return time.Since(c.start) }

func (c *setClock) set(by time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.off += by
}

func TestDeadline(t *testing.T) {
	own := app.Errorf(app.Timeout, "no-dhcp", "the machine sent no DHCPDISCOVER")
	for name, c := range map[string]struct {
		run    func(ctx context.Context, s workflow.StepContext) (any, error)
		reason string
		took   time.Duration
	}{
		"the engine's words": {untilEnd, "deadline", 10 * time.Minute},
		"the step's own words": {func(ctx context.Context, _ workflow.StepContext) (any, error) {
			<-ctx.Done()
			return nil, own
		}, "no-dhcp", 10 * time.Minute},
		"a step that ignores it is left behind": {func(context.Context, workflow.StepContext) (any, error) {
			time.Sleep(time.Hour)
			return nil, nil
		}, "deadline", 10*time.Minute + 10*time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				b.kind("one", c.run)
				e := b.engine()
				stop := b.run(e)
				begun := time.Now()
				w := b.wait(e, b.start(e, "m1", workflow.Step{ID: "one", Kind: "one", Budget: app.Duration(10 * time.Minute)}).ID)
				b.want(w, workflow.Failed, c.reason)
				if took := time.Since(begun); took != c.took || w.Error.Code != app.Timeout {
					t.Errorf("took %s, %v", took, w.Error)
				}
				stop()
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestStall(t *testing.T) {
	const stall = 5 * time.Minute
	for name, c := range map[string]struct {
		progress func(i int) workflow.Progress // every minute
		ends     time.Duration                 // 0: it is not stopped
	}{
		"more done is progress":      {func(i int) workflow.Progress { return workflow.Progress{Done: int64(i)} }, 0},
		"another phase is progress":  {func(i int) workflow.Progress { return workflow.Progress{Phase: string(rune('a' + i))} }, 0},
		"another message is not":     {func(i int) workflow.Progress { return workflow.Progress{Done: 7, Message: string(rune('a' + i))} }, stall},
		"less done is not":           {func(i int) workflow.Progress { return workflow.Progress{Done: int64(100 - i)} }, stall},
		"back and forth is not":      {func(i int) workflow.Progress { return workflow.Progress{Done: int64(5 + i%2)} }, stall + time.Minute},
		"progress that stops counts": {func(i int) workflow.Progress { return workflow.Progress{Done: int64(min(i, 4))} }, stall + 4*time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				b.kind("one", func(ctx context.Context, s workflow.StepContext) (any, error) {
					for i := range 20 {
						s.Progress(c.progress(i))
						select {
						case <-time.After(time.Minute):
						case <-ctx.Done():
							return nil, ctx.Err()
						}
					}
					return nil, nil
				})
				e := b.engine()
				defer b.run(e)()
				begun := time.Now()
				w := b.wait(e, b.start(e, "m1", workflow.Step{ID: "one", Kind: "one", Stall: app.Duration(stall)}).ID)
				if c.ends == 0 {
					b.want(w, workflow.Done, "")
					return
				}
				b.want(w, workflow.Failed, "stalled")
				if took := time.Since(begun); took != c.ends {
					t.Errorf("stopped after %s, want %s", took, c.ends)
				}
			})
		})
	}
}

func TestAgentIsToldToStopAtTheDeadline(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.agent("write", func(ctx context.Context, _ workflow.Command, _ func(workflow.Progress)) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		e := b.engine()
		defer b.run(e)()
		w := b.wait(e, b.start(e, "m1", workflow.Step{ID: "write", Kind: "write", On: workflow.OnAgent}).ID)
		b.want(w, workflow.Failed, "deadline")
		if _, cancelled := b.fleet.Seen(); !slices.Equal(cancelled, []string{"wf:" + w.ID + ":write#0"}) {
			t.Errorf("cancelled %v", cancelled)
		}
	})
}

func TestClockStepsMoveNoDeadline(t *testing.T) {
	for name, by := range map[string]time.Duration{"a year ahead": 365 * 24 * time.Hour, "a day back": -24 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				clock := newSetClock()
				b.clock = clock
				runs := 0
				b.kind("one", func(ctx context.Context, s workflow.StepContext) (any, error) { runs++; return untilEnd(ctx, s) })
				e := b.engine()
				stop := b.run(e)
				begun := time.Now()
				w := b.start(e, "m1", workflow.Step{ID: "one", Kind: "one", RetrySafe: true})
				time.Sleep(20 * time.Minute)
				clock.set(by)
				time.Sleep(10 * time.Minute)
				stop() // a restart computes from the wall clock: the stored beginning has moved along
				e = b.engine()
				defer b.run(e)()
				b.want(b.wait(e, w.ID), workflow.Failed, "deadline")
				if took := time.Since(begun); took < time.Hour || took > time.Hour+3*time.Second || runs != 2 {
					t.Errorf("the hour took %s, %d runs", took, runs)
				}
				if whats := b.whats(w.ID); !slices.Contains(whats, "clock") {
					t.Errorf("journal %v", whats)
				}
			})
		})
	}
}

// A clock that is wrong when the process comes back (no battery, no time service yet) neither ends a step at once nor
// gives it more than its budget.
func TestClockSetWhileDown(t *testing.T) {
	for name, c := range map[string]struct {
		by   time.Duration
		left time.Duration
	}{
		"far ahead": {50 * 365 * 24 * time.Hour, time.Minute},
		"far back":  {-20 * 365 * 24 * time.Hour, time.Hour},
		"not":       {0, 40 * time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				clock := newSetClock()
				b.clock = clock
				b.kind("one", untilEnd)
				e := b.engine()
				stop := b.run(e)
				w := b.start(e, "m1", workflow.Step{ID: "one", Kind: "one", RetrySafe: true})
				time.Sleep(20 * time.Minute)
				stop()
				clock.set(c.by)
				e = b.engine()
				defer b.run(e)()
				begun := time.Now()
				b.want(b.wait(e, w.ID), workflow.Failed, "deadline")
				if took := time.Since(begun); took != c.left {
					t.Errorf("%s were left, want %s", took, c.left)
				}
			})
		})
	}
}

// No destructive action (a failure's cleanup powers off) follows from a deadline right after the clock was set.
func TestDeadlineRightAfterAClockStepWaits(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		clock := newSetClock()
		b.clock = clock
		b.kind("one", untilEnd)
		e := b.engine()
		defer b.run(e)()
		begun := time.Now()
		w := b.start(e, "m1", step("one"))
		time.Sleep(time.Hour - time.Second/2)
		clock.set(time.Hour)
		b.want(b.wait(e, w.ID), workflow.Failed, "deadline")
		if took := time.Since(begun); took != time.Hour+time.Minute {
			t.Errorf("ended after %s", took)
		}
	})
}

func TestProgressHasRateAndETA(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		const total, perSecond = 1000, 10
		begin := make(chan struct{})
		b.kind("one", func(ctx context.Context, s workflow.StepContext) (any, error) {
			<-begin
			for done := int64(0); done <= total; done++ {
				s.Progress(workflow.Progress{Phase: "write", Done: done, Total: total, Unit: "bytes"})
				time.Sleep(time.Second / perSecond)
			}
			return nil, nil
		})
		e := b.engine()
		defer b.run(e)()
		w := b.start(e, "m1", step("one"))
		close(begin)
		time.Sleep(50*time.Second + 50*time.Millisecond)
		synctest.Wait()
		got, err := e.Get(t.Context(), w.ID)
		if err != nil || got.Steps[0].Progress == nil {
			t.Fatalf("%+v, %v", got, err)
		}
		p := got.Steps[0].Progress
		if p.Done != 500 || p.Rate < 9.9 || p.Rate > 10.1 || p.ETA < 49 || p.ETA > 51 || p.At.IsZero() {
			t.Errorf("after 50 s: %+v", p)
		}
		kept, _ := b.store.Workflow(t.Context(), w.ID)
		if d := kept.Steps[0].Progress; d == nil || d.Done < 489 || d.Done > 500 {
			t.Errorf("kept: %+v", d)
		}
		b.want(b.wait(e, w.ID), workflow.Done, "")
		last, _ := e.Get(t.Context(), w.ID)
		if p := last.Steps[0].Progress; p.Done != total || p.ETA != 0 {
			t.Errorf("in the end: %+v", p)
		}
	})
}

func TestProgressIsKeptOnceASecond(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var saves counting
		b.wrap = func(s workflow.Store) workflow.Store { saves.Store = s; return &saves }
		b.kind("one", func(ctx context.Context, s workflow.StepContext) (any, error) {
			for i := range int64(10_000) {
				s.Progress(workflow.Progress{Done: i})
				time.Sleep(time.Millisecond)
			}
			return nil, nil
		})
		e := b.engine()
		defer b.run(e)()
		b.want(b.wait(e, b.start(e, "m1", step("one")).ID), workflow.Done, "")
		if saves.progress < 9 || saves.progress > 10 {
			t.Errorf("kept %d times in 10 s", saves.progress)
		}
	})
}

// counting counts the writes of progress.
type counting struct {
	workflow.Store
	progress int
}

func (c *counting) SaveProgress(ctx context.Context, w, s string, p workflow.Progress) error {
	c.progress++
	return c.Store.SaveProgress(ctx, w, s, p)
}
