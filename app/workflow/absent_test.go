package workflow_test

import (
	"context"
	"encoding/json"
	"testing"

	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/app/workflow/workflowtest"
)

// telling is a fleet whose machines live and say what they never began.
type telling struct{ *workflowtest.Fleet }

// Lookup answers for every key.
func (f telling) Lookup(ctx context.Context, c workflow.Command) (workflow.Attempt, bool, error) {
	a, known, err := f.Fleet.Lookup(ctx, c)
	if !known && err == nil {
		return workflow.Attempt{State: workflow.Absent}, true, nil
	}
	return a, known, err
}

// The process died between the journal's line and the call: the agent can say that it never began the command, and then
// even one that must not run twice is delivered.
func TestDeliveryThatNeverArrivedIsRepeated(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		ran := 0
		b.agent("jump", func(context.Context, workflow.Command, func(workflow.Progress)) (json.RawMessage, error) {
			ran++
			return nil, nil
		})
		engine := func(s workflow.Store, a workflow.Agents) *workflow.Engine {
			e := workflow.NewEngine(workflow.Config{Store: s, Agents: a})
			for _, k := range b.kinds {
				e.Register(k)
			}
			e.RegisterVerb(b.verb)
			return e
		}
		k := workflowtest.NewKiller("before call jump")
		e := engine(workflowtest.KilledStore{Store: b.store, Killer: k}, workflowtest.KilledAgents{Agents: b.fleet, Killer: k})
		w := b.start(e, "m1", workflow.Step{ID: "jump", Kind: "jump", On: workflow.OnAgent, Destructive: true})
		stop := b.run(e)
		<-k.Dead()
		stop()
		if ran != 0 {
			t.Fatalf("ran %d times before", ran)
		}
		e = engine(b.store, telling{b.fleet})
		stop = b.run(e)
		b.want(b.wait(e, w.ID), workflow.Done, "")
		if ran != 1 {
			t.Errorf("ran %d times", ran)
		}
		stop()
	})
}
