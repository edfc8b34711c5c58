package rescue_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/rescue"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/store"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

// flows is an engine that only remembers.
type flows struct {
	workflow.API
	verbs   map[string]workflow.Verb
	started []workflow.New
	last    []workflow.Workflow
}

func (f *flows) Register(workflow.Kind)       {}
func (f *flows) RegisterVerb(v workflow.Verb) { f.verbs[v.Name] = v }
func (f *flows) List(context.Context, workflow.Filter) ([]workflow.Workflow, error) {
	return f.last, nil
}

func (f *flows) Start(_ context.Context, n workflow.New) (*workflow.Workflow, error) {
	f.started = append(f.started, n)
	return &workflow.Workflow{ID: "w-1", Verb: n.Verb, MachineID: n.MachineID, Steps: n.Steps}, nil
}

// room is the verbs over a real store with one machine.
func room(t *testing.T, m app.Machine) (*rescue.Verbs, *flows, *store.DB) {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	m.ID, m.Name = "m-1", "node1"
	if err := db.CreateMachine(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	f := &flows{verbs: map[string]workflow.Verb{}}
	return rescue.New(&metal.Ports{Machines: db, Flows: f, Now: func() time.Time { return noon },
		Supports:    func(context.Context, *app.Machine, ...string) error { return nil },
		SiteAddress: func(context.Context, *app.Machine) (string, error) { return "192.0.2.1", nil },
	}), f, db
}

func TestWhereARescueStartsFrom(t *testing.T) {
	_, f, _ := room(t, app.Machine{State: app.StateReady})
	for state, ok := range map[app.State]bool{
		app.StateNew: false, app.StateEnrolled: true, app.StateCommissioning: false, app.StateReady: true, app.StateDeploying: false,
		app.StateDeployed: true, app.StateReleasing: false, app.StateRescue: false, app.StateFailed: true, app.StateRetired: false,
	} {
		m := app.Machine{Name: "node1", State: state, Locked: true} // a lock is no hindrance: nothing is changed on it
		if err := f.verbs[rescue.Verb].Begin(&m, &workflow.Workflow{ID: "w-1"}); (err == nil) != ok {
			t.Errorf("from %s: %v", state, err)
		}
		if ok && (m.State != state || m.Before != state || m.WorkflowID != "w-1") {
			t.Errorf("under way from %s it is %s, before %s", state, m.State, m.Before)
		}
		if err := f.verbs[rescue.Exit].Begin(&m, &workflow.Workflow{}); m.WorkflowID != "" && err == nil {
			t.Errorf("from %s it is left while it begins", state)
		}
	}
	m := app.Machine{State: app.StateReady, WorkflowID: "w-0"}
	if err := f.verbs[rescue.Verb].Begin(&m, &workflow.Workflow{ID: "w-1"}); app.CodeOf(err) != app.Conflict || m.WorkflowID != "w-0" {
		t.Errorf("a busy machine: %v", err)
	}
}

// However it ends, the machine is in rescue or where it was, never in between.
func TestEndsOfARescue(t *testing.T) {
	_, f, _ := room(t, app.Machine{State: app.StateReady})
	boom := app.Errorf(app.Timeout, "agent-not-up", "no agent came up")
	for name, c := range map[string]struct {
		state  workflow.State
		from   app.State
		want   app.State
		reason string
	}{
		"done":                 {workflow.Done, app.StateDeployed, app.StateRescue, ""},
		"failed":               {workflow.Failed, app.StateDeployed, app.StateDeployed, "a rescue failed, and the machine is left as it was found: no agent came up"},
		"aborted":              {workflow.Aborted, app.StateReady, app.StateReady, ""},
		"failed, from failure": {workflow.Failed, app.StateFailed, app.StateFailed, "its disk broke"},
		"done, from failure":   {workflow.Done, app.StateFailed, app.StateRescue, ""},
	} {
		m := app.Machine{State: c.from, Before: c.from, WorkflowID: "w-1"}
		if c.from == app.StateFailed {
			m.FailedVerb, m.StateReason = "deploy", "its disk broke"
		}
		w := &workflow.Workflow{State: c.state}
		if c.state == workflow.Failed {
			w.Error = boom
		}
		if err := f.verbs[rescue.Verb].End(&m, w); err != nil || m.State != c.want || m.WorkflowID != "" || m.StateReason != c.reason {
			t.Errorf("%s: %s %q in %q, %v", name, m.State, m.StateReason, m.WorkflowID, err)
		}
	}
}

func TestEndsOfAnExit(t *testing.T) {
	_, f, _ := room(t, app.Machine{State: app.StateReady})
	for _, before := range []app.State{app.StateEnrolled, app.StateReady, app.StateDeployed, app.StateFailed} {
		for _, state := range []workflow.State{workflow.Done, workflow.Failed, workflow.Aborted} {
			m := app.Machine{State: app.StateRescue, Before: before, WorkflowID: "w-2"}
			if before == app.StateFailed {
				m.FailedVerb = "deploy"
			}
			want, reason := app.StateRescue, ""
			if state == workflow.Done {
				want = before
				if before == app.StateFailed {
					reason = "deploy had failed before the rescue"
				}
			}
			if err := f.verbs[rescue.Exit].End(&m, &workflow.Workflow{State: state}); err != nil || m.State != want || m.WorkflowID != "" || m.StateReason != reason {
				t.Errorf("%s, before %s: %s %q, %v", state, before, m.State, m.StateReason, err)
			}
			if want == app.StateRescue && m.Before != before {
				t.Errorf("%s: it has forgotten that it was %s", state, before)
			}
		}
	}
}

// Keys are one line each; a machine that cannot netboot is not rescued; the workflow says what was asked.
func TestStartingARescue(t *testing.T) {
	v, f, _ := room(t, app.Machine{State: app.StateReady})
	for _, bad := range []string{"ssh-ed25519 AAAA\nssh-rsa BBBB", "x\x00", "${net0/mac}", strings.Repeat("k", 16<<10+1)} {
		if _, err := v.Start(t.Context(), "alice", "node1", rescue.Options{AuthorizedKeys: []string{"ssh-ed25519 AAAA me", bad}}); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%.20q gave %v", bad, err)
		}
	}
	if _, err := v.Start(t.Context(), "alice", "node9", rescue.Options{}); app.CodeOf(err) != app.NotFound {
		t.Errorf("no machine: %v", err)
	}
	if len(f.started) != 0 {
		t.Fatalf("started %+v", f.started)
	}
	if _, err := v.Start(t.Context(), "alice", "node1", rescue.Options{AuthorizedKeys: []string{"ssh-ed25519 AAAA me"}}); err != nil {
		t.Fatal(err)
	}
	got := f.started[0]
	if got.Verb != rescue.Verb || got.MachineID != "m-1" || got.Actor != "alice" || got.Steps[0].ID != metal.StepRemember || len(got.Steps) < 4 {
		t.Errorf("%+v", got)
	}
	if raw, err := json.Marshal(got.Steps); err != nil || !strings.Contains(string(raw), "ssh-ed25519 AAAA me") {
		t.Errorf("the key is in no step: %s", raw)
	}
}

// It is left the way it was found: off or on, and a deployed one boots its disk.
func TestLeavingARescue(t *testing.T) {
	for name, c := range map[string]struct {
		before app.State
		power  string // as it was read before the rescue; "": it was not
		want   []string
	}{
		"ready, off":          {app.StateReady, `{"power":"off"}`, []string{"revoke", "off"}},
		"ready, on":           {app.StateReady, `{"power":"on"}`, []string{"revoke", "off", "on"}},
		"ready, not known":    {app.StateReady, "", []string{"revoke", "off"}},
		"deployed, on":        {app.StateDeployed, `{"power":"on"}`, []string{"revoke", "off", "boot-disk", "on"}},
		"deployed, off":       {app.StateDeployed, `{"power":"off"}`, []string{"revoke", "off", "boot-disk"}},
		"deployed, not known": {app.StateDeployed, "", []string{"revoke", "off", "boot-disk", "on"}},
		"deployed, unclear":   {app.StateDeployed, `{"power":"unknown"}`, []string{"revoke", "off", "boot-disk", "on"}},
		"failed, on":          {app.StateFailed, `{"power":"on"}`, []string{"revoke", "off", "on"}},
	} {
		v, f, _ := room(t, app.Machine{State: app.StateRescue, Before: c.before})
		if c.power != "" {
			f.last = []workflow.Workflow{{Verb: rescue.Verb, Steps: []workflow.Step{{ID: metal.StepRemember, Result: json.RawMessage(c.power)}}}}
		}
		w, err := v.Leave(t.Context(), "alice", "node1")
		if err != nil {
			t.Fatal(err)
		}
		var ids []string
		for _, s := range w.Steps {
			ids = append(ids, s.ID)
		}
		if !slices.Equal(ids, c.want) {
			t.Errorf("%s: %v, want %v", name, ids, c.want)
		}
	}
}
