// Package console is the browser's face: pages rendered on the server, forms that are posted, and streams of fragments
// for what moves. It calls the API's route table in process, so that permissions and checks are the API's.
//
// Every page can be read and every form sent without JavaScript.
package console

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"regexp"
	"unicode/utf8"

	"github.com/a-h/templ"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console/views"
	"github.com/better-compute/bcd/web/problem"
)

// Limits of one request.
const (
	maxForm   = 256 << 10
	maxNotice = 300
)

// Config is what a console needs. Every field is required.
type Config struct {
	API *api.API
	Log *slog.Logger
}

// Console renders pages.
type Console struct {
	api *api.API
	log *slog.Logger
}

// New makes a console.
func New(c Config) *Console { return &Console{api: c.API, log: c.Log} }

// Page is one address of the console. Open ones need no login; what the others may do is decided by the API.
type Page struct {
	Method, Path string
	Open         bool
	Raw          bool // reads its own body, or streams
	handle       func(*Console, *request) error
}

// request is one visit to a page.
type request struct {
	*api.Call
	w    http.ResponseWriter
	r    *http.Request
	c    *Console
	page views.Page
	form url.Values
}

// Serve answers one request for a page. who may be nil.
func (c *Console) Serve(w http.ResponseWriter, r *http.Request, p Page, params map[string]string, who *access.Identity) {
	q := &request{w: w, r: r, c: c, Call: &api.Call{Context: r.Context(), Who: who, Remote: r.RemoteAddr, Path: params, Query: r.URL.Query()}}
	q.page.Who = who
	if who == nil && !p.Open {
		q.toLogin()
		return
	}
	err := q.readForm(p)
	if !p.Raw {
		api.Received(w)
	}
	if err == nil {
		err = p.handle(c, q)
	}
	if err != nil {
		c.Fail(w, r, who, err)
	}
}

// readForm reads a posted form; the query never takes part.
func (q *request) readForm(p Page) error {
	if q.r.Method != http.MethodPost || p.Raw {
		return nil
	}
	q.r.Body = http.MaxBytesReader(q.w, q.r.Body, maxForm)
	if err := q.r.ParseForm(); err != nil {
		return problem.Malformed("the form could not be read: it is larger than %d bytes or malformed", maxForm)
	}
	q.form = q.r.PostForm
	for _, values := range q.form {
		for _, v := range values {
			if !utf8.ValidString(v) {
				return problem.Malformed("the form is not plain text")
			}
		}
	}
	return nil
}

// Fail shows an error as a page.
func (c *Console) Fail(w http.ResponseWriter, r *http.Request, who *access.Identity, err error) {
	e := problem.Public(r.Context(), c.log, err)
	if e.Code == app.Unauthenticated && who == nil && r.Method == http.MethodGet {
		(&request{w: w, r: r, c: c}).toLogin()
		return
	}
	q := &request{w: w, r: r, c: c, Call: &api.Call{Context: r.Context(), Who: who, Remote: r.RemoteAddr}}
	q.page = views.Page{Title: "Something is wrong", Who: who, Err: e}
	view := views.FailureDoor
	if who != nil {
		view = views.Failure
		q.tryFrame()
	}
	render(w, r.Context(), problem.Status(e), view(q.page))
}

// tryFrame is frame for a page about an error, which must come even when the frame's facts are what is broken.
func (q *request) tryFrame() {
	defer func() {
		if v := recover(); v != nil {
			q.c.log.Error("panic in the frame of an error's page", "value", fmt.Sprint(v))
		}
	}()
	q.frame()
}

// frame collects what stands around every page.
func (q *request) frame() {
	if s, err := ask[api.Settings](q, "settings.get", nil); err == nil {
		q.page.Site = s.SiteName
	}
	if h, err := ask[api.List[api.Warning]](q, "health.get", nil); err == nil {
		for _, w := range h.Items {
			if w.Level != "info" {
				q.page.Warnings++
			}
		}
	}
}

// render writes a page, whole or not at all.
func render(w http.ResponseWriter, ctx context.Context, status int, view templ.Component) {
	var b bytes.Buffer
	if err := view.Render(ctx, &b); err != nil {
		http.Error(w, "the page could not be rendered", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
	_, _ = w.Write(b.Bytes())
}

// show renders a page that make builds from the frame's facts; an error that was kept sets the status.
func (q *request) show(title, here string, make func(views.Page) templ.Component) error {
	q.page.Title, q.page.Here = title, here
	q.page.Notice = q.takeNotice()
	q.frame()
	status := http.StatusOK
	if q.page.Err != nil {
		status = problem.Status(q.page.Err)
	}
	render(q.w, q.r.Context(), status, make(q.page))
	return nil
}

// refuse keeps an error to be shown on the page that the form stands on.
func (q *request) refuse(err error) {
	q.page.Err = problem.Public(q.r.Context(), q.c.log, err)
	q.page.Form = q.form
}

// ask calls a route of the API as the reader.
func ask[Out any](q *request, id string, in any) (Out, error) {
	return api.Ask[Out](q.c.api, q.Call, id, in)
}

// with calls a route with a query of its own.
func with[Out any](q *request, id string, query url.Values) (Out, error) {
	call := *q.Call
	call.Query = query
	return api.Ask[Out](q.c.api, &call, id, nil)
}

// at calls a route whose path has one other parameter than the page's.
func at[Out any](q *request, id, param, value string, in any) (Out, error) {
	call := *q.Call
	call.Path = map[string]string{param: value}
	call.Query = nil
	return api.Ask[Out](q.c.api, &call, id, in)
}

// done goes to a page with a notice of what was done.
func (q *request) done(to, notice string) error {
	if len(notice) > maxNotice {
		notice = notice[:maxNotice]
	}
	http.SetCookie(q.w, &http.Cookie{Name: noticeCookie, Value: base64.RawURLEncoding.EncodeToString([]byte(notice)), Path: "/", Secure: true,
		HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: 30})
	http.Redirect(q.w, q.r, to, http.StatusSeeOther)
	return nil
}

const noticeCookie = "__Host-bcd-notice"

// takeNotice reads the notice of the page before and clears it.
func (q *request) takeNotice() string {
	k, err := q.r.Cookie(noticeCookie)
	if err != nil {
		return ""
	}
	http.SetCookie(q.w, &http.Cookie{Name: noticeCookie, Path: "/", Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode, MaxAge: -1})
	b, err := base64.RawURLEncoding.DecodeString(k.Value)
	if err != nil || !utf8.Valid(b) || len(b) > maxNotice {
		return ""
	}
	return string(b)
}

// toLogin sends a reader who is nobody to the login, and back after it.
func (q *request) toLogin() {
	to := "/login"
	if q.r.Method == http.MethodGet && q.r.URL.Path != "/" {
		to += "?next=" + url.QueryEscape(q.r.URL.RequestURI())
	}
	if need, err := q.c.api.Access.NeedsSetup(q.r.Context()); err == nil && need {
		to = "/setup"
	}
	http.Redirect(q.w, q.r, to, http.StatusSeeOther)
}

var nextRE = regexp.MustCompile(`^/[A-Za-z0-9._~:@+-][A-Za-z0-9._~:@+/?&=%-]*$`)

// local is an address of this console, or the overview: a login must not lead elsewhere.
func local(next string) string {
	if len(next) > 500 || !nextRE.MatchString(next) {
		return "/"
	}
	return next
}

// drain reads what a refused upload still sends, a little, so that the browser sees the answer.
func drain(r io.Reader) { _, _ = io.CopyN(io.Discard, r, maxForm) }
