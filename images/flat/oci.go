package flat

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"path"
	"slices"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"
	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/better-compute/bcd/app"
)

// The bounds of an OCI image.
const (
	maxDocument = 4 << 20 // bytes of an index or a manifest
	maxLayers   = 512
	maxIndexes  = 64        // indexes and manifests looked at
	maxWindow   = 128 << 20 // what a layer's zstd stream may make the decoder reserve
)

// Docker's names for the same documents.
const (
	dockerList     = "application/vnd.docker.distribution.manifest.list.v2+json"
	dockerManifest = "application/vnd.docker.distribution.manifest.v2+json"
)

// oci is an image layout.
type oci struct {
	ctx    context.Context
	image  string
	dir    fs.FS
	looked int
	others []string // platforms that were passed over
}

// OpenOCI finds the one image for x86-64 in an OCI image layout. Every blob is checked against its digest, each time it is
// read.
func OpenOCI(ctx context.Context, image string, dir fs.FS) (*Source, error) {
	o := &oci{ctx: ctx, image: image, dir: dir}
	b, err := o.document(v1.ImageLayoutFile)
	if err != nil {
		return nil, err
	}
	var l v1.ImageLayout
	if err := json.Unmarshal(b, &l); err != nil || !strings.HasPrefix(l.Version, "1.") {
		return nil, o.bad("its %s names no version of the layout that is known here", v1.ImageLayoutFile)
	}
	if b, err = o.document(v1.ImageIndexFile); err != nil {
		return nil, err
	}
	found, err := o.index(b, 0)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(found, func(a, b v1.Descriptor) int { return strings.Compare(string(a.Digest), string(b.Digest)) })
	found = slices.CompactFunc(found, func(a, b v1.Descriptor) bool { return a.Digest == b.Digest })
	switch len(found) {
	case 0:
		return nil, app.Errorf(app.Unsupported, "no-amd64-image", "image %s holds no image for linux/amd64%s", o.image, o.list(" but for ", o.others)).
			Do("fetch the image for that platform: skopeo copy --override-arch amd64 docker://NAME oci-archive:OUT.tar")
	case 1:
	default:
		var names []string
		for _, d := range found {
			names = append(names, strings.TrimSpace(d.Annotations[v1.AnnotationRefName]+" "+d.Digest.String()))
		}
		return nil, app.Errorf(app.InvalidInput, "several-images", "image %s holds %d images%s", o.image, len(found), o.list(": ", names)).
			Do("keep one of them: skopeo copy oci-archive:IN.tar:TAG oci-archive:OUT.tar")
	}
	return o.layers(found[0])
}

// list spells names, which are hostile text, within bounds.
func (o *oci) list(lead string, names []string) string {
	if len(names) == 0 {
		return ""
	}
	slices.Sort(names)
	names = slices.Compact(names)
	out := fmt.Sprintf("%.100q", names[:min(8, len(names))])
	return lead + strings.Trim(out, "[]")
}

func (o *oci) bad(format string, args ...any) *app.Error {
	return app.Errorf(app.InvalidInput, "oci-damaged", "image %s is no OCI image that can be read: %s", o.image, fmt.Sprintf(format, args...)).
		Do("make it again: skopeo copy FROM oci-archive:OUT.tar")
}

// document reads a small file of the layout.
func (o *oci) document(name string) ([]byte, error) {
	f, err := o.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, o.bad("%s is missing", name)
	}
	if err != nil {
		return nil, fmt.Errorf("opening %s of image %q: %w", name, o.image, err)
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxDocument+1))
	if err != nil || len(b) > maxDocument {
		return nil, o.bad("%s cannot be read, or has more than %d bytes", name, maxDocument)
	}
	return b, nil
}

// index gives the manifests for x86-64 that an index leads to.
func (o *oci) index(b []byte, depth int) (out []v1.Descriptor, err error) {
	var x v1.Index
	if err := json.Unmarshal(b, &x); err != nil {
		return nil, o.bad("an index is no JSON document of its form")
	}
	if depth > 4 {
		return nil, o.bad("indexes lead to each other")
	}
	for _, d := range x.Manifests {
		if o.looked++; o.looked > maxIndexes {
			return nil, o.bad("it has more than %d indexes and manifests", maxIndexes)
		}
		if p := d.Platform; p != nil && (p.OS != "linux" || p.Architecture != "amd64") {
			if p.OS != "unknown" { // an attestation
				o.others = append(o.others, p.OS+"/"+p.Architecture)
			}
			continue
		}
		switch d.MediaType {
		case v1.MediaTypeImageIndex, dockerList:
			b, err := o.blob(d)
			if err != nil {
				return nil, err
			}
			inner, err := o.index(b, depth+1)
			if err != nil {
				return nil, err
			}
			out = append(out, inner...)
		case v1.MediaTypeImageManifest, dockerManifest:
			if ok, err := o.suits(d); err != nil {
				return nil, err
			} else if ok {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// manifest reads the manifest of an image.
func (o *oci) manifest(d v1.Descriptor) (m v1.Manifest, err error) {
	b, err := o.blob(d)
	if err != nil {
		return m, err
	}
	if err := json.Unmarshal(b, &m); err != nil || len(m.Layers) > maxLayers {
		return m, o.bad("the manifest %s is no JSON document of its form, or has more than %d layers", d.Digest, maxLayers)
	}
	return m, nil
}

// suits asks the image's own configuration which machine it is for.
func (o *oci) suits(d v1.Descriptor) (bool, error) {
	m, err := o.manifest(d)
	if err != nil {
		return false, err
	}
	b, err := o.blob(m.Config)
	if err != nil {
		return false, err
	}
	var c v1.Image
	if err := json.Unmarshal(b, &c); err != nil {
		return false, o.bad("the configuration %s is no JSON document of its form", m.Config.Digest)
	}
	if c.OS == "" || c.Architecture == "" { // an artifact that is no image
		return false, nil
	}
	if c.OS != "linux" || c.Architecture != "amd64" {
		o.others = append(o.others, c.OS+"/"+c.Architecture)
		return false, nil
	}
	return true, nil
}

// layers gives the layers of an image, lowest first.
func (o *oci) layers(d v1.Descriptor) (*Source, error) {
	m, err := o.manifest(d)
	if err != nil {
		return nil, err
	}
	s := &Source{Kind: OCI, Whiteouts: true, Digest: d.Digest.Encoded()}
	for _, l := range m.Layers {
		if !strings.Contains(l.MediaType, ".tar") || strings.Contains(l.MediaType, "encrypted") {
			return nil, app.Errorf(app.Unsupported, "oci-layer", "image %s has a layer of the type %.100q, which is no tar archive", o.image, l.MediaType).
				Do("build the image with layers that are tar archives, plain or compressed by gzip or zstd")
		}
		if _, err := o.path(l.Digest); err != nil {
			return nil, err
		}
		s.Size += l.Size
		s.Layers = append(s.Layers, Layer{Name: l.Digest.String(), Open: func() (io.ReadCloser, error) { return o.layer(l) }})
	}
	return s, nil
}

// path is where a blob lies. A digest that is none leads nowhere.
func (o *oci) path(d digest.Digest) (string, error) {
	if err := d.Validate(); err != nil || d.Algorithm() != digest.SHA256 && d.Algorithm() != digest.SHA512 {
		return "", o.bad("%.100q is no digest by SHA-256 or SHA-512", string(d))
	}
	return path.Join(v1.ImageBlobsDir, d.Algorithm().String(), d.Encoded()), nil
}

// open opens a blob, whose bytes are checked by the end of it.
func (o *oci) open(d v1.Descriptor) (io.ReadCloser, error) {
	name, err := o.path(d.Digest)
	if err != nil {
		return nil, err
	}
	f, err := o.dir.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, o.bad("the blob %s is missing", d.Digest)
	}
	if err != nil {
		return nil, fmt.Errorf("opening blob %s of image %q: %w", d.Digest, o.image, err)
	}
	return &verified{oci: o, f: f, d: d, sum: d.Digest.Algorithm().Hash()}, nil
}

// blob reads a small blob whole.
func (o *oci) blob(d v1.Descriptor) ([]byte, error) {
	if d.Size < 0 || d.Size > maxDocument {
		return nil, o.bad("the document %s has %d bytes, the limit is %d", d.Digest, d.Size, maxDocument)
	}
	f, err := o.open(d)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return io.ReadAll(f)
}

// verified reads a blob. Its end is an error unless length and digest are those of the descriptor.
type verified struct {
	*oci
	f   fs.File
	d   v1.Descriptor
	sum hash.Hash
	n   int64
}

func (v *verified) Read(b []byte) (int, error) {
	if v.ctx.Err() != nil {
		return 0, context.Cause(v.ctx)
	}
	n, err := v.f.Read(b)
	v.sum.Write(b[:n])
	if v.n += int64(n); v.n > v.d.Size {
		return 0, v.bad("the blob %s is longer than its %d bytes", v.d.Digest, v.d.Size)
	}
	if errors.Is(err, io.EOF) {
		if got := digest.NewDigest(v.d.Digest.Algorithm(), v.sum); got != v.d.Digest || v.n != v.d.Size {
			return n, app.Errorf(app.InvalidInput, "digest-mismatch", "a blob of image %s should be %s with %d bytes, and is %s with %d", v.image, v.d.Digest, v.d.Size, got, v.n).Do("fetch the image again")
		}
	}
	return n, err
}

func (v *verified) Close() error { return v.f.Close() }

// layer opens a layer and undoes its compression, which its first bytes tell.
func (o *oci) layer(d v1.Descriptor) (io.ReadCloser, error) {
	f, err := o.open(d)
	if err != nil {
		return nil, err
	}
	l := &expanded{blob: f, buffered: bufio.NewReaderSize(f, 256<<10), stop: func() {}}
	head, err := l.buffered.Peek(4)
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(err, f.Close())
	}
	switch {
	case bytes.HasPrefix(head, []byte("\x1f\x8b")):
		z, err := pgzip.NewReaderN(l.buffered, 1<<20, 4)
		if err != nil {
			return nil, errors.Join(o.bad("the layer %s: %v", d.Digest, err), f.Close())
		}
		l.r, l.stop = z, func() { z.Close() }
	case bytes.HasPrefix(head, []byte("\x28\xb5\x2f\xfd")):
		z, err := zstd.NewReader(l.buffered, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(2*maxWindow))
		if err != nil {
			return nil, errors.Join(o.bad("the layer %s: %v", d.Digest, err), f.Close())
		}
		l.r, l.stop = z, z.Close
	default:
		l.r = l.buffered
	}
	return l, nil
}

// expanded is a layer without its compression. At its end the blob is read to its own, so that it is checked.
type expanded struct {
	r        io.Reader
	buffered *bufio.Reader
	blob     io.ReadCloser
	stop     func()
}

func (e *expanded) Read(b []byte) (int, error) {
	n, err := e.r.Read(b)
	if err != nil {
		if _, e := io.Copy(io.Discard, e.buffered); e != nil {
			return n, e
		}
	}
	return n, err
}

func (e *expanded) Close() error {
	e.stop()
	return e.blob.Close()
}
