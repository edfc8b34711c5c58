package flat

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
	"github.com/opencontainers/go-digest"
	specs "github.com/opencontainers/image-spec/specs-go"
	"github.com/opencontainers/image-spec/specs-go/v1"
)

// layout is an OCI image layout that a test makes: files by name.
type layout map[string]string

// blob adds a blob and describes it.
func (l layout) blob(kind string, b []byte) v1.Descriptor {
	d := digest.FromBytes(b)
	l["blobs/sha256/"+d.Encoded()] = string(b)
	return v1.Descriptor{MediaType: kind, Digest: d, Size: int64(len(b))}
}

func (l layout) json(kind string, v any) v1.Descriptor {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return l.blob(kind, b)
}

// image adds an image of layers for a machine.
func (l layout) image(arch string, layers ...v1.Descriptor) v1.Descriptor {
	c := l.json(v1.MediaTypeImageConfig, v1.Image{Platform: v1.Platform{OS: "linux", Architecture: arch}, RootFS: v1.RootFS{Type: "layers"}})
	return l.json(v1.MediaTypeImageManifest, v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest, Config: c, Layers: layers})
}

// index finishes the layout.
func (l layout) index(list ...v1.Descriptor) layout {
	b, err := json.Marshal(v1.Index{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex, Manifests: list})
	if err != nil {
		panic(err)
	}
	l["index.json"], l["oci-layout"] = string(b), `{"imageLayoutVersion":"1.0.0"}`
	return l
}

// pack makes an archive of the layout, as skopeo does.
func (l layout) pack(t testing.TB) []byte {
	t.Helper()
	var files []file
	for _, name := range slices.Sorted(maps.Keys(l)) {
		files = append(files, reg(name, l[name]))
	}
	return pack(t, files)
}

func gz(b []byte) []byte {
	var out bytes.Buffer
	w := gzip.NewWriter(&out)
	_, _ = w.Write(b)
	_ = w.Close()
	return out.Bytes()
}

func zst(b []byte) []byte {
	w, _ := zstd.NewWriter(nil)
	return w.EncodeAll(b, nil)
}

// threeLayers is an image whose layers change and remove what lies below them.
func threeLayers(t testing.TB) (layout, v1.Descriptor) {
	l := layout{}
	base := pack(t, system(
		reg("etc/passwd", "base\n"), reg("etc/issue", "base\n"), folder("srv/"), reg("srv/a", "base"), folder("srv/sub/"), reg("srv/sub/b", "base"), folder("opt/"), reg("opt/keep", "keep"), reg("opt/gone", "gone"),
		reg("usr/linked", "one content"), hardlink("usr/again", "usr/linked"), folder("var/"), folder("var/dir/"), reg("var/dir/x", "x"), reg("var/file", "f"),
	))
	middle := pack(t, []file{
		folder("etc/"), reg("etc/passwd", "middle\n"), reg("opt/.wh.gone", ""), reg("srv/a", "middle"), reg("srv/.wh..wh..opq", ""), folder("srv/sub/"), reg("srv/sub/c", "middle"),
		reg("usr/linked", "another"), reg("var/.wh.dir", ""), reg("var/.wh.never-there", ""), reg("sbin/added", "through a link"),
	})
	top := pack(t, []file{
		reg("etc/.wh.issue", ""), reg("etc/issue", "top\n"), folder("var/file/"), reg("var/file/now-a-directory", "y"), reg("var/.wh..wh.plnk", ""), reg("opt/.wh..wh..opq", ""),
	})
	return l, l.image("amd64", l.blob(v1.MediaTypeImageLayerGzip, gz(base)), l.blob(v1.MediaTypeImageLayerZstd, zst(middle)), l.blob(v1.MediaTypeImageLayer, top))
}

func TestOCI(t *testing.T) {
	l, m := threeLayers(t)
	m.Annotations = map[string]string{v1.AnnotationRefName: "latest"}
	d, err := build(t, l.index(m).pack(t), nil)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, d)
	check(t, path)
	for name, want := range map[string]string{
		"/etc/passwd": "middle\n", "/etc/issue": "top\n", "/srv/a": "middle", "/srv/sub/b": "", "/srv/sub/c": "middle", "/opt/keep": "", "/opt/gone": "",
		"/usr/linked": "another", "/usr/again": "one content", "/var/dir/x": "", "/var/file/now-a-directory": "y", "/usr/sbin/added": "through a link",
	} {
		if got := cat(t, path, name); got != want {
			t.Errorf("%s holds %q, want %q", name, got, want)
		}
	}
}

// TestPlatforms takes the image for x86-64 out of what indexes hold.
func TestPlatforms(t *testing.T) {
	l, amd := threeLayers(t)
	arm := l.image("arm64", l.blob(v1.MediaTypeImageLayer, pack(t, nil)))
	amd.Platform, arm.Platform = &v1.Platform{OS: "linux", Architecture: "amd64"}, &v1.Platform{OS: "linux", Architecture: "arm64"}
	proof := l.json(v1.MediaTypeImageManifest, v1.Manifest{})
	proof.Platform = &v1.Platform{OS: "unknown", Architecture: "unknown"}
	inner := l.json(v1.MediaTypeImageIndex, v1.Index{Manifests: []v1.Descriptor{arm, amd, proof}})
	bare := amd
	bare.Platform = nil
	loop := v1.Descriptor{MediaType: v1.MediaTypeImageIndex, Digest: digest.FromString("x"), Size: 1}
	for name, tc := range map[string]struct {
		list   []v1.Descriptor
		reason string
		part   string
	}{
		"nested":            {[]v1.Descriptor{inner}, "", ""},
		"no platform given": {[]v1.Descriptor{bare}, "", ""},
		"twice the same":    {[]v1.Descriptor{amd, inner}, "", ""},
		"another machine":   {[]v1.Descriptor{arm}, "no-amd64-image", "linux/arm64"},
		"nothing":           {nil, "no-amd64-image", "web"},
		"two":               {[]v1.Descriptor{amd, l.image("amd64")}, "several-images", amd.Digest.String()},
		"a missing index":   {[]v1.Descriptor{loop}, "oci-damaged", "missing"},
	} {
		b := maps.Clone(l).index(tc.list...).pack(t)
		s, err := Open(t.Context(), "web", bytes.NewReader(b), int64(len(b)))
		if tc.reason == "" {
			if err != nil || s.Kind != OCI || len(s.Layers) != 3 || s.Digest != amd.Digest.Encoded() {
				t.Errorf("%s: %+v, %v", name, s, err)
			}
		} else if err == nil || reason(t, err) != tc.reason || !strings.Contains(err.Error(), tc.part) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestOCIRefuses changes one thing in a good image.
func TestOCIRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(l layout, m *v1.Manifest)
		reason string
	}{
		"a flipped byte in a layer": {func(l layout, m *v1.Manifest) {
			name := "blobs/sha256/" + m.Layers[2].Digest.Encoded()
			l[name] = "X" + l[name][1:]
		}, "digest-mismatch"},
		"a layer with bytes behind it": {func(l layout, m *v1.Manifest) { l["blobs/sha256/"+m.Layers[0].Digest.Encoded()] += "x" }, "oci-damaged"},
		"a layer cut short": {func(l layout, m *v1.Manifest) {
			name := "blobs/sha256/" + m.Layers[1].Digest.Encoded()
			l[name] = l[name][:len(l[name])-1]
		}, "digest-mismatch"},
		"a missing layer":    {func(l layout, m *v1.Manifest) { delete(l, "blobs/sha256/"+m.Layers[1].Digest.Encoded()) }, "oci-damaged"},
		"a path as digest":   {func(l layout, m *v1.Manifest) { m.Layers[0].Digest = "sha256:../../../../etc/passwd" }, "oci-damaged"},
		"a weak digest":      {func(l layout, m *v1.Manifest) { m.Layers[0].Digest = "md5:d41d8cd98f00b204e9800998ecf8427e" }, "oci-damaged"},
		"a lying size":       {func(l layout, m *v1.Manifest) { m.Layers[0].Size-- }, "oci-damaged"},
		"a huge config":      {func(l layout, m *v1.Manifest) { m.Config.Size = 1 << 50 }, "oci-damaged"},
		"an encrypted layer": {func(l layout, m *v1.Manifest) { m.Layers[0].MediaType += "+encrypted" }, "oci-layer"},
		"another kind":       {func(l layout, m *v1.Manifest) { m.Layers[0].MediaType = "application/vnd.cncf.helm.chart" }, "oci-layer"},
		"too many layers":    {func(l layout, m *v1.Manifest) { m.Layers = slices.Repeat(m.Layers, 200) }, "oci-damaged"},
		"no version":         {func(l layout, m *v1.Manifest) { l["oci-layout"] = "{}" }, "oci-damaged"},
		"no index":           {func(l layout, m *v1.Manifest) { delete(l, "index.json") }, "oci-damaged"},
		"an index of prose":  {func(l layout, m *v1.Manifest) { l["index.json"] = "hello" }, "oci-damaged"},
		"docker save of old": {func(l layout, m *v1.Manifest) { delete(l, "oci-layout"); l["manifest.json"] = "[]" }, "docker-archive"},
	} {
		l, d := threeLayers(t)
		var m v1.Manifest
		if err := json.Unmarshal([]byte(l["blobs/sha256/"+d.Digest.Encoded()]), &m); err != nil {
			t.Fatal(err)
		}
		l.index()
		tc.change(l, &m)
		if l["index.json"] == `{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":null}` {
			top := l["oci-layout"]
			if l.index(l.json(v1.MediaTypeImageManifest, m)); top == "" {
				delete(l, "oci-layout")
			} else {
				l["oci-layout"] = top
			}
		}
		disk, err := build(t, l.pack(t), nil)
		if err == nil {
			disk.Close()
			t.Errorf("%s was taken", name)
		} else if got := reason(t, err); got != tc.reason || !strings.Contains(err.Error(), "web") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestDirectory reads a layout that is not packed, whose blobs are links out of it at worst.
func TestDirectory(t *testing.T) {
	l, m := threeLayers(t)
	dir := t.TempDir()
	for name, text := range l.index(m) {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	s, err := OpenOCI(t.Context(), "web", root.FS())
	if err != nil || len(s.Layers) != 3 || s.Size == 0 {
		t.Fatalf("%+v, %v", s, err)
	}
	outside := filepath.Join(t.TempDir(), "outside")
	name := filepath.Join(dir, "blobs/sha256", m.Digest.Encoded())
	if err := os.Rename(name, outside); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(outside, name); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenOCI(t.Context(), "web", root.FS()); err == nil {
		t.Error("a blob outside of the directory was read")
	}
}

// TestWhiteoutsAreNames leaves such names alone where they mean nothing.
func TestWhiteoutsAreNames(t *testing.T) {
	d, err := build(t, pack(t, system(reg("etc/.wh.hostname", "a file"), file{tar.Header{Name: "etc/g", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, ""})), nil)
	if err != nil {
		t.Fatal(err)
	}
	if got := cat(t, write(t, d), "/etc/.wh.hostname"); got != "a file" {
		t.Errorf("%q", got)
	}
}
