package agent

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// A ramdisk that tells of ever new attempts, or of huge ones, is not remembered without end; the attempts of honest size
// that it told of before stay.
func TestTheTableOfAttemptsIsBounded(t *testing.T) {
	l := newLive("m-1")
	for i := range 10 * maxAttempts {
		l.keep(agentv1.AttemptState{Key: fmt.Sprint(i), State: "done"})
	}
	if len(l.attempts) != maxAttempts || l.attempts["0"].State != "done" {
		t.Errorf("%d attempts", len(l.attempts))
	}
	if !l.keep(agentv1.AttemptState{Key: "0", State: "failed"}) || l.attempts["0"].State != "failed" {
		t.Error("a known attempt cannot change")
	}
	l = newLive("m-1")
	big := json.RawMessage(make([]byte, 1<<20))
	for i := range 20 {
		l.keep(agentv1.AttemptState{Key: fmt.Sprint(i), State: "done", Result: big})
	}
	if n := len(l.attempts) << 20; n > maxTable {
		t.Errorf("%d bytes kept", n)
	}
}

// Anybody on the network can offer junk for a boot token. The trail tells it, but not once for each.
func TestStrangersDoNotFloodTheTrail(t *testing.T) {
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	var said []string
	s := New(Config{SiteKey: make([]byte, 32), Log: slog.New(slog.DiscardHandler), Now: func() time.Time { return now },
		Record: func(e app.Event) { said = append(said, e.Message) }})
	for range 1000 {
		if _, err := s.Session(t.Context(), agentv1.SessionRequest{Token: "boot-x.00"}, "192.0.2.9:1"); app.CodeOf(err) != app.Unauthenticated {
			t.Fatal(err)
		}
		now = now.Add(20 * time.Millisecond)
	}
	if len(said) != 2 || said[1] != "a machine at 192.0.2.9:1 offered a boot token this site never made; 500 such offers since the last notice" {
		t.Errorf("%d events: %q", len(said), said)
	}
}

// The sessions of a machine end with its boot, and are forgotten then, whether its agent comes again or not.
func TestEndedSessionsAreForgotten(t *testing.T) {
	s := &Service{sessions: map[string]*live{"a": newLive("m-1"), "b": newLive("m-2")}}
	woken := s.sessions["a"].changed
	s.dropSessions("m-1")
	<-woken
	if len(s.sessions) != 1 || s.sessions["b"] == nil {
		t.Errorf("%v", s.sessions)
	}
}
