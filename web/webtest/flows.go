package webtest

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// Flows is a workflow engine that holds what it is given.
type Flows struct {
	mu      sync.Mutex
	Held    []workflow.Workflow
	Entries []workflow.Entry
	Asked   []string // "retry w-1 alice"
}

// Put adds or replaces a workflow.
func (f *Flows) Put(w workflow.Workflow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range f.Held {
		if f.Held[i].ID == w.ID {
			f.Held[i] = w
			return
		}
	}
	f.Held = append(f.Held, w)
}

// Start is not used by the faces.
func (f *Flows) Start(context.Context, workflow.New) (*workflow.Workflow, error) {
	return nil, app.Errorf(app.Unsupported, "fake", "the faces start no workflow themselves")
}

// Get finds a workflow.
func (f *Flows) Get(_ context.Context, id string) (*workflow.Workflow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, w := range f.Held {
		if w.ID == id {
			return clone(w), nil
		}
	}
	return nil, app.Missing("workflow", id)
}

func clone(w workflow.Workflow) *workflow.Workflow {
	var out workflow.Workflow
	b, err := json.Marshal(w)
	if err == nil {
		err = json.Unmarshal(b, &out)
	}
	if err != nil {
		panic(err) // a workflow is JSON
	}
	return &out
}

// List filters by machine and activity.
func (f *Flows) List(_ context.Context, q workflow.Filter) ([]workflow.Workflow, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []workflow.Workflow
	for _, w := range f.Held {
		if (q.MachineID == "" || q.MachineID == w.MachineID) && (!q.Active || w.State.Active()) && len(out) < q.Limit {
			out = append(out, *clone(w))
		}
	}
	return out, nil
}

func (f *Flows) ask(what, id, actor string) error {
	if _, err := f.Get(context.Background(), id); err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Asked = append(f.Asked, what+" "+id+" "+actor)
	return nil
}

// Retry notes the decision.
func (f *Flows) Retry(_ context.Context, id, actor string) error { return f.ask("retry", id, actor) }

// MarkDone notes the decision.
func (f *Flows) MarkDone(_ context.Context, id, actor, _ string) error {
	return f.ask("mark-done", id, actor)
}

// Abort notes the decision.
func (f *Flows) Abort(_ context.Context, id, actor, _ string) error { return f.ask("abort", id, actor) }

// Wait gives the workflow as it is.
func (f *Flows) Wait(ctx context.Context, id string) (*workflow.Workflow, error) {
	return f.Get(ctx, id)
}

// Journal gives Entries.
func (f *Flows) Journal(context.Context, string) ([]workflow.Entry, error) { return f.Entries, nil }

// Signal is not used by the faces.
func (f *Flows) Signal(string, string, any) {}

// Await is not used by the faces.
func (f *Flows) Await(context.Context, string, string) (<-chan any, func()) { return nil, func() {} }
