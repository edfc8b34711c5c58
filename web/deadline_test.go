package web_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// limited notes the read deadlines that a handler sets.
type limited struct {
	*httptest.ResponseRecorder
	mu   sync.Mutex
	last time.Time
	set  int
}

func (l *limited) SetReadDeadline(t time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.set = t, l.set+1
	return nil
}

func (l *limited) SetWriteDeadline(time.Time) error { return nil }

// slow looks at the deadline when the use case is reached: from there on a BMC may take a minute.
type slow struct {
	api.Service
	w  *limited
	ok bool
}

func (s *slow) TestBMC(context.Context, string, api.BMCInput) (*api.Card, error) {
	s.w.mu.Lock()
	defer s.w.mu.Unlock()
	s.ok = s.w.set >= 2 && s.w.last.IsZero()
	return &api.Card{OK: true}, nil
}

// The limit on sending a body ends with the body. Over HTTP/1 it would end the request itself.
func TestBodyLimitDoesNotOutliveTheBody(t *testing.T) {
	for name, c := range map[string]struct{ target, kind, body string }{
		"api":     {"/api/v1/machines/test-bmc", "application/json", `{"driver":"redfish","address":"192.0.2.1","credentials":{"username":"u","password":"p"}}`},
		"console": {"/machines/enroll", "application/x-www-form-urlencoded", "do=test&bmc.driver=redfish&bmc.address=192.0.2.1&username=u&password=p"},
	} {
		x := site(t)
		w := &limited{ResponseRecorder: httptest.NewRecorder()}
		s := &slow{Service: x.API.Service, w: w}
		x.API.Service = s
		r := httptest.NewRequest("POST", "https://bcd.example"+c.target, strings.NewReader(c.body))
		r.Header.Set("Content-Type", c.kind)
		r.AddCookie(&http.Cookie{Name: api.CookieName, Value: x.As(app.RoleOperator)})
		if x.Server.Handler().ServeHTTP(w, r); w.Code != 200 || !s.ok {
			t.Errorf("%s: %d, limit lifted: %v (%d set, last %v)", name, w.Code, s.ok, w.set, w.last)
		}
	}
}
