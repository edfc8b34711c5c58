package agent_test

import (
	"context"
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/agent"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/store"
)

type site struct {
	*agent.Service
	db      *store.DB
	mu      sync.Mutex
	signals []string
}

func newSite(t *testing.T) *site {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	s := &site{db: db}
	s.restart()
	return s
}

// restart replaces the service by a new one on the same store, as a restart of the process does.
func (s *site) restart() {
	s.Service = agent.New(agent.Config{
		Store: s.db, SiteKey: []byte("a key of thirty-two bytes for it"), AgentPin: "00", Log: slog.New(slog.DiscardHandler),
		URLs: func(a string) ([]string, []string) {
			return []string{"https://" + a + ":8444"}, []string{"http://" + a + ":8080"}
		},
		Signal: func(m, name string, _ any) { s.mu.Lock(); s.signals = append(s.signals, m+" "+name); s.mu.Unlock() },
		Record: func(app.Event) {},
	})
}

func (s *site) boot(t *testing.T) (*app.Boot, agentv1.BootData) {
	t.Helper()
	b, err := s.Mint(t.Context(), app.Boot{MachineID: "m-1", WorkflowID: "wf-1", Address: "192.0.2.1"})
	if err != nil {
		t.Fatal(err)
	}
	d, err := s.BootData(t.Context(), b.Key)
	if err != nil {
		t.Fatal(err)
	}
	return b, d
}

func (s *site) up(t *testing.T, d agentv1.BootData) agentv1.SessionResponse {
	t.Helper()
	r, err := s.Session(t.Context(), agentv1.SessionRequest{Token: d.Token, Nonce: "n1", BootID: "b1"}, "192.0.2.9")
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var command = workflow.Command{Key: "wf:wf-1:inventory#0", Kind: agentv1.KindInventory, WorkflowID: "wf-1", StepID: "inventory", MachineID: "m-1", NotAfter: time.Now().Add(time.Hour)}

func TestBootDataIsTheSameForEveryFetchAndOverARestart(t *testing.T) {
	s := newSite(t)
	b, first := s.boot(t)
	s.restart()
	again, err := s.BootData(t.Context(), b.Key)
	if err != nil {
		t.Fatal(err)
	}
	x, _ := json.Marshal(first)
	y, _ := json.Marshal(again)
	if string(x) != string(y) {
		t.Errorf("two documents:\n%s\n%s", x, y)
	}
	if err := s.Revoke(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.BootData(t.Context(), b.Key); app.CodeOf(err) != app.NotFound {
		t.Errorf("a revoked boot is still served: %v", err)
	}
}

// A boot of a CD image has nothing of ours to trust: no token is told for its key.
func TestABootOfAnImageHasNoBootData(t *testing.T) {
	s := newSite(t)
	b, err := s.Mint(t.Context(), app.Boot{MachineID: "m-1", WorkflowID: "wf-1", ISO: "img-1"})
	if err != nil {
		t.Fatal(err)
	}
	if d, err := s.BootData(t.Context(), b.Key); app.CodeOf(err) != app.NotFound || d.Token != "" {
		t.Errorf("it gave %+v, %v", d, err)
	}
}

func TestTokenIsTradedOnce(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	first := s.up(t, d)
	if again := s.up(t, d); again.SessionID != first.SessionID || again.Secret != first.Secret {
		t.Error("the same trade, repeated, gave another session")
	}
	_, err := s.Session(t.Context(), agentv1.SessionRequest{Token: d.Token, Nonce: "n2", BootID: "b2"}, "192.0.2.66")
	if app.CodeOf(err) != app.Conflict {
		t.Errorf("another machine with the token got %v", err)
	}
	if got := strings.Join(s.signals, ","); got != "m-1 agent.up,m-1 agent.alarm" {
		t.Errorf("signals %q", got)
	}
}

func TestTokensNobodyMintedAreRefused(t *testing.T) {
	s := newSite(t)
	b, _ := s.boot(t)
	for _, token := range []string{"", "x", b.Key, b.Key + ".", b.Key + ".00", strings.Repeat("a", 1<<16)} {
		if _, err := s.Session(t.Context(), agentv1.SessionRequest{Token: token}, "192.0.2.9"); app.CodeOf(err) != app.Unauthenticated {
			t.Errorf("token %.20q gave %v", token, err)
		}
	}
}

// deliver starts a delivery and gives its outcome.
func (s *site) deliver(t *testing.T, c workflow.Command) <-chan error {
	t.Helper()
	done := make(chan error, 1)
	svc := s.Service
	go func() {
		res, err := svc.Deliver(t.Context(), c, func(workflow.Progress) {})
		if err == nil && string(res) != `{"ok":true}` {
			t.Errorf("result %s", res)
		}
		done <- err
	}()
	return done
}

func poll(t *testing.T, s *site, r agentv1.SessionResponse, table ...agentv1.AttemptState) agentv1.PollResponse {
	t.Helper()
	p, err := s.Poll(t.Context(), agentv1.PollRequest{SessionID: r.SessionID, BootID: "b1", Attempts: table}, r.Secret)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func TestDeliveryIsSignedAndRepeatedWhenAnAnswerIsLost(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	done := s.deliver(t, command)
	first := poll(t, s, r)
	if len(first.Commands) != 1 {
		t.Fatalf("%d commands", len(first.Commands))
	}
	key, err := base64.StdEncoding.DecodeString(d.CommandKey)
	if err != nil {
		t.Fatal(err)
	}
	c := first.Commands[0]
	if !ed25519.Verify(key, append([]byte(agentv1.SigningContext), c.Command...), c.Signature) {
		t.Error("the signature does not verify")
	}
	// The answer was lost: the agent polls again with an empty table.
	if again := poll(t, s, r); len(again.Commands) != 1 || string(again.Commands[0].Command) != string(c.Command) {
		t.Error("the command was not sent again as it was")
	}
	_, err = s.Result(t.Context(), agentv1.ResultReport{SessionID: r.SessionID, Attempt: agentv1.AttemptState{Key: command.Key, State: "done", Result: []byte(`{"ok":true}`)}}, r.Secret)
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestRestartedSiteLearnsFromTheAgentsTable(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	s.restart()
	type answer struct {
		a     workflow.Attempt
		known bool
	}
	got := make(chan answer, 1)
	go func() {
		a, known, err := s.Lookup(t.Context(), command)
		if err != nil {
			t.Error(err)
		}
		got <- answer{a, known}
	}()
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		_, _ = s.Poll(ctx, agentv1.PollRequest{SessionID: r.SessionID, BootID: "b1", Attempts: []agentv1.AttemptState{{Key: command.Key, State: "running"}}}, r.Secret)
	}()
	if a := <-got; !a.known || a.a.State != "running" {
		t.Errorf("lookup %+v", a)
	}
	cancel()
}

func TestSessionOfARevokedBootIsToldGoodbye(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	done := s.deliver(t, command)
	poll(t, s, r)
	if err := s.Revoke(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	if err := <-done; app.CodeOf(err) != app.Interrupted {
		t.Errorf("the delivery ended with %v", err)
	}
	if p := poll(t, s, r); !p.Bye {
		t.Error("no goodbye")
	}
}

func TestWrongSecretAndForeignSessionAreRefused(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	for _, c := range []struct{ id, secret string }{{r.SessionID, "x"}, {"ses-x", r.Secret}, {"", ""}} {
		if _, err := s.Progress(t.Context(), agentv1.ProgressReport{SessionID: c.id}, c.secret); app.CodeOf(err) != app.Unauthenticated {
			t.Errorf("%+v gave %v", c, err)
		}
	}
}

func TestNoAgentNoDelivery(t *testing.T) {
	s := newSite(t)
	other := command
	other.WorkflowID = "wf-2"
	_, d := s.boot(t)
	s.up(t, d)
	if _, err := s.Deliver(t.Context(), other, func(workflow.Progress) {}); app.CodeOf(err) != app.Unavailable {
		t.Errorf("a command of another workflow gave %v", err)
	}
}

func TestAttemptLostByTheAgentIsOrderedAnewOnlyWhenDeliveredAgain(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	done := s.deliver(t, command)
	first := poll(t, s, r)
	lost := agentv1.AttemptState{Key: command.Key, State: "failed", Error: &agentv1.Error{Code: "INTERRUPTED", Reason: agentv1.ReasonAgentRestarted, Message: "lost"}}
	if _, err := s.Result(t.Context(), agentv1.ResultReport{SessionID: r.SessionID, Attempt: lost}, r.Secret); err != nil {
		t.Fatal(err)
	}
	if err := <-done; app.CodeOf(err) != app.Interrupted {
		t.Fatalf("the delivery ended with %v", err)
	}
	if _, known, err := s.Lookup(t.Context(), command); known || err != nil {
		t.Errorf("a lost attempt is known: %v, %v", known, err)
	}
	done = s.deliver(t, command)
	again := poll(t, s, r, lost)
	var a, b agentv1.Command
	if json.Unmarshal(first.Commands[0].Command, &a) != nil || json.Unmarshal(again.Commands[0].Command, &b) != nil || b.Run <= a.Run {
		t.Errorf("ran %d, then %d", a.Run, b.Run)
	}
	if _, err := s.Result(t.Context(), agentv1.ResultReport{SessionID: r.SessionID, Attempt: agentv1.AttemptState{Key: command.Key, State: "done", Result: []byte(`{"ok":true}`)}}, r.Secret); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestCommandThatWaitsWhenTheSessionIsAnnouncedIsDelivered(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	first := s.up(t, d)
	done := s.deliver(t, command) // a step that saw the session in the store
	// The answer to the trade was lost, so the agent trades again: the waiting command must not be forgotten.
	if again := s.up(t, d); again.SessionID != first.SessionID {
		t.Fatal("another session")
	}
	if p := poll(t, s, first); len(p.Commands) != 1 {
		t.Fatalf("%d commands", len(p.Commands))
	}
	if _, err := s.Result(t.Context(), agentv1.ResultReport{SessionID: first.SessionID, Attempt: agentv1.AttemptState{Key: command.Key, State: "done", Result: []byte(`{"ok":true}`)}}, first.Secret); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Error(err)
	}
}

func TestTableOlderThanAResultDoesNotUndoIt(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	if _, err := s.Result(t.Context(), agentv1.ResultReport{SessionID: r.SessionID, Attempt: agentv1.AttemptState{Key: command.Key, State: "done", Result: []byte(`{"ok":true}`)}}, r.Secret); err != nil {
		t.Fatal(err)
	}
	other := command
	other.Key = "wf:wf-1:write#0"
	s.deliver(t, other) // so that the poll is answered at once
	poll(t, s, r, agentv1.AttemptState{Key: command.Key, State: "running"})
	if err := <-s.deliver(t, command); err != nil {
		t.Error(err)
	}
}

func TestRestartedSiteLearnsWhatWasNeverBegun(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	s.restart()
	go func() {
		_, _ = s.Poll(t.Context(), agentv1.PollRequest{SessionID: r.SessionID, BootID: "b1"}, r.Secret)
	}()
	if a, known, err := s.Lookup(t.Context(), command); !known || a.State != workflow.Absent || err != nil {
		t.Errorf("lookup %+v %v %v", a, known, err)
	}
}

func TestLookupEndsWithTheSession(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	s.up(t, d)
	s.restart()
	known := make(chan bool)
	go func() {
		_, k, err := s.Lookup(t.Context(), command)
		if err != nil {
			t.Error(err)
		}
		known <- k
	}()
	// Whether the look-up waits already or not, it must not wait for a poll that never comes.
	if err := s.Revoke(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	if <-known {
		t.Error("an attempt of a session that is over is known")
	}
}

func TestTableThatIsAheadOfItsReportWaitsForIt(t *testing.T) {
	s := newSite(t)
	_, d := s.boot(t)
	r := s.up(t, d)
	s.restart()
	state := agentv1.AttemptState{Key: command.Key, State: "done", Result: []byte(`{"ok":true}`), Unreported: true}
	go func() {
		_, _ = s.Poll(t.Context(), agentv1.PollRequest{SessionID: r.SessionID, BootID: "b1", Attempts: []agentv1.AttemptState{state}}, r.Secret)
	}()
	// What an agent does after its answer was acknowledged, such as a jump, has not begun: the workflow may not go on.
	if a, known, err := s.Lookup(t.Context(), command); !known || a.State != "running" || err != nil {
		t.Errorf("lookup %+v %v %v", a, known, err)
	}
	state.Unreported = false
	if _, err := s.Result(t.Context(), agentv1.ResultReport{SessionID: r.SessionID, Attempt: state}, r.Secret); err != nil {
		t.Fatal(err)
	}
	if a, known, err := s.Lookup(t.Context(), command); !known || a.State != "done" || err != nil {
		t.Errorf("lookup %+v %v %v", a, known, err)
	}
	if err := s.Revoke(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Result(t.Context(), agentv1.ResultReport{SessionID: r.SessionID, Attempt: state}, r.Secret); app.CodeOf(err) != app.Conflict {
		t.Errorf("a session that is over was given leave to jump: %v", err)
	}
}
