package web_test

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/base64"
	"encoding/hex"
	"io"
	"mime/multipart"
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

// client talks HTTP/2 over TLS to a served site, as a role.
func client(t *testing.T, x *webtest.Site, role app.Role) (*http.Client, string) {
	t.Helper()
	cookie := x.As(role)
	tr := &http.Transport{ForceAttemptHTTP2: true, TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}
	t.Cleanup(tr.CloseIdleConnections)
	return &http.Client{Transport: with{tr, cookie}}, x.Serve()
}

type with struct {
	http.RoundTripper
	cookie string
}

func (w with) RoundTrip(r *http.Request) (*http.Response, error) {
	r = r.Clone(r.Context())
	r.AddCookie(&http.Cookie{Name: api.CookieName, Value: w.cookie})
	return w.RoundTripper.RoundTrip(r)
}

// ahead is a body that notes how far its sender is ahead of a catalog at most.
type ahead struct {
	io.Reader
	of   *webtest.Catalog
	sent int64
	most int64
}

func (a *ahead) Read(p []byte) (int, error) {
	n, err := a.Reader.Read(p)
	a.sent += int64(n)
	a.most = max(a.most, a.sent-a.of.Taken.Load())
	return n, err
}

type zeros struct{}

func (zeros) Read(p []byte) (int, error) { clear(p); return len(p), nil }

// An upload larger than any buffer reaches the catalog as it comes, over HTTP/2, with its length and digest.
func TestUploadStreams(t *testing.T) {
	x := site(t)
	c, url := client(t, x, app.RoleOperator)
	const size = 128 << 20
	h := sha256.New()
	if _, err := io.CopyN(h, zeros{}, size); err != nil {
		t.Fatal(err)
	}
	upload := &ahead{Reader: io.LimitReader(zeros{}, size), of: x.Catalog}
	req, _ := http.NewRequestWithContext(t.Context(), "PUT", url+"/api/v1/images/big", upload)
	req.ContentLength = size
	req.Header.Set("Content-Digest", "sha-256=:"+base64.StdEncoding.EncodeToString(h.Sum(nil))+":")
	req.Header.Set("Bcd-Image-Format", "raw")
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	body, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 201 || resp.ProtoMajor != 2 || x.Catalog.Read != size || x.Catalog.In.SHA256 != hex.EncodeToString(h.Sum(nil)) || x.Catalog.In.Format != "raw" {
		t.Fatalf("%d %s: %s; read %d, %+v", resp.StatusCode, resp.Proto, body, x.Catalog.Read, x.Catalog.In)
	}
	if upload.most > 48<<20 { // what windows and the kernel's buffers hold
		t.Errorf("%d bytes were kept on the way", upload.most)
	}
}

func TestUploadRefusals(t *testing.T) {
	x := site(t)
	c, url := client(t, x, app.RoleOperator)
	for _, k := range []struct {
		name, path, header, value string
		body                      io.Reader
		status                    int
	}{
		{"no length", "/api/v1/images/a", "X", "", io.MultiReader(strings.NewReader("abc")), 411},
		{"empty", "/api/v1/images/a", "X", "", http.NoBody, 400},
		{"digest of another kind", "/api/v1/images/a", "Content-Digest", "md5=:AAAA:", strings.NewReader("abc"), 400},
		{"digest too short", "/api/v1/images/a", "Content-Digest", "sha-256=:AAAA:", strings.NewReader("abc"), 400},
		{"name", "/api/v1/images/A", "X", "", strings.NewReader("abc"), 422},
		{"format", "/api/v1/images/a", "Bcd-Image-Format", "vmdk", strings.NewReader("abc"), 422},
	} {
		req, _ := http.NewRequestWithContext(t.Context(), "PUT", url+k.path, k.body)
		req.Header.Set(k.header, k.value)
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != k.status {
			t.Errorf("%s: %d, want %d", k.name, resp.StatusCode, k.status)
		}
	}
	if l, _ := x.Store.ListImages(t.Context()); len(l) != 0 {
		t.Errorf("left behind: %v", l)
	}
}

// The form of a browser without script streams too.
func TestFormUploadStreams(t *testing.T) {
	x := site(t)
	c, url := client(t, x, app.RoleOperator)
	c.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	pr, pw := io.Pipe()
	m := multipart.NewWriter(pw)
	go func() {
		_ = m.WriteField("name", "formed")
		_ = m.WriteField("sha256", "")
		f, _ := m.CreateFormFile("file", "x.raw")
		_, _ = io.CopyN(f, zeros{}, 8<<20)
		_ = m.Close()
		_ = pw.Close()
	}()
	resp, err := c.Post(url+"/images", m.FormDataContentType(), pr)
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	if resp.StatusCode != 303 || x.Catalog.Read != 8<<20 || x.Catalog.In.Name != "formed" {
		t.Errorf("%d, read %d, %+v", resp.StatusCode, x.Catalog.Read, x.Catalog.In)
	}
	var b bytes.Buffer
	m = multipart.NewWriter(&b)
	_ = m.WriteField("form", "upload")
	_ = m.WriteField("name", "No Good")
	f, _ := m.CreateFormFile("file", "x.raw")
	_, _ = f.Write([]byte("abc"))
	_ = m.Close()
	resp, err = c.Post(url+"/images", m.FormDataContentType(), &b)
	if err != nil {
		t.Fatal(err)
	}
	page, _ := io.ReadAll(resp.Body)
	_ = resp.Body.Close()
	if resp.StatusCode != 422 || !strings.Contains(string(page), "is not a valid name") || !strings.Contains(string(page), `value="No Good"`) {
		t.Errorf("%d %s", resp.StatusCode, page)
	}
}

// A stream brings what is told, each event once, resumes after Last-Event-ID, and ends with its session.
func TestEventStream(t *testing.T) {
	x := site(t)
	c, url := client(t, x, app.RoleViewer)
	say := func(msg string) {
		t.Helper()
		if err := x.Bus.Record(t.Context(), app.Event{Kind: "test.say", Message: msg}); err != nil {
			t.Fatal(err)
		}
	}
	say("first")
	read := func(last string) (*bufio.Scanner, context.CancelFunc) {
		t.Helper()
		ctx, cancel := context.WithCancel(t.Context())
		req, _ := http.NewRequestWithContext(ctx, "GET", url+"/api/v1/events/stream?kind=test.", nil)
		if last != "" {
			req.Header.Set("Last-Event-ID", last)
		}
		resp, err := c.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = resp.Body.Close() })
		if resp.StatusCode != 200 || resp.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("%d %v", resp.StatusCode, resp.Header)
		}
		s := bufio.NewScanner(resp.Body)
		s.Scan() // the greeting: the subscription stands
		return s, cancel
	}
	next := func(s *bufio.Scanner) (id, data string) {
		for s.Scan() {
			if v, ok := strings.CutPrefix(s.Text(), "id: "); ok {
				id = v
			}
			if v, ok := strings.CutPrefix(s.Text(), "data: "); ok {
				return id, v
			}
		}
		return "", ""
	}
	s, cancel := read("")
	say("second <b>\nwith a line & more")
	id, data := next(s)
	if !strings.Contains(data, `second \u003cb\u003e\nwith a line`) {
		t.Errorf("%s %s", id, data)
	}
	cancel()
	say("third")
	s, cancel = read(id)
	defer cancel()
	if _, data = next(s); !strings.Contains(data, "third") {
		t.Errorf("after a pause: %s", data)
	}
	say("fourth")
	if _, data = next(s); !strings.Contains(data, "fourth") {
		t.Errorf("live again: %s", data)
	}
}
