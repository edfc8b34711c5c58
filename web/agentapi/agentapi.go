// Package agentapi is the HTTP face of the agents in the ramdisk: five POSTs of JSON on a listener with a key of its own,
// which agents pin. What they mean is in app/agent.
package agentapi

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/listen"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/problem"
)

// Limits of the listener. A thousand machines poll at once, each over one connection.
const (
	maxConns       = 4096
	maxConnsClient = 512 // of one address: machines behind one router
	headerTime     = 10 * time.Second
	readTime       = 30 * time.Second
	answerTime     = (agentv1.PollSeconds + 30) * time.Second
	stopTime       = 3 * time.Second
)

// Agents is what an agent may ask. secret is the session's, from the Authorization header; remote is host:port.
type Agents interface {
	Session(ctx context.Context, in agentv1.SessionRequest, remote string) (agentv1.SessionResponse, error)
	Poll(ctx context.Context, in agentv1.PollRequest, secret string) (agentv1.PollResponse, error)
	Progress(ctx context.Context, in agentv1.ProgressReport, secret string) (agentv1.Ack, error)
	Result(ctx context.Context, in agentv1.ResultReport, secret string) (agentv1.Ack, error)
	Log(ctx context.Context, in agentv1.LogReport, secret string) (agentv1.Ack, error)
}

// Config is what a server needs. Every field is required.
type Config struct {
	Listener net.Listener // TCP; the server closes it
	TLS      *tls.Config  // with the agent key
	Agents   Agents
	Log      *slog.Logger
}

// Server serves agents.
type Server struct {
	Config
}

// New makes a server.
func New(c Config) *Server { return &Server{Config: c} }

// Run serves until ctx ends. Polls end at once.
func (s *Server) Run(ctx context.Context) error {
	srv := &http.Server{Handler: s.Handler(), TLSConfig: s.TLS, ReadHeaderTimeout: headerTime, ReadTimeout: readTime, WriteTimeout: answerTime,
		IdleTimeout: 2 * time.Minute, MaxHeaderBytes: 16 << 10, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx }}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(listen.Limit(s.Listener, maxConns, maxConnsClient), "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serving agents: %w", err)
	case <-ctx.Done():
	}
	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), stopTime)
	defer cancel()
	err := srv.Shutdown(last)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	<-done
	return err
}

// Handler is the face without its listener.
func (s *Server) Handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+agentv1.PathSession, s.session)
	mux.HandleFunc("POST "+agentv1.PathPoll, handle(s, s.Agents.Poll))
	mux.HandleFunc("POST "+agentv1.PathProgress, handle(s, s.Agents.Progress))
	mux.HandleFunc("POST "+agentv1.PathResult, handle(s, s.Agents.Result))
	mux.HandleFunc("POST "+agentv1.PathLog, handle(s, s.Agents.Log))
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, _ := problem.WithID(r.Context())
		mux.ServeHTTP(w, r.WithContext(ctx))
	})
}

func (s *Server) session(w http.ResponseWriter, r *http.Request) {
	var in agentv1.SessionRequest
	if err := decode(w, r, &in); err != nil {
		problem.Write(w, r, s.Log, err)
		return
	}
	out, err := s.Agents.Session(r.Context(), in, r.RemoteAddr)
	s.answer(w, r, out, err)
}

// handle serves one call that a session's secret authenticates.
func handle[In, Out any](s *Server, call func(context.Context, In, string) (Out, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		scheme, secret, ok := strings.Cut(r.Header.Get("Authorization"), " ")
		if !ok || !strings.EqualFold(scheme, "Bearer") || secret == "" || len(secret) > 256 {
			problem.Write(w, r, s.Log, app.Errorf(app.Unauthenticated, "session-missing", "the session's secret is missing"))
			return
		}
		var in In
		if err := decode(w, r, &in); err != nil {
			problem.Write(w, r, s.Log, err)
			return
		}
		out, err := call(r.Context(), in, secret)
		s.answer(w, r, out, err)
	}
}

func (s *Server) answer(w http.ResponseWriter, r *http.Request, out any, err error) {
	if err != nil {
		problem.Write(w, r, s.Log, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(out)
}

// decode reads exactly one JSON object of known fields, at most MaxBody bytes.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, agentv1.MaxBody))
	// The body is here: its time limit must not end a poll that waits.
	_ = http.NewResponseController(w).SetReadDeadline(time.Time{})
	if err != nil {
		var big *http.MaxBytesError
		if errors.As(err, &big) {
			return err
		}
		return problem.Malformed("the body ended early").Retryable()
	}
	return problem.Decode(body, v)
}
