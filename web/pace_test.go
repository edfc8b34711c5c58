package web

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/web/keypair"
)

// patience bounds waits for what must come: only a test that fails waits so long.
const patience = time.Minute

// pace is a server with short limits whose handlers are a test's.
type pace struct {
	t    *testing.T
	url  string
	plan map[string]http.HandlerFunc
}

// newPace serves. The limit of an answer is one of the TLS handshake too: a short one is for those who try again.
func newPace(t *testing.T, body, answer, part time.Duration) *pace {
	t.Helper()
	dir := t.TempDir()
	log := slog.New(slog.DiscardHandler)
	pair, err := keypair.Open(keypair.Config{KeyFile: filepath.Join(dir, "tls.key"), CertFile: filepath.Join(dir, "tls.crt"), Log: log})
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &pace{t: t, url: "https://" + l.Addr().String(), plan: map[string]http.HandlerFunc{}}
	s := &Server{Config: Config{Listener: l, Pair: pair, Log: log, BodyTime: body, AnswerTime: answer, PartTime: part}, csrf: http.NewCrossOriginProtection()}
	s.handler = s.guard(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { p.plan[r.URL.Path](w, r) }))
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return p
}

// client speaks one protocol.
func (p *pace) client(proto string) *http.Client {
	tr := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, Protocols: new(http.Protocols)}
	tr.Protocols.SetHTTP1(proto == "HTTP/1.1")
	tr.Protocols.SetHTTP2(proto == "HTTP/2.0")
	p.t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: tr}
}

// Unhurried runs what a machine that is held up may fail at, as limits pass before it gets there, under longer and longer ones.
func Unhurried(t *testing.T, try func(t *testing.T, limit time.Duration) error) {
	t.Helper()
	var err error
	for limit := 50 * time.Millisecond; limit < 30*time.Second; limit *= 5 {
		if err = try(t, limit); err == nil {
			return
		}
	}
	t.Error(err)
}

// whole reads an answer of so many bytes, once a request that came later has run out of its time and the handler was told.
func (p *pace) whole(proto, path string, bytes int, resume chan<- struct{}) error {
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		return err
	}
	resp, err := p.client(proto).Do(req)
	if err != nil {
		close(resume)
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	p.overdue()
	close(resume)
	b, err := io.ReadAll(resp.Body)
	if err != nil || len(b) != bytes || resp.Proto != proto {
		return fmt.Errorf("%s: %d bytes: %w", resp.Proto, len(b), err)
	}
	return nil
}

func (p *pace) get(c *http.Client, path string) *http.Response {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+path, nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := c.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	p.t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

// overdue returns once a request that came later than all before it has run out of its time to be answered.
func (p *pace) overdue() {
	p.t.Helper()
	p.plan["/silent"] = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	req, err := http.NewRequestWithContext(p.t.Context(), http.MethodGet, p.url+"/silent", nil)
	if err != nil {
		p.t.Fatal(err)
	}
	resp, err := p.client("HTTP/2.0").Do(req)
	if err == nil {
		_ = resp.Body.Close()
		p.t.Fatalf("a handler that never answers was answered: %s", resp.Status)
	}
}

var protocols = []string{"HTTP/1.1", "HTTP/2.0"}

// A reader that takes in no more is let go, in whatever protocol, though its connection stays open.
func TestAStalledReaderIsLetGo(t *testing.T) {
	for _, proto := range protocols {
		t.Run(proto, func(t *testing.T) {
			p := newPace(t, time.Hour, time.Hour, 50*time.Millisecond)
			ended := make(chan error, 1)
			p.plan["/endless"] = func(w http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(w)
				_, _ = rc.SetWriteDeadline(time.Time{}), rc.Flush() // holds until the first write: the head leaves, however late
				for block := make([]byte, 1<<20); ; {
					if _, err := w.Write(block); err != nil {
						ended <- err
						return
					}
				}
			}
			resp := p.get(p.client(proto), "/endless")
			if resp.Proto != proto {
				t.Fatal(resp.Proto)
			}
			select {
			case <-ended:
			case <-time.After(patience):
				t.Fatal("the handler still writes")
			}
		})
	}
}

// A connection that takes in nothing at all is closed, and so are its requests.
func TestAStalledConnectionIsClosed(t *testing.T) {
	p := newPace(t, time.Hour, time.Hour, 50*time.Millisecond)
	ended := make(chan error, 1)
	p.plan["/endless"] = func(w http.ResponseWriter, _ *http.Request) {
		for block := make([]byte, 1<<20); ; {
			if _, err := w.Write(block); err != nil {
				ended <- err
				return
			}
		}
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "GET /endless HTTP/1.1\r\nHost: bcd.example\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-ended:
	case <-time.After(patience):
		t.Fatal("the handler still writes")
	}
}

// An answer may take longer than its beginning may, and one that is written in time leaves whole.
func TestALongAnswerOutlivesTheLimits(t *testing.T) {
	for _, proto := range protocols {
		Unhurried(t, func(t *testing.T, limit time.Duration) error {
			p := newPace(t, time.Hour, limit, time.Hour)
			resume := make(chan struct{})
			p.plan["/long"] = func(w http.ResponseWriter, _ *http.Request) {
				_, _ = io.WriteString(w, "begun ")
				_ = http.NewResponseController(w).Flush()
				<-resume
				_, _ = w.Write(make([]byte, 3*partSize))
			}
			return p.whole(proto, "/long", len("begun ")+3*partSize, resume)
		})
	}
}

// A handler that allows itself no end has none: a console may be still for long.
func TestAHandlerMayLiftTheLimit(t *testing.T) {
	for _, proto := range protocols {
		Unhurried(t, func(t *testing.T, limit time.Duration) error {
			p := newPace(t, time.Hour, limit, limit)
			resume := make(chan struct{})
			p.plan["/console"] = func(w http.ResponseWriter, _ *http.Request) {
				rc := http.NewResponseController(w)
				_, _ = io.WriteString(w, "login: ")
				_, _ = rc.Flush(), rc.SetWriteDeadline(time.Time{})
				<-resume
				_, _ = io.WriteString(w, "bye")
			}
			return p.whole(proto, "/console", len("login: bye"), resume)
		})
	}
}

// The limit of one request, past by the time of the next on its connection, does not stay for that.
func TestALimitEndsWithItsRequest(t *testing.T) {
	p := newPace(t, time.Hour, time.Hour, time.Hour)
	p.plan["/first"] = func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "5")
		_, _ = io.WriteString(w, "first")
		_ = http.NewResponseController(w).Flush()
		w.(*paced).part = -time.Hour // all has left: what is set now is met by the next request alone
	}
	p.plan["/next"] = func(w http.ResponseWriter, _ *http.Request) {
		if err := http.NewResponseController(w).Flush(); err != nil { // sets no limit itself
			t.Error(err)
		}
	}
	c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	in := bufio.NewReader(c)
	for _, path := range []string{"/first", "/next"} {
		if _, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: bcd.example\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		resp, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Fatalf("%s: %v", path, err)
		}
		if _, err := io.Copy(io.Discard, resp.Body); err != nil {
			t.Fatalf("%s: %v", path, err)
		}
	}
}

// Who was refused and then sends nothing of the body that was announced holds no connection: net/http waits for that body.
func TestARefusedBodyIsNotWaitedForLong(t *testing.T) {
	p := newPace(t, 50*time.Millisecond, time.Hour, time.Hour)
	p.plan["/refused"] = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }
	c, err := tls.Dial("tcp", strings.TrimPrefix(p.url, "https://"), &tls.Config{InsecureSkipVerify: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	if _, err := io.WriteString(c, "POST /refused HTTP/1.1\r\nHost: bcd.example\r\nContent-Length: 100\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	_ = c.SetReadDeadline(time.Now().Add(patience))
	answer, err := io.ReadAll(c)
	if err != nil || !strings.HasPrefix(string(answer), "HTTP/1.1 403 ") {
		t.Errorf("%q, %v", answer, err)
	}
}
