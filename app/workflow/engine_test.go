package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

func TestStepsRunInOrderAndPassOnWhatTheyLearned(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var cmd workflow.Command
		b.kind("one", func(_ context.Context, s workflow.StepContext) (any, error) {
			cmd = s.Command()
			s.Log("disk is %s", "sda")
			return map[string]int{"size": 42}, s.SetData(map[string]string{"disk": "sda"})
		})
		b.kind("two", func(_ context.Context, s workflow.StepContext) (any, error) {
			var r struct{ Size int }
			var d struct{ Disk string }
			if !s.Result("one", &r) || r.Size != 42 || !s.Data(&d) || d.Disk != "sda" || s.Result("two", &r) {
				return nil, fmt.Errorf("result %v, data %v", r, d)
			}
			if w := s.Workflow(); w.Steps[0].State != workflow.StepDone || w.Cursor != 1 {
				return nil, fmt.Errorf("workflow %+v", w)
			}
			return nil, nil
		})
		e := b.engine()
		w := b.start(e, "node-m1", workflow.Step{ID: "one", Kind: "one", Title: "First", Destructive: true, Payload: json.RawMessage(`{"x":1}`)}, step("two"))
		if w.MachineID != "m1" || b.state("m1") != app.StateDeploying {
			t.Errorf("before Run: machine %s is %s", w.MachineID, b.state("m1"))
		}
		defer b.run(e)()
		got := b.wait(e, w.ID)
		b.want(got, workflow.Done, "")
		if b.state("m1") != app.StateReady {
			t.Errorf("machine is %s", b.state("m1"))
		}
		if cmd.Key != "wf:"+w.ID+":one#0" || cmd.Attempt != 0 || cmd.MachineID != "m1" || !cmd.Destructive || string(cmd.Payload) != `{"x":1}` ||
			cmd.Lane != workflow.LaneProvision || time.Until(cmd.NotAfter) != time.Hour {
			t.Errorf("command %+v", cmd)
		}
		w3c := regexp.MustCompile(`^00-[0-9a-f]{32}-[0-9a-f]{16}-01$`)
		if !w3c.MatchString(w.TraceParent) || !w3c.MatchString(cmd.TraceParent) || cmd.TraceParent[:35] != w.TraceParent[:35] || cmd.TraceParent == w.TraceParent {
			t.Errorf("traceparent %s of %s", cmd.TraceParent, w.TraceParent)
		}
		if whats := b.whats(w.ID); !slices.Equal(whats, []string{"intent", "result", "intent", "result", "end"}) {
			t.Errorf("journal %v", whats)
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		var kinds []string
		for _, ev := range b.events {
			kinds = append(kinds, ev.Kind)
			if ev.MachineID != "m1" || ev.Workflow != w.ID || ev.Message == "" {
				t.Errorf("event %+v", ev)
			}
		}
		if strings.Join(kinds, " ") != "workflow.start workflow.step workflow.log workflow.step workflow.step workflow.step workflow.end" {
			t.Errorf("events %v", kinds)
		}
	})
}

func TestLargeResults(t *testing.T) {
	for size, reason := range map[int]string{1 << 20: "", 5 << 20: "too-large"} {
		in(t, func(t *testing.T, b *bench) {
			b.kind("inventory", func(context.Context, workflow.StepContext) (any, error) { return strings.Repeat("x", size), nil })
			e := b.engine()
			defer b.run(e)()
			w := b.wait(e, b.start(e, "m1", step("inventory")).ID)
			if reason != "" {
				b.want(w, workflow.Failed, reason)
				return
			}
			b.want(w, workflow.Done, "")
			entries, _ := e.Journal(t.Context(), w.ID)
			if len(w.Steps[0].Result) != size+2 || string(entries[1].Data) != fmt.Sprintf(`{"bytes":%d}`, size+2) {
				t.Errorf("result of %d bytes, journal %s", len(w.Steps[0].Result), entries[1].Data)
			}
		})
	}
}

func TestStartRefuses(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.kind("one", untilEnd)
		b.kinds = append(b.kinds, workflow.Kind{Name: "agent", Budget: time.Hour}, workflow.Kind{Name: "endless", Run: untilEnd})
		e := b.engine()
		for name, n := range map[string]workflow.New{
			"no steps":              {Verb: "test", MachineID: "m1"},
			"unknown verb":          {Verb: "dance", MachineID: "m1", Steps: []workflow.Step{step("one")}},
			"unknown kind":          {Verb: "test", MachineID: "m1", Steps: []workflow.Step{step("zwei")}},
			"the same id twice":     {Verb: "test", MachineID: "m1", Steps: []workflow.Step{step("one"), step("one")}},
			"the cleanup's id":      {Verb: "test", MachineID: "m1", Steps: []workflow.Step{{ID: "cleanup", Kind: "one"}}},
			"a bad id":              {Verb: "test", MachineID: "m1", Steps: []workflow.Step{{ID: "a#b", Kind: "one"}}},
			"agent step on site":    {Verb: "test", MachineID: "m1", Steps: []workflow.Step{{ID: "a", Kind: "agent", On: workflow.OnSite}}},
			"no budget":             {Verb: "test", MachineID: "m1", Steps: []workflow.Step{step("endless")}},
			"no such lane":          {Verb: "test", MachineID: "m1", Steps: []workflow.Step{{ID: "a", Kind: "one", Lane: "fast"}}},
			"payload is not JSON":   {Verb: "test", MachineID: "m1", Steps: []workflow.Step{{ID: "a", Kind: "one", Payload: json.RawMessage("{")}}},
			"input does not encode": {Verb: "test", MachineID: "m1", Input: func() {}, Steps: []workflow.Step{step("one")}},
			"input is too large":    {Verb: "test", MachineID: "m1", Input: strings.Repeat("x", 5<<20), Steps: []workflow.Step{step("one")}},
			"no machine":            {Verb: "test", MachineID: "m9", Steps: []workflow.Step{step("one")}},
		} {
			if w, err := e.Start(t.Context(), n); err == nil {
				t.Errorf("%s: started %s", name, w.ID)
			}
		}
		if b.state("m1") != app.StateReady {
			t.Errorf("a refused start left the machine %s", b.state("m1"))
		}
		b.start(e, "m1", step("one"))
		_, err := e.Start(t.Context(), workflow.New{Verb: "test", MachineID: "m1", Steps: []workflow.Step{step("one")}})
		wantCode(t, err, app.Conflict, "workflow-active")
		b.run(e)()
		_, err = e.Start(t.Context(), workflow.New{Verb: "test", MachineID: "m1", Steps: []workflow.Step{step("one")}})
		wantCode(t, err, app.Unavailable, "engine-stopping")
		if err := e.Run(t.Context()); err == nil {
			t.Error("an engine ran twice")
		}
	})
}

func TestFailureCleansUpAndEnds(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		code   app.Code
		reason string
	}{
		"for a person":   {app.Errorf(app.Unavailable, "bmc-silent", "the BMC does not answer").Do("check its cable"), app.Unavailable, "bmc-silent"},
		"not for people": {errPlain, app.Internal, "step-failed"},
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				var cleaned []string
				b.verb.Cleanup = func(_ context.Context, s workflow.StepContext) error {
					cleaned = append(cleaned, s.Command().Key+" "+string(s.Workflow().Steps[0].State))
					return nil
				}
				b.kind("one", func(context.Context, workflow.StepContext) (any, error) { return nil, c.err })
				b.kind("two", untilEnd)
				e := b.engine()
				defer b.run(e)()
				w := b.wait(e, b.start(e, "m1", step("one"), step("two")).ID)
				b.want(w, workflow.Failed, c.reason)
				if w.Error.Code != c.code || w.Error.WayOut == "" || strings.Contains(w.Error.Error(), "secret") {
					t.Errorf("shown: %v", w.Error)
				}
				if w.Steps[0].State != workflow.StepFailed || w.Steps[1].State != workflow.StepWaiting || w.Ended.IsZero() {
					t.Errorf("%+v", w)
				}
				if b.state("m1") != app.StateFailed || !slices.Equal(cleaned, []string{"wf:" + w.ID + ":cleanup#0 failed"}) {
					t.Errorf("machine %s, cleaned %v", b.state("m1"), cleaned)
				}
				if whats := b.whats(w.ID); !slices.Equal(whats, []string{"intent", "error", "cleanup", "end"}) {
					t.Errorf("journal %v", whats)
				}
			})
		})
	}
}

func TestCleanupFailureStandsBesideTheError(t *testing.T) {
	for name, cleanup := range map[string]func(context.Context, workflow.StepContext) error{
		"error": func(context.Context, workflow.StepContext) error {
			return app.Errorf(app.Unavailable, "bmc-silent", "the BMC does not answer")
		},
		"panic":         func(context.Context, workflow.StepContext) error { panic("oh") },
		"never returns": func(context.Context, workflow.StepContext) error { time.Sleep(time.Hour); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				b.verb.Cleanup = cleanup
				b.kind("one", func(context.Context, workflow.StepContext) (any, error) {
					return nil, app.Errorf(app.Timeout, "agent-not-up", "no agent came up")
				})
				e := b.engine()
				stop := b.run(e)
				begun := time.Now()
				w := b.wait(e, b.start(e, "m1", step("one")).ID)
				b.want(w, workflow.Failed, "agent-not-up")
				if !strings.Contains(w.Error.Message, "no agent came up; cleaning up after it failed too: ") {
					t.Errorf("shown: %v", w.Error)
				}
				if took := time.Since(begun); took > 3*time.Minute {
					t.Errorf("took %s", took)
				}
				stop()
				time.Sleep(time.Hour) // the cleanup left behind returns
			})
		})
	}
}

func TestPanicsBecomeErrors(t *testing.T) {
	const why = "oh, a detail" // no error's random id holds that
	oh := func(context.Context, workflow.StepContext) (any, error) { panic(why) }
	for name, arrange := range map[string]func(b *bench){
		"run":     func(b *bench) { b.kind("one", oh) },
		"prepare": func(b *bench) { b.kinds = []workflow.Kind{{Name: "one", Budget: time.Hour, Prepare: oh}} },
	} {
		t.Run(name, func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				arrange(b)
				s := step("one")
				if b.kinds[0].Prepare != nil {
					s.On = workflow.OnAgent
				}
				e := b.engine()
				defer b.run(e)()
				w := b.wait(e, b.start(e, "m1", s).ID)
				b.want(w, workflow.Failed, "panic")
				if w.Error.Code != app.Internal || strings.Contains(w.Error.Error(), why) || strings.Contains(w.Error.Error(), "goroutine") {
					t.Errorf("shown: %v", w.Error)
				}
			})
		})
	}
	in(t, func(t *testing.T, b *bench) {
		b.kind("one", func(context.Context, workflow.StepContext) (any, error) { return nil, nil })
		b.verb.End = func(*app.Machine, *workflow.Workflow) error { panic("oh") }
		e := b.engine()
		defer b.run(e)()
		b.want(b.wait(e, b.start(e, "m1", step("one")).ID), workflow.Done, "")
		if b.state("m1") != app.StateFailed {
			t.Errorf("a verb that cannot end left its machine %s", b.state("m1"))
		}
	})
	in(t, func(t *testing.T, b *bench) {
		b.kind("one", untilEnd)
		b.verb.Begin = func(*app.Machine, *workflow.Workflow) error { panic("oh") }
		if _, err := b.engine().Start(t.Context(), workflow.New{Verb: "test", MachineID: "m1", Steps: []workflow.Step{step("one")}}); err == nil {
			t.Error("started")
		}
	})
}

func TestStopIsNotAbort(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var cause error
		runs := 0
		b.kind("one", func(ctx context.Context, _ workflow.StepContext) (any, error) {
			if runs++; runs > 1 {
				return nil, nil
			}
			<-ctx.Done()
			cause = context.Cause(ctx)
			return nil, fmt.Errorf("calling: %w", ctx.Err())
		})
		b.verb.Cleanup = func(context.Context, workflow.StepContext) error { t.Error("cleaned up on a stop"); return nil }
		e := b.engine()
		stop := b.run(e)
		w := b.start(e, "m1", workflow.Step{ID: "one", Kind: "one", RetrySafe: true})
		synctest.Wait()
		stop()
		if cause != workflow.ErrStopped {
			t.Errorf("the step was told %v", cause)
		}
		left, err := b.store.Workflow(t.Context(), w.ID)
		if err != nil || left.State != workflow.Running || left.Steps[0].State != workflow.StepRunning {
			t.Errorf("left behind: %+v, %v", left, err)
		}
		e = b.engine()
		defer b.run(e)()
		got := b.wait(e, w.ID)
		b.want(got, workflow.Done, "")
		if got.Steps[0].Attempt != 0 {
			t.Errorf("a restart raised the attempt to %d", got.Steps[0].Attempt)
		}
	})
}

func TestStepThatFinishesWhileStoppingIsDone(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.kind("one", func(ctx context.Context, _ workflow.StepContext) (any, error) { <-ctx.Done(); return 1, nil })
		e := b.engine()
		stop := b.run(e)
		w := b.start(e, "m1", step("one"))
		synctest.Wait()
		stop()
		if got, _ := b.store.Workflow(t.Context(), w.ID); got.Steps[0].State != workflow.StepDone {
			t.Errorf("step is %s", got.Steps[0].State)
		}
	})
}

func TestDeadBMCHoldsUpNobodyElse(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.kind("bmc", func(ctx context.Context, s workflow.StepContext) (any, error) {
			if s.Command().MachineID == "m1" {
				return untilEnd(ctx, s)
			}
			return nil, nil
		})
		s := workflow.Step{ID: "one", Kind: "bmc", Lane: workflow.LaneBMC}
		e := b.engine()
		defer b.run(e)()
		dead := b.start(e, "m1", s)
		begun := time.Now()
		var ids []string
		for i := range 200 {
			id := fmt.Sprintf("x%d", i)
			b.machine(id)
			ids = append(ids, b.start(e, id, s).ID)
		}
		for _, id := range ids {
			b.want(b.wait(e, id), workflow.Done, "")
		}
		if took := time.Since(begun); took > 0 {
			t.Errorf("others waited %s", took)
		}
		b.want(b.wait(e, dead.ID), workflow.Failed, "deadline")
	})
}

func TestLanes(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var inside atomic.Int32
		b.kind("bmc", func(context.Context, workflow.StepContext) (any, error) { inside.Add(1); return nil, nil })
		e := b.engine()
		defer b.run(e)()
		release, err := e.Lane(t.Context(), "m1", workflow.LaneBMC)
		if err != nil {
			t.Fatal(err)
		}
		free, err := e.Lane(t.Context(), "m1", workflow.LaneQuery)
		if err != nil {
			t.Fatal(err)
		}
		free()
		w := b.start(e, "m1", workflow.Step{ID: "one", Kind: "bmc", Lane: workflow.LaneBMC})
		synctest.Wait()
		if got, _ := b.store.Workflow(t.Context(), w.ID); inside.Load() != 0 || got.Steps[0].State != workflow.StepWaiting {
			t.Errorf("a taken lane was entered")
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := e.Lane(ctx, "m1", workflow.LaneBMC); err == nil {
			t.Error("two held one lane")
		}
		release()
		release() // once is enough
		b.want(b.wait(e, w.ID), workflow.Done, "")
	})
}

func TestSignals(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		e := b.engine()
		ctx, cancel := context.WithCancel(t.Context())
		got, stop := e.Await(ctx, "m1", "up")
		defer stop()
		e.Signal("m2", "up", "other machine")
		e.Signal("m1", "down", "other name")
		e.Signal("m1", "up", 1)
		if v := <-got; v != 1 {
			t.Errorf("got %v", v)
		}
		for i := range 100 { // a waiter that does not look holds up nobody and sees the last
			e.Signal("m1", "up", i)
		}
		last := -1
		for range 16 {
			last = (<-got).(int)
		}
		if last != 99 {
			t.Errorf("the last signal was dropped: %d", last)
		}
		cancel()
		synctest.Wait()
		e.Signal("m1", "up", 2)
		select {
		case v := <-got:
			t.Errorf("after its end a waiter got %v", v)
		default:
		}
	})
}
