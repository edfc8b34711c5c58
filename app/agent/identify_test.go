package agent_test

import (
	"context"
	"log/slog"
	"slices"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/agent"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Another machine that comes with a boot's token gets no session, however often it asks; the token is not spent, and why it
// was turned away outlives a restart. An error of ours is no accusation.
func TestAnotherMachineGetsNoSession(t *testing.T) {
	s := newSite(t)
	var says error
	s.Service = agent.New(agent.Config{
		Store: s.db, SiteKey: []byte("a key of thirty-two bytes for it"), AgentPin: "00", Log: slog.New(slog.DiscardHandler),
		URLs: func(string) ([]string, []string) { return nil, nil }, Record: func(app.Event) {},
		Signal:   func(m, name string, _ any) { s.signals = append(s.signals, m+" "+name) },
		Identify: func(context.Context, string, agentv1.SessionRequest) error { return says },
	})
	b, d := s.boot(t)
	come := func() error {
		_, err := s.Session(t.Context(), agentv1.SessionRequest{Token: d.Token, Nonce: "n1", BootID: "b1"}, "192.0.2.9")
		return err
	}
	refused := func() string {
		t.Helper()
		got, err := s.db.Boot(t.Context(), b.Key)
		if err != nil || !got.Spent.IsZero() {
			t.Fatalf("%+v, %v", got, err)
		}
		if got.Refused == nil {
			return ""
		}
		return got.Refused.Message
	}
	says = context.DeadlineExceeded
	if err := come(); err == nil || refused() != "" || len(s.signals) != 0 {
		t.Errorf("a store that is slow: %v, %q, %v", err, refused(), s.signals)
	}
	for _, what := range []string{"one", "two"} {
		says = app.Errorf(app.Conflict, "another-machine", "%s", what)
		if err := come(); app.CodeOf(err) != app.Conflict || refused() != "one" {
			t.Errorf("%s: %v, refused %q", what, err, refused())
		}
	}
	if want := []string{"m-1 agent.alarm", "m-1 agent.alarm"}; !slices.Equal(s.signals, want) {
		t.Errorf("signals %v", s.signals)
	}
	says = nil
	if err := come(); err != nil {
		t.Errorf("the machine itself: %v", err)
	}
	if err := s.Revoke(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	if err := s.db.RefuseBoot(t.Context(), "none", &app.Error{}); app.CodeOf(err) != app.NotFound {
		t.Errorf("no boot: %v", err)
	}
	late, d2 := s.boot(t)
	if err := s.Revoke(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	says, d = app.Errorf(app.Conflict, "another-machine", "late"), d2
	if err := come(); app.CodeOf(err) != app.Conflict {
		t.Errorf("a boot that is over: %v", err)
	}
	if got, err := s.db.Boot(t.Context(), late.Key); err != nil || got.Refused != nil || got.Revoked.IsZero() {
		t.Errorf("a boot that is over became %+v, %v", got, err)
	}
}
