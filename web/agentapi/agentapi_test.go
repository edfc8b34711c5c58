package agentapi_test

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/agentapi"
	"github.com/better-compute/bcd/web/keypair"
)

// agents answers with what it was asked.
type agents struct {
	err  error
	seen []string
}

func (a *agents) note(what, secret string) error {
	a.seen = append(a.seen, what+" "+secret)
	return a.err
}

func (a *agents) Session(_ context.Context, in agentv1.SessionRequest, remote string) (agentv1.SessionResponse, error) {
	return agentv1.SessionResponse{Secret: "s", MachineID: in.BootID}, a.note("session", remote)
}

func (a *agents) Poll(_ context.Context, in agentv1.PollRequest, secret string) (agentv1.PollResponse, error) {
	return agentv1.PollResponse{Cancel: []string{in.SessionID}}, a.note("poll", secret)
}

func (a *agents) Progress(_ context.Context, _ agentv1.ProgressReport, secret string) (agentv1.Ack, error) {
	return agentv1.Ack{OK: true}, a.note("progress", secret)
}

func (a *agents) Result(_ context.Context, _ agentv1.ResultReport, secret string) (agentv1.Ack, error) {
	return agentv1.Ack{OK: true}, a.note("result", secret)
}

func (a *agents) Log(_ context.Context, _ agentv1.LogReport, secret string) (agentv1.Ack, error) {
	return agentv1.Ack{OK: true}, a.note("log", secret)
}

func TestAgentCalls(t *testing.T) {
	a := &agents{}
	h := agentapi.New(agentapi.Config{Agents: a, Log: slog.New(slog.DiscardHandler)}).Handler()
	big := `{"sessionId":"s","lines":["` + strings.Repeat("x", agentv1.MaxBody) + `"]}`
	for _, c := range []struct {
		name, method, path, auth, body string
		status                         int
		says                           string
	}{
		{"session", "POST", agentv1.PathSession, "", `{"token":"t","bootId":"b","macs":[],"version":"1","firmware":"uefi"}`, 200, `"machineId":"b"`},
		{"poll", "POST", agentv1.PathPoll, "Bearer s3", `{"sessionId":"x","bootId":"b"}`, 200, `"cancel":["x"]`},
		{"progress", "POST", agentv1.PathProgress, "bearer s3", `{"sessionId":"x","key":"k","phase":"write"}`, 200, `"ok":true`},
		{"result", "POST", agentv1.PathResult, "Bearer s3", `{"sessionId":"x","attempt":{"key":"k","state":"done"}}`, 200, `"ok":true`},
		{"log", "POST", agentv1.PathLog, "Bearer s3", `{"sessionId":"x","lines":["\u001b[31m<script>"]}`, 200, `"ok":true`},
		{"no secret", "POST", agentv1.PathPoll, "", `{}`, 401, "session-missing"},
		{"another scheme", "POST", agentv1.PathPoll, "Basic s3", `{}`, 401, "session-missing"},
		{"endless secret", "POST", agentv1.PathPoll, "Bearer " + strings.Repeat("s", 300), `{}`, 401, "session-missing"},
		{"unknown field", "POST", agentv1.PathPoll, "Bearer s3", `{"sessionId":"x","isAdmin":true}`, 400, "isAdmin"},
		{"two documents", "POST", agentv1.PathPoll, "Bearer s3", `{"sessionId":"x"}{}`, 400, "more than one"},
		{"null", "POST", agentv1.PathPoll, "Bearer s3", `null`, 400, "not a JSON object"},
		{"too large", "POST", agentv1.PathLog, "Bearer s3", big, 413, "TOO_LARGE"},
		{"get", "GET", agentv1.PathPoll, "Bearer s3", ``, 405, ""},
		{"elsewhere", "POST", "/api/v1/machines", "Bearer s3", `{}`, 404, ""},
	} {
		before := len(a.seen)
		r := httptest.NewRequest(c.method, c.path, strings.NewReader(c.body))
		if c.auth != "" {
			r.Header.Set("Authorization", c.auth)
		}
		w := httptest.NewRecorder()
		h.ServeHTTP(w, r)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s: %d %s", c.name, w.Code, w.Body)
		}
		if asked := len(a.seen) > before; asked != (c.status == 200) {
			t.Errorf("%s reached the use case: %v", c.name, a.seen)
		}
	}
	a.err = app.Errorf(app.Conflict, "token-spent", "the boot token was spent already")
	r := httptest.NewRequest("POST", agentv1.PathSession, strings.NewReader(`{"token":"t","bootId":"b","macs":[],"version":"1","firmware":"uefi"}`))
	w := httptest.NewRecorder()
	if h.ServeHTTP(w, r); w.Code != 409 || !strings.Contains(w.Body.String(), "token-spent") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// The listener shows the agent key, and stops while an agent waits.
func TestAgentListenerStops(t *testing.T) {
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	pair, err := keypair.Open(keypair.Config{KeyFile: filepath.Join(dir, "agent.key"), CertFile: filepath.Join(dir, "agent.crt"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &waiting{agents: agents{}, in: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- agentapi.New(agentapi.Config{Listener: l, TLS: pair.TLS("http/1.1"), Agents: w, Log: log}).Run(ctx)
	}()
	tr := &http.Transport{TLSClientConfig: pinned(pair.SPKI())}
	defer tr.CloseIdleConnections()
	polled := make(chan struct{})
	go func() {
		req, _ := http.NewRequest("POST", "https://"+l.Addr().String()+agentv1.PathPoll, strings.NewReader(`{"sessionId":"x","bootId":"b"}`))
		req.Header.Set("Authorization", "Bearer s")
		defer close(polled)
		if resp, err := tr.RoundTrip(req); err == nil {
			_, _ = io.Copy(io.Discard, resp.Body)
			_ = resp.Body.Close()
		}
	}()
	<-w.in
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	<-polled // with an answer, or cut off where that came late
}

// waiting holds a poll until it is ended.
type waiting struct {
	agents
	in chan struct{}
}

func (w *waiting) Poll(ctx context.Context, _ agentv1.PollRequest, _ string) (agentv1.PollResponse, error) {
	close(w.in)
	<-ctx.Done()
	return agentv1.PollResponse{Bye: true}, nil
}
