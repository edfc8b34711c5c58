package workflow_test

import (
	"context"
	"slices"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// A step that the verb calls unneeded is journaled as skipped, once, and a retry asks anew.
func TestSkip(t *testing.T) {
	in(t, func(t *testing.T, b *bench) {
		ran := map[string]int{}
		fails := true
		for _, name := range []string{"first", "second", "third"} {
			b.kind(name, func(context.Context, workflow.StepContext) (any, error) {
				if ran[name]++; name == "third" && fails {
					return nil, app.Errorf(app.Unavailable, "broken", "it broke")
				}
				return map[string]bool{"rest": true}, nil
			})
		}
		b.verb.Skip = func(w *workflow.Workflow, step int) string {
			if w.Steps[step].ID == "second" && len(w.Steps[0].Result) > 0 {
				return "the first said so"
			}
			return ""
		}
		e := b.engine()
		defer b.run(e)()
		w := b.start(e, "m1", step("first"), step("second"), step("third"))
		got := b.wait(e, w.ID)
		b.want(got, workflow.Failed, "broken")
		if s := got.Steps[1]; s.State != workflow.StepSkipped || s.Progress == nil || s.Progress.Message != "the first said so" || !s.Started.IsZero() || s.Ended.IsZero() {
			t.Errorf("%+v", s)
		}
		fails = false
		if err := e.Retry(t.Context(), w.ID, "alice"); err != nil {
			t.Fatal(err)
		}
		got = b.wait(e, w.ID)
		b.want(got, workflow.Done, "")
		if ran["first"] != 1 || ran["second"] != 0 || ran["third"] != 2 || got.Steps[1].State != workflow.StepSkipped {
			t.Errorf("ran %v, %+v", ran, got.Steps)
		}
		if n := len(slices.DeleteFunc(b.whats(w.ID), func(s string) bool { return s != "skip" })); n != 1 {
			t.Errorf("the journal says skip %d times: %v", n, b.whats(w.ID))
		}
	})
}
