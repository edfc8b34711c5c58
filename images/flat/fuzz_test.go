package flat

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat/internal/ext4"
)

// FuzzArchive walks any bytes as an archive. What is taken must have its place on a disk and be found again by the second
// reading; what is refused must be refused in words.
func FuzzArchive(f *testing.F) {
	f.Add(pack(f, system()), false)
	f.Add(pack(f, system(hardlink("a", "etc"), symlink("b", "/etc"), reg("b/c", "x"), reg("etc/.wh.x", ""), reg("etc/.wh..wh..opq", ""))), true)
	f.Add(rawEntry("x", 'x', "26 GNU.sparse.realsize=999\n"), true)
	f.Fuzz(func(t *testing.T, b []byte, whiteouts bool) {
		layer := Layer{Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}
		cfg := Config{Image: "web", Seed: []byte("x"), Free: 1}
		r := reader{tree: newTree("web", 0), ctx: t.Context(), whiteout: whiteouts, limits: limits{1 << 24, 1 << 24, "more than a test has time for"}}
		err := errors.Join(r.layer(0, layer), r.layer(1, layer))
		if err == nil {
			_, err = r.system(derive(cfg.Seed))
		}
		var fs *ext4.FS
		if err == nil {
			fs, err = r.plan(cfg, derive(cfg.Seed))
		}
		if err != nil {
			if e, ok := app.AsError(err); !ok || e.WayOut == "" {
				t.Fatalf("%v", err)
			}
			return
		}
		last, feed := int64(0), feed{ctx: t.Context(), layers: []Layer{layer, layer}}
		for _, p := range fs.Regions() {
			if p.Off < last || p.Off+p.Len > fs.Size() {
				t.Fatalf("a region at %d of %d bytes, after %d, of %d", p.Off, p.Len, last, fs.Size())
			}
			last = p.Off + p.Len
			if p.File != nil && p.Len < 1<<20 {
				if err := feed.read(p.File, p.At, make([]byte, p.Len)); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

// anyBlob is a layout whose every blob is the same bytes, so that documents that no digest fits are read too.
type anyBlob struct {
	fstest.MapFS
	blob []byte
}

func (a anyBlob) Open(name string) (fs.File, error) {
	if strings.HasPrefix(name, v1.ImageBlobsDir) {
		return fstest.MapFS{"b": {Data: a.blob}}.Open("b")
	}
	return a.MapFS.Open(name)
}

// FuzzOCI reads any bytes as the documents of a layout.
func FuzzOCI(f *testing.F) {
	l, m := threeLayers(f)
	l.index(m)
	f.Add([]byte(l["oci-layout"]), []byte(l["index.json"]), []byte(l["blobs/sha256/"+m.Digest.Encoded()]))
	f.Add([]byte(`{"imageLayoutVersion":"1.1"}`), []byte(`{"manifests":[{"mediaType":"application/vnd.oci.image.index.v1+json"}]}`), []byte(`{}`))
	f.Fuzz(func(t *testing.T, layout, index, blob []byte) {
		dir := anyBlob{fstest.MapFS{"oci-layout": {Data: layout}, "index.json": {Data: index}}, blob}
		s, err := OpenOCI(context.Background(), "web", dir)
		if err == nil && s.Kind != OCI {
			t.Fatalf("%+v", s)
		}
		if e, ok := app.AsError(err); err != nil && (!ok || e.WayOut == "") {
			t.Fatalf("%v", err)
		}
		o := &oci{ctx: context.Background(), image: "web", dir: dir}
		_, _ = o.index(blob, 0)
	})
}

// FuzzFstab rewrites any text, twice: what was written once is left as it is.
func FuzzFstab(f *testing.F) {
	f.Add("UUID=0f0e0d0c-1111-4222-8333-444455556666 / ext4 defaults 0 1\n/dev/sda2 none swap sw\n")
	f.Add("LABEL=x / xfs\n\tUUID=AB12-CD34 /boot/efi vfat\n# /")
	f.Fuzz(func(t *testing.T, text string) {
		tr := newTree("web", 0)
		if err := tr.put("etc/fstab", &ext4.Inode{Mode: ext4.Regular, Content: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		n, err := tr.fstab(derive([]byte("x")))
		if err != nil {
			return
		}
		once, _ := tr.content("etc/fstab")
		_, err = tr.fstab(n)
		if twice, _ := tr.content("etc/fstab"); err != nil || twice != once {
			t.Fatalf("%v:\n%q\n%q", err, once, twice)
		}
	})
}
