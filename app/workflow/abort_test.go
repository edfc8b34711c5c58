package workflow_test

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

func TestAbortOfARunningStep(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var cause error
		var cleaned int
		b.kind("one", func(ctx context.Context, _ workflow.StepContext) (any, error) {
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, cause
		})
		b.kind("two", func(context.Context, workflow.StepContext) (any, error) { t.Error("went on"); return nil, nil })
		twice := make(chan struct{}) // the second abort comes while the first is under way
		b.verb.Cleanup = func(context.Context, workflow.StepContext) error { <-twice; cleaned++; return nil }
		e := b.engine()
		defer b.run(e)()
		w := b.start(e, "m1", step("one"), step("two"))
		synctest.Wait()
		wantCode(t, e.Abort(t.Context(), w.ID, "alice", ""), app.InvalidInput, "")
		wantCode(t, e.Retry(t.Context(), w.ID, "alice"), app.Conflict, "workflow-running")
		for range 2 {
			if err := e.Abort(t.Context(), w.ID, "alice", "wrong machine"); err != nil {
				t.Fatal(err)
			}
		}
		close(twice)
		w = b.wait(e, w.ID)
		b.want(w, workflow.Aborted, "aborted")
		if cause != workflow.ErrAborted || cleaned != 1 || b.state("m1") != app.StateReady || !strings.Contains(w.Error.Message, "alice: wrong machine") {
			t.Errorf("cause %v, cleaned %d, machine %s, %v", cause, cleaned, b.state("m1"), w.Error)
		}
		if whats := b.whats(w.ID); !slices.Equal(whats, []string{"intent", "abort", "error", "cleanup", "end"}) {
			t.Errorf("journal %v", whats)
		}
		wantCode(t, e.Abort(t.Context(), "wf-9", "alice", "x"), app.NotFound, "")
		b.mu.Lock()
		defer b.mu.Unlock()
		said := slices.IndexFunc(b.events, func(ev app.Event) bool {
			return ev.Kind == "workflow.decision" && ev.Actor == "alice" && strings.Contains(ev.Message, "wrong machine")
		})
		if said < 0 {
			t.Errorf("nobody is told who aborted: %+v", b.events)
		}
	})
}

func TestAbortInEveryState(t *testing.T) {
	for name, arrange := range map[string]func(b *bench) []workflow.Step{
		"interrupted": func(b *bench) []workflow.Step {
			b.kind("one", unknownEnd(new(int)))
			return []workflow.Step{step("one")}
		},
		"agent step": func(b *bench) []workflow.Step {
			b.agent("one", func(ctx context.Context, _ workflow.Command, _ func(workflow.Progress)) (json.RawMessage, error) {
				<-ctx.Done()
				return nil, ctx.Err()
			})
			return []workflow.Step{{ID: "one", Kind: "one", On: workflow.OnAgent}}
		},
		"step that ignores its context": func(b *bench) []workflow.Step {
			b.kind("one", func(context.Context, workflow.StepContext) (any, error) {
				time.Sleep(30 * time.Minute)
				return nil, nil
			})
			return []workflow.Step{step("one")}
		},
		"during cleanup": func(b *bench) []workflow.Step {
			b.kind("one", func(context.Context, workflow.StepContext) (any, error) { return nil, errPlain })
			b.verb.Cleanup = func(context.Context, workflow.StepContext) error { time.Sleep(time.Minute); return nil }
			return []workflow.Step{step("one")}
		},
		"settling": func(b *bench) []workflow.Step {
			b.kinds = append(b.kinds, workflow.Kind{Name: "one", Budget: time.Hour, Run: unknownEnd(new(int)),
				Check: func(context.Context, workflow.StepContext) (workflow.Verdict, any, error) {
					return workflow.Unknown, nil, errPlain
				}})
			return []workflow.Step{step("one")}
		},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				steps := arrange(b)
				e := b.engine()
				stop := b.run(e)
				w := b.start(e, "m1", steps...)
				time.Sleep(3 * time.Second)
				if err := e.Abort(t.Context(), w.ID, "alice", "stop it"); err != nil {
					t.Fatal(err)
				}
				begun := time.Now()
				b.want(b.wait(e, w.ID), workflow.Aborted, "aborted")
				if took := time.Since(begun); took > time.Minute || b.state("m1") != app.StateReady {
					t.Errorf("took %s, machine %s", took, b.state("m1"))
				}
				stop()
				time.Sleep(time.Hour)
			})
		})
	}
}

func TestAbortSurvivesAKill(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		cleaned := 0
		b.kind("one", untilEnd)
		b.verb.Cleanup = func(ctx context.Context, s workflow.StepContext) error {
			if cleaned++; cleaned == 1 {
				<-ctx.Done()
			}
			return ctx.Err()
		}
		e := b.engine()
		stop := b.run(e)
		w := b.start(e, "m1", step("one"))
		synctest.Wait()
		if err := e.Abort(t.Context(), w.ID, "alice", "stop it"); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		stop()
		e = b.engine()
		defer b.run(e)()
		b.want(b.wait(e, w.ID), workflow.Aborted, "aborted")
		if cleaned != 2 {
			t.Errorf("cleaned %d times", cleaned)
		}
	})
}

func TestAbortBeforeRun(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.kind("one", func(context.Context, workflow.StepContext) (any, error) { t.Error("ran"); return nil, nil })
		e := b.engine()
		w := b.start(e, "m1", step("one"))
		if err := e.Abort(t.Context(), w.ID, "alice", "stop it"); err != nil {
			t.Fatal(err)
		}
		defer b.run(e)()
		b.want(b.wait(e, w.ID), workflow.Aborted, "aborted")
	})
}

// The process died with the step under way, and the abort comes before the next one has taken the workflow up.
func TestAbortOfAStepLeftRunning(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.agent("write", func(ctx context.Context, _ workflow.Command, _ func(workflow.Progress)) (json.RawMessage, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		})
		e := b.engine()
		stop := b.run(e)
		w := b.start(e, "m1", workflow.Step{ID: "write", Kind: "write", On: workflow.OnAgent})
		synctest.Wait()
		stop()
		e = b.engine()
		if err := e.Abort(t.Context(), w.ID, "alice", "stop it"); err != nil {
			t.Fatal(err)
		}
		defer b.run(e)()
		got := b.wait(e, w.ID)
		b.want(got, workflow.Aborted, "aborted")
		_, cancelled := b.fleet.Seen()
		if got.Steps[0].State != workflow.StepFailed || !slices.Equal(cancelled, []string{"wf:" + w.ID + ":write#0"}) {
			t.Errorf("step is %s, cancelled %v", got.Steps[0].State, cancelled)
		}
	})
}

// A machine that is deleted by force: no cleanup, no further traffic, and the workflow is over.
func TestDrop(t *testing.T) {
	for name, run := range map[string]func(context.Context, workflow.StepContext) (any, error){"running": untilEnd, "interrupted": unknownEnd(new(int))} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				b.kind("one", run)
				b.verb.Cleanup = func(context.Context, workflow.StepContext) error { t.Error("cleaned up"); return nil }
				e := b.engine()
				defer b.run(e)()
				w := b.start(e, "m1", step("one"))
				synctest.Wait()
				if err := b.store.DeleteMachine(t.Context(), "m1"); err != nil {
					t.Fatal(err)
				}
				for range 2 {
					if err := e.Drop(t.Context(), w.ID, "alice", "scrapped"); err != nil {
						t.Fatal(err)
					}
				}
				b.want(b.wait(e, w.ID), workflow.Aborted, "aborted")
			})
		})
	}
}
