package web_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// reader is a caller's connection in the time of a test's bubble. It takes room bytes, and nothing more until its write
// deadline.
type reader struct {
	*httptest.ResponseRecorder
	mu       sync.Mutex // protects what follows
	room     int
	deadline time.Time
}

func (r *reader) SetReadDeadline(time.Time) error { return nil }

func (r *reader) SetWriteDeadline(t time.Time) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.deadline = t
	return nil
}

func (r *reader) Write(p []byte) (int, error) {
	r.mu.Lock()
	r.room -= len(p)
	room, late := r.room, r.deadline
	r.mu.Unlock()
	if room >= 0 {
		return r.ResponseRecorder.Write(p)
	}
	if late.IsZero() {
		select {} // for ever
	}
	time.Sleep(time.Until(late))
	return 0, os.ErrDeadlineExceeded
}

// inBubble opens node-1's console and calls then when it stands. It gives what the caller got in the end.
func inBubble(t *testing.T, room int, then func(t *testing.T, d *desk, print func(string) error)) *reader {
	t.Helper()
	out := &reader{ResponseRecorder: httptest.NewRecorder(), room: room}
	synctest.Test(t, func(t *testing.T) {
		d := &desk{t: t, site: site(t)}
		m := &app.Machine{ID: "m-1", Name: "node-1", State: app.StateReady, Drivers: map[string]app.Binding{"console": {Driver: "ipmi"}}}
		if err := d.site.Store.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		body, keys := io.Pipe()
		r := httptest.NewRequest("POST", "https://bcd.example/api/v1/machines/node-1/console", body).WithContext(t.Context())
		r.AddCookie(&http.Cookie{Name: api.CookieName, Value: d.site.As(app.RoleOperator)})
		over := make(chan struct{})
		go func() { defer close(over); d.site.Server.Handler().ServeHTTP(out, r) }()
		l := d.site.Lines.Next(t.Context())
		then(t, d, func(text string) error { _, err := io.WriteString(l, text); return err })
		<-l.Closed
		_ = keys.Close() // as the deadline of the body would, which this connection does not have
		<-over
	})
	return out
}

func (r *reader) end(t *testing.T) (e app.Error) {
	t.Helper()
	if text := r.Result().Trailer.Get(api.ConsoleEnd); text != "" {
		if err := json.Unmarshal([]byte(text), &e); err != nil {
			t.Fatal(err)
		}
	}
	return e
}

// A reader that takes nothing has the console for a minute more, and holds the machine's text only as far as it was asked for.
func TestASlowReaderOfASerialConsole(t *testing.T) {
	out := inBubble(t, 100, func(t *testing.T, d *desk, print func(string) error) {
		if err := print("login: "); err != nil {
			t.Error(err)
		}
		begun := time.Now()
		var err error
		for err == nil {
			err = print(string(make([]byte, 50)))
		}
		if took := time.Since(begun); took < 30*time.Second || took > 2*time.Minute {
			t.Errorf("it was let go after %v", took)
		}
	})
	if e := out.end(t); e.Reason != "reader-gone" {
		t.Errorf("the end is %+v", e)
	}
}

// Who may no longer have a console loses it, though nobody types and the machine is still.
func TestASerialConsoleOfSomebodyWhoMayNot(t *testing.T) {
	out := inBubble(t, 1000, func(t *testing.T, d *desk, print func(string) error) {
		time.Sleep(10 * time.Minute) // it stands still, and no deadline ends it
		if err := print("still here"); err != nil {
			t.Error(err)
		}
		u, err := d.site.Store.User(t.Context(), string(app.RoleOperator))
		if err == nil {
			_, err = d.site.Access.CreateUser(t.Context(), "test", "boss", "a long enough password", app.RoleAdmin)
		}
		if err == nil {
			err = d.site.Access.DeleteUser(t.Context(), "test", u.ID)
		}
		if err != nil {
			t.Error(err)
		}
	})
	if e := out.end(t); e.Reason != "not-logged-in" || out.Body.String() != "still here" {
		t.Errorf("the end is %+v after %q", e, out.Body)
	}
}

// A machine that gets another name keeps its console open, though it was opened by the old one; a deleted one does not.
func TestASerialConsoleOfARenamedMachine(t *testing.T) {
	out := inBubble(t, 1000, func(t *testing.T, d *desk, print func(string) error) {
		if _, err := d.site.Store.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.Name = "node-7"; return nil }); err != nil {
			t.Error(err)
		}
		time.Sleep(10 * time.Minute)
		if err := print("still here"); err != nil {
			t.Error(err)
		}
		if err := d.site.Store.DeleteMachine(t.Context(), "m-1"); err != nil {
			t.Error(err)
		}
	})
	if e := out.end(t); e.Reason != "machine-not-found" || out.Body.String() != "still here" {
		t.Errorf("the end is %+v after %q", e, out.Body)
	}
}
