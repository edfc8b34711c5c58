package workflow_test

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/better-compute/bcd/app/workflow"
)

// What an earlier run left waits until what its steps need is there; what is new does not.
func TestTakenUpWorkflowsAwaitWhatTheyNeed(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		b.machine("m2")
		ran := 0
		b.kind("work", func(ctx context.Context, s workflow.StepContext) (any, error) {
			if ran++; ran == 1 {
				<-ctx.Done()
				return nil, context.Cause(ctx)
			}
			return nil, nil
		})
		e := b.engine()
		stop := b.run(e)
		again := step("work")
		again.RetrySafe = true
		old := b.start(e, "m1", again)
		synctest.Wait()
		stop()

		there, asked := make(chan struct{}), ""
		b.await = func(ctx context.Context, machine string) {
			asked = machine
			select {
			case <-there:
			case <-ctx.Done():
			}
		}
		e = b.engine()
		stop = b.run(e)
		synctest.Wait()
		if ran != 1 || asked != "m1" {
			t.Errorf("%d runs while it should wait, asked for %q", ran, asked)
		}
		b.want(b.wait(e, b.start(e, "m2", step("work")).ID), workflow.Done, "")
		stop() // stops although it waits
		e = b.engine()
		stop = b.run(e)
		close(there)
		b.want(b.wait(e, old.ID), workflow.Done, "")
		stop()
	})
}
