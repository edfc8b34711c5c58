package workflowtest

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// Backend is a workflow store together with the machines it changes.
type Backend interface {
	workflow.Store
	CreateMachine(ctx context.Context, m *app.Machine) error
	Machine(ctx context.Context, id string) (*app.Machine, error)
	DeleteMachine(ctx context.Context, id string) error
}

// TestStore runs the conformance suite against fresh stores that open gives.
func TestStore(t *testing.T, open func(t *testing.T) Backend) {
	for name, test := range map[string]func(t *testing.T, s Backend){
		"create writes workflow and machine": createWrites,
		"create refuses":                     createRefuses,
		"one active workflow of a machine":   oneActive,
		"one active under concurrency":       oneActiveConcurrent,
		"save step writes one step":          saveStep,
		"save step of nothing":               saveNothing,
		"end changes the machine":            endChanges,
		"end without the machine":            endWithoutMachine,
		"reopen":                             reopen,
		"list, filter and pages":             list,
		"journal":                            journal,
		"progress":                           progress,
		"what is handed out is a copy":       copies,
		"times keep their instant":           times,
	} {
		t.Run(name, func(t *testing.T) { test(t, open(t)) })
	}
}

func machine(t *testing.T, s Backend, id string) {
	t.Helper()
	if err := s.CreateMachine(t.Context(), &app.Machine{ID: id, Name: "node-" + id, State: app.StateReady}); err != nil {
		t.Fatal(err)
	}
}

func flow(id, machineID string) *workflow.Workflow {
	return &workflow.Workflow{ID: id, Verb: "deploy", Version: 1, MachineID: machineID, State: workflow.Running,
		Steps: []workflow.Step{
			{ID: "one", Title: "One", Kind: "k", On: workflow.OnSite, Lane: workflow.LaneBMC, State: workflow.StepWaiting, Payload: json.RawMessage(`{"a":1}`)},
			{ID: "two", Title: "Two", Kind: "k", On: workflow.OnAgent, Lane: workflow.LaneProvision, State: workflow.StepWaiting, Destructive: true},
		},
		Input: json.RawMessage(`{"image":"debian"}`), Actor: "alice", TraceParent: "00-x", Created: time.Date(2026, 3, 1, 12, 0, 0, 5000, time.UTC)}
}

func keep(*app.Machine) error { return nil }

func create(t *testing.T, s Backend, w *workflow.Workflow) *workflow.Workflow {
	t.Helper()
	if err := s.CreateWorkflow(t.Context(), w, keep); err != nil {
		t.Fatal(err)
	}
	return w
}

func get(t *testing.T, s Backend, id string) *workflow.Workflow {
	t.Helper()
	w, err := s.Workflow(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func same(t *testing.T, got, want any) {
	t.Helper()
	if g, w := string(encode(got)), string(encode(want)); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

func wantCode(t *testing.T, err error, code app.Code) {
	t.Helper()
	if app.CodeOf(err) != code {
		t.Errorf("error is %v, want code %q", err, code)
	}
}

func createWrites(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := flow("wf-1", "m1")
	err := s.CreateWorkflow(t.Context(), w, func(m *app.Machine) error {
		m.State, m.WorkflowID = app.StateDeploying, "wf-1"
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	same(t, get(t, s, "wf-1"), flow("wf-1", "m1"))
	m, err := s.Machine(t.Context(), "m1")
	if err != nil || m.State != app.StateDeploying || m.WorkflowID != "wf-1" || m.Version != 2 {
		t.Errorf("machine is %+v, %v", m, err)
	}
}

func createRefuses(t *testing.T, s Backend) {
	wantCode(t, s.CreateWorkflow(t.Context(), flow("wf-1", "nobody"), keep), app.NotFound)
	machine(t, s, "m1")
	no := errors.New("no")
	err := s.CreateWorkflow(t.Context(), flow("wf-1", "m1"), func(m *app.Machine) error { m.State = app.StateFailed; return no })
	if !errors.Is(err, no) {
		t.Errorf("the change's error came back as %v", err)
	}
	_, err = s.Workflow(t.Context(), "wf-1")
	wantCode(t, err, app.NotFound)
	if m, _ := s.Machine(t.Context(), "m1"); m.State != app.StateReady {
		t.Errorf("a refused change was kept: %s", m.State)
	}
}

func oneActive(t *testing.T, s Backend) {
	machine(t, s, "m1")
	machine(t, s, "m2")
	w := create(t, s, flow("wf-1", "m1"))
	for _, state := range []workflow.State{workflow.Running, workflow.Interrupted, workflow.Aborting} {
		w.State = state
		if err := s.SaveStep(t.Context(), w, 0); err != nil {
			t.Fatal(err)
		}
		err := s.CreateWorkflow(t.Context(), flow("wf-2", "m1"), func(m *app.Machine) error { m.Note = "changed"; return nil })
		wantCode(t, err, app.Conflict)
	}
	if m, _ := s.Machine(t.Context(), "m1"); m.Note != "" {
		t.Error("a refused workflow changed its machine")
	}
	create(t, s, flow("wf-3", "m2"))
	w.State = workflow.Done
	if err := s.EndWorkflow(t.Context(), w, keep); err != nil {
		t.Fatal(err)
	}
	create(t, s, flow("wf-4", "m1"))
}

func oneActiveConcurrent(t *testing.T, s Backend) {
	machine(t, s, "m1")
	var wg sync.WaitGroup
	var mu sync.Mutex
	won := 0
	for i := range 8 {
		wg.Go(func() {
			err := s.CreateWorkflow(t.Context(), flow("wf-"+string(rune('a'+i)), "m1"), keep)
			mu.Lock()
			defer mu.Unlock()
			if err == nil {
				won++
			} else if app.CodeOf(err) != app.Conflict {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if won != 1 {
		t.Errorf("%d workflows of one machine became active", won)
	}
}

func saveStep(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := create(t, s, flow("wf-1", "m1"))
	w.Cursor, w.State, w.Data = 1, workflow.Interrupted, json.RawMessage(`{"disk":"sda"}`)
	w.Error = app.Errorf(app.Interrupted, "end-unknown", "nobody knows").Do("look")
	w.Steps[0].State, w.Steps[0].Attempt, w.Steps[0].Result = workflow.StepDone, 2, json.RawMessage(`{"power":"on"}`)
	w.Steps[1].State = workflow.StepRunning // not the step that is saved
	if err := s.SaveStep(t.Context(), w, 0); err != nil {
		t.Fatal(err)
	}
	w.Steps[1].State = workflow.StepWaiting
	same(t, get(t, s, "wf-1"), w)
	w.Data, w.Error, w.State = nil, nil, workflow.Running
	if err := s.SaveStep(t.Context(), w, 1); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "wf-1"); string(got.Data) != `{"disk":"sda"}` || got.Error != nil {
		t.Errorf("no data must leave data alone, no error must clear it: %s, %v", got.Data, got.Error)
	}
}

func saveNothing(t *testing.T, s Backend) {
	wantCode(t, s.SaveStep(t.Context(), flow("wf-9", "m1"), 0, workflow.Entry{What: "intent"}), app.NotFound)
	if all, err := s.Journal(t.Context(), "wf-9"); err != nil || len(all) != 0 {
		t.Errorf("journal of nothing: %v, %v", all, err)
	}
}

func endChanges(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := create(t, s, flow("wf-1", "m1"))
	no := errors.New("no")
	w.State, w.Ended = workflow.Failed, w.Created.Add(time.Minute)
	if err := s.EndWorkflow(t.Context(), w, func(*app.Machine) error { return no }, workflow.Entry{What: "end"}); !errors.Is(err, no) {
		t.Errorf("the change's error came back as %v", err)
	}
	if got := get(t, s, "wf-1"); got.State != workflow.Running {
		t.Errorf("a refused end was kept: %s", got.State)
	}
	w.Steps[1].State = workflow.StepSkipped
	err := s.EndWorkflow(t.Context(), w, func(m *app.Machine) error { m.State = app.StateFailed; return nil }, workflow.Entry{What: "end"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, get(t, s, "wf-1"), w)
	if m, _ := s.Machine(t.Context(), "m1"); m.State != app.StateFailed {
		t.Errorf("machine is %s", m.State)
	}
	if all, _ := s.Journal(t.Context(), "wf-1"); len(all) != 1 {
		t.Errorf("journal: %v", all)
	}
}

func endWithoutMachine(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := create(t, s, flow("wf-1", "m1"))
	if err := s.DeleteMachine(t.Context(), "m1"); err != nil {
		t.Fatal(err)
	}
	w.State = workflow.Aborted
	if err := s.EndWorkflow(t.Context(), w, func(*app.Machine) error { t.Error("called"); return nil }); err != nil {
		t.Fatal(err)
	}
	same(t, get(t, s, "wf-1"), w)
}

func reopen(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := create(t, s, flow("wf-1", "m1"))
	w.State, w.Ended = workflow.Failed, w.Created
	if err := s.EndWorkflow(t.Context(), w, keep); err != nil {
		t.Fatal(err)
	}
	other := create(t, s, flow("wf-2", "m1"))
	again := *w
	again.State, again.Ended, again.Cursor = workflow.Running, time.Time{}, 1
	again.Steps = slices.Clone(w.Steps)
	again.Steps[0].Attempt, again.Steps[1].Attempt = 1, 1
	wantCode(t, s.ReopenWorkflow(t.Context(), &again, keep), app.Conflict)
	same(t, get(t, s, "wf-1"), w)
	other.State = workflow.Done
	if err := s.EndWorkflow(t.Context(), other, keep); err != nil {
		t.Fatal(err)
	}
	err := s.ReopenWorkflow(t.Context(), &again, func(m *app.Machine) error { m.State = app.StateDeploying; return nil }, workflow.Entry{What: "retry"})
	if err != nil {
		t.Fatal(err)
	}
	same(t, get(t, s, "wf-1"), again)
	wantCode(t, s.CreateWorkflow(t.Context(), flow("wf-3", "m1"), keep), app.Conflict)
	if m, _ := s.Machine(t.Context(), "m1"); m.State != app.StateDeploying {
		t.Errorf("machine is %s", m.State)
	}
}

func list(t *testing.T, s Backend) {
	machine(t, s, "m1")
	machine(t, s, "m2")
	for _, id := range []string{"c", "a", "d", "b"} { // newest is the last made, whatever its id
		w := flow("wf-"+id, "m1")
		if id == "d" {
			w.MachineID, w.Verb = "m2", "release"
		}
		create(t, s, w)
		if id != "d" && id != "b" {
			w.State = workflow.Done
			if err := s.EndWorkflow(t.Context(), w, keep); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, c := range []struct {
		f    workflow.Filter
		want []string
	}{
		{workflow.Filter{}, []string{"wf-b", "wf-d", "wf-a", "wf-c"}},
		{workflow.Filter{Limit: 2}, []string{"wf-b", "wf-d"}},
		{workflow.Filter{Before: "wf-d", Limit: 1}, []string{"wf-a"}},
		{workflow.Filter{Before: "wf-c"}, nil},
		{workflow.Filter{Before: "wf-nobody"}, nil},
		{workflow.Filter{MachineID: "m1"}, []string{"wf-b", "wf-a", "wf-c"}},
		{workflow.Filter{Verb: "release"}, []string{"wf-d"}},
		{workflow.Filter{Active: true}, []string{"wf-b", "wf-d"}},
		{workflow.Filter{Active: true, MachineID: "m1", Verb: "deploy"}, []string{"wf-b"}},
	} {
		all, err := s.ListWorkflows(t.Context(), c.f)
		var ids []string
		for _, w := range all {
			ids = append(ids, w.ID)
			if len(w.Steps) != 2 || w.Steps[0].ID != "one" {
				t.Errorf("%s came with steps %v", w.ID, w.Steps)
			}
		}
		if err != nil || !slices.Equal(ids, c.want) {
			t.Errorf("%+v: %v, %v, want %v", c.f, ids, err, c.want)
		}
	}
}

func journal(t *testing.T, s Backend) {
	machine(t, s, "m1")
	machine(t, s, "m2")
	w, o := create(t, s, flow("wf-1", "m1")), create(t, s, flow("wf-2", "m2"))
	at := time.Date(2026, 3, 1, 12, 0, 0, 123456000, time.UTC)
	entries := []workflow.Entry{
		{Time: at, StepID: "one", Attempt: 0, What: "intent", Data: json.RawMessage(`{"budget":"1m0s"}`)},
		{Time: at.Add(-time.Hour), StepID: "one", Attempt: 1, What: "result"}, // the clock was set: order is that of writing
	}
	if err := s.SaveStep(t.Context(), w, 0, entries...); err != nil {
		t.Fatal(err)
	}
	if err := s.SaveStep(t.Context(), o, 0, workflow.Entry{Time: at, StepID: "other", What: "intent"}); err != nil {
		t.Fatal(err)
	}
	all, err := s.Journal(t.Context(), "wf-1")
	if err != nil || len(all) != 2 || all[0].ID >= all[1].ID {
		t.Fatalf("%v, %v", all, err)
	}
	for i := range all {
		entries[i].ID, entries[i].WorkflowID = all[i].ID, "wf-1"
	}
	same(t, all, entries)
}

func progress(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := flow("wf-1", "m1")
	w.Steps[1].State = workflow.StepRunning
	create(t, s, w)
	p := workflow.Progress{Phase: "write", Done: 5, Total: 10, Unit: "bytes", Rate: 1.5, ETA: 3.25, At: w.Created}
	for _, id := range []string{"two", "one", "nobody"} {
		if err := s.SaveProgress(t.Context(), "wf-1", id, p); err != nil {
			t.Fatal(err)
		}
	}
	got := get(t, s, "wf-1")
	if got.Steps[0].Progress != nil {
		t.Error("a step that is not running got progress")
	}
	same(t, got.Steps[1].Progress, p)
	w.Steps[1].Progress = nil
	if err := s.SaveStep(t.Context(), w, 1); err != nil {
		t.Fatal(err)
	}
	if got := get(t, s, "wf-1"); got.Steps[1].Progress != nil {
		t.Error("a step saved without progress kept the old one")
	}
}

func copies(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := create(t, s, flow("wf-1", "m1"))
	w.Steps[0].Title = "changed"
	got := get(t, s, "wf-1")
	got.Steps[1].Title = "changed"
	same(t, get(t, s, "wf-1"), flow("wf-1", "m1"))
}

func times(t *testing.T, s Backend) {
	machine(t, s, "m1")
	w := flow("wf-1", "m1")
	instant := w.Created
	w.Created = instant.In(time.FixedZone("east", 5*3600+45*60))
	w.Steps[0].Started = instant.In(time.FixedZone("west", -8*3600))
	create(t, s, w)
	got := get(t, s, "wf-1")
	if !got.Created.Equal(instant) || !got.Steps[0].Started.Equal(instant) {
		t.Errorf("instants moved: %v, %v, want %v", got.Created, got.Steps[0].Started, instant)
	}
}
