package workflow

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// Why a step's context ended, as context.Cause tells. A step that ends because of ErrStopped is taken up again when the
// engine runs next; the others end it.
var (
	ErrStopped  = errors.New("the engine is stopping")
	ErrAborted  = errors.New("the workflow was aborted")
	ErrDeadline = errors.New("the step's time is up")
	ErrStalled  = errors.New("the step made no progress")
)

// Limits of the engine.
const (
	cleanupLimit = 2 * time.Minute  // for a verb's Cleanup
	returnLimit  = 10 * time.Second // for a step to return after its context ended
	resumeGrace  = time.Minute      // the least that a taken-up attempt has left, and what a disturbed clock adds once
	maxRepeats   = 3                // of one attempt within one run of the process, beyond its first
	maxSteps     = 100
	maxResult    = 4 << 20 // bytes of a result, a payload or a workflow's data
)

// Config is what an engine needs.
type Config struct {
	Store  Store
	Agents Agents          // nil: agent steps are refused
	Clock  Clock           // nil: the system's
	Log    *slog.Logger    // nil discards
	Record func(app.Event) // told of every turn a workflow takes; must return soon; nil discards
	// Await is called before a workflow of an earlier run is taken up, with its machine's id, and may wait until what its
	// steps need is there, at most until ctx ends; nil does not wait.
	Await func(ctx context.Context, machineID string)
}

// Engine runs workflows. Register everything before Run; all other methods may be called at any time, by many goroutines.
type Engine struct {
	store  Store
	agents Agents
	clock  Clock
	log    *slog.Logger
	record func(app.Event)
	await  func(ctx context.Context, machineID string)
	kinds  map[string]Kind
	verbs  map[string][]Verb // by name, in the order of versions
	bus    bus
	lanes  lanes
	watch  clockWatch

	starting  sync.RWMutex // held for reading from a workflow's creation to its launch
	decisions sync.Mutex   // one decision of a person at a time

	mu      sync.Mutex      // protects what follows; nobody takes a run's mu while holding it
	ctx     context.Context // of Run; nil before
	stop    context.CancelCauseFunc
	runs    map[string]*run // the workflows that have a goroutine
	working sync.WaitGroup  // those goroutines
}

var _ API = (*Engine)(nil)

// NewEngine makes an engine that knows no verbs yet.
func NewEngine(c Config) *Engine {
	e := &Engine{store: c.Store, agents: c.Agents, clock: c.Clock, log: c.Log, record: c.Record, await: c.Await,
		kinds: map[string]Kind{}, verbs: map[string][]Verb{}, runs: map[string]*run{}}
	if e.clock == nil {
		e.clock = SystemClock()
	}
	if e.log == nil {
		e.log = slog.New(slog.DiscardHandler)
	}
	if e.record == nil {
		e.record = func(app.Event) {}
	}
	e.watch.reset(e.clock)
	return e
}

// Register makes a step kind known. A kind without a name or with one that is taken is a mistake of the program: it panics.
func (e *Engine) Register(k Kind) {
	if _, taken := e.kinds[k.Name]; taken || k.Name == "" {
		panic(fmt.Sprintf("workflow: step kind %q registered twice or without a name", k.Name))
	}
	e.kinds[k.Name] = k
}

// RegisterVerb makes a version of a verb known. Workflows start with the highest; older ones are kept registered to take
// up what was started before an upgrade. It panics like Register.
func (e *Engine) RegisterVerb(v Verb) {
	at := len(e.verbs[v.Name])
	for i, known := range e.verbs[v.Name] {
		if known.Version == v.Version {
			panic(fmt.Sprintf("workflow: verb %q version %d registered twice", v.Name, v.Version))
		}
		if known.Version > v.Version && i < at {
			at = i
		}
	}
	if v.Name == "" || v.Version < 1 {
		panic("workflow: a verb needs a name and a version from 1")
	}
	all := append([]Verb{}, e.verbs[v.Name][:at]...)
	e.verbs[v.Name] = append(append(all, v), e.verbs[v.Name][at:]...)
}

func (e *Engine) verb(name string, version int) (Verb, bool) {
	for _, v := range e.verbs[name] {
		if v.Version == version {
			return v, true
		}
	}
	return Verb{}, false
}

// Run takes up every active workflow of the store and runs them and those started meanwhile, until ctx ends. It returns
// after its goroutines have: steps are told by their context, and what they left open is settled by the next Run.
func (e *Engine) Run(ctx context.Context) error {
	if err := e.takeUp(ctx); err != nil && ctx.Err() == nil {
		return fmt.Errorf("taking up workflows: %w", err)
	}
	var helpers sync.WaitGroup
	helpers.Go(func() { e.watchClock(ctx) })
	helpers.Go(func() { e.keepProgress(ctx) })
	<-ctx.Done()
	e.halt()
	helpers.Wait()
	e.working.Wait()
	return nil
}

// halt tells every goroutine to stop. No launch is half done then, and none comes after.
func (e *Engine) halt() {
	e.starting.Lock()
	defer e.starting.Unlock()
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stop != nil {
		e.stop(ErrStopped)
	}
}

func (e *Engine) takeUp(ctx context.Context) error {
	e.starting.Lock()
	defer e.starting.Unlock()
	var all []Workflow
	for before := ""; ; {
		page, err := e.store.ListWorkflows(ctx, Filter{Active: true, Before: before, Limit: 1000})
		if err != nil {
			return err
		}
		all = append(all, page...)
		if len(page) < 1000 {
			break
		}
		before = page[len(page)-1].ID
	}
	e.mu.Lock()
	if e.ctx != nil {
		e.mu.Unlock()
		return errors.New("the engine was run before")
	}
	e.ctx, e.stop = context.WithCancelCause(context.WithoutCancel(ctx)) // so that its cause is ours
	e.mu.Unlock()
	e.watch.reset(e.clock)
	for _, w := range all {
		if w.State != Interrupted {
			e.launch(w, e.await)
		}
	}
	return nil
}

// launch gives a workflow its goroutine, if the engine runs and it has none. await, which may be nil, is called first there.
func (e *Engine) launch(w Workflow, await func(context.Context, string)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.ctx == nil || e.ctx.Err() != nil || e.runs[w.ID] != nil {
		return
	}
	r := newRun(e, e.ctx, w)
	e.runs[w.ID] = r
	e.working.Go(func() {
		if await != nil {
			await(r.ctx, w.MachineID)
		}
		r.drive()
	})
}

func (e *Engine) running(id string) *run {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.runs[id]
}

func (e *Engine) allRunning() []*run {
	e.mu.Lock()
	defer e.mu.Unlock()
	all := make([]*run, 0, len(e.runs))
	for _, r := range e.runs {
		all = append(all, r)
	}
	return all
}

// now is the wall clock in UTC, for what is stored.
func (e *Engine) now() time.Time { return e.clock.Wall().UTC() }
