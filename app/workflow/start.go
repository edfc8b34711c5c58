package workflow

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/better-compute/bcd/app"
)

// Start checks and stores a workflow, and begins it when the engine runs. The machine may be named by id or name.
func (e *Engine) Start(ctx context.Context, n New) (*Workflow, error) {
	w, verb, err := e.plan(n)
	if err != nil {
		return nil, err
	}
	e.starting.RLock()
	defer e.starting.RUnlock()
	if e.stopping() {
		return nil, app.Errorf(app.Unavailable, "engine-stopping", "bcd is shutting down").Do("try again in a moment").Retryable()
	}
	err = e.store.CreateWorkflow(ctx, w, func(m *app.Machine) error {
		w.MachineID = m.ID
		if err := guarded(func() error { return begin(verb, m, w) }); err != nil {
			return err
		}
		m.WorkflowID = w.ID
		return nil
	})
	if err != nil {
		return nil, err
	}
	e.tellOf(w.Actor, "workflow.start", "info", w, nil, "%s started", w.Verb)
	e.launch(*w, nil)
	out := clone(w)
	return &out, nil
}

func (e *Engine) stopping() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.ctx != nil && e.ctx.Err() != nil
}

func begin(v Verb, m *app.Machine, w *Workflow) error {
	if v.Begin == nil {
		return nil
	}
	return v.Begin(m, w)
}

func (e *Engine) plan(n New) (*Workflow, Verb, error) {
	versions := e.verbs[n.Verb]
	if len(versions) == 0 {
		return nil, Verb{}, app.Invalid("verb", "%q is not a verb this build knows", n.Verb)
	}
	verb := versions[len(versions)-1]
	input, err := encodeBounded("the input", n.Input)
	if err != nil {
		return nil, Verb{}, err
	}
	w := &Workflow{ID: app.NewID("wf"), Verb: n.Verb, Version: verb.Version, MachineID: n.MachineID, State: Running, Input: input,
		Actor: n.Actor, TraceParent: newTrace(), Created: e.now()}
	if len(n.Steps) == 0 || len(n.Steps) > maxSteps {
		return nil, Verb{}, app.Errorf(app.Internal, "bad-workflow", "%s has %d steps", n.Verb, len(n.Steps))
	}
	seen := map[string]bool{cleanupStep: true}
	for _, s := range n.Steps {
		if err := e.planStep(&s); err != nil || seen[s.ID] {
			return nil, Verb{}, app.Errorf(app.Internal, "bad-workflow", "step %q of %s is wrong or there twice: %w", s.ID, n.Verb, err)
		}
		seen[s.ID] = true
		w.Steps = append(w.Steps, s)
	}
	return w, verb, nil
}

// planStep fills in a step's defaults and refuses one that could not run.
func (e *Engine) planStep(s *Step) error {
	if err := app.ValidName("id", s.ID); err != nil {
		return err
	}
	if s.On == "" {
		s.On = OnSite
	}
	k, problem := e.kindOf(s)
	if problem != nil {
		return problem
	}
	if s.Title == "" {
		s.Title = s.ID
	}
	if s.Budget == 0 {
		s.Budget = app.Duration(k.Budget)
	}
	if s.Lane == "" {
		s.Lane = LaneProvision
	}
	switch {
	case s.Budget <= 0 || s.Stall < 0:
		return fmt.Errorf("its budget is %v and its stall %v", s.Budget, s.Stall)
	case s.Lane != LaneBMC && s.Lane != LaneProvision && s.Lane != LaneQuery:
		return fmt.Errorf("its lane is %q", s.Lane)
	case len(s.Payload) > maxResult || len(s.Payload) > 0 && !json.Valid(s.Payload):
		return fmt.Errorf("its payload is not JSON of at most %d bytes", maxResult)
	}
	s.State, s.Attempt, s.Progress, s.Result, s.Error = StepWaiting, 0, nil, nil, nil
	return nil
}

// kindOf finds the kind of a step, or says why this build cannot run it.
func (e *Engine) kindOf(s *Step) (Kind, *app.Error) {
	k, ok := e.kinds[s.Kind]
	switch {
	case !ok:
		return k, app.Errorf(app.Unsupported, "unknown-step", "this build does not know the step %s (%s)", s.Title, s.Kind)
	case s.On == OnSite && k.Run == nil, s.On == OnAgent && e.agents == nil, s.On != OnSite && s.On != OnAgent:
		return k, app.Errorf(app.Unsupported, "unknown-step", "this build cannot run the step %s (%s) on %q", s.Title, s.Kind, s.On)
	}
	return k, nil
}

// newTrace mints a W3C traceparent, sampled.
func newTrace() string {
	var b [24]byte
	_, _ = rand.Read(b[:]) // never fails
	return "00-" + hex.EncodeToString(b[:16]) + "-" + hex.EncodeToString(b[16:]) + "-01"
}

// spanOf is the workflow's trace with a span of the attempt's own: the same on every delivery of its key.
func spanOf(trace, key string) string {
	sum := sha256.Sum256([]byte(key))
	if len(trace) != 55 {
		return trace
	}
	return trace[:36] + hex.EncodeToString(sum[:8]) + trace[52:]
}

// encodeBounded encodes what a step or use case hands over; nil gives nil.
func encodeBounded(what string, v any) (json.RawMessage, error) {
	if v == nil {
		return nil, nil
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, fmt.Errorf("encoding %s: %w", what, err)
	}
	if len(b) > maxResult {
		return nil, app.Errorf(app.TooLarge, "too-large", "%s has %d bytes, the limit is %d", what, len(b), maxResult)
	}
	return b, nil
}
