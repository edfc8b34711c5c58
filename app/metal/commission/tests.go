package commission

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// kindWeigh fails the commissioning when a test failed: weighing.
const kindWeigh = "commission.weigh"

// NoTests is the name that chooses no test.
const NoTests = "none"

// testGrace is how much longer than the test itself its step may take.
const testGrace = 2 * time.Minute

// weighing says which tests were made, in their order.
type weighing struct {
	Profile string   `json:"profile,omitempty"`
	Tests   []weight `json:"tests"`
}

// weight is one of them.
type weight struct {
	Step     string `json:"step"`
	Title    string `json:"title"`
	Required bool   `json:"required,omitempty"`
}

func (v *Verbs) registerTests() {
	v.p.Flows.Register(workflow.Kind{Name: agentv1.KindTest, Budget: time.Hour})
	v.p.Flows.Register(workflow.Kind{Name: kindWeigh, Budget: time.Minute, Run: v.weigh})
}

// planTests makes a step of each test, and one that weighs what they found: all are made before one can fail the
// commissioning, so that an operator goes to the machine once.
func planTests(profile *app.Profile, only []string) ([]workflow.Step, error) {
	specs, err := choose(profile, only)
	if err != nil || len(specs) == 0 {
		return nil, err
	}
	var out []workflow.Step
	w := weighing{}
	if profile != nil {
		w.Profile = profile.Name
	}
	for i, s := range specs {
		lasts := s.Lasts()
		step := metal.OnAgent(fmt.Sprintf("test-%d", i), s.Name(), agentv1.KindTest,
			agentv1.Test{Test: s.Test, With: s.With, Script: s.Script, Seconds: int(lasts.Seconds())})
		step.Budget = app.Duration(lasts + testGrace)
		// What an operator's script does is not known, so it never runs twice by itself.
		step.RetrySafe, step.Destructive = s.Test != app.TestScript, s.Test == app.TestScript
		out = append(out, step)
		w.Tests = append(w.Tests, weight{step.ID, s.Name(), s.Required})
	}
	raw, err := json.Marshal(w)
	return append(out, workflow.Step{ID: "tests", Title: "Weigh the tests", Kind: kindWeigh, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true, Payload: raw}), err
}

// choose gives the tests of a profile, or those an operator names: with the profile's parameters where it lists them.
func choose(profile *app.Profile, only []string) ([]app.TestSpec, error) {
	listed := app.DefaultTests()
	if profile != nil && profile.Commissioning != nil {
		listed = profile.Commissioning
	}
	switch {
	case len(only) == 0:
		return listed, nil
	case slices.Equal(only, []string{NoTests}):
		return nil, nil
	}
	var out []app.TestSpec
	for _, id := range only {
		n := len(out)
		for _, s := range listed {
			if s.Test == id {
				out = append(out, s)
			}
		}
		if len(out) > n {
			continue
		}
		if id == app.TestScript {
			return nil, app.Invalid("test", "the hardware profile of this machine has no script").Do("write it into the profile's commissioning list")
		}
		out = append(out, app.TestSpec{Test: id})
	}
	return out, app.ValidTests("test", out)
}

// weigh reads what the tests found. A test that could not be made is no pass, and is no failure either unless the profile
// requires it.
func (v *Verbs) weigh(ctx context.Context, s workflow.StepContext) (any, error) {
	var w weighing
	if err := json.Unmarshal(s.Command().Payload, &w); err != nil {
		return nil, err
	}
	count := map[string]int{}
	var bad []string
	for _, t := range w.Tests {
		var r agentv1.TestResult
		if !s.Result(t.Step, &r) {
			r = agentv1.TestResult{Result: agentv1.TestNotRun, Message: "its step was skipped"}
		}
		count[r.Result]++
		s.Log("%s: %s%s", t.Title, r.Result, after(": ", metal.Clip(r.Message)))
		if why := fails(t, r); why != "" {
			bad = append(bad, why)
		}
	}
	if len(bad) == 0 {
		return count, nil
	}
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	limits := "give the test other limits in a hardware profile"
	if w.Profile != "" {
		limits = fmt.Sprintf("change its limits in the hardware profile %s", w.Profile)
	}
	return nil, app.Errorf(app.Conflict, "commission-test-failed", "%s", strings.Join(bad, "; ")).
		Do("see bcd machine tests %s; replace what is broken, or %s, and commission again; or override the machine to ready if you accept it", m.Name, limits)
}

// fails says in a sentence why a test fails the commissioning, "" when it does not.
func fails(t weight, r agentv1.TestResult) string {
	why := after(": ", metal.Clip(r.Message))
	switch r.Result {
	case agentv1.TestPassed:
		if !t.Required || len(r.Skipped) == 0 {
			return ""
		}
		return fmt.Sprintf("%q, which is required, was not made in full: %s", t.Title, metal.Clip(strings.Join(r.Skipped, "; ")))
	case agentv1.TestNotRun:
		if !t.Required {
			return ""
		}
		return fmt.Sprintf("%q, which is required, was not made%s", t.Title, why)
	case agentv1.TestFailed:
		return fmt.Sprintf("%q failed%s", t.Title, why)
	}
	return fmt.Sprintf("%q went wrong%s", t.Title, why)
}

// after gives s behind what introduces it, or nothing.
func after(lead, s string) string {
	if s == "" {
		return ""
	}
	return lead + s
}
