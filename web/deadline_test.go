package web_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
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

// An upload takes as long as it keeps moving, however little time there is to answer a request; one that stands still ends.
func TestUploadOutlivesTheLimitOfAnAnswer(t *testing.T) {
	for _, proto := range []string{"HTTP/1.1", "HTTP/2.0"} {
		web.Unhurried(t, func(t *testing.T, limit time.Duration) error {
			x := site(t)
			x.Server.AnswerTime = limit
			status, err := upload(t, x, proto, func(url string) bool { answerRunsOut(t, x, url); return true })
			if err != nil || status != 201 {
				return fmt.Errorf("%s: %d, %w", proto, status, err)
			}
			return nil
		})
		x := site(t)
		x.API.StallTime = 50 * time.Millisecond
		status, err := upload(t, x, proto, func(string) bool { return false })
		if err == nil && status == 201 { // the answer may be lost with the connection
			t.Errorf("%s: half an upload was taken", proto)
		}
	}
}

// upload sends half an upload and asks, once the catalog has that, whether to send the other half.
func upload(t *testing.T, x *webtest.Site, proto string, between func(url string) bool) (status int, err error) {
	begun := make(chan struct{})
	x.API.Catalog, x.API.Service = &begin{Catalog: x.Catalog, begun: begun}, silent{x.API.Service}
	c, url := client(t, x, app.RoleOperator)
	c.Transport.(with).RoundTripper.(*http.Transport).ForceAttemptHTTP2 = proto == "HTTP/2.0"
	in, out := io.Pipe()
	over := make(chan struct{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		defer close(over)
		_, _ = io.WriteString(out, "half")
		select {
		case <-begun:
		case <-ctx.Done():
			return
		}
		if between(url) {
			_, _ = io.WriteString(out, "half")
			_ = out.Close()
		}
	}()
	defer func() { cancel(); _ = in.Close(); <-over }()
	req, err := http.NewRequestWithContext(ctx, "PUT", url+"/api/v1/images/slow", in)
	if err != nil {
		return 0, err
	}
	req.ContentLength = 8
	req.Header.Set("Bcd-Image-Format", "raw")
	resp, err := c.Do(req)
	if err != nil {
		return 0, err
	}
	if resp.Proto != proto {
		t.Error(resp.Proto)
	}
	return resp.StatusCode, resp.Body.Close()
}

// begin says when the first bytes of an upload have come.
type begin struct {
	*webtest.Catalog
	begun chan struct{}
}

func (b *begin) Upload(ctx context.Context, actor string, in api.ImportInput, r io.Reader, size int64) (*app.Image, error) {
	first := make([]byte, 4)
	if _, err := io.ReadFull(r, first); err != nil {
		return nil, err
	}
	close(b.begun)
	return b.Catalog.Upload(ctx, actor, in, io.MultiReader(bytes.NewReader(first), r), size)
}

// silent answers no test of a BMC.
type silent struct{ api.Service }

func (silent) TestBMC(ctx context.Context, _ string, _ api.BMCInput) (*api.Card, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// answerRunsOut returns when a request that came later than all before has run out of its time to be answered.
func answerRunsOut(t *testing.T, x *webtest.Site, url string) {
	c := &http.Client{Transport: with{&http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}, x.As(app.RoleOperator)}}
	defer c.CloseIdleConnections()
	body := `{"driver":"redfish","address":"192.0.2.1","credentials":{"username":"u","password":"p"}}`
	req, _ := http.NewRequestWithContext(t.Context(), "POST", url+"/api/v1/machines/test-bmc", strings.NewReader(body))
	req.Header.Set("Content-Type", "application/json")
	if resp, err := c.Do(req); err == nil {
		_ = resp.Body.Close()
		t.Errorf("a use case that never ends was answered: %s", resp.Status)
	}
}
