package api

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

func TestCommissioningTests(t *testing.T) {
	order := json.RawMessage(`{"test":"cpu"}`)
	is := func(state workflow.StepState, result string, err *app.Error) workflow.Step {
		return workflow.Step{Kind: agentv1.KindTest, Title: "T", State: state, Payload: order, Result: json.RawMessage(result), Error: err, Progress: &workflow.Progress{Done: 1}}
	}
	flows := []workflow.Workflow{
		{ID: "wf3", Steps: []workflow.Step{{Kind: agentv1.KindInventory}}},
		{ID: "wf2", Steps: []workflow.Step{{Kind: agentv1.KindInventory}, is(workflow.StepDone, `{"test":"other","result":"pass"}`, nil), is(workflow.StepFailed, "", app.Errorf(app.Timeout, "agent-silent", "silent")),
			is(workflow.StepDone, `[]`, nil), is(workflow.StepSkipped, "", nil), is(workflow.StepRunning, "", nil), is(workflow.StepWaiting, "", nil)}},
		{ID: "wf1", Steps: []workflow.Step{is(workflow.StepDone, `{"result":"pass"}`, nil)}},
	}
	got, err := CommissioningTests(flows)
	if err != nil || got.WorkflowID != "wf2" {
		t.Fatalf("%+v, %v", got, err)
	}
	var results, messages []string
	for i, x := range got.Items {
		results, messages = append(results, x.Result), append(messages, x.Message)
		if x.Test != "cpu" || (x.Progress != nil) != (i == 4) {
			t.Errorf("%+v", x)
		}
	}
	if !reflect.DeepEqual(results, []string{"pass", "error", "error", "not-run", "", ""}) || messages[1] != "silent" {
		t.Errorf("%q %q", results, messages)
	}
	if _, err := CommissioningTests(flows[:1]); app.CodeOf(err) != app.NotFound {
		t.Errorf("no tests: %v", err)
	}
}

func TestCommissionOptions(t *testing.T) {
	for text, want := range map[string][]string{
		`{}`: nil, `{"test":["cpu","memory, smart"," cpu "]}`: {"cpu", "memory", "smart"}, `{"test":["none"]}`: {"none"},
		`{"test":["none","cpu"]}`: {"!"}, `{"test":["burn"]}`: {"!"}, `{"test":[" , "]}`: {"!"}, `{"test":[""]}`: {"!"},
	} {
		var in CommissionOptions
		if err := json.Unmarshal([]byte(text), &in); err != nil {
			t.Fatal(err)
		}
		o, err := commissionOptions(in)
		refused := len(want) == 1 && want[0] == "!"
		if refused != (app.CodeOf(err) == app.InvalidInput) || !refused && !reflect.DeepEqual(o.Tests, want) {
			t.Errorf("%s: %v, %v", text, o.Tests, err)
		}
	}
}
