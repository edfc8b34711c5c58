package workflow_test

import (
	"context"
	"encoding/json"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/app/workflow/workflowtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// bench is a store, agents, and an engine with one verb "test" whose steps are functions of the test.
type bench struct {
	t     *testing.T
	store *workflowtest.Memory
	fleet *workflowtest.Fleet
	clock workflow.Clock
	verb  workflow.Verb
	kinds []workflow.Kind
	wrap  func(workflow.Store) workflow.Store // what the engine sees of the store

	mu     sync.Mutex
	events []app.Event
	await  func(context.Context, string)
}

// in runs a test in a bubble of its own time.
func in(t *testing.T, f func(t *testing.T, b *bench)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := &bench{t: t, store: workflowtest.NewMemory(), fleet: &workflowtest.Fleet{}}
		b.verb = workflow.Verb{Name: "test", Version: 1,
			Begin: func(m *app.Machine, _ *workflow.Workflow) error {
				if m.State == app.StateFailed {
					return app.Errorf(app.Conflict, "wrong-state", "it failed")
				}
				m.Before, m.State = m.State, app.StateDeploying
				return nil
			},
			End: func(m *app.Machine, w *workflow.Workflow) error {
				if m.State = m.Before; w.State == workflow.Failed {
					m.State, m.FailedVerb = app.StateFailed, w.Verb
				}
				return nil
			},
		}
		b.machine("m1")
		f(t, b)
		b.fleet.Gone()
	})
}

func (b *bench) machine(id string) {
	if err := b.store.CreateMachine(b.t.Context(), &app.Machine{ID: id, Name: "node-" + id, State: app.StateReady}); err != nil {
		b.t.Fatal(err)
	}
}

// kind registers a site step that does f.
func (b *bench) kind(name string, f func(ctx context.Context, s workflow.StepContext) (any, error)) {
	b.kinds = append(b.kinds, workflow.Kind{Name: name, Budget: time.Hour, Run: f})
}

// agent registers an agent step and what agents do on it.
func (b *bench) agent(name string, f func(ctx context.Context, c workflow.Command, progress func(workflow.Progress)) (json.RawMessage, error)) {
	b.kinds = append(b.kinds, workflow.Kind{Name: name, Budget: time.Hour})
	b.fleet.Handle = f
}

func (b *bench) engine() *workflow.Engine {
	var store workflow.Store = b.store
	if b.wrap != nil {
		store = b.wrap(store)
	}
	e := workflow.NewEngine(workflow.Config{Store: store, Agents: b.fleet, Clock: b.clock, Await: b.await, Record: func(ev app.Event) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.events = append(b.events, ev)
	}})
	for _, k := range b.kinds {
		e.Register(k)
	}
	e.RegisterVerb(b.verb)
	return e
}

// run starts an engine; the function stops it and waits.
func (b *bench) run(e *workflow.Engine) (stop func()) {
	ctx, cancel := context.WithCancel(b.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	synctest.Wait()
	return func() {
		b.t.Helper()
		cancel()
		if err := <-ended; err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}
}

func (b *bench) start(e *workflow.Engine, machine string, steps ...workflow.Step) *workflow.Workflow {
	b.t.Helper()
	w, err := e.Start(b.t.Context(), workflow.New{Verb: "test", MachineID: machine, Actor: "alice", Steps: steps})
	if err != nil {
		b.t.Fatalf("starting: %v", err)
	}
	return w
}

func (b *bench) wait(e *workflow.Engine, id string) *workflow.Workflow {
	b.t.Helper()
	w, err := e.Wait(b.t.Context(), id)
	if err != nil {
		b.t.Fatalf("waiting: %v", err)
	}
	return w
}

func (b *bench) state(id string) app.State {
	b.t.Helper()
	m, err := b.store.Machine(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	return m.State
}

func (b *bench) want(w *workflow.Workflow, state workflow.State, reason string) {
	b.t.Helper()
	got := ""
	if w.Error != nil {
		got = w.Error.Reason
	}
	if w.State != state || got != reason {
		b.t.Fatalf("workflow is %s, %q (%v), want %s, %q", w.State, got, w.Error, state, reason)
	}
}

// whats gives the journal's words, in order.
func (b *bench) whats(id string) (all []string) {
	entries, err := b.store.Journal(b.t.Context(), id)
	if err != nil {
		b.t.Fatal(err)
	}
	for _, e := range entries {
		all = append(all, e.What)
	}
	return all
}

func wantCode(t *testing.T, err error, code app.Code, reason string) {
	t.Helper()
	e, ok := app.AsError(err)
	if !ok || e.Code != code || reason != "" && e.Reason != reason {
		t.Fatalf("error is %v, want %s %s", err, code, reason)
	}
}

// untilEnd is a step that runs until its context ends and says why.
func untilEnd(ctx context.Context, _ workflow.StepContext) (any, error) {
	<-ctx.Done()
	return nil, context.Cause(ctx)
}

func step(kind string) workflow.Step { return workflow.Step{ID: kind, Kind: kind} }

var errPlain = errors.New("dial tcp: secret detail")
