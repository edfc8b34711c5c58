package workflowtest

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// killCase is one instant at which the process dies and what must be true in the end.
type killCase struct {
	step    workflow.Step
	instant string
	reboot  bool // the machine reboots while the process is down
	other   bool // the payload is another one after the restart
	state   workflow.State
	effects int
}

// The kinds of step the matrix goes through.
var (
	retrySafe  = workflow.Step{ID: "act", Kind: "site", RetrySafe: true}
	checkable  = workflow.Step{ID: "act", Kind: "site.checked", Destructive: true}
	siteOnce   = workflow.Step{ID: "act", Kind: "site", Destructive: true}
	rewrites   = workflow.Step{ID: "act", Kind: "agent", On: workflow.OnAgent, Destructive: true, Rewrites: true}
	agentSafe  = workflow.Step{ID: "act", Kind: "agent", On: workflow.OnAgent, RetrySafe: true}
	agentOnce  = workflow.Step{ID: "act", Kind: "agent", On: workflow.OnAgent, Destructive: true}
	agentCheck = workflow.Step{ID: "act", Kind: "agent.checked", On: workflow.OnAgent, Destructive: true}
)

// killCases is the matrix: nothing destructive runs twice but a rewrite of the same disk, and what cannot be told is asked.
func killCases() []killCase {
	var all []killCase
	add := func(s workflow.Step, reboot bool, state workflow.State, effects int, instants ...string) {
		for _, at := range instants {
			all = append(all, killCase{step: s, instant: at, reboot: reboot, state: state, effects: effects})
		}
	}
	const done, asks = workflow.Done, workflow.Interrupted
	for _, s := range []workflow.Step{retrySafe, checkable, siteOnce} {
		add(s, false, done, 1, "before intent act", "after result act", "before end test", "after end test")
	}
	unknown := []string{"after intent act", "before effect act"}
	known := []string{"after effect act", "before result act"}
	add(retrySafe, false, done, 1, unknown...)
	add(retrySafe, false, done, 2, known...)
	add(checkable, false, done, 1, append(unknown, known...)...)
	add(siteOnce, false, asks, 0, unknown...)
	add(siteOnce, false, asks, 1, known...)

	for _, s := range []workflow.Step{agentSafe, agentOnce, agentCheck, rewrites} {
		for _, reboot := range []bool{false, true} {
			add(s, reboot, done, 1, "before intent act", "after intent act", "before deliver act", "after result act")
		}
		add(s, false, done, 1, "running act", "after call act", "before result act")
	}
	add(agentSafe, false, done, 1, "after deliver act", "before call act")
	add(rewrites, false, done, 1, "after deliver act", "before call act")
	add(agentCheck, false, done, 1, "after deliver act", "before call act")
	add(agentOnce, false, asks, 0, "after deliver act", "before call act")
	after := []string{"after call act", "before result act"}
	add(agentSafe, true, done, 2, after...)
	add(rewrites, true, done, 2, after...)
	add(agentCheck, true, done, 1, after...)
	add(agentOnce, true, asks, 1, after...)
	all = append(all, killCase{step: rewrites, instant: "before result act", reboot: true, other: true, state: asks, effects: 1})
	return all
}

// TestKills stops an engine at every instant of every kind of step, starts another on the same store, and counts effects.
func TestKills(t *testing.T, open func(t *testing.T) Backend) {
	for _, c := range killCases() {
		kind := fmt.Sprintf("%s destructive=%v retrySafe=%v rewrites=%v", c.step.Kind, c.step.Destructive, c.step.RetrySafe, c.step.Rewrites)
		name := fmt.Sprintf("%s/%s reboot=%v other=%v", kind, c.instant, c.reboot, c.other)
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { c.run(t, open(t)) })
		})
	}
}

// scene is the world of one case: what outlives the process.
type scene struct {
	store   Backend
	fleet   *Fleet
	effects int
	payload string
	running chan struct{} // an agent holds the command
	finish  chan struct{} // it may end
}

func (c killCase) run(t *testing.T, store Backend) {
	machine(t, store, "m1")
	s := &scene{store: store, payload: `{"disk":"serial-1"}`, running: make(chan struct{}), finish: make(chan struct{})}
	s.fleet = &Fleet{Handle: s.handle}
	defer s.fleet.Gone()
	if c.instant != "running act" {
		close(s.finish)
	}

	k := NewKiller(c.instant)
	e := s.engine(k)
	w, err := e.Start(t.Context(), workflow.New{Verb: "test", MachineID: "m1", Steps: []workflow.Step{c.step}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	if c.instant == "running act" {
		<-s.running
		k.Kill()
		time.AfterFunc(time.Minute, func() { close(s.finish) })
	}
	<-k.Dead()
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	if c.reboot {
		s.fleet.Reboot("m1")
	}
	if c.other {
		s.payload = `{"disk":"serial-2"}`
	}
	c.settled(t, s, w.ID)
}

// settled runs the next process and looks at the end.
func (c killCase) settled(t *testing.T, s *scene, id string) {
	e := s.engine(NewKiller(""))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- e.Run(ctx) }()
	w, err := e.Wait(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if w.State != c.state || s.effects != c.effects {
		t.Errorf("ended %s with %d effects (%v), want %s with %d", w.State, s.effects, w.Error, c.state, c.effects)
	}
	if c.state == workflow.Interrupted && (w.Error == nil || w.Error.WayOut == "" || w.Steps[0].State != workflow.StepInterrupted) {
		t.Errorf("nobody could act on %+v", w)
	}
	m, err := s.store.Machine(t.Context(), "m1")
	if err != nil || (m.WorkflowID == "") != (c.state == workflow.Done) {
		t.Errorf("machine is held by %q, %v", m.WorkflowID, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func (s *scene) engine(k *Killer) *workflow.Engine {
	e := workflow.NewEngine(workflow.Config{Store: KilledStore{s.store, k}, Agents: KilledAgents{s.fleet, k}})
	run := func(context.Context, workflow.StepContext) (any, error) {
		return nil, k.Effect("act", func() { s.effects++ })
	}
	check := func(context.Context, workflow.StepContext) (workflow.Verdict, any, error) {
		if s.effects > 0 {
			return workflow.Happened, nil, nil
		}
		return workflow.NotHappened, nil, nil
	}
	prepare := func(context.Context, workflow.StepContext) (any, error) { return json.RawMessage(s.payload), nil }
	e.Register(workflow.Kind{Name: "site", Budget: time.Hour, Run: run})
	e.Register(workflow.Kind{Name: "site.checked", Budget: time.Hour, Run: run, Check: check})
	e.Register(workflow.Kind{Name: "agent", Budget: time.Hour, Prepare: prepare})
	e.Register(workflow.Kind{Name: "agent.checked", Budget: time.Hour, Prepare: prepare, Check: check})
	e.RegisterVerb(workflow.Verb{Name: "test", Version: 1, End: func(m *app.Machine, w *workflow.Workflow) error {
		m.Note = string(w.State)
		return nil
	}})
	return e
}

func (s *scene) handle(ctx context.Context, _ workflow.Command, _ func(workflow.Progress)) (json.RawMessage, error) {
	select {
	case <-s.running:
	default:
		close(s.running)
	}
	select {
	case <-s.finish:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	s.effects++
	return json.RawMessage(`{"written":1}`), nil
}
