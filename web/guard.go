package web

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"runtime/debug"
	"strings"
	"time"

	"github.com/labstack/echo/v4"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/problem"
)

// policy lets the browser load and send only what is ours: no inline script or style, no frame, no form to elsewhere.
const policy = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; " +
	"form-action 'self'; frame-ancestors 'none'; base-uri 'none'"

// pathRE is every path the tables can hold: plain characters, no empty segment. Ids, names and addresses need no others.
var pathRE = regexp.MustCompile(`^/$|^(/[A-Za-z0-9._~:@+-]+)+$`)

// guard is what every request meets first.
func (s *Server) guard(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p := &paced{ResponseWriter: w, rc: http.NewResponseController(w), part: s.PartTime}
		if r.ContentLength != 0 { // one that was refused is waited for too: net/http reads the rest of it
			_ = p.rc.SetReadDeadline(time.Now().Add(s.BodyTime))
		}
		defer p.extend() // for what the server still writes, whatever the handler allowed itself
		w = p
		ctx, id := problem.WithID(r.Context())
		r = r.WithContext(ctx)
		secure(w.Header(), id)
		defer s.recover(w, r)
		if err := cleanPath(r); err != nil {
			s.fail(w, r, nil, err)
			return
		}
		if err := s.csrf.Check(r); err != nil {
			s.fail(w, r, nil, app.Errorf(app.Forbidden, "cross-origin", "this request came from another site").
				Do("open the console itself and try again there"))
			return
		}
		next.ServeHTTP(w, r)
	})
}

func secure(h http.Header, id string) {
	h.Set("Content-Security-Policy", policy)
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("X-Frame-Options", "DENY")
	h.Set("Referrer-Policy", "same-origin")
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Cross-Origin-Resource-Policy", "same-origin")
	h.Set("Permissions-Policy", "camera=(), geolocation=(), microphone=()")
	h.Set("X-Request-Id", id)
}

// cleanPath refuses every path that could mean something else to a later reader: encoded separators, dot segments, empty
// segments, backslashes, control characters. What is left has one spelling, which router and handlers share.
func cleanPath(r *http.Request) error {
	p := r.URL.Path
	bad := len(p) > maxPathSize || !pathRE.MatchString(p)
	for seg := range strings.SplitSeq(p, "/") {
		bad = bad || seg == "." || seg == ".."
	}
	raw := strings.ToLower(r.URL.EscapedPath())
	for _, enc := range []string{"%2f", "%5c", "%2e", "%00", "%25"} {
		bad = bad || strings.Contains(raw, enc)
	}
	if bad {
		return problem.Malformed("the path is not one this appliance has").Do("write names and ids as the lists show them: letters, digits, dots, hyphens, underscores and colons")
	}
	r.URL.RawPath = ""
	return nil
}

// recover turns a panic into an error with an id; an aborted handler stays one.
func (s *Server) recover(w http.ResponseWriter, r *http.Request) {
	v := recover()
	if v == nil {
		return
	}
	if v == http.ErrAbortHandler { //nolint:errorlint // net/http compares the panic's value in the same way
		panic(v)
	}
	s.Log.Error("panic", "id", problem.ID(r.Context()), "value", fmt.Sprint(v), "stack", string(debug.Stack()))
	s.fail(w, r, nil, app.Errorf(app.Internal, "panic", "something went wrong inside the appliance"))
}

func isAPI(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, "/api/") }

func cutBearer(h string) (string, bool) {
	scheme, token, ok := strings.Cut(h, " ")
	return strings.TrimSpace(token), ok && strings.EqualFold(scheme, "Bearer")
}

// echoPath turns /a/{id} into /a/:id.
func echoPath(p string) string { return strings.NewReplacer("{", ":", "}", "").Replace(p) }

func params(c echo.Context) map[string]string {
	out := map[string]string{}
	for _, n := range c.ParamNames() {
		out[n] = c.Param(n)
	}
	return out
}

// fromRouter gives the router's own refusals our words.
func fromRouter(err error) error {
	var he *echo.HTTPError
	if !errors.As(err, &he) {
		return err
	}
	switch he.Code {
	case http.StatusMethodNotAllowed:
		return app.Errorf(app.InvalidInput, problem.ReasonMethod, "this address does not take that method").Do("see /api/v1/openapi.json")
	default:
		return app.Errorf(app.NotFound, "no-such-page", "there is nothing at this address").Do("go back to the overview")
	}
}
