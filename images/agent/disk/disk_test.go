package disk

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// site is an appliance's boot listener with images img-1, img-2 and so on in one store. What it says of an image is of the
// last.
type site struct {
	*httptest.Server
	seeds  []agentv1.Seed // all but the last
	path   string
	digest string
	raw    []byte
	index  *chunk.Index
	// hook may answer a request itself; it reports whether it did.
	hook func(w http.ResponseWriter, r *http.Request) bool
	// plain answers without the hook.
	plain http.HandlerFunc
}

// newSite imports raw images into a chunk store and serves them.
func newSite(t *testing.T, raws ...[]byte) *site {
	t.Helper()
	dir := t.TempDir()
	store, err := chunk.OpenStore(filepath.Join(dir, "packs"), filepath.Join(dir, "tmp"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	s := &site{}
	indexes := map[string][]byte{}
	for n, raw := range raws {
		b, err := store.NewBuild()
		if err != nil {
			t.Fatal(err)
		}
		if err := b.Add(context.Background(), bytes.NewReader(raw), nil); err != nil {
			t.Fatal(err)
		}
		if err := b.Commit(func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		enc, err := b.Index().Encode()
		if err != nil {
			t.Fatal(err)
		}
		s.path = fmt.Sprintf("/images/img-%d/index", n+1)
		indexes[s.path] = enc
		s.digest, s.raw, s.index = chunk.Digest(enc), raw, b.Index()
		if n < len(raws)-1 {
			s.seeds = append(s.seeds, agentv1.Seed{IndexURL: s.path, IndexSHA256: s.digest})
		}
	}
	files := http.StripPrefix("/packs/", http.FileServer(http.Dir(filepath.Join(dir, "packs"))))
	s.plain = func(w http.ResponseWriter, r *http.Request) {
		switch enc, ok := indexes[r.URL.Path]; {
		case ok:
			_, _ = w.Write(enc)
		case strings.HasPrefix(r.URL.Path, "/packs/"):
			files.ServeHTTP(w, r)
		default:
			http.NotFound(w, r)
		}
	}
	s.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.hook == nil || !s.hook(w, r) {
			s.plain(w, r)
		}
	}))
	t.Cleanup(s.Close)
	return s
}

func (s *site) order(d agentv1.Disk) agentv1.Write {
	return agentv1.Write{Disk: agentv1.DiskTarget{Serial: d.Serial, Bytes: d.Bytes}, ImageID: "img-1", IndexURL: s.path,
		IndexSHA256: s.digest, Seeds: s.seeds, RawBytes: int64(len(s.raw)), SectorSize: 512}
}

// rig is a machine with disks that are files.
type rig struct {
	*Writer
	dir   string
	disks []agentv1.Disk
}

func newRig(t *testing.T, s *site, disks ...agentv1.Disk) *rig {
	t.Helper()
	r := &rig{dir: t.TempDir(), disks: disks}
	for _, d := range disks {
		dirty(t, filepath.Join(r.dir, d.Name), d.Bytes)
	}
	cfg := Config{Log: slog.New(slog.DiscardHandler), DevDir: r.dir, Mounts: "/dev/null",
		Pause: func(ctx context.Context, _ time.Duration) error { return ctx.Err() },
		Disks: func(context.Context) ([]agentv1.Disk, error) { return r.disks, nil }}
	if s != nil {
		cfg.BootURLs = []string{s.URL}
	}
	r.Writer = New(cfg)
	return r
}

func dirty(t *testing.T, path string, size int64) {
	t.Helper()
	if err := os.WriteFile(path, bytes.Repeat([]byte{0xA5}, int(size)), 0o644); err != nil {
		t.Fatal(err)
	}
}

func (r *rig) content(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(r.dir, name))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// untouched fails unless a disk still holds what it was filled with.
func (r *rig) untouched(t *testing.T, name string) {
	t.Helper()
	if len(bytes.Trim(r.content(t, name), "\xA5")) != 0 {
		t.Errorf("%s was written to", name)
	}
}

func testRaw(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	noise := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	img := make([]byte, size)
	for at := 0; at < size; {
		n := min(size-at, 4096*(1+r.IntN(200)))
		switch b := img[at : at+n]; r.IntN(3) {
		case 0:
			_, _ = noise.Read(b)
		case 1: // compressible, and never the same twice
			text := make([]byte, 64)
			_, _ = noise.Read(text)
			for len(b) > 0 {
				b = b[copy(b, text):]
			}
		}
		at += n
	}
	return img
}

func sda(size int64) agentv1.Disk {
	return agentv1.Disk{Name: "sda", Serial: "S1", WWN: "0x5000c50012345678", Bytes: size, SectorSize: 512, Physical: 512}
}

func quiet(agentv1.ProgressReport) {}

// checkWritten compares a whole disk: image, zero fill to the sector, what was there before, and the cleared last MiB.
func checkWritten(t *testing.T, got, raw []byte, sector int) {
	t.Helper()
	want := bytes.Repeat([]byte{0xA5}, len(got))
	clear(want[:1<<20])
	clear(want[len(want)-1<<20:])
	clear(want[:(len(raw)+sector-1)/sector*sector])
	copy(want, raw)
	if !bytes.Equal(got, want) {
		for i := range got {
			if got[i] != want[i] {
				t.Errorf("the disk differs from the image at offset %d: %#x, want %#x", i, got[i], want[i])
				return
			}
		}
	}
}

// TestWrite covers case 89: image lengths that are no multiple of a sector or block.
func TestWrite(t *testing.T) {
	for _, size := range []int{512, 1_048_577, 3_034_653, 12 << 20} {
		s := newSite(t, testRaw(uint64(size), size))
		d := sda(16 << 20)
		r := newRig(t, s, d)
		var phases []string
		out, err := r.Write(context.Background(), s.order(d), func(p agentv1.ProgressReport) {
			if len(phases) == 0 || phases[len(phases)-1] != p.Phase {
				phases = append(phases, p.Phase)
			}
		})
		if err != nil {
			t.Fatal(err)
		}
		checkWritten(t, r.content(t, "sda"), s.raw, 512)
		if got := strings.Replace(strings.Join(phases, " "), " clear", "", 1); got != "index look write flush verify" && got != "index write flush verify" {
			t.Errorf("phases %q", got)
		}
		if out.BytesVerified < int64(size) || out.BytesWritten+out.BytesZeroed < int64(size) || out.BytesFetched == 0 {
			t.Errorf("size %d: result %+v", size, out)
		}
		if _, err := r.Verify(context.Background(), s.order(d), quiet); err != nil {
			t.Errorf("verify: %v", err)
		}
	}
}

// TestImageAsLargeAsDisk: the fill of the last block is never written beyond the disk.
func TestImageAsLargeAsDisk(t *testing.T) {
	size := 4<<20 + 512
	s := newSite(t, bytes.Repeat([]byte{7}, size))
	d := sda(int64(size))
	r := newRig(t, s, d)
	if _, err := r.Write(context.Background(), s.order(d), quiet); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(r.content(t, "sda"), s.raw) {
		t.Error("the disk differs")
	}
}

func reason(err error) string {
	if e, ok := app.AsError(err); ok {
		return e.Reason
	}
	return ""
}

// TestRefusals: every refusal comes before the first byte and names a way out. Cases 85 and 93.
func TestRefusals(t *testing.T) {
	s := newSite(t, testRaw(1, 2<<20))
	small := sda(4 << 20)
	twin := agentv1.Disk{Name: "sdb", Serial: "s1 ", WWN: "0x5000c5001234ffff", Bytes: small.Bytes, SectorSize: 512}
	for name, c := range map[string]struct {
		disks  []agentv1.Disk
		change func(o *agentv1.Write)
		open   func(string) (Device, error)
		want   string
	}{
		"4096-byte image on a 512-byte disk": {change: func(o *agentv1.Write) { o.SectorSize = 4096 }, want: "sector-size-mismatch"},
		"512-byte image on a 4Kn disk":       {open: sectors(4096), want: "sector-size-mismatch"},
		"too small":                          {change: func(o *agentv1.Write) { o.RawBytes = 5 << 20 }, want: "disk-too-small"},
		"two disks with one serial":          {disks: []agentv1.Disk{small, twin}, want: "disk-ambiguous"},
		"no such disk":                       {change: func(o *agentv1.Write) { o.Disk.Serial = "X" }, want: "disk-not-found"},
		"unnamed":                            {change: func(o *agentv1.Write) { o.Disk = agentv1.DiskTarget{Bytes: small.Bytes} }, want: "disk-not-named"},
		"other size than ordered":            {change: func(o *agentv1.Write) { o.Disk.Bytes = 1 }, want: "disk-changed"},
		"read-only":                          {disks: []agentv1.Disk{{Name: "sda", Serial: "S1", Bytes: small.Bytes, SectorSize: 512, ReadOnly: true}}, want: "disk-read-only"},
		"mounted":                            {open: func(string) (Device, error) { return nil, ErrInUse }, want: "disk-in-use"},
		"image of another size":              {change: func(o *agentv1.Write) { o.RawBytes = 1 << 20 }, want: "image-size"},
	} {
		t.Run(name, func(t *testing.T) {
			disks := c.disks
			if disks == nil {
				disks = []agentv1.Disk{small}
			}
			r := newRig(t, s, disks...)
			if c.open != nil {
				r.cfg.Open = c.open
				if name != "mounted" {
					r.cfg.Open = func(p string) (Device, error) { return c.open(p) }
				}
			}
			o := s.order(small)
			if c.change != nil {
				c.change(&o)
			}
			_, err := r.Write(context.Background(), o, quiet)
			if reason(err) != c.want {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if _, err := r.Deploy(context.Background(), deployOf(t, o, nil), quiet); reason(err) != c.want {
				t.Errorf("as a driver's deploy: %v, want %s", err, c.want)
			}
			for _, d := range disks {
				r.untouched(t, d.Name)
			}
		})
	}
}

// sectors opens a file as a disk with another logical sector size.
func sectors(n int) func(string) (Device, error) {
	return func(p string) (Device, error) {
		d, err := Open(p)
		return sectored{d, n}, err
	}
}

type sectored struct {
	Device
	n int
}

func (s sectored) SectorSize() int { return s.n }

// TestMatch is case 93 in full.
func TestMatch(t *testing.T) {
	a := agentv1.Disk{Name: "sda", Serial: "X", WWN: "0x600508b1001c4d2e"}
	b := agentv1.Disk{Name: "sdb", Serial: " x ", WWN: "naa.600508b1001cffff0123456789abcdef"}
	for _, c := range []struct {
		t    agentv1.DiskTarget
		want string // disk or reason
	}{
		{agentv1.DiskTarget{Serial: "X"}, "disk-ambiguous"},
		{agentv1.DiskTarget{Serial: "x", WWN: "600508B1001CFFFF0123456789ABCDEF"}, "sdb"},
		{agentv1.DiskTarget{WWN: "wwn-0x600508b1001cffff"}, "sdb"},
		{agentv1.DiskTarget{WWN: "600508b1001c4d2e"}, "sda"},
		{agentv1.DiskTarget{Serial: "X", Name: "sda"}, "sda"},
		{agentv1.DiskTarget{Serial: "To be filled by O.E.M."}, "disk-not-found"},
	} {
		d, err := Match([]agentv1.Disk{a, b}, c.t)
		if got := d.Name + reason(err); got != c.want {
			t.Errorf("%+v: %s, want %s", c.t, got, c.want)
		}
	}
}

// TestCutConnections: half of all answers stop in the middle, some servers are down; the disk is right in the end.
func TestCutConnections(t *testing.T) {
	s := newSite(t, testRaw(3, 9<<20))
	var n atomic.Int64
	s.hook = func(w http.ResponseWriter, r *http.Request) bool {
		switch n.Add(1) % 3 {
		case 1:
			http.Error(w, "starting", http.StatusServiceUnavailable)
		case 2:
			if !strings.HasPrefix(r.URL.Path, "/packs/") {
				return false
			}
			w.Header().Set("Content-Length", "100000")
			w.Header().Set("Content-Range", strings.Replace(r.Header.Get("Range"), "=", " ", 1)+"/*")
			w.WriteHeader(http.StatusPartialContent)
			return true // short body: the server closes the connection
		default:
			return false
		}
		return true
	}
	d := sda(12 << 20)
	r := newRig(t, s, d)
	r.cfg.BootURLs = []string{"http://127.0.0.1:1", s.URL}
	if _, err := r.Write(context.Background(), s.order(d), quiet); err != nil {
		t.Fatal(err)
	}
	checkWritten(t, r.content(t, "sda"), s.raw, 512)
}

// TestWrongBytes: a pack that never matches its index fails, is never reported as written and leaves no boot sector.
func TestWrongBytes(t *testing.T) {
	s := newSite(t, testRaw(4, 6<<20))
	s.hook = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/packs/") {
			return false
		}
		rec := httptest.NewRecorder()
		s.plain(rec, r)
		b := rec.Body.Bytes()
		b[len(b)/2] ^= 1
		for k, v := range rec.Header() {
			w.Header()[k] = v
		}
		w.WriteHeader(rec.Code)
		_, _ = w.Write(b)
		return true
	}
	d := sda(8 << 20)
	r := newRig(t, s, d)
	_, err := r.Write(context.Background(), s.order(d), quiet)
	if reason(err) != "fetch-failed" {
		t.Fatalf("got %v", err)
	}
	for _, part := range []string{s.index.Packs[0].String(), "img-1", "BLAKE3"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%q does not name %s", err, part)
		}
	}
	if got := r.content(t, "sda"); !allZero(got[:1<<20]) {
		t.Error("the first MiB of a failed write is not clear")
	}
}

// TestWrongIndex: an index of another digest is never used.
func TestWrongIndex(t *testing.T) {
	s := newSite(t, testRaw(4, 1<<20))
	d := sda(4 << 20)
	r := newRig(t, s, d)
	o := s.order(d)
	o.IndexSHA256 = strings.Repeat("0", 64)
	if _, err := r.Write(context.Background(), o, quiet); reason(err) != "fetch-failed" {
		t.Fatalf("got %v", err)
	}
	r.untouched(t, "sda")
}

// TestDiskErrors: EIO on write, zero, flush or read-back fails with the offset, and lying disks are found out.
func TestDiskErrors(t *testing.T) {
	s := newSite(t, append(testRaw(5, 8<<20), make([]byte, 4<<20)...))
	for name, c := range map[string]struct {
		fault fault
		want  string
		text  string
	}{
		"write":                {fault{write: 5 << 20}, "disk-io", "at offset"},
		"zero":                 {fault{zero: 9 << 20}, "disk-io", "at offset"},
		"flush":                {fault{sync: true}, "disk-io", "flushing sda failed"},
		"read-back":            {fault{read: 6 << 20}, "disk-io", "reading back"},
		"bytes change":         {fault{flip: 3 << 20}, "read-back-mismatch", "between offsets"},
		"zeroing does nothing": {fault{lazy: true}, "read-back-mismatch", "between offsets"},
	} {
		t.Run(name, func(t *testing.T) {
			d := sda(16 << 20)
			r := newRig(t, s, d)
			r.cfg.Open = func(p string) (Device, error) {
				dev, err := Open(p)
				c.fault.Device = dev
				return &c.fault, err
			}
			_, err := r.Write(context.Background(), s.order(d), quiet)
			if reason(err) != c.want || !strings.Contains(err.Error(), c.text) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// fault is a disk with one defect, at the offset given.
type fault struct {
	Device
	write, zero, read, flip int64
	sync, lazy              bool
}

func hits(at, off, n int64) bool { return at != 0 && off <= at && at < off+n }

func (f *fault) WriteAt(b []byte, off int64) (int, error) {
	if hits(f.write, off, int64(len(b))) {
		return 0, syscall.EIO
	}
	return f.Device.WriteAt(b, off)
}

func (f *fault) ReadAt(b []byte, off int64) (int, error) {
	if hits(f.read, off, int64(len(b))) {
		return 0, syscall.EIO
	}
	n, err := f.Device.ReadAt(b, off)
	if hits(f.flip, off, int64(len(b))) {
		b[f.flip-off] ^= 1
	}
	return n, err
}

func (f *fault) Zero(off, n int64) error {
	if hits(f.zero, off, n) {
		return syscall.EIO
	}
	if f.lazy {
		return nil
	}
	return f.Device.Zero(off, n)
}

func (f *fault) Sync() error {
	if f.sync {
		return syscall.EIO
	}
	return f.Device.Sync()
}

// TestCancel: a write ends soon after its context, with the cause, whatever it waits for.
func TestCancel(t *testing.T) {
	s := newSite(t, testRaw(6, 8<<20))
	block := make(chan struct{})
	t.Cleanup(func() { close(block) })
	reached := make(chan struct{}, 64)
	s.hook = func(w http.ResponseWriter, r *http.Request) bool {
		if !strings.HasPrefix(r.URL.Path, "/packs/") {
			return false
		}
		reached <- struct{}{}
		select {
		case <-block:
		case <-r.Context().Done():
		}
		return true
	}
	d := sda(16 << 20)
	r := newRig(t, s, d)
	cause := errors.New("aborted by a person")
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { <-reached; cancel(cause) }()
	begin := time.Now()
	_, err := r.Write(ctx, s.order(d), quiet)
	if !errors.Is(err, cause) || time.Since(begin) > time.Minute {
		t.Errorf("got %v after %v", err, time.Since(begin))
	}
}

var _ io.ReaderAt = Device(nil)
