package api

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/web/problem"
)

// Time limits of one request.
const (
	callTime  = 2 * time.Minute // to answer for one machine, as the server allows any request
	stallTime = time.Minute     // longest pause of an upload or of a reader of a stream
)

// patience lets a request that starts something on n machines, a little apart, take its time to answer.
func (c *Call) patience(n int) {
	if c.w != nil {
		_ = http.NewResponseController(c.w).SetWriteDeadline(time.Now().Add(Patience(n)))
	}
}

// Patience is how long a request about n machines may take.
func Patience(n int) time.Duration { return callTime + time.Duration(n)*time.Second }

// CookieName is the session cookie. The prefix makes browsers insist on Secure, Path=/ and no Domain.
const CookieName = "__Host-bcd"

// Serve answers one HTTP request with a route. who may be nil.
func (a *API) Serve(w http.ResponseWriter, r *http.Request, rt *Route, params map[string]string, who *access.Identity) {
	c := &Call{Context: r.Context(), Who: who, Remote: r.RemoteAddr, Path: params, w: w, r: r}
	if !rt.Raw {
		r.Body = http.MaxBytesReader(w, r.Body, MaxJSON)
	}
	if err := checkQuery(r, rt); err != nil {
		problem.Write(w, r, a.Log, err)
		return
	}
	if r.Method == http.MethodGet {
		c.Query = r.URL.Query()
	}
	out, err := a.do(c, rt)
	if err != nil {
		problem.Write(w, r, a.Log, err)
		return
	}
	c.setCookie()
	if rt.Raw && rt.Response == nil {
		return // written by the handler
	}
	w.Header().Set("Cache-Control", "no-store")
	if rt.Response == nil {
		w.WriteHeader(rt.Status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(rt.Status)
	_ = json.NewEncoder(w).Encode(out)
}

// setCookie writes or clears the session cookie.
func (c *Call) setCookie() {
	switch {
	case c.Login != nil:
		http.SetCookie(c.w, Cookie(c.Login))
	case c.Logout:
		http.SetCookie(c.w, Cookie(nil))
	}
}

// Cookie is the session cookie of a login; nil clears it.
func Cookie(l *access.Login) *http.Cookie {
	k := &http.Cookie{Name: CookieName, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: -1}
	if l != nil {
		k.Value, k.Expires, k.MaxAge = l.Cookie, l.Expires, 0
	}
	return k
}

// patientReader reads a body of any length, as long as it never pauses for more than stall.
type patientReader struct {
	io.Reader
	rc    *http.ResponseController
	stall time.Duration
}

func (p patientReader) Read(b []byte) (int, error) {
	_ = p.rc.SetReadDeadline(time.Now().Add(p.stall))
	n, err := p.Reader.Read(b)
	if errors.Is(err, io.EOF) {
		_ = p.rc.SetReadDeadline(time.Time{})
	}
	return n, err
}

// Received lifts the time limit on a request's body once it is here. Left in place it would end the request: net/http goes
// on reading an HTTP/1 connection to notice a caller who left, and takes the deadline for one.
func Received(w http.ResponseWriter) { _ = http.NewResponseController(w).SetReadDeadline(time.Time{}) }

// Patient makes a request body that may take as long as it keeps moving, and so may the answer, which waits for it.
func (a *API) Patient(w http.ResponseWriter, body io.Reader) io.Reader {
	rc := http.NewResponseController(w)
	_, _ = rc.SetReadDeadline(time.Now().Add(a.StallTime)), rc.SetWriteDeadline(time.Time{})
	return patientReader{Reader: body, rc: rc, stall: a.StallTime}
}
