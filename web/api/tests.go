package api

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Tests are the commissioning tests of a machine, as its last commissioning that had any made them, or makes them now.
type Tests struct {
	WorkflowID string        `json:"workflowId"`
	Started    time.Time     `json:"started"`
	Items      []MachineTest `json:"items"`
}

// MachineTest is one test: what it found, or how far it is.
type MachineTest struct {
	Title    string             `json:"title"`
	State    workflow.StepState `json:"state"`
	Progress *workflow.Progress `json:"progress,omitempty"`
	agentv1.TestResult
}

// testFlows is how many commissionings are looked through for tests.
const testFlows = 20

// CommissioningTests reads the tests of a machine from its workflows, the newest first. NotFound when it has none.
func CommissioningTests(flows []workflow.Workflow) (*Tests, error) {
	for _, w := range flows {
		out := &Tests{WorkflowID: w.ID, Started: w.Created}
		for _, s := range w.Steps {
			if s.Kind == agentv1.KindTest {
				out.Items = append(out.Items, testOf(s))
			}
		}
		if len(out.Items) > 0 {
			return out, nil
		}
	}
	return nil, app.Errorf(app.NotFound, "no-tests", "this machine was never tested").Do("commission it")
}

func testOf(s workflow.Step) MachineTest {
	t := MachineTest{Title: s.Title, State: s.State}
	if s.State == workflow.StepRunning {
		t.Progress = s.Progress
	}
	var order agentv1.Test
	_ = json.Unmarshal(s.Payload, &order) // ours; without it the title still says which test it is
	if len(s.Result) > 0 && json.Unmarshal(s.Result, &t.TestResult) != nil {
		t.TestResult = agentv1.TestResult{Result: agentv1.TestError, Message: "its result cannot be read"}
	}
	t.Test = order.Test
	if t.Result != "" {
		return t
	}
	switch s.State {
	case workflow.StepFailed, workflow.StepInterrupted:
		t.Result, t.Started, t.Ended = agentv1.TestError, s.Started, s.Ended
		if s.Error != nil {
			t.Message = s.Error.Message
		}
	case workflow.StepSkipped, workflow.StepDone:
		t.Result, t.Message = agentv1.TestNotRun, "it was skipped"
	}
	return t
}

func (a *API) testRoutes() []Route {
	return []Route{
		on(Route{ID: "machines.tests", Method: "GET", Path: "/api/v1/machines/{id}/tests", Permission: app.PermMachinesRead,
			Summary: "Show what the commissioning tests of a machine found, with values, limits and logs.", CLI: CLI{"machine", "tests"}}, a.machineTests),
	}
}

func (a *API) machineTests(c *Call, _ none) (*Tests, error) {
	m, err := a.Machines.Machine(c, c.Path["id"])
	if err != nil {
		return nil, err
	}
	flows, err := a.Workflows.List(c, workflow.Filter{MachineID: m.ID, Verb: string(Commission), Limit: testFlows})
	if err != nil {
		return nil, err
	}
	return CommissioningTests(flows)
}

// commissionOptions reads which tests to make: a name each, or several separated by commas.
func commissionOptions(in CommissionOptions) (VerbOptions, error) {
	var out []string
	for _, s := range in.Tests {
		for id := range strings.SplitSeq(s, ",") {
			if id = strings.TrimSpace(id); id != "" && !slices.Contains(out, id) {
				out = append(out, id)
			}
		}
	}
	for _, id := range out {
		if id == "none" && len(out) == 1 {
			continue
		}
		if _, ok := app.KindOfTest(id); !ok {
			return VerbOptions{}, firstProblem(app.ValidTests("test", []app.TestSpec{{Test: id}}))
		}
	}
	if len(in.Tests) > 0 && len(out) == 0 {
		return VerbOptions{}, app.Invalid("test", "names no test").Do("leave it out for those of the hardware profile")
	}
	return VerbOptions{Tests: out}, nil
}
