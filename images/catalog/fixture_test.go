package catalog

import (
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/ulikunitz/xz"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
)

// memStore is an app.ImageStore in memory.
type memStore struct {
	mu   sync.Mutex
	rows map[string]app.Image
	ends chan string // ids whose state became final
}

func newStore() *memStore {
	return &memStore{rows: map[string]app.Image{}, ends: make(chan string, 16)}
}

func (m *memStore) CreateImage(_ context.Context, i *app.Image) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, o := range m.rows {
		if o.Name == i.Name {
			return app.Errorf(app.Conflict, "image-exists", "there is an image %s", i.Name)
		}
	}
	m.rows[i.ID] = *i
	return nil
}

func (m *memStore) Image(_ context.Context, id string) (*app.Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.rows {
		if i.ID == id || i.Name == id {
			return &i, nil
		}
	}
	return nil, app.Missing("image", id)
}

func (m *memStore) ListImages(context.Context) (out []app.Image, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, i := range m.rows {
		out = append(out, i)
	}
	return out, nil
}

func (m *memStore) UpdateImage(ctx context.Context, id string, change func(*app.Image) error) (*app.Image, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	i, ok := m.rows[id]
	if !ok {
		return nil, app.Missing("image", id)
	}
	if err := errors.Join(ctx.Err(), change(&i)); err != nil {
		return nil, err
	}
	m.rows[id] = i
	if i.State != Importing {
		m.ends <- id
	}
	return &i, nil
}

func (m *memStore) DeleteImage(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rows, id)
	return nil
}

type bench struct {
	*Catalog
	store *memStore
	dir   string
}

func newBench(t *testing.T, change func(*Config)) *bench {
	t.Helper()
	b := &bench{store: newStore(), dir: t.TempDir()}
	b.reopen(t, change)
	return b
}

func (b *bench) reopen(t *testing.T, change func(*Config)) {
	t.Helper()
	cfg := Config{Dir: b.dir, Store: b.store, Log: slog.New(slog.DiscardHandler), Reserve: 1,
		Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }}
	if change != nil {
		change(&cfg)
	}
	var err error
	if b.Catalog, err = New(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
}

// files lists what lies below the catalog, without directories.
func (b *bench) files(t *testing.T) (out []string) {
	t.Helper()
	err := filepath.WalkDir(b.dir, func(p string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			out = append(out, strings.TrimPrefix(p, b.dir+"/"))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// diskImage is a raw disk with an MBR, one partition of ext4 by its superblock's magic, and size bytes in all.
func diskImage(seed uint64, size int) []byte {
	b := make([]byte, size)
	noise := rand.NewChaCha8([32]byte{byte(seed)})
	for at := 1 << 20; at < size-1<<20; at += 300_000 {
		_, _ = noise.Read(b[at:min(size, at+80_000)])
		copy(b[at+80_000:min(size, at+150_000)], b[at:])
	}
	copy(b[510:], "\x55\xaa")
	b[446+4], b[446+8+1], b[446+12] = 0x83, 8, 255
	copy(b[1<<20+1024+56:], "\x53\xef")
	copy(b[1<<20+1024+104:], "0123456789abcdef")
	return b
}

func pack(t *testing.T, format string, raw []byte) []byte {
	t.Helper()
	var buf bytes.Buffer
	var w io.WriteCloser
	var err error
	switch format {
	case "gz":
		w = gzip.NewWriter(&buf)
	case "xz":
		w, err = xz.NewWriter(&buf)
	case "zst":
		w, err = zstd.NewWriter(&buf)
	}
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Write(raw); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return buf.Bytes()
}

func (b *bench) take(src Source, data []byte) (*app.Image, error) {
	return b.Import(context.Background(), src, bytes.NewReader(data))
}

// content reads an image back through the files that the boot listener serves.
func (b *bench) content(t *testing.T, i *app.Image) []byte {
	t.Helper()
	f, err := b.OpenIndex(t.Context(), strings.TrimPrefix(IndexPath(i), "/images/"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	enc, err := io.ReadAll(f)
	if err != nil || chunk.Digest(enc) != i.Index {
		t.Fatalf("index: %v", err)
	}
	x, err := chunk.ParseIndex(enc)
	if err != nil {
		t.Fatal(err)
	}
	r, err := chunk.NewReader(x, func(p chunk.PackID) (*os.File, error) { return b.OpenPack(t.Context(), p.String()) })
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	out, err := io.ReadAll(io.NewSectionReader(r, 0, x.RawBytes))
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func reason(err error) string {
	if e, ok := app.AsError(err); ok {
		return e.Reason
	}
	return ""
}
