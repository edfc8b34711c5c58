package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// TestURL: cut transfers go on with If-Range; a changed file, a 404 and a short body fail.
func TestURL(t *testing.T) {
	raw := diskImage(10, 5<<20)
	data := pack(t, "zst", raw)
	sum := sha256.Sum256(data)
	digest := hex.EncodeToString(sum[:])
	var n atomic.Int64
	mux := http.NewServeMux()
	mux.HandleFunc("/cut", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("ETag", `"v1"`)
		if n.Add(1)%2 == 1 { // cut after some bytes
			w = &cutter{ResponseWriter: w, left: 100_000}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
	mux.HandleFunc("/changed", func(w http.ResponseWriter, r *http.Request) {
		tag := `"v1"`
		if r.Header.Get("Range") != "" {
			tag = `"v2"`
		}
		w.Header().Set("ETag", tag)
		if r.Header.Get("Range") == "" {
			w = &cutter{ResponseWriter: w, left: 100_000}
		}
		http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
	})
	mux.HandleFunc("/short", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "9000000")
		_, _ = w.Write(data[:4<<10])
	})
	srv := httptest.NewServer(mux)
	defer srv.Close()
	for path, want := range map[string]string{"/cut": "", "/changed": "changed on the server", "/short": "was cut", "/none": "404"} {
		b := newBench(t, func(c *Config) { c.Client = srv.Client() })
		i, err := b.StartURL(t.Context(), Source{Name: "a", Digest: digest}, srv.URL+path)
		if err != nil || i.State != Importing {
			t.Fatalf("%s: %v", path, err)
		}
		<-b.store.ends
		b.wg.Wait()
		got, _ := b.store.Image(t.Context(), "a")
		switch {
		case want == "" && (got.State != Ready || !bytes.Equal(b.content(t, got), raw)):
			t.Errorf("%s: %+v", path, got)
		case want != "" && (got.State != Failed || !strings.Contains(got.Reason, want)):
			t.Errorf("%s: %+v", path, got)
		}
	}
	b := newBench(t, func(c *Config) { c.Client = srv.Client() })
	for _, bad := range []string{"ftp://images.example/a", "http://u:p@images.example/a", "no"} {
		if _, err := b.StartURL(t.Context(), Source{Name: "a", Digest: digest}, bad); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := b.StartURL(t.Context(), Source{Name: "a"}, srv.URL+"/cut"); app.CodeOf(err) != app.InvalidInput {
		t.Errorf("no digest: %v", err)
	}
}

// cutter resets the connection after some bytes.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Write(b []byte) (int, error) {
	if c.left <= 0 {
		panic(http.ErrAbortHandler)
	}
	n, err := c.ResponseWriter.Write(b[:min(len(b), c.left)])
	if f, ok := c.ResponseWriter.(http.Flusher); ok {
		f.Flush()
	}
	if c.left -= n; n < len(b) {
		panic(http.ErrAbortHandler)
	}
	return n, err
}

// TestRunEndsImports: Run returns only when the imports it lets run have ended, and no new ones start.
func TestRunEndsImports(t *testing.T) {
	block := make(chan struct{})
	srv := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusOK)
		w.(http.Flusher).Flush()
		<-block
	}))
	defer srv.Close()
	defer close(block)
	b := newBench(t, func(c *Config) { c.Client = srv.Client() })
	ctx, stop := context.WithCancel(t.Context())
	i, err := b.StartURL(ctx, Source{Name: "a", Digest: strings.Repeat("0", 64)}, srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	stop()
	if err := b.Run(ctx); err != nil {
		t.Fatal(err)
	}
	if row, _ := b.store.Image(context.Background(), i.ID); row.State != Failed || !strings.Contains(row.Reason, "stopped") {
		t.Errorf("row %+v", row)
	}
	if _, err := b.take(Source{Name: "b"}, diskImage(1, 3<<20)); reason(err) != "import-interrupted" {
		t.Errorf("after the end: %v", err)
	}
}
