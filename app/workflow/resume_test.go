package workflow_test

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// Field case 63: the step's effect is that the agent goes away. The server dies in between; the reboot happens once, the
// workflow goes on at the next step, and the machine is free for the next workflow.
func TestStepThatRebootsTheMachine(t *testing.T) {
	for _, die := range []bool{false, true} {
		t.Run(fmt.Sprintf("server killed=%v", die), func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				var mu sync.Mutex
				ran := map[string]int{}
				bootID := "boot-1"
				did := func(what string) int { mu.Lock(); defer mu.Unlock(); ran[what]++; return ran[what] }
				booted := func() string { mu.Lock(); defer mu.Unlock(); return bootID }
				b.fleet.Handle = func(ctx context.Context, c workflow.Command, _ func(workflow.Progress)) (json.RawMessage, error) {
					did(c.Kind)
					if c.Kind == "reboot" {
						<-ctx.Done() // the connection drops with the machine
						return nil, ctx.Err()
					}
					return nil, nil
				}
				b.kinds = []workflow.Kind{
					{Name: "write", Budget: time.Hour},
					{Name: "reboot", Budget: time.Hour, Check: func(context.Context, workflow.StepContext) (workflow.Verdict, any, error) {
						if booted() != "boot-1" {
							return workflow.Happened, map[string]string{"boot": booted()}, nil
						}
						return workflow.NotHappened, nil, nil
					}},
				}
				b.kind("verify", func(context.Context, workflow.StepContext) (any, error) { did("verify"); return nil, nil })
				steps := []workflow.Step{
					{ID: "write", Kind: "write", On: workflow.OnAgent, Destructive: true, Rewrites: true},
					{ID: "reboot", Kind: "reboot", On: workflow.OnAgent, Destructive: true},
					{ID: "verify", Kind: "verify"},
				}
				e := b.engine()
				stop := b.run(e)
				w := b.start(e, "m1", steps...)
				synctest.Wait()
				if die {
					stop()
				}
				mu.Lock()
				bootID = "boot-2"
				mu.Unlock()
				b.fleet.Reboot("m1")
				if die {
					e = b.engine()
					stop = b.run(e)
				}
				b.want(b.wait(e, w.ID), workflow.Done, "")
				if ran["write"] != 1 || ran["reboot"] != 1 || ran["verify"] != 1 {
					t.Errorf("ran %v", ran)
				}
				b.want(b.wait(e, b.start(e, "m1", step("verify")).ID), workflow.Done, "")
				stop()
			})
		})
	}
}

// Field case 65, for the part of the engine: what is over stays over. Neither success nor failure runs again by itself,
// whatever restarts; only a new workflow or a deliberate retry does.
func TestEndedWorkflowsStayEnded(t *testing.T) {
	for _, fail := range []bool{false, true} {
		t.Run(fmt.Sprintf("failed=%v", fail), func(t *testing.T) {
			in(t, func(t *testing.T, b *bench) {
				installs := 0
				b.kind("install", func(context.Context, workflow.StepContext) (any, error) {
					if installs++; fail {
						return nil, errPlain
					}
					return nil, nil
				})
				var first *workflow.Workflow
				for i := range 3 {
					e := b.engine()
					stop := b.run(e)
					if i == 0 {
						first = b.wait(e, b.start(e, "m1", step("install")).ID)
					}
					e.Signal("m1", "agent.up", nil) // the machine netboots again
					time.Sleep(time.Hour)
					if err := e.MarkDone(t.Context(), first.ID, "alice", "x"); app.CodeOf(err) != app.Conflict {
						t.Errorf("an ended workflow was marked done: %v", err)
					}
					stop()
				}
				if installs != 1 {
					t.Errorf("installed %d times", installs)
				}
			})
		})
	}
}

// Field case 67, for the part of the engine: a command leaves for the machine of its workflow, and for no other, across
// restarts.
func TestCommandsGoToTheirMachine(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		var mu sync.Mutex
		got := map[string][]string{} // machine → payloads
		hold := make(chan struct{})
		b.agent("write", func(ctx context.Context, c workflow.Command, _ func(workflow.Progress)) (json.RawMessage, error) {
			mu.Lock()
			got[c.MachineID] = append(got[c.MachineID], string(c.Payload))
			mu.Unlock()
			select {
			case <-hold:
			case <-ctx.Done():
			}
			return nil, nil
		})
		e := b.engine()
		stop := b.run(e)
		ids := map[string]string{}
		for i := 2; i < 12; i++ {
			m := fmt.Sprintf("m%d", i)
			b.machine(m)
			ids[m] = b.start(e, m, workflow.Step{ID: "write", Kind: "write", On: workflow.OnAgent, Payload: json.RawMessage(fmt.Sprintf(`"for %s"`, m))}).ID
		}
		synctest.Wait()
		stop()
		e = b.engine()
		defer b.run(e)()
		close(hold)
		for m, id := range ids {
			w := b.wait(e, id)
			b.want(w, workflow.Done, "")
			if w.MachineID != m || !slices.Equal(got[m], []string{`"for ` + m + `"`}) {
				t.Errorf("%s got %v", m, got[m])
			}
		}
	})
}

// A BMC that is away for some seconds when the site comes back (a power cut took both) is asked again.
func TestCheckIsPatient(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		checks, runs := 0, 0
		b.kinds = []workflow.Kind{{Name: "on", Budget: time.Hour,
			Run: func(ctx context.Context, s workflow.StepContext) (any, error) { runs++; return untilEnd(ctx, s) },
			Check: func(context.Context, workflow.StepContext) (workflow.Verdict, any, error) {
				if checks++; checks < 4 {
					return workflow.Unknown, nil, app.Errorf(app.Unavailable, "bmc-silent", "the BMC does not answer")
				}
				return workflow.Happened, map[string]string{"power": "on"}, nil
			}}}
		e := b.engine()
		stop := b.run(e)
		w := b.start(e, "m1", workflow.Step{ID: "on", Kind: "on", Destructive: true})
		synctest.Wait()
		stop()
		e = b.engine()
		defer b.run(e)()
		got := b.wait(e, w.ID)
		b.want(got, workflow.Done, "")
		if runs != 1 || string(got.Steps[0].Result) != `{"power":"on"}` {
			t.Errorf("%d runs, result %s", runs, got.Steps[0].Result)
		}
	})
}

func TestCheckThatNeverAnswersAsks(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.kinds = []workflow.Kind{{Name: "on", Budget: time.Hour, Run: untilEnd,
			Check: func(context.Context, workflow.StepContext) (workflow.Verdict, any, error) {
				return workflow.Unknown, nil, app.Errorf(app.Unavailable, "bmc-silent", "the BMC does not answer")
			}}}
		e := b.engine()
		stop := b.run(e)
		w := b.start(e, "m1", workflow.Step{ID: "on", Kind: "on", Destructive: true})
		synctest.Wait()
		stop()
		e = b.engine()
		defer b.run(e)()
		got := b.wait(e, w.ID)
		b.want(got, workflow.Interrupted, "end-unknown")
		if !strings.Contains(got.Error.Message, "the BMC does not answer") {
			t.Errorf("%v", got.Error)
		}
	})
}

// Thousands of workflows are taken up at once.
func TestTakeUpMany(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		const many = 1200 // more than one page of the store
		b.kind("one", func(context.Context, workflow.StepContext) (any, error) { return nil, nil })
		e := b.engine()
		var ids []string
		for i := range many {
			m := fmt.Sprintf("x%d", i)
			b.machine(m)
			ids = append(ids, b.start(e, m, step("one")).ID)
		}
		defer b.run(e)()
		for _, id := range ids {
			b.want(b.wait(e, id), workflow.Done, "")
		}
	})
}
