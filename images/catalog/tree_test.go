package catalog

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat"
)

// rootfs is an archive of the least that can be booted.
func rootfs(t *testing.T, more ...string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, name := range append([]string{"sbin/init", "boot/vmlinuz-6.1", "boot/initrd.img-6.1", "etc/hostname"}, more...) {
		if err := w.WriteHeader(&tar.Header{Name: "./" + name, Mode: 0o755, Size: int64(len(name))}); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// withLoaders gives the catalog loaders that look like such.
func withLoaders(cfg *Config) {
	cfg.Loaders = func() (flat.Loaders, error) {
		l := flat.Loaders{Boot: bytes.Repeat([]byte{0xb0}, 512), Core: bytes.Repeat([]byte{0xc0}, 9000), EFI: bytes.Repeat([]byte{'M'}, 900)}
		l.Boot[510], l.Boot[511] = 0x55, 0xaa
		return l, nil
	}
}

// TestRootFS imports a root file system in each compression, told and found out; the disk is the same each time.
func TestRootFS(t *testing.T) {
	b := newBench(t, withLoaders)
	plain := rootfs(t)
	index := ""
	for name, src := range map[string]struct {
		format string
		b      []byte
		want   string
	}{
		"plain": {"", plain, "rootfs"}, "gz": {"", pack(t, GZ, plain), "rootfs.gz"}, "xz": {"rootfs.xz", pack(t, XZ, plain), "rootfs.xz"}, "zst": {"rootfs", pack(t, ZST, plain), "rootfs.zst"}, "told": {"rootfs", plain, "rootfs"},
	} {
		i, err := b.Import(t.Context(), Source{Name: "web-" + name, Format: src.format, Digest: sum(src.b), Size: int64(len(src.b))}, bytes.NewReader(src.b))
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if i.State != Ready || i.Format != src.want || !i.Layout.BIOS || !i.Layout.UEFI || i.Layout.Table != "gpt" || len(i.Layout.Partitions) != 3 || i.Layout.Partitions[2].FS != "ext4" {
			t.Errorf("%s: %+v", name, i)
		}
		if index == "" {
			index = i.Index
		}
		if i.Index != index {
			t.Errorf("%s gave another disk", name)
		}
	}
}

// TestRootFSRefused leaves nothing but a row that says why.
func TestRootFSRefused(t *testing.T) {
	for name, tc := range map[string]struct {
		src    Source
		b      []byte
		change func(*Config)
		reason string
	}{
		"no loaders": {Source{}, rootfs(t), nil, "no-loaders"},
		"broken loaders": {Source{}, rootfs(t), func(c *Config) {
			c.Loaders = func() (flat.Loaders, error) { return flat.Loaders{}, errors.New("not built") }
		}, "no-loaders"},
		"a wrong digest":   {Source{Digest: sum([]byte("x"))}, rootfs(t), withLoaders, "digest-mismatch"},
		"not OCI":          {Source{Format: "oci"}, rootfs(t), withLoaders, "format-mismatch"},
		"not raw":          {Source{Format: "raw"}, rootfs(t), withLoaders, "format-mismatch"},
		"another packing":  {Source{Format: "rootfs.gz"}, pack(t, ZST, rootfs(t)), withLoaders, "format-mismatch"},
		"traversal":        {Source{}, rootfs(t, "../../x"), withLoaders, "leaves-root"},
		"truncated":        {Source{}, rootfs(t)[:2000], withLoaders, "archive-truncated"},
		"truncated zst":    {Source{}, pack(t, ZST, rootfs(t))[:100], withLoaders, "image-truncated"},
		"too large a disk": {Source{MaxRaw: 1 << 20}, rootfs(t), withLoaders, "image-too-large"},
		"no archive":       {Source{Format: "rootfs"}, bytes.Repeat([]byte("x"), 4096), withLoaders, "archive-damaged"},
	} {
		b := newBench(t, tc.change)
		tc.src.Name = "web"
		_, err := b.Import(t.Context(), tc.src, bytes.NewReader(tc.b))
		e, ok := app.AsError(err)
		if !ok || e.Reason != tc.reason || e.WayOut == "" {
			t.Errorf("%s: %v", name, err)
		}
		if i, err := b.store.Image(t.Context(), "web"); err != nil || i.State != Failed || i.Reason == "" {
			t.Errorf("%s: %+v, %v", name, i, err)
		}
		if left := b.files(t); len(left) > 0 {
			t.Errorf("%s left %v", name, left)
		}
	}
}

// TestOCIDirectory imports a layout that is not packed, and refuses other directories before there is a row.
func TestOCIDirectory(t *testing.T) {
	b := newBench(t, withLoaders)
	dir := t.TempDir()
	for name, tc := range map[string]struct {
		src    Source
		layout string
	}{
		"no layout": {Source{}, ""}, "a digest": {Source{Digest: sum(nil)}, "{}"}, "a format": {Source{Format: "rootfs"}, "{}"},
	} {
		if tc.layout != "" {
			if err := os.WriteFile(filepath.Join(dir, "oci-layout"), []byte(tc.layout), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		tc.src.Name = "web"
		if _, err := b.ImportFile(t.Context(), tc.src, dir); app.CodeOf(err) != app.InvalidInput {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := b.store.Image(t.Context(), "web"); app.CodeOf(err) != app.NotFound {
			t.Errorf("%s: there is a row: %v", name, err)
		}
		_ = os.Remove(filepath.Join(dir, "oci-layout"))
	}
	blobs := ociLayout(t, dir, pack(t, GZ, rootfs(t)))
	i, err := b.ImportFile(t.Context(), Source{Name: "web"}, dir)
	if err != nil {
		t.Fatal(err)
	}
	if i.Format != "oci" || i.State != Ready || i.SourceSHA == "" || i.SourceSize == 0 {
		t.Errorf("%+v", i)
	}
	packed, err := b.Import(t.Context(), Source{Name: "packed"}, bytes.NewReader(packDirectory(t, dir)))
	if err != nil {
		t.Fatal(err)
	}
	if packed.Index != i.Index || packed.Format != "oci" || packed.StoreBytes != 0 {
		t.Errorf("packed, it is another disk: %+v", packed)
	}
	for name := range blobs {
		if err := os.WriteFile(filepath.Join(dir, "blobs/sha256", name), []byte("damaged"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := b.ImportFile(t.Context(), Source{Name: "damaged"}, dir); reason(err) != "digest-mismatch" {
		t.Errorf("a damaged layout: %v", err)
	}
}

// TestNotAFile refuses what would keep an import waiting for ever, whether it was there from the start or came meanwhile.
func TestNotAFile(t *testing.T) {
	b := newBench(t, withLoaders)
	for _, name := range []string{"index.json", "the layer", "the file itself"} {
		dir := t.TempDir()
		path, pipe := dir, filepath.Join(dir, name)
		switch blobs := ociLayout(t, dir, pack(t, GZ, rootfs(t))); name {
		case "the layer":
			for blob, text := range blobs {
				if bytes.HasPrefix(text, []byte("\x1f\x8b")) {
					pipe = filepath.Join(dir, "blobs/sha256", blob)
				}
			}
		case "the file itself":
			path = pipe
		}
		_ = os.Remove(pipe)
		if err := unix.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			i, run, err := b.begin(t.Context(), Source{Name: "web"})
			if err == nil {
				_, err = run(t.Context(), i, openFile(path))
			}
			done <- err
		}()
		if err := <-done; app.CodeOf(err) != app.InvalidInput { // or it waits for a writer, for ever
			t.Errorf("%s: %v", name, err)
		}
	}
}

func sum(b []byte) string {
	h := sha256.Sum256(b)
	return hex.EncodeToString(h[:])
}

// ociLayout writes an image of one layer, and gives its blobs by name.
func ociLayout(t *testing.T, dir string, layer []byte) map[string][]byte {
	t.Helper()
	blobs := map[string][]byte{}
	blob := func(kind, text string) string {
		blobs[sum([]byte(text))] = []byte(text)
		return fmt.Sprintf(`{"mediaType":"application/vnd.oci.image.%s","digest":"sha256:%s","size":%d}`, kind, sum([]byte(text)), len(text))
	}
	config := blob("config.v1+json", `{"os":"linux","architecture":"amd64"}`)
	manifest := blob("manifest.v1+json", fmt.Sprintf(`{"schemaVersion":2,"config":%s,"layers":[%s]}`, config, blob("layer.v1.tar+gzip", string(layer))))
	if err := os.MkdirAll(filepath.Join(dir, "blobs/sha256"), 0o755); err != nil {
		t.Fatal(err)
	}
	files := map[string][]byte{"oci-layout": []byte(`{"imageLayoutVersion":"1.0.0"}`), "index.json": fmt.Appendf(nil, `{"schemaVersion":2,"manifests":[%s]}`, manifest)}
	for name, b := range blobs {
		files["blobs/sha256/"+name] = b
	}
	for name, b := range files {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return blobs
}

// packDirectory makes an archive of a directory.
func packDirectory(t *testing.T, dir string) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	if err := errors.Join(w.AddFS(os.DirFS(dir)), w.Close()); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestProgressOfBothReadings looks at what an import shows while the archive that came is read twice more.
func TestProgressOfBothReadings(t *testing.T) {
	b := newBench(t, withLoaders)
	plain := rootfs(t)
	src := Source{Name: "web", Size: int64(len(plain))}
	i := &app.Image{ID: "img-1", Name: src.Name, State: Importing}
	if err := b.store.CreateImage(t.Context(), i); err != nil {
		t.Fatal(err)
	}
	d, err := newDigest("")
	if err != nil {
		t.Fatal(err)
	}
	m := &meter{phase: app.ImageReceiving, total: src.Size}
	var row app.Image
	loaders := b.cfg.Loaders
	b.cfg.Loaders = func() (flat.Loaders, error) { m.note(&row); return loaders() } // after all came, before it is read again
	done, err := b.Catalog.take(t.Context(), i, src, d, m, func(context.Context, *meter) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(plain)), nil })
	if err != nil {
		t.Fatal(err)
	}
	if row.Phase != app.ImageReceiving || row.Done != src.Size || row.Total != src.Size {
		t.Errorf("received: %+v", row)
	}
	if m.note(&row); row.Phase != app.ImageStoring || row.Done != done.RawBytes || row.Total != done.RawBytes {
		t.Errorf("stored: %s, %d of %d; the disk has %d bytes", row.Phase, row.Done, row.Total, done.RawBytes)
	}
	if done.Phase != "" || done.Done != 0 || done.Total != 0 {
		t.Errorf("ready, and %+v", done)
	}
	m.begin(app.ImageReading, src.Size)
	if _, err := io.Copy(io.Discard, io.NewSectionReader(metered{bytes.NewReader(plain), m}, 0, src.Size)); err != nil {
		t.Fatal(err)
	}
	if m.note(&row); row.Phase != app.ImageReading || row.Done != src.Size {
		t.Errorf("read: %+v", row)
	}
	m.at(app.ImageReceiving, 1)
	if m.note(&row); row.Done != src.Size {
		t.Errorf("another phase counted: %+v", row)
	}
}
