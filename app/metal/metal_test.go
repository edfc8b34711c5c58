package metal_test

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func TestFrom(t *testing.T) {
	ok := []app.State{app.StateReady, app.StateFailed, app.StateEnrolled}
	for name, c := range map[string]struct {
		m           app.Machine
		destructive bool
		reason      string // "" allowed
	}{
		"ready":                  {app.Machine{State: app.StateReady}, true, ""},
		"failed":                 {app.Machine{State: app.StateFailed}, true, ""},
		"deployed":               {app.Machine{State: app.StateDeployed}, false, "wrong-state"},
		"retired":                {app.Machine{State: app.StateRetired}, false, "wrong-state"},
		"busy":                   {app.Machine{State: app.StateReady, WorkflowID: "wf-1"}, false, "machine-busy"},
		"locked":                 {app.Machine{State: app.StateReady, Locked: true}, true, "machine-locked"},
		"locked, harmless verb":  {app.Machine{State: app.StateReady, Locked: true}, false, ""},
		"locked, busy and wrong": {app.Machine{State: app.StateDeployed, Locked: true, WorkflowID: "wf-1"}, true, "machine-busy"},
	} {
		err := metal.From(&c.m, "deploy", c.destructive, ok...)
		e, _ := app.AsError(err)
		switch {
		case c.reason == "" && err != nil, c.reason != "" && (e == nil || e.Reason != c.reason || e.Code != app.Conflict || e.WayOut == ""):
			t.Errorf("%s: %v, want %q", name, err, c.reason)
		}
	}
	e, _ := app.AsError(metal.From(&app.Machine{Name: "node1", State: app.StateNew}, "deploy", true, ok...))
	if e.WayOut != "deploy starts from ready, failed or enrolled" {
		t.Errorf("the way out is %q", e.WayOut)
	}
}

func TestEnterAndLeave(t *testing.T) {
	boom := app.Errorf(app.Timeout, "agent-not-up", "the ramdisk did not call")
	for name, c := range map[string]struct {
		from   app.State
		end    workflow.State
		dirty  bool
		want   app.State
		verb   string // that failed
		reason string // part of it
	}{
		"done":                          {app.StateReady, workflow.Done, true, app.StateDeployed, "", ""},
		"failed":                        {app.StateReady, workflow.Failed, false, app.StateFailed, "deploy", "did not call"},
		"aborted, disk untouched":       {app.StateReady, workflow.Aborted, false, app.StateReady, "", ""},
		"aborted, disk begun":           {app.StateReady, workflow.Aborted, true, app.StateFailed, "deploy", "begun to change the disk"},
		"done after a failure":          {app.StateFailed, workflow.Done, false, app.StateDeployed, "", ""},
		"failed again":                  {app.StateFailed, workflow.Failed, true, app.StateFailed, "deploy", "did not call"},
		"aborted where it had failed":   {app.StateFailed, workflow.Aborted, false, app.StateFailed, "deploy", "had failed before"},
		"aborted where it was enrolled": {app.StateEnrolled, workflow.Aborted, false, app.StateEnrolled, "", ""},
	} {
		m := &app.Machine{Name: "node1", State: c.from, FailedVerb: "commission", Before: app.StateReady, StateReason: "old"}
		w := &workflow.Workflow{ID: "wf-1", Verb: "deploy"}
		metal.Enter(m, w, app.StateDeploying, noon)
		if m.State != app.StateDeploying || m.WorkflowID != "wf-1" || m.StateReason != "" || m.FailedVerb != "" || m.Before != c.from {
			t.Errorf("%s: entered as %+v", name, m)
		}
		w.State, w.Error = c.end, boom
		metal.Leave(m, w, app.StateDeployed, c.dirty, noon.Add(time.Minute))
		if m.State != c.want || m.FailedVerb != c.verb || !strings.Contains(m.StateReason, c.reason) || (c.reason == "") != (m.StateReason == "") || m.WorkflowID != "" || !m.StateSince.After(noon) {
			t.Errorf("%s: left as %s after %q: %q", name, m.State, m.FailedVerb, m.StateReason)
		}
	}
}

func TestReached(t *testing.T) {
	w := &workflow.Workflow{Steps: []workflow.Step{{ID: "off", State: workflow.StepDone}, {ID: "write", State: workflow.StepRunning}, {ID: "alive", State: workflow.StepWaiting}}}
	for step, want := range map[string]bool{"off": true, "write": true, "alive": false, "other": false} {
		if got := metal.Reached(w, step); got != want {
			t.Errorf("%s: %v", step, got)
		}
	}
}

func TestClip(t *testing.T) {
	for _, s := range []string{"", "plain", strings.Repeat("x", 200), strings.Repeat("é", 100), "x" + strings.Repeat("é", 100), "\xff\xfe"} {
		if got := metal.Clip(s); len(got) > 128 || !utf8.ValidString(got) {
			t.Errorf("%q became %q", s, got)
		}
	}
}

func TestNothingStartsThatCouldNotNetboot(t *testing.T) {
	deaf := app.Errorf(app.Conflict, "no-subnet-on", "no subnet is turned on")
	lame := app.Errorf(app.Unsupported, "bmc-driver-unsupported", "the driver does not serve it")
	for name, c := range map[string]struct{ supports, address, want error }{
		"all is there":        {nil, nil, nil},
		"no subnet is on":     {nil, deaf, deaf},
		"the driver lacks it": {lame, deaf, lame},
	} {
		p := &metal.Ports{
			Supports:    func(context.Context, *app.Machine, ...string) error { return c.supports },
			SiteAddress: func(context.Context, *app.Machine) (string, error) { return "192.0.2.1", c.address },
		}
		if err := p.CanNetboot(t.Context(), &app.Machine{}); err != c.want {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A hardware profile's step that began to change a disk leaves the machine failed when its workflow is aborted, as a write does.
func TestAWorkflowWhoseStepChangedADiskCannotBeUndone(t *testing.T) {
	step := func(state workflow.StepState, on, concern string) workflow.Step {
		return workflow.Step{ID: "profile-0", Kind: agentv1.KindDriverInvoke, On: on, State: state, Payload: json.RawMessage(`{"concern":"` + concern + `","operation":"x"}`)}
	}
	for name, c := range map[string]struct {
		step workflow.Step
		want app.State
	}{
		"begun":           {step(workflow.StepRunning, workflow.OnAgent, "deploy"), app.StateFailed},
		"not begun":       {step(workflow.StepWaiting, workflow.OnAgent, "deploy"), app.StateReady},
		"another concern": {step(workflow.StepRunning, workflow.OnAgent, "inspect"), app.StateReady},
	} {
		m := &app.Machine{State: app.StateCommissioning, Before: app.StateReady}
		metal.Leave(m, &workflow.Workflow{Verb: "commission", State: workflow.Aborted, Steps: []workflow.Step{c.step}}, app.StateReady, false, time.Unix(1, 0))
		if m.State != c.want {
			t.Errorf("%s: the machine is %s, want %s", name, m.State, c.want)
		}
	}
}
