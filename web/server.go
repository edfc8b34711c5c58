package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/app/listen"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/assets"
	"github.com/better-compute/bcd/web/console"
	"github.com/better-compute/bcd/web/keypair"
	"github.com/better-compute/bcd/web/problem"
)

// Limits of the listener.
const (
	headerTime     = 10 * time.Second
	idleTime       = 2 * time.Minute
	maxHeader      = 64 << 10
	maxConns       = 1024
	maxConnsClient = 256 // of one address: people behind one router, programs without HTTP/2
	stopTime       = 5 * time.Second
	maxPathSize    = 1024

	bodyTime   = 30 * time.Second
	answerTime = 2 * time.Minute // to begin an answer: a BMC probe may take a minute
	partTime   = time.Minute     // for a part of it to leave
)

// Config is what a server needs. Every field is required unless said.
type Config struct {
	Listener net.Listener // TCP; the server closes it
	Pair     *keypair.Pair
	API      *api.API
	Console  *console.Console
	Access   *access.Service
	Log      *slog.Logger

	BodyTime   time.Duration // for a request's body to come, where its handler sets no other time; default 30 seconds
	AnswerTime time.Duration // from a request to the first byte of its answer, where its handler sets no other time; default 2 minutes
	PartTime   time.Duration // for 256 KiB of an answer to leave; default 1 minute
}

// Server serves console and API.
type Server struct {
	Config
	handler http.Handler
	csrf    *http.CrossOriginProtection
}

// New makes a server.
func New(c Config) *Server {
	c.BodyTime, c.AnswerTime, c.PartTime = cmp.Or(c.BodyTime, bodyTime), cmp.Or(c.AnswerTime, answerTime), cmp.Or(c.PartTime, partTime)
	s := &Server{Config: c, csrf: http.NewCrossOriginProtection()}
	s.handler = s.guard(s.routes())
	return s
}

// Handler is everything behind TLS, for tests and for embedding.
func (s *Server) Handler() http.Handler { return s.handler }

// Run serves until ctx ends, then lets requests finish for a moment.
func (s *Server) Run(ctx context.Context) error {
	srv := &http.Server{
		Handler: s.handler, TLSConfig: s.Pair.TLS("h2", "http/1.1"), ReadHeaderTimeout: headerTime, IdleTimeout: idleTime,
		// A limit of one request on an HTTP/1 connection would else stay for the next.
		WriteTimeout: s.AnswerTime, HTTP2: &http.HTTP2Config{WriteByteTimeout: s.PartTime},
		MaxHeaderBytes: maxHeader, ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelDebug),
		// Streams end with the server, not only with their reader.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	done := make(chan error, 1)
	go func() { done <- srv.ServeTLS(listen.Limit(s.Listener, maxConns, maxConnsClient), "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serving the console: %w", err)
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

// routes puts the tables of API and console, and the assets, behind one router.
func (s *Server) routes() http.Handler {
	e := echo.New()
	e.HTTPErrorHandler = func(err error, c echo.Context) {
		who, _ := s.identify(c.Request()) // who is only for the frame around the error
		s.fail(c.Response(), c.Request(), who, fromRouter(err))
	}
	for _, rt := range s.API.Routes() {
		e.Add(rt.Method, echoPath(rt.Path), func(c echo.Context) error {
			if rt.Duplex {
				defer api.Duplex(c.Response(), c.Request())()
			}
			who, err := s.identify(c.Request())
			if err != nil {
				problem.Write(c.Response(), c.Request(), s.Log, err)
				return nil
			}
			s.API.Serve(c.Response(), c.Request(), &rt, params(c), who)
			return nil
		})
	}
	for _, p := range s.Console.Pages() {
		e.Add(p.Method, echoPath(p.Path), func(c echo.Context) error {
			who, err := s.identify(c.Request())
			if err != nil {
				s.fail(c.Response(), c.Request(), nil, err)
				return nil
			}
			s.Console.Serve(c.Response(), c.Request(), p, params(c), who)
			return nil
		})
	}
	e.GET("/assets/:name", echo.WrapHandler(assets.Handler()))
	e.HEAD("/assets/:name", echo.WrapHandler(assets.Handler()))
	return e
}

// identify finds who asks. A token that is sent must be valid; a session that has ended is nobody.
func (s *Server) identify(r *http.Request) (*access.Identity, error) {
	if h := r.Header.Get("Authorization"); h != "" {
		token, ok := cutBearer(h)
		if !ok {
			return nil, app.Errorf(app.Unauthenticated, "authorization-scheme", "the Authorization header is not \"Bearer TOKEN\"").Do("send an API token")
		}
		return s.Access.ByToken(r.Context(), token)
	}
	k, err := r.Cookie(api.CookieName)
	if err != nil {
		return nil, nil
	}
	who, err := s.Access.BySession(r.Context(), k.Value)
	if app.CodeOf(err) == app.Unauthenticated {
		return nil, nil
	}
	return who, err
}

// fail answers an error in the language of the path: JSON below /api/, a page elsewhere.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, who *access.Identity, err error) {
	if isAPI(r) {
		problem.Write(w, r, s.Log, err)
		return
	}
	if who == nil {
		who, _ = s.identify(r) // whoever is logged in stays so, and keeps the navigation
	}
	s.Console.Fail(w, r, who, err)
}
