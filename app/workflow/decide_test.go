package workflow_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// unknownEnd is a step that cannot tell how it went, until it is done again deliberately.
func unknownEnd(runs *int) func(context.Context, workflow.StepContext) (any, error) {
	return func(_ context.Context, s workflow.StepContext) (any, error) {
		if *runs++; s.Command().Attempt == 0 {
			return nil, app.Errorf(app.Interrupted, "session-lost", "the session was lost")
		}
		return map[string]int{"attempt": s.Command().Attempt}, nil
	}
}

func TestInterruptedThenRetry(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		runs := 0
		b.kind("wipe", unknownEnd(&runs))
		b.verb.Cleanup = func(context.Context, workflow.StepContext) error { t.Error("cleaned up"); return nil }
		e := b.engine()
		defer b.run(e)()
		w := b.wait(e, b.start(e, "m1", workflow.Step{ID: "wipe", Kind: "wipe", Destructive: true}).ID)
		b.want(w, workflow.Interrupted, "end-unknown")
		if !strings.Contains(w.Error.Error(), "the session was lost") || !strings.Contains(w.Error.WayOut, "cannot be undone") || runs != 1 {
			t.Errorf("%d runs, %v", runs, w.Error)
		}
		if _, err := e.Start(t.Context(), workflow.New{Verb: "test", MachineID: "m1", Steps: []workflow.Step{step("wipe")}}); app.CodeOf(err) != app.Conflict {
			t.Errorf("an interrupted workflow let go of its machine: %v", err)
		}
		if err := e.Retry(t.Context(), w.ID, "alice"); err != nil {
			t.Fatal(err)
		}
		w = b.wait(e, w.ID)
		b.want(w, workflow.Done, "")
		if runs != 2 || w.Steps[0].Attempt != 1 || string(w.Steps[0].Result) != `{"attempt":1}` {
			t.Errorf("%d runs, %+v", runs, w.Steps[0])
		}
		wantCode(t, e.Retry(t.Context(), w.ID, "alice"), app.Conflict, "not-retryable")
	})
}

func TestUnknownEndOfARetrySafeStepIsRepeatedAFewTimes(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		runs := 0
		b.kind("read", unknownEnd(&runs))
		e := b.engine()
		defer b.run(e)()
		b.want(b.wait(e, b.start(e, "m1", workflow.Step{ID: "read", Kind: "read", RetrySafe: true}).ID), workflow.Interrupted, "end-unknown")
		if runs != 4 {
			t.Errorf("%d runs", runs)
		}
	})
}

func TestMarkDone(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		runs, after := 0, 0
		b.kind("wipe", unknownEnd(&runs))
		b.kind("after", func(context.Context, workflow.StepContext) (any, error) { after++; return nil, nil })
		e := b.engine()
		defer b.run(e)()
		w := b.wait(e, b.start(e, "m1", step("wipe"), step("after")).ID)
		wantCode(t, e.MarkDone(t.Context(), w.ID, "alice", ""), app.InvalidInput, "")
		wantCode(t, e.MarkDone(t.Context(), w.ID, "alice", "a\nb"), app.InvalidInput, "")
		wantCode(t, e.MarkDone(t.Context(), "wf-9", "alice", "saw it"), app.NotFound, "")
		if err := e.MarkDone(t.Context(), w.ID, "alice", "saw an empty disk"); err != nil {
			t.Fatal(err)
		}
		w = b.wait(e, w.ID)
		b.want(w, workflow.Done, "")
		if runs != 1 || after != 1 || w.Steps[0].State != workflow.StepSkipped || w.Steps[0].Error != nil {
			t.Errorf("%d and %d runs, %+v", runs, after, w.Steps[0])
		}
		entries, _ := e.Journal(t.Context(), w.ID)
		if i := slices.IndexFunc(entries, func(e workflow.Entry) bool { return e.What == "mark-done" }); i < 0 || string(entries[i].Data) != `{"actor":"alice","reason":"saw an empty disk"}` {
			t.Errorf("journal %+v", entries)
		}
		wantCode(t, e.MarkDone(t.Context(), w.ID, "alice", "again"), app.Conflict, "not-interrupted")
	})
}

func TestRetryOfAFailureBeginsWhereTheVerbSays(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var ran []string
		fail, looked := true, make(chan struct{})
		for _, name := range []string{"off", "boot", "write"} {
			b.kind(name, func(_ context.Context, s workflow.StepContext) (any, error) {
				ran = append(ran, strings.SplitN(s.Command().Key, ":", 3)[2])
				if name == "write" && fail {
					return nil, app.Errorf(app.Unavailable, "agent-not-up", "no agent")
				}
				if name == "write" {
					<-looked
				}
				return nil, nil
			})
		}
		b.verb.RetryFrom = func(w *workflow.Workflow) int { return 1 }
		e := b.engine()
		defer b.run(e)()
		w := b.wait(e, b.start(e, "m1", step("off"), step("boot"), step("write")).ID)
		b.want(w, workflow.Failed, "agent-not-up")
		wantCode(t, e.Abort(t.Context(), w.ID, "alice", "too late"), app.Conflict, "already-ended")
		fail = false
		if err := e.Retry(t.Context(), w.ID, "alice"); err != nil {
			t.Fatal(err)
		}
		if b.state("m1") != app.StateDeploying {
			t.Errorf("machine is %s", b.state("m1"))
		}
		close(looked)
		b.want(b.wait(e, w.ID), workflow.Done, "")
		if !slices.Equal(ran, []string{"off#0", "boot#0", "write#0", "boot#1", "write#1"}) || b.state("m1") != app.StateReady {
			t.Errorf("ran %v, machine %s", ran, b.state("m1"))
		}
	})
}

func TestRetryOfAnOldFailureIsRefused(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		fail := true
		b.kind("one", func(context.Context, workflow.StepContext) (any, error) {
			if fail {
				return nil, errPlain
			}
			return nil, nil
		})
		b.verb.Begin = nil
		e := b.engine()
		defer b.run(e)()
		old := b.wait(e, b.start(e, "m1", step("one")).ID)
		fail = false
		b.want(b.wait(e, b.start(e, "m1", step("one")).ID), workflow.Done, "")
		wantCode(t, e.Retry(t.Context(), old.ID, "alice"), app.Conflict, "not-the-last")
	})
}

func TestUnknownDefinitionsAreInterrupted(t *testing.T) {
	for name, c := range map[string]struct {
		upgrade func(b *bench)
		reason  string
	}{
		"version": {func(b *bench) { b.verb.Version = 2 }, "unknown-definition"},
		"kind":    {func(b *bench) { b.kinds = nil }, "unknown-step"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				b.kind("one", untilEnd)
				before, kinds := b.verb, b.kinds
				e := b.engine()
				stop := b.run(e)
				w := b.start(e, "m1", workflow.Step{ID: "one", Kind: "one", RetrySafe: true})
				synctest.Wait()
				stop()

				c.upgrade(b)
				e = b.engine()
				stop = b.run(e)
				got := b.wait(e, w.ID)
				b.want(got, workflow.Interrupted, c.reason)
				if got.Error.WayOut == "" || got.Error.Code != app.Interrupted {
					t.Errorf("%v", got.Error)
				}
				stop()

				b.verb, b.kinds = before, kinds // the old build again, or one that knows both
				e = b.engine()
				e.RegisterVerb(workflow.Verb{Name: "test", Version: 3})
				stop = b.run(e)
				if err := e.Retry(t.Context(), w.ID, "alice"); err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				if got, _ := e.Get(t.Context(), w.ID); got.State != workflow.Running || got.Steps[0].State != workflow.StepRunning {
					t.Errorf("%+v", got)
				}
				stop()

				c.upgrade(b)
				e = b.engine()
				defer b.run(e)()
				b.wait(e, w.ID)
				if err := e.Abort(t.Context(), w.ID, "alice", "start over"); err != nil {
					t.Fatal(err)
				}
				b.want(b.wait(e, w.ID), workflow.Aborted, "aborted")
				if m, _ := b.store.Machine(t.Context(), "m1"); m.WorkflowID != "" || m.State == app.StateDeploying {
					t.Errorf("the machine is stuck: %+v", m)
				}
			})
		})
	}
}

// brokenStore refuses writes while full is set.
type brokenStore struct {
	workflow.Store
	full func() bool
}

func (s brokenStore) SaveStep(ctx context.Context, w *workflow.Workflow, step int, entries ...workflow.Entry) error {
	if s.full() {
		return app.Errorf(app.StorageFull, "store-full", "the disk is full")
	}
	return s.Store.SaveStep(ctx, w, step, entries...)
}

func TestNothingHappensThatCannotBeWrittenDown(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		until := time.Now().Add(5 * time.Minute)
		b.wrap = func(s workflow.Store) workflow.Store {
			return brokenStore{s, func() bool { return time.Now().Before(until) }}
		}
		var ran time.Time
		b.kind("one", func(context.Context, workflow.StepContext) (any, error) {
			ran = time.Now()
			until = ran.Add(5 * time.Minute) // full again before the result
			return nil, nil
		})
		began := until
		e := b.engine()
		defer b.run(e)()
		w := b.start(e, "m1", step("one"))
		time.Sleep(time.Minute)
		wantCode(t, e.Abort(t.Context(), w.ID, "alice", "x"), app.StorageFull, "store-full")
		b.want(b.wait(e, w.ID), workflow.Done, "")
		if ran.Before(began) {
			t.Error("a step ran before its intent was written")
		}
		if whats := b.whats(w.ID); !slices.Equal(whats, []string{"intent", "result", "end"}) {
			t.Errorf("journal %v", whats)
		}
	})
}

func TestStopWhileTheDiskIsFull(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.wrap = func(s workflow.Store) workflow.Store { return brokenStore{s, func() bool { return true }} }
		b.kind("one", func(context.Context, workflow.StepContext) (any, error) { t.Error("ran"); return nil, nil })
		e := b.engine()
		stop := b.run(e)
		b.start(e, "m1", step("one"))
		time.Sleep(time.Minute)
		stop()
	})
}

func TestWaitEndsWithItsContext(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.kind("one", untilEnd)
		e := b.engine()
		defer b.run(e)()
		w := b.start(e, "m1", step("one"))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if _, err := e.Wait(ctx, w.ID); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%v", err)
		}
	})
}
