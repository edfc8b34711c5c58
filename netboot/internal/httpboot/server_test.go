package httpboot

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/better-compute/bcd/app"
)

type fixture struct {
	addr    string
	mu      sync.Mutex
	records []Transfer
	asked   ScriptRequest
}

func (f *fixture) last() Transfer {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.records) == 0 {
		return Transfer{}
	}
	return f.records[len(f.records)-1]
}

var big = bytes.Repeat([]byte("bcd!"), 1<<18) // 1 MiB

// start serves a temporary folder, with a canary outside it.
func start(t *testing.T) *fixture {
	t.Helper()
	dir := t.TempDir()
	must(t, os.MkdirAll(filepath.Join(dir, "public", "sub"), 0o700))
	must(t, os.WriteFile(filepath.Join(dir, "canary"), []byte("CANARY"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "public", "pack"), big, 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "public", "sub", "x"), []byte("deep"), 0o600))
	f := &fixture{}
	root, err := os.OpenRoot(filepath.Join(dir, "public"))
	must(t, err)
	t.Cleanup(func() { _ = root.Close() })
	open := func(_ context.Context, rest string) (*os.File, error) { return root.Open(rest) }
	kernel := func(context.Context, string) (*os.File, error) { return root.Open("pack") }
	s := New(Config{
		Loaders: fstest.MapFS{"snponly.efi": {Data: []byte("MZ loader")}},
		Script: func(_ context.Context, r ScriptRequest) string {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.asked = r
			return "#!ipxe\n"
		},
		BootData: func(_ context.Context, key string) ([]byte, error) {
			if key != "k3y" {
				return nil, app.Missing("boot", key)
			}
			return []byte("070701 data"), nil
		},
		Mounts: []Mount{{Prefix: "/images/", Open: open}, {Prefix: "/boot/kernel", Open: kernel}, {Prefix: "/quiet/", Open: open, Quiet: true}},
		Handlers: []Handler{{Prefix: "/phone-home/", Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			b, _ := io.ReadAll(r.Body)
			fmt.Fprintf(w, "%s %s %d", r.Method, r.URL.Path, len(b))
		})}},
		Record: func(x Transfer) { f.mu.Lock(); f.records = append(f.records, x); f.mu.Unlock() },
		Log:    slog.New(slog.DiscardHandler),
	})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	f.addr = l.Addr().String()
	ended := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
	return f
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// raw sends a request as it stands and gives status, headers and body.
func (f *fixture) raw(t *testing.T, method, target string, headers ...string) (*http.Response, string) {
	t.Helper()
	c, err := net.Dial("tcp4", f.addr)
	must(t, err)
	defer func() { _ = c.Close() }()
	_, err = fmt.Fprintf(c, "%s %s HTTP/1.1\r\nHost: bcd\r\nConnection: close\r\n%s\r\n", method, target, strings.Join(append(headers, ""), "\r\n"))
	must(t, err)
	in := bufio.NewReader(c)
	resp, err := http.ReadResponse(in, &http.Request{Method: method})
	must(t, err)
	b, _ := io.ReadAll(resp.Body)
	_, _ = io.Copy(io.Discard, in) // the server hangs up after it made its record
	return resp, string(b)
}

// Case 27: firmware follows no redirect, so none is ever given.
func TestNeverARedirect(t *testing.T) {
	f := start(t)
	for target, want := range map[string]int{
		"/ipxe/snponly.efi": 200, "/ipxe//snponly.efi": 200, "//ipxe/snponly.efi": 200, "/ipxe/./snponly.efi": 200,
		"///ipxe///snponly.efi": 200, "/ipxe": 404, "/ipxe/": 404, "/": 404, "//": 404, "/images": 404, "/images/": 404,
		"/images/sub": 404, "/images/sub/": 404, "/images/sub/x": 200, "/boot/kernel": 200, "/boot/kernel/": 404, "/nothing": 404,
		"/boot/k3y/bootdata.cpio": 200, "/boot/other/bootdata.cpio": 404, "http://elsewhere.example/ipxe/snponly.efi": 200,
		"/boot/script": 200, "/boot/script?mac=x": 200,
	} {
		for _, method := range []string{"GET", "HEAD"} {
			resp, body := f.raw(t, method, target)
			if resp.StatusCode != want {
				t.Errorf("%s %s: %d, want %d", method, target, resp.StatusCode, want)
			}
			if method == "HEAD" && body != "" {
				t.Errorf("HEAD %s has a body", target)
			}
		}
	}
}

func TestTraversal(t *testing.T) {
	f := start(t)
	for _, target := range []string{
		"/images/..%2fcanary", "/images/%2e%2e/canary", "/images/..%5ccanary", `/images/..\canary`, "/images/../canary", "/../canary",
		"../canary", "/images/sub/../../canary", "/images/canary%00", "/images/%2e%2e%2fcanary", "/images/..%2Fcanary", "/ipxe/../images/../canary",
		"/boot/../canary", "/boot/..%2f/bootdata.cpio", "/images//../../canary", "/images/%252e%252e/canary", "/images/a%0d%0ab",
	} {
		resp, body := f.raw(t, "GET", target)
		if resp.StatusCode < 400 || resp.StatusCode >= 500 || strings.Contains(body, "CANARY") {
			t.Errorf("GET %s: %d %q", target, resp.StatusCode, body)
		}
	}
}

func TestRangesAndETag(t *testing.T) {
	f := start(t)
	resp, body := f.raw(t, "GET", "/images/pack", "Range: bytes=4-11")
	if resp.StatusCode != 206 || body != "bcd!bcd!" || resp.Header.Get("Content-Range") != "bytes 4-11/1048576" {
		t.Errorf("range: %d %q %q", resp.StatusCode, body, resp.Header.Get("Content-Range"))
	}
	tag := resp.Header.Get("ETag")
	if tag == "" || strings.HasPrefix(tag, "W/") {
		t.Fatalf("ETag is %q", tag)
	}
	if resp, _ := f.raw(t, "GET", "/images/pack", "If-None-Match: "+tag); resp.StatusCode != 304 {
		t.Errorf("same ETag: %d", resp.StatusCode)
	}
	if resp, _ := f.raw(t, "GET", "/images/pack", "Range: bytes=9999999-"); resp.StatusCode != 416 {
		t.Errorf("range beyond the end: %d", resp.StatusCode)
	}
	if resp, body := f.raw(t, "GET", "/images/pack"); body != string(big) || resp.ContentLength != int64(len(big)) {
		t.Errorf("whole file: %d bytes", len(body))
	}
}

func TestBootDataIsTheSameEachTime(t *testing.T) {
	f := start(t)
	first, a := f.raw(t, "GET", "/boot/k3y/bootdata.cpio")
	second, b := f.raw(t, "GET", "/boot/k3y/bootdata.cpio")
	if a != "070701 data" || a != b || first.Header.Get("ETag") != second.Header.Get("ETag") {
		t.Errorf("%q and %q", a, b)
	}
}

// Case 31: by the port that booted, in whatever form its MAC address comes.
func TestScriptIdentifiesTheMachine(t *testing.T) {
	f := start(t)
	for _, target := range []string{
		"/boot/script?mac=00-00-5e-00-53-01", "/boot/script?mac=00:00:5e:00:53:01", "/boot/script?mac=00%3A00%3A5E%3A00%3A53%3A01",
		"/boot/script?mac=&mac=00-00-5E-00-53-01&uuid=01020304-0506-0708-090a-0b0c0d0e0f10", "/boot/script?mac=%24%7Bmac%7D&macs=000000000000&macs=00005e005301",
	} {
		f.raw(t, "GET", target)
		f.mu.Lock()
		if len(f.asked.MACs) != 1 || f.asked.MACs[0] != "00:00:5e:00:53:01" || f.asked.Base != "http://"+f.addr {
			t.Errorf("%s was understood as %+v", target, f.asked)
		}
		f.mu.Unlock()
	}
}

func TestMethodsAndHandlers(t *testing.T) {
	f := start(t)
	if resp, _ := f.raw(t, "POST", "/images/pack"); resp.StatusCode != 405 {
		t.Errorf("POST on a file: %d", resp.StatusCode)
	}
	if _, body := f.raw(t, "POST", "/phone-home/s3cret", "Content-Length: 0"); body != "POST /phone-home/s3cret 0" {
		t.Errorf("handler got %q", body)
	}
}

func TestRecords(t *testing.T) {
	f := start(t)
	f.raw(t, "GET", "/images/pack", "User-Agent: iPXE/1.0")
	if x := f.last(); x.Bytes != int64(len(big)) || x.Size != x.Bytes || x.Status != 200 || x.Agent != "iPXE/1.0" || !x.Remote.IsLoopback() {
		t.Errorf("recorded %+v", x)
	}
	f.raw(t, "GET", "/boot/k3y/bootdata.cpio")
	if x := f.last(); x.Path != "/boot/KEY/bootdata.cpio" {
		t.Errorf("the key of boot data was recorded: %+v", x)
	}
	for _, target := range []string{"/phone-home/s3cret", "//phone-home/s3cret", "/phone-home/s3cret/../x", "//phone-home/s3cret/..%2fx"} {
		f.raw(t, "GET", target)
		if x := f.last(); strings.Contains(x.Path, "s3cret") {
			t.Errorf("the secret in %s was recorded: %+v", target, x)
		}
	}
	f.raw(t, "GET", "/images/pack")
	f.raw(t, "GET", "/quiet/sub/x")
	if x := f.last(); x.Path != "/images/pack" {
		t.Errorf("a quiet mount recorded %+v", x)
	}
	f.raw(t, "GET", "/quiet/missing")
	if x := f.last(); x.Status != 404 {
		t.Errorf("a failure on a quiet mount was not recorded: %+v", x)
	}
}

func TestBytesThatLeaveAreTold(t *testing.T) {
	const size = 2*partSize + 12345
	name := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(name, bytes.Repeat([]byte("x"), size), 0o600))
	var mu sync.Mutex
	var told []int64
	s := New(Config{
		Mounts: []Mount{{Prefix: "/iso/", Quiet: true, Open: func(_ context.Context, rest string) (*os.File, error) {
			return os.Open(filepath.Join(filepath.Dir(name), rest))
		},
			Sent: func(rest string, n int64) {
				mu.Lock()
				defer mu.Unlock()
				if rest != "image" {
					t.Errorf("told of %q", rest)
				}
				told = append(told, n)
			}}},
		Record: func(Transfer) {}, Log: slog.New(slog.DiscardHandler),
	})
	for _, c := range []struct {
		method, path, span string
		parts              int
		sum                int64
	}{
		{"GET", "/iso/image", "", 3, size}, {"GET", "/iso/image", "bytes=2048-4095", 1, 2048}, {"HEAD", "/iso/image", "", 0, 0},
		{"GET", "/iso/image", "bytes=999999999-", 0, 0}, {"GET", "/iso/none", "", 0, 0},
	} {
		told = nil
		l := httptest.NewServer(s)
		r, err := http.NewRequestWithContext(t.Context(), c.method, l.URL+c.path, nil)
		must(t, err)
		if c.span != "" {
			r.Header.Set("Range", c.span)
		}
		resp, err := l.Client().Do(r)
		must(t, err)
		n, err := io.Copy(io.Discard, resp.Body)
		must(t, err)
		_ = resp.Body.Close()
		l.Close() // waits for the handler
		var sum int64
		for _, x := range told {
			sum += x
		}
		if len(told) != c.parts || sum != c.sum || resp.StatusCode < 400 && n != c.sum {
			t.Errorf("%s %s %q: %d bytes came, told of %v", c.method, c.path, c.span, n, told)
		}
	}
}

func FuzzResolve(f *testing.F) {
	for _, s := range []string{"/a/../b", "//a", "/%2e%2e/", "/a%2fb", "/.", "*"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, target string) {
		r, err := http.ReadRequest(bufio.NewReader(strings.NewReader("GET " + target + " HTTP/1.1\r\nHost: x\r\n\r\n")))
		if err != nil {
			return
		}
		p, ok := resolve(r)
		if ok && (!strings.HasPrefix(p, "/") || strings.Contains(p, "//") || strings.Contains(p+"/", "/../") || strings.ContainsAny(p, "\x00\n\\")) {
			t.Fatalf("%q became %q", target, p)
		}
	})
}

func BenchmarkFile(b *testing.B) {
	dir := b.TempDir()
	name := filepath.Join(dir, "f")
	if err := os.WriteFile(name, bytes.Repeat([]byte("x"), 64<<20), 0o600); err != nil {
		b.Fatal(err)
	}
	s := New(Config{
		Mounts: []Mount{{Prefix: "/f", Open: func(context.Context, string) (*os.File, error) { return os.Open(name) }}},
		Record: func(Transfer) {}, Log: slog.New(slog.DiscardHandler),
	})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	if err != nil {
		b.Fatal(err)
	}
	go func() { _ = s.Serve(b.Context(), l) }()
	b.SetBytes(64 << 20)
	for b.Loop() {
		resp, err := http.Get("http://" + l.Addr().String() + "/f")
		if err != nil {
			b.Fatal(err)
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
	}
}
