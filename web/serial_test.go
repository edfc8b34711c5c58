package web_test

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/problem"
	"github.com/better-compute/bcd/web/webtest"
)

// desk opens serial consoles of a served site over one version of HTTP.
type desk struct {
	t    *testing.T
	site *webtest.Site
	url  string
	tr   *http.Transport
}

// overBoth runs a test over HTTP/2 and over HTTP/1.1, on a site with node-1, which has a serial console, and node-2, which
// has none.
func overBoth(t *testing.T, f func(t *testing.T, d *desk)) {
	for name, two := range map[string]bool{"HTTP/2": true, "HTTP/1.1": false} {
		t.Run(name, func(t *testing.T) {
			d := &desk{t: t, site: site(t)}
			for _, m := range []*app.Machine{
				{ID: "m-1", Name: "node-1", State: app.StateReady, BMC: &app.BMC{Driver: "ipmi", Address: "192.0.2.11"}, Drivers: map[string]app.Binding{"console": {Driver: "ipmi"}}},
				{ID: "m-2", Name: "node-2", State: app.StateReady},
			} {
				if err := d.site.Store.CreateMachine(t.Context(), m); err != nil {
					t.Fatal(err)
				}
			}
			d.url = d.site.Serve()
			d.tr = &http.Transport{ForceAttemptHTTP2: two, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
			t.Cleanup(d.tr.CloseIdleConnections)
			f(t, d)
		})
	}
}

// visit is one caller's open console.
type visit struct {
	t    *testing.T
	resp *http.Response
	keys *io.PipeWriter
	line *webtest.Line
}

// post asks for a console and gives the answer, whatever it is.
func (d *desk) post(role app.Role, machine, take string, body io.Reader) *http.Response {
	d.t.Helper()
	req, err := http.NewRequestWithContext(d.t.Context(), "POST", d.url+"/api/v1/machines/"+machine+"/console", body)
	if err != nil {
		d.t.Fatal(err)
	}
	if take != "" {
		req.Header.Set(api.ConsoleTake, take)
	}
	c := http.Client{Transport: d.tr}
	if role != "" {
		c.Transport = with{d.tr, d.site.As(role)}
	}
	resp, err := c.Do(req)
	if err != nil {
		d.t.Fatal(err)
	}
	d.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (d *desk) open(role app.Role, take string) *visit {
	d.t.Helper()
	body, keys := io.Pipe()
	v := &visit{t: d.t, keys: keys, resp: d.post(role, "node-1", take, body)}
	if v.resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(v.resp.Body)
		d.t.Fatalf("opening: %d %s", v.resp.StatusCode, b)
	}
	if v.line = d.site.Lines.Next(d.t.Context()); v.line == nil {
		d.t.Fatal("no console was opened")
	}
	d.t.Cleanup(func() { _ = keys.Close() })
	return v
}

// types sends keys and sees them at the machine.
func (v *visit) types(text string) {
	v.t.Helper()
	go func() { _, _ = io.WriteString(v.keys, text) }()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(v.line, b); err != nil || string(b) != text {
		v.t.Fatalf("the machine got %q, %v", b, err)
	}
}

// prints lets the machine print and sees it at the caller.
func (v *visit) prints(text string) {
	v.t.Helper()
	go func() { _, _ = io.WriteString(v.line, text) }()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(v.resp.Body, b); err != nil || string(b) != text {
		v.t.Fatalf("the caller got %q, %v", b, err)
	}
}

// end waits for the end and gives why.
func (v *visit) end() *app.Error {
	v.t.Helper()
	if _, err := io.ReadAll(v.resp.Body); err != nil {
		v.t.Fatalf("it ended with %v", err)
	}
	<-v.line.Closed
	text := v.resp.Trailer.Get(api.ConsoleEnd)
	if text == "" {
		return nil
	}
	var e app.Error
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		v.t.Fatalf("the end says %q", text)
	}
	return &e
}

func TestASerialConsoleCarriesBothWays(t *testing.T) {
	overBoth(t, func(t *testing.T, d *desk) {
		v := d.open(app.RoleOperator, "")
		var state api.ConsoleState
		if err := json.Unmarshal([]byte(v.resp.Header.Get(api.ConsoleHead)), &state); err != nil || state.Machine != "node-1" || state.Driver != "ipmi" || state.BMC != "192.0.2.11" || state.Holder != "operator" || state.Since.IsZero() {
			t.Errorf("it says %+v, %v", state, err)
		}
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		v.prints("login: ")
		v.types("root\r")
		v.prints(string(all))
		v.types(string(all))
		large := strings.Repeat("0123456789abcdef", 1<<16) // beyond every window, both ways
		v.prints(large)
		v.types(large)
		if err := v.keys.Close(); err != nil {
			t.Error(err)
		}
		if e := v.end(); e != nil {
			t.Errorf("a console that its caller closed ends with %v", e)
		}
		d.open(app.RoleOperator, "").types("again")
	})
}

func TestASerialConsoleIsRefused(t *testing.T) {
	overBoth(t, func(t *testing.T, d *desk) {
		_ = d.open(app.RoleOperator, "")
		for _, k := range []struct {
			role                  app.Role
			machine, take, reason string
			status                int
		}{
			{"", "node-1", "", "not-logged-in", 401},
			{app.RoleViewer, "node-1", "", "permission-missing", 403},
			{app.RoleOperator, "node-9", "", "machine-not-found", 404},
			{app.RoleOperator, "node-2", "", "no-console", 422},
			{app.RoleOperator, "node-1", "perhaps", "invalid-field", 422},
			{app.RoleAdmin, "node-1", "", "console-taken", 409},
		} {
			body, keys := io.Pipe() // which never ends by itself
			resp := d.post(k.role, k.machine, k.take, body)
			var p problem.Body
			if err := json.NewDecoder(resp.Body).Decode(&p); err != nil || resp.StatusCode != k.status || p.Error.Message == "" {
				t.Errorf("%+v: %d %+v, %v", k, resp.StatusCode, p, err)
			}
			if p.Error.Reason != k.reason {
				t.Errorf("%+v: reason %q", k, p.Error.Reason)
			}
			_ = resp.Body.Close()
			_ = keys.Close()
		}
	})
}

func TestASerialConsoleIsTakenOver(t *testing.T) {
	overBoth(t, func(t *testing.T, d *desk) {
		first := d.open(app.RoleOperator, "")
		second := d.open(app.RoleAdmin, "true")
		if e := first.end(); e == nil || e.Reason != "console-taken-over" || e.Message != "admin took the console of node-1 over" || e.WayOut == "" {
			t.Errorf("the first is told %+v", e)
		}
		second.types("mine")
		if who, _ := d.site.Serials.Holder("m-1"); who != "admin" {
			t.Errorf("held by %q", who)
		}
	})
}

func TestASerialConsoleEnds(t *testing.T) {
	ends := map[string]func(d *desk, v *visit){
		"machine-leaves": func(d *desk, _ *visit) {
			d.site.Serials.End(d.t.Context(), "m-1", app.Errorf(app.Conflict, "machine-leaves", "jürgen asked to delete node-1\x7f\u2028"))
		},
		"console-ended": func(_ *desk, v *visit) { v.line.HangUp(nil) },
		"bmc-error": func(_ *desk, v *visit) {
			v.line.HangUp(app.Errorf(app.Unavailable, "bmc-error", "%s", strings.Repeat("it broke ", 1000)))
		},
		"internal": func(_ *desk, v *visit) { v.line.HangUp(errors.New("not for people")) },
	}
	overBoth(t, func(t *testing.T, d *desk) {
		for reason, end := range ends {
			v := d.open(app.RoleOperator, "")
			v.prints("login: ")
			end(d, v)
			e := v.end()
			if e == nil || e.Reason != reason {
				t.Fatalf("it ended with %+v, want %s", e, reason)
			}
			if reason == "machine-leaves" && e.Message != "jürgen asked to delete node-1\x7f\u2028" {
				t.Errorf("it says %q", e.Message)
			}
			if strings.Contains(e.Message, "not for people") {
				t.Errorf("it says %q", e.Message)
			}
		}
	})
}

// A caller who vanishes leaves the console free.
func TestACallerOfASerialConsoleVanishes(t *testing.T) {
	overBoth(t, func(t *testing.T, d *desk) {
		v := d.open(app.RoleOperator, "")
		v.types("ls")
		_ = v.keys.CloseWithError(errors.New("the cable was pulled"))
		_ = v.resp.Body.Close()
		d.tr.CloseIdleConnections()
		<-v.line.Closed
		d.open(app.RoleAdmin, "true").prints("free")
	})
}

func TestTheStateOfASerialConsole(t *testing.T) {
	x := site(t)
	for _, m := range []*app.Machine{{ID: "m-1", Name: "node-1", Drivers: map[string]app.Binding{"console": {Driver: "ipmi"}}}, {ID: "m-2", Name: "node-2"}} {
		if err := x.Store.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	get := func(name string) (s api.ConsoleState) {
		w := x.Do("GET", "/api/v1/machines/"+name+"/console", x.As(app.RoleViewer), "")
		if err := json.Unmarshal(w.Body.Bytes(), &s); err != nil || w.Code != 200 {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return s
	}
	if s := get("node-1"); s.Driver != "ipmi" || s.Holder != "" || s.Lacks != nil {
		t.Errorf("free: %+v", s)
	}
	m, _ := x.Store.Machine(t.Context(), "node-1")
	open, err := x.Serials.Open(t.Context(), serial.Person{Name: "alice"}, m, false)
	if err != nil {
		t.Fatal(err)
	}
	if s := get("node-1"); s.Holder != "alice" || !s.Since.Equal(open.Since()) {
		t.Errorf("held: %+v", s)
	}
	_ = open.Close()
	if s := get("node-2"); s.Lacks == nil || s.Lacks.Reason != "no-console" || s.Lacks.WayOut == "" {
		t.Errorf("without one: %+v", s)
	}
}

func TestASerialConsoleIsDescribed(t *testing.T) {
	var doc struct {
		Paths map[string]map[string]struct {
			Parameters  []struct{ Name, In string }
			RequestBody struct{ Content map[string]any }
			Responses   map[string]struct{ Content map[string]any }
		}
	}
	x := site(t)
	if err := json.Unmarshal(x.Do("GET", "/api/v1/openapi.json", x.As(app.RoleViewer), "").Body.Bytes(), &doc); err != nil {
		t.Fatal(err)
	}
	post := doc.Paths["/api/v1/machines/{id}/console"]["post"]
	const octets = "application/octet-stream"
	if post.RequestBody.Content[octets] == nil || post.Responses["200"].Content[octets] == nil || len(post.Parameters) != 2 || post.Parameters[1].Name != api.ConsoleTake {
		t.Errorf("it is described as %+v", post)
	}
}
