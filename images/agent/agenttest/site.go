package agenttest

import (
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"io"
	"log"
	"math/big"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Site is an appliance for one machine: it signs what it is told to send, and remembers everything it hears.
type Site struct {
	MachineID, WorkflowID, SessionID, Secret, Token string

	t    testing.TB
	sign ed25519.PrivateKey
	cert tls.Certificate
	url  string
	gone <-chan struct{} // closed when the machine has ended; nil: none is known

	mu       sync.Mutex // protects what follows
	changed  chan struct{}
	trades   []agentv1.SessionRequest
	queue    []agentv1.SignedCommand
	cancel   []string
	bye      bool
	down     bool
	lose     bool
	results  []agentv1.AttemptState
	progress []agentv1.ProgressReport
	lines    []string
	table    []agentv1.AttemptState
	polls    int
}

// NewSite makes a site with fresh keys.
func NewSite(t testing.TB) *Site {
	t.Helper()
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Unix(1, 0)} // long expired: the pin is all that counts
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
	if err != nil {
		t.Fatal(err)
	}
	_, sign, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return &Site{
		MachineID: "machine-1", WorkflowID: "wf-1", SessionID: "session-1", Secret: "secret-1", Token: "token-1",
		t: t, sign: sign, cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, changed: make(chan struct{}),
	}
}

// Serve answers on l until the test ends.
func (s *Site) Serve(t testing.TB, l net.Listener) {
	s.url = "https://" + l.Addr().String()
	mux := http.NewServeMux()
	handle(s, mux, agentv1.PathSession, s.session)
	handle(s, mux, agentv1.PathPoll, s.poll)
	handle(s, mux, agentv1.PathProgress, s.takeProgress)
	handle(s, mux, agentv1.PathResult, s.takeResult)
	handle(s, mux, agentv1.PathLog, s.takeLog)
	srv := &http.Server{
		Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{s.cert}}, ReadHeaderTimeout: 5 * time.Second,
		ErrorLog: log.New(io.Discard, "", 0),
	}
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.ServeTLS(l, "", "") }) // ends with ErrServerClosed
	t.Cleanup(func() { _ = srv.Close(); wg.Wait() })
}

// Boot is the boot data that leads a machine here.
func (s *Site) Boot() *agentv1.BootData {
	leaf, _ := x509.ParseCertificate(s.cert.Certificate[0])
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return &agentv1.BootData{
		MachineID: s.MachineID, WorkflowID: s.WorkflowID, SiteURLs: []string{s.url}, AgentPin: hex.EncodeToString(sum[:]),
		CommandKey: base64.StdEncoding.EncodeToString(s.sign.Public().(ed25519.PublicKey)), Token: s.Token, ServerTime: time.Now(),
	}
}

// Command makes a command for the session, complete but for what the caller changes before Sign.
func (s *Site) Command(key, kind string, payload any) agentv1.Command {
	b, _ := json.Marshal(payload)
	sum := sha256.Sum256(b)
	return agentv1.Command{
		Key: key, Kind: kind, MachineID: s.MachineID, SessionID: s.SessionID, WorkflowID: s.WorkflowID, StepID: "step",
		NotAfter: time.Now().Add(time.Hour), Payload: b, PayloadSHA256: hex.EncodeToString(sum[:]),
	}
}

// Sign signs a command.
func (s *Site) Sign(c agentv1.Command) agentv1.SignedCommand {
	b, _ := json.Marshal(c)
	return agentv1.SignedCommand{Command: b, Signature: ed25519.Sign(s.sign, append([]byte(agentv1.SigningContext), b...))}
}

// Send signs a command and queues it for the next poll.
func (s *Site) Send(c agentv1.Command) { s.SendRaw(s.Sign(c)) }

// SendRaw queues bytes as they are.
func (s *Site) SendRaw(c agentv1.SignedCommand) { s.change(func() { s.queue = append(s.queue, c) }) }

// Cancel asks the agent to stop a key.
func (s *Site) Cancel(key string) { s.change(func() { s.cancel = append(s.cancel, key) }) }

// Bye ends the session.
func (s *Site) Bye() { s.change(func() { s.bye = true }) }

// LoseAnswer makes the connection break after the next call was served: what it asked for has happened.
func (s *Site) LoseAnswer() { s.change(func() { s.lose = true }) }

// Down makes every call fail with 503, or answers again.
func (s *Site) Down(down bool) { s.change(func() { s.down = down }) }

func (s *Site) change(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
	close(s.changed)
	s.changed = make(chan struct{})
}

// patience is how long Await waits: nothing in a bubble, and longer than any test is given outside.
const patience = 30 * time.Minute

// MachineEnds tells which machine's agent calls: once done is closed, Await waits for nothing more.
func (s *Site) MachineEnds(done <-chan struct{}) { s.gone = done }

// Await blocks until cond holds, and fails the test when it does not come to hold.
func (s *Site) Await(cond func(Heard) bool) {
	s.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	for gone := s.gone; ; {
		s.mu.Lock()
		h, changed := s.heard(), s.changed
		s.mu.Unlock()
		if cond(h) {
			return
		}
		if gone == nil && s.gone != nil {
			s.t.Fatalf("the machine ended; heard %+v", h)
		}
		select {
		case <-changed:
		case <-gone:
			gone = nil // what it said last counts
		case <-late.C:
			s.t.Fatalf("waited in vain; heard %+v", h)
		}
	}
}

// Result waits for the end of a key and gives it.
func (s *Site) Result(key string) agentv1.AttemptState {
	var out agentv1.AttemptState
	s.Await(func(h Heard) bool {
		for _, r := range h.Results {
			if r.Key == key {
				out = r
				return true
			}
		}
		return false
	})
	return out
}

// Heard is everything agents told a site so far.
type Heard struct {
	Trades   []agentv1.SessionRequest
	Results  []agentv1.AttemptState // in order of arrival, repeats included
	Progress []agentv1.ProgressReport
	Lines    []string
	Table    []agentv1.AttemptState // of the latest poll
	Polls    int
}

// Heard gives a snapshot.
func (s *Site) Heard() Heard {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.heard()
}

func (s *Site) heard() Heard {
	return Heard{
		Trades: append([]agentv1.SessionRequest{}, s.trades...), Results: append([]agentv1.AttemptState{}, s.results...),
		Progress: append([]agentv1.ProgressReport{}, s.progress...), Lines: append([]string{}, s.lines...), Table: s.table, Polls: s.polls,
	}
}

// handle decodes a request, checks the secret, and encodes the answer or error.
func handle[In, Out any](s *Site, mux *http.ServeMux, path string, f func(*http.Request, In) (Out, error)) {
	mux.HandleFunc("POST "+path, func(w http.ResponseWriter, r *http.Request) {
		s.mu.Lock()
		down := s.down
		s.mu.Unlock()
		var in In
		err := json.NewDecoder(http.MaxBytesReader(w, r.Body, agentv1.MaxBody)).Decode(&in)
		switch {
		case down:
			err = app.Errorf(app.Unavailable, "site-down", "the site is down")
		case err != nil:
			err = app.Errorf(app.InvalidInput, "body", "the body cannot be read: %w", err)
		case path != agentv1.PathSession && r.Header.Get("Authorization") != "Bearer "+s.Secret:
			err = app.Errorf(app.Unauthenticated, "session-unknown", "no such agent session")
		}
		var out Out
		if err == nil {
			out, err = f(r, in)
		}
		s.mu.Lock()
		lose := s.lose && err == nil
		s.lose = s.lose && !lose
		s.mu.Unlock()
		if lose {
			panic(http.ErrAbortHandler)
		}
		w.Header().Set("Content-Type", "application/json")
		if e, ok := app.AsError(err); ok {
			w.WriteHeader(map[app.Code]int{app.Unauthenticated: 401, app.Conflict: 409, app.Unavailable: 503}[e.Code])
			_ = json.NewEncoder(w).Encode(map[string]any{"error": e})
			return
		}
		_ = json.NewEncoder(w).Encode(out)
	})
}

// session trades the token once; a repeat with the same nonce is the same trade.
func (s *Site) session(_ *http.Request, in agentv1.SessionRequest) (agentv1.SessionResponse, error) {
	var err error
	s.change(func() {
		switch {
		case in.Token != s.Token:
			err = app.Errorf(app.Unauthenticated, "token-unknown", "this site did not make that boot token")
		case len(s.trades) > 0 && s.trades[0].Nonce != in.Nonce:
			err = app.Errorf(app.Conflict, "boot-token-reused", "the boot token was traded a second time")
		}
		s.trades = append(s.trades, in)
	})
	return agentv1.SessionResponse{
		SessionID: s.SessionID, Secret: s.Secret, MachineID: s.MachineID, WorkflowID: s.WorkflowID, ServerTime: time.Now(),
	}, err
}

func (s *Site) poll(r *http.Request, in agentv1.PollRequest) (agentv1.PollResponse, error) {
	s.change(func() { s.table = in.Attempts; s.polls++ })
	timer := time.NewTimer(agentv1.PollSeconds * time.Second)
	defer timer.Stop()
	for {
		s.mu.Lock()
		out := agentv1.PollResponse{ServerTime: time.Now(), Commands: s.queue, Cancel: s.cancel, Bye: s.bye}
		s.queue, s.cancel = nil, nil
		changed, down := s.changed, s.down
		s.mu.Unlock()
		if down {
			return out, app.Errorf(app.Unavailable, "site-down", "the site is down")
		}
		if len(out.Commands)+len(out.Cancel) > 0 || out.Bye {
			return out, nil
		}
		select {
		case <-changed:
		case <-timer.C:
			return out, nil
		case <-r.Context().Done():
			return out, nil
		}
	}
}

func (s *Site) takeProgress(_ *http.Request, in agentv1.ProgressReport) (agentv1.Ack, error) {
	s.change(func() { s.progress = append(s.progress, in) })
	return agentv1.Ack{OK: true}, nil
}

func (s *Site) takeResult(_ *http.Request, in agentv1.ResultReport) (agentv1.Ack, error) {
	s.change(func() { s.results = append(s.results, in.Attempt) })
	return agentv1.Ack{OK: true}, nil
}

func (s *Site) takeLog(_ *http.Request, in agentv1.LogReport) (agentv1.Ack, error) {
	s.change(func() { s.lines = append(s.lines, in.Lines...) })
	return agentv1.Ack{OK: true}, nil
}
