package catalog

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/better-compute/bcd/app"
)

// TestFormats imports every format and reads the image back.
func TestFormats(t *testing.T) {
	b := newBench(t, nil)
	raw := diskImage(1, 4<<20+777)
	sum := sha256.Sum256(raw)
	sources := map[string][]byte{"raw": raw, "raw.gz": pack(t, "gz", raw), "raw.xz": pack(t, "xz", raw), "raw.zst": pack(t, "zst", raw)}
	sources["raw.gz, two members"] = append(pack(t, "gz", raw[:2<<20]), pack(t, "gz", raw[2<<20:])...)
	for name, data := range sources {
		format, _, _ := strings.Cut(name, ",")
		digest := sha256.Sum256(data)
		i, err := b.take(Source{Name: strings.NewReplacer(".", "-", ", ", "-", " ", "-").Replace(name), Format: format, Size: int64(len(data)),
			Digest: "sha256:" + strings.ToUpper(hex.EncodeToString(digest[:]))}, data)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if sha256.Sum256(b.content(t, i)) != sum {
			t.Errorf("%s: the image differs", name)
		}
		if i.Format != format || i.State != Ready || i.RawBytes != int64(len(raw)) || i.SourceSize != int64(len(data)) || i.SourceSHA != hex.EncodeToString(digest[:]) {
			t.Errorf("%s: %+v", name, i)
		}
		if i.Layout.Table != "mbr" || i.Layout.Partitions[0].FS != "ext4" {
			t.Errorf("%s: layout %+v", name, i.Layout)
		}
	}
}

// TestQCOW2 imports what qemu-img converts, also compressed once more.
func TestQCOW2(t *testing.T) {
	if _, err := exec.LookPath("qemu-img"); err != nil {
		t.Skip("qemu-img is not installed (package qemu-utils)")
	}
	b := newBench(t, nil)
	raw := diskImage(2, 3<<20)
	in, out := filepath.Join(t.TempDir(), "in"), filepath.Join(t.TempDir(), "out")
	if err := os.WriteFile(in, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if msg, err := exec.Command("qemu-img", "convert", "-O", "qcow2", "-c", in, out).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, msg)
	}
	i, err := b.ImportFile(t.Context(), Source{Name: "a"}, out)
	if err != nil {
		t.Fatal(err)
	}
	q, _ := os.ReadFile(out)
	j, err := b.take(Source{Name: "b"}, pack(t, "zst", q))
	if err != nil {
		t.Fatal(err)
	}
	for _, img := range []*app.Image{i, j} {
		if !bytes.Equal(b.content(t, img), raw) {
			t.Errorf("%s differs", img.Format)
		}
	}
	if i.Format != "qcow2" || j.Format != "qcow2.zst" || j.StoreBytes != 0 {
		t.Errorf("formats %s and %s, %d bytes stored for the second", i.Format, j.Format, j.StoreBytes)
	}
}

// TestRefused covers cases 87, 91 and 95: whatever is wrong, no image is offered and no file is left.
func TestRefused(t *testing.T) {
	raw := diskImage(3, 3<<20)
	gz, xzb, zst := pack(t, "gz", raw), pack(t, "xz", raw), pack(t, "zst", raw)
	frames := append(pack(t, "zst", raw[:2<<20]), pack(t, "zst", raw[2<<20:])...)
	edge := frames[:len(pack(t, "zst", raw[:2<<20]))]
	sum := func(b []byte) string { h := sha256.Sum256(b); return hex.EncodeToString(h[:]) }
	qcow := make([]byte, 4096)
	copy(qcow, "QFI\xfb\x00\x00\x00\x03")
	backed := bytes.Clone(qcow)
	copy(backed[8:], "\x00\x00\x00\x00\x00\x00\x01\x00\x00\x00\x00\x0b")
	vdi := make([]byte, 4096)
	copy(vdi[64:], "\x7f\x10\xda\xbe")
	gpt := diskImage(3, 3<<20)
	for name, c := range map[string]struct {
		src  Source
		data []byte
		want string
	}{
		"gz cut":                           {Source{}, gz[:len(gz)-3], "image-truncated"},
		"xz cut":                           {Source{}, xzb[:len(xzb)-3], "image-truncated"},
		"zst cut":                          {Source{}, zst[:len(zst)-2], "image-truncated"},
		"zst at the frame edge, by digest": {Source{Digest: sum(frames)}, edge, "digest-mismatch"},
		"zst at the frame edge, by size":   {Source{Size: int64(len(frames))}, edge, "image-truncated"},
		"zst at the frame edge, by table":  {Source{}, pack(t, "zst", gpt[:1<<20]), "image-truncated"},
		"longer than declared":             {Source{Size: 100}, raw, "image-size"},
		"gz, then other bytes":             {Source{}, append(bytes.Clone(gz), strings.Repeat("rubbish", 99)...), "image-damaged"},
		"xz, then other bytes":             {Source{}, append(bytes.Clone(xzb), strings.Repeat("rubbish", 99)...), "image-damaged"},
		"zst, then other bytes":            {Source{}, append(bytes.Clone(zst), strings.Repeat("rubbish", 99)...), "image-damaged"},
		"gz damaged":                       {Source{}, flip(gz), "image-damaged"},
		"wrong digest":                     {Source{Digest: sum([]byte("x"))}, raw, "digest-mismatch"},
		"digest of the raw disk":           {Source{Digest: sum(raw)}, zst, "digest-mismatch"},
		"sha512 called sha256":             {Source{Digest: "sha256:" + strings.Repeat("a", 128)}, raw, "invalid-field"},
		"no digest":                        {Source{Digest: "md5:" + strings.Repeat("a", 32)}, raw, "invalid-field"},
		"declared raw, is qcow2":           {Source{Format: "raw"}, qcow, "format-mismatch"},
		"declared qcow2, is raw":           {Source{Format: "qcow2"}, raw, "format-mismatch"},
		"declared gz, is zst":              {Source{Format: "raw.gz"}, zst, "format-mismatch"},
		"qcow2 with backing file":          {Source{}, backed, "qcow2-backing-file"},
		"VMDK":                             {Source{}, append([]byte("KDMV"), make([]byte, 600)...), "image-format"},
		"QED":                              {Source{}, append([]byte("QED\x00"), make([]byte, 600)...), "image-format"},
		"VHDX":                             {Source{}, append([]byte("vhdxfile"), make([]byte, 600)...), "image-format"},
		"VDI":                              {Source{}, vdi, "image-format"},
		"VHD":                              {Source{}, append([]byte("conectix"), make([]byte, 600)...), "image-format"},
		"VHD of fixed size":                {Source{}, append(append(bytes.Clone(raw), "conectix"...), make([]byte, 504)...), "image-format"},
		"VMDK's descriptor":                {Source{}, append([]byte("# Disk DescriptorFile"), make([]byte, 600)...), "image-format"},
		"bzip2":                            {Source{}, append([]byte("BZh91AY"), make([]byte, 600)...), "image-format"},
		"lz4":                              {Source{}, append([]byte("\x04\x22\x4d\x18"), make([]byte, 600)...), "image-format"},
		"ZIP":                              {Source{}, append([]byte("PK\x03\x04"), make([]byte, 600)...), "image-format"},
		"declared raw, is an ISO":          {Source{Format: "raw"}, isoImage(), "format-mismatch"},
		"ISO cut":                          {Source{Size: 1 << 20}, isoImage(), "image-truncated"},
		"ISO of another digest":            {Source{Digest: sum(raw)}, isoImage(), "digest-mismatch"},
		"compressed twice":                 {Source{}, pack(t, "gz", zst), "image-format"},
		"empty":                            {Source{}, nil, "image-empty"},
		"all zero":                         {Source{}, make([]byte, 3<<20), "image-empty"},
		"no disk":                          {Source{}, bytes.Repeat([]byte("x"), 3<<20), "not-a-disk"},
		"bomb":                             {Source{MaxRaw: 8 << 20}, pack(t, "zst", make([]byte, 64<<20)), "image-too-large"},
		"bad name":                         {Source{Name: "No!"}, raw, "invalid-field"},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			if c.src.Name == "" {
				c.src.Name = "img"
			}
			_, err := b.take(c.src, c.data)
			if reason(err) != c.want {
				t.Fatalf("got %v, want %s", err, c.want)
			}
			if e, _ := app.AsError(err); e.WayOut == "" {
				t.Errorf("no way out in %v", err)
			}
			if left := b.files(t); len(left) != 0 {
				t.Errorf("files left: %v", left)
			}
			rows, _ := b.store.ListImages(t.Context())
			for _, r := range rows {
				if r.State != Failed || r.Reason == "" {
					t.Errorf("row %+v", r)
				}
			}
			if len(rows) > 0 && name == "wrong digest" {
				if _, err := b.take(Source{Name: "img"}, raw); err != nil {
					t.Errorf("a failed import cannot be repeated: %v", err)
				}
			}
		})
	}
}

func flip(b []byte) []byte {
	b = bytes.Clone(b)
	b[len(b)/2] ^= 0x40
	return b
}

func TestSHA512(t *testing.T) {
	b := newBench(t, nil)
	raw := diskImage(4, 3<<20)
	h := sha512.Sum512(raw)
	if _, err := b.take(Source{Name: "a", Digest: hex.EncodeToString(h[:])}, raw); err != nil {
		t.Error(err)
	}
	if _, err := b.take(Source{Name: "b", Digest: "sha512:" + strings.Repeat("0", 128)}, raw); reason(err) != "digest-mismatch" {
		t.Errorf("got %v", err)
	}
}

// TestDelete: packs that another image shares stay, an image in use stays.
func TestDelete(t *testing.T) {
	busy := ""
	b := newBench(t, func(c *Config) { c.InUse = func(context.Context, string) (string, error) { return busy, nil } })
	raw := diskImage(5, 4<<20)
	one, err := b.take(Source{Name: "one"}, raw)
	if err != nil {
		t.Fatal(err)
	}
	raw[3<<20] ^= 1
	two, err := b.take(Source{Name: "two"}, raw)
	if err != nil {
		t.Fatal(err)
	}
	if two.StoreBytes*4 > one.StoreBytes {
		t.Errorf("the second image added %d bytes, the first %d", two.StoreBytes, one.StoreBytes)
	}
	busy = "the deploy of node-1"
	if err := b.Delete(t.Context(), one.ID); reason(err) != "image-in-use" || !strings.Contains(err.Error(), busy) {
		t.Errorf("got %v", err)
	}
	busy = ""
	if err := b.Delete(t.Context(), one.ID); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b.content(t, two), raw) {
		t.Error("the other image lost bytes")
	}
	if err := b.Delete(t.Context(), "two"); err != nil {
		t.Fatal(err)
	}
	if left := b.files(t); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

// TestCrash: what an import left when the process died is removed at the next start, and other images stay.
func TestCrash(t *testing.T) {
	b := newBench(t, nil)
	raw := diskImage(6, 4<<20)
	good, err := b.take(Source{Name: "good"}, raw)
	if err != nil {
		t.Fatal(err)
	}
	want := len(b.files(t))
	for _, p := range []string{"tmp/build-1/pack-1", "tmp/qcow2-1", "packs/0123456789abcdef0123456789abcdef", "images/img-half/index"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(b.dir, p)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(b.dir, p), []byte("half"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_ = b.store.CreateImage(t.Context(), &app.Image{ID: "img-half", Name: "half", State: Importing})
	b.reopen(t, nil)
	if got := b.files(t); len(got) != want {
		t.Errorf("files after the start: %v", got)
	}
	if half, _ := b.store.Image(t.Context(), "half"); half.State != Failed || half.Reason == "" {
		t.Errorf("row %+v", half)
	}
	if !bytes.Equal(b.content(t, good), raw) {
		t.Error("the good image differs")
	}
}

// TestCancel: an upload that is cancelled or cut, or whose image is deleted, leaves nothing.
func TestCancel(t *testing.T) {
	for name, end := range map[string]func(b *bench, id string, cut context.CancelFunc){
		"cancelled":    func(b *bench, id string, _ context.CancelFunc) { b.Cancel(id) },
		"deleted":      func(b *bench, id string, _ context.CancelFunc) { _ = b.Delete(context.Background(), id) },
		"request gone": func(_ *bench, _ string, cut context.CancelFunc) { cut() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, nil)
			ctx, cut := context.WithCancel(t.Context())
			defer cut()
			raw := diskImage(7, 4<<20)
			r := io.MultiReader(bytes.NewReader(raw), readFunc(func(p []byte) (int, error) {
				rows, _ := b.store.ListImages(ctx)
				for _, row := range rows {
					end(b, row.ID, cut)
				}
				return len(p), nil
			}))
			if _, err := b.Import(ctx, Source{Name: "a"}, r); err == nil {
				t.Fatal("no error")
			}
			if left := b.files(t); len(left) != 0 {
				t.Errorf("files left: %v", left)
			}
		})
	}
}

// TestCutOff: a sender that goes away, however its transport words it, is named as such, and nothing of it is left.
func TestCutOff(t *testing.T) {
	for _, cause := range []error{errors.New("client disconnected"), io.ErrUnexpectedEOF, syscall.ECONNRESET, os.ErrDeadlineExceeded} {
		b := newBench(t, nil)
		r := io.MultiReader(bytes.NewReader(diskImage(9, 4<<20)), readFunc(func([]byte) (int, error) { return 0, cause }))
		_, err := b.Import(t.Context(), Source{Name: "a", Size: 8 << 20}, r)
		if e, ok := app.AsError(err); !ok || e.Code == app.Internal || !e.Retry || !strings.Contains(e.Message, "4194304") {
			t.Errorf("%v gave %v", cause, err)
		}
		if row, err := b.store.Image(t.Context(), "a"); err != nil || strings.Contains(row.Reason, "internal") {
			t.Errorf("%v left %+v, %v", cause, row, err)
		}
		if left := b.files(t); len(left) != 0 {
			t.Errorf("files left: %v", left)
		}
	}
}

type readFunc func([]byte) (int, error)

func (f readFunc) Read(b []byte) (int, error) { return f(b) }

// TestStorageFull: the reserve is kept, and the error has the numbers.
func TestStorageFull(t *testing.T) {
	b := newBench(t, func(c *Config) { c.Reserve = 1 << 60 })
	raw := diskImage(8, 3<<20)
	_, err := b.take(Source{Name: "a", Size: int64(len(raw))}, raw)
	if app.CodeOf(err) != app.StorageFull || !strings.Contains(err.Error(), "3145728") {
		t.Errorf("got %v", err)
	}
	if rows, _ := b.store.ListImages(t.Context()); len(rows) != 0 {
		t.Errorf("rows %v", rows)
	}
}

// TestStorageFillsUp imports into a file system of 4 MiB.
func TestStorageFillsUp(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting a small tmpfs needs root")
	}
	b := newBench(t, nil)
	if out, err := exec.Command("mount", "-t", "tmpfs", "-o", "size=4m", "bcdt-data", b.dir).CombinedOutput(); err != nil {
		t.Skipf("tmpfs cannot be mounted: %s", out)
	}
	t.Cleanup(func() { _ = exec.Command("umount", b.dir).Run() })
	b.reopen(t, nil)
	random := append(diskImage(9, 2<<20), make([]byte, 8<<20)...)
	_, _ = rand.NewChaCha8([32]byte{1}).Read(random[2<<20:])
	_, err := b.take(Source{Name: "a"}, random)
	if app.CodeOf(err) != app.StorageFull || !strings.Contains(err.Error(), "bytes are free") {
		t.Errorf("got %v", err)
	}
	if left := b.files(t); len(left) != 0 {
		t.Errorf("files left: %v", left)
	}
}

// TestServedNames: the openers give nothing but indexes and packs.
func TestServedNames(t *testing.T) {
	b := newBench(t, nil)
	for _, rest := range []string{"", "..", "../index", "x", "x/../y", "x/index/", "X/index", "../../etc/passwd"} {
		if f, err := b.OpenIndex(t.Context(), rest); err == nil {
			f.Close()
			t.Errorf("OpenIndex(%q) opened something", rest)
		}
		if _, err := b.OpenPack(t.Context(), rest); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("OpenPack(%q): %v", rest, err)
		}
	}
}
