package qcow2

import (
	"bytes"
	"encoding/binary"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/app"
)

func qemuImg(t *testing.T, args ...string) {
	t.Helper()
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed (package qemu-utils)")
	}
	if out, err := exec.Command("qemu-img", args...).CombinedOutput(); err != nil {
		t.Fatalf("qemu-img %v: %v: %s", args, err, out)
	}
}

func rawFile(t *testing.T, size int) (path string, content []byte) {
	t.Helper()
	r := rand.New(rand.NewPCG(1, uint64(size)))
	content = make([]byte, size)
	for at := 0; at < size; {
		n := min(size-at, 1000+r.IntN(200_000))
		if kind := r.IntN(3); kind > 0 {
			for i := range content[at : at+n] {
				content[at+i] = byte(r.Uint32() >> (24 + 4*(kind-1)))
			}
		}
		at += n
	}
	path = filepath.Join(t.TempDir(), "raw")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path, content
}

func open(t *testing.T, path string) (*Reader, error) {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	info, _ := f.Stat()
	return New(f, info.Size())
}

// TestAgainstQEMU reads what qemu-img converts, in every form that images come in.
func TestAgainstQEMU(t *testing.T) {
	for name, args := range map[string][]string{
		"v3":               {},
		"v2":               {"-o", "compat=0.10"},
		"deflate":          {"-c"},
		"deflate v2":       {"-c", "-o", "compat=0.10"},
		"zstd":             {"-c", "-o", "compression_type=zstd"},
		"small clusters":   {"-o", "cluster_size=512"},
		"large clusters":   {"-o", "cluster_size=2M"},
		"large compressed": {"-c", "-o", "cluster_size=2M"},
		"lazy refcounts":   {"-o", "lazy_refcounts=on"},
	} {
		t.Run(name, func(t *testing.T) {
			raw, want := rawFile(t, 3<<20+512)
			img := filepath.Join(t.TempDir(), "img")
			qemuImg(t, append(append([]string{"convert", "-f", "raw", "-O", "qcow2"}, args...), raw, img)...)
			r, err := open(t, img)
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			got, err := io.ReadAll(r)
			if err != nil || !bytes.Equal(got, want) {
				t.Fatalf("%d bytes, %v; want %d", len(got), err, len(want))
			}
			sparse, err := open(t, img)
			if err != nil {
				t.Fatal(err)
			}
			defer sparse.Close()
			if got := readSparse(t, sparse); !bytes.Equal(got, want) {
				t.Error("reading over holes gives other bytes")
			}
		})
	}
}

// readSparse reads as the splitter does: holes first, then a few blocks.
func readSparse(t *testing.T, r *Reader) (out []byte) {
	t.Helper()
	b := make([]byte, 64<<10)
	for {
		n, err := r.SkipHole()
		if err != nil || n%4096 != 0 {
			t.Fatalf("hole of %d bytes, %v", n, err)
		}
		out = append(out, make([]byte, n)...)
		m, err := io.ReadFull(r, b)
		out = append(out, b[:m]...)
		if err != nil {
			return out
		}
	}
}

// TestHugeSparse: a disk of 8 TiB with nothing on it is read in no time.
func TestHugeSparse(t *testing.T) {
	img := filepath.Join(t.TempDir(), "img")
	qemuImg(t, "create", "-f", "qcow2", img, "8T")
	r, err := open(t, img)
	if err != nil {
		t.Fatal(err)
	}
	if n, err := r.SkipHole(); n != 8<<40 || err != nil {
		t.Errorf("hole of %d bytes, %v", n, err)
	}
}

// TestRefusals is case 87: nothing but the header decides, no other file is opened.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	base := filepath.Join(dir, "base")
	qemuImg(t, "create", "-f", "qcow2", base, "1M")
	good, err := os.ReadFile(base)
	if err != nil {
		t.Fatal(err)
	}
	backed, split := filepath.Join(dir, "backed"), filepath.Join(dir, "split")
	qemuImg(t, "create", "-f", "qcow2", "-b", base, "-F", "qcow2", backed)
	qemuImg(t, "create", "-f", "qcow2", "-o", "data_file="+filepath.Join(dir, "data"), split, "1M")
	set := func(off int, b ...byte) string {
		c := bytes.Clone(good)
		copy(c[off:], b)
		p := filepath.Join(t.TempDir(), "x")
		if err := os.WriteFile(p, c, 0o644); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for name, c := range map[string]struct{ path, reason string }{
		"backing file":  {backed, "qcow2-backing-file"},
		"data file":     {split, "qcow2-data-file"},
		"/etc/passwd":   {set(8, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 11), "qcow2-backing-file"},
		"version 1":     {set(4, 0, 0, 0, 1), "qcow2-version"},
		"encrypted":     {set(32, 0, 0, 0, 1), "qcow2-encrypted"},
		"corrupt bit":   {set(79, 2), "qcow2-damaged"},
		"extended L2":   {set(79, 16), "qcow2-subclusters"},
		"unknown bit":   {set(78, 1), "qcow2-feature"},
		"cluster bits":  {set(20, 0, 0, 0, 60), "qcow2-damaged"},
		"huge L1":       {set(36, 255, 255, 255, 255), "qcow2-damaged"},
		"disk too huge": {set(24, 255), "qcow2-damaged"},
	} {
		_, err := open(t, c.path)
		if e, ok := app.AsError(err); !ok || e.Reason != c.reason || e.WayOut == "" {
			t.Errorf("%s: %v, want %s", name, err, c.reason)
		}
	}
}

// FuzzReader: no image panics or reserves more than a few clusters.
func FuzzReader(f *testing.F) {
	h := make([]byte, 4096)
	copy(h, Magic)
	be := binary.BigEndian
	be.PutUint32(h[4:], 3)
	be.PutUint32(h[20:], 9)
	be.PutUint64(h[24:], 8192)
	be.PutUint32(h[36:], 1)
	be.PutUint64(h[40:], 512)
	be.PutUint32(h[100:], 112)
	be.PutUint64(h[512:], 1024)
	be.PutUint64(h[1024:], 2048)
	be.PutUint64(h[1032:], 1<<62|2560)
	f.Add(h)
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := New(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		defer r.Close()
		_, _ = r.SkipHole()
		_, _ = io.CopyN(io.Discard, r, 1<<20)
	})
}
