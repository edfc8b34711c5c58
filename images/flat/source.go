package flat

import (
	"archive/tar"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"strings"

	"github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/better-compute/bcd/app"
)

// Kinds of what a tar archive may hold.
const (
	RootFS = "rootfs" // a root file system
	OCI    = "oci"    // an OCI image layout
)

// maxBlobs bounds the files of an OCI image layout.
const maxBlobs = 10_000

// Source is what a Disk is made from.
type Source struct {
	Kind      string
	Layers    []Layer
	Whiteouts bool
	Digest    string // hex, SHA-256 or SHA-512 of an OCI image's manifest; "" for a root file system
	Size      int64  // bytes of an OCI image's layers, as they are kept, or of the archive of a root file system
}

// Open looks into a tar archive of size bytes and finds out what it holds. image is its name, for messages. The archive must
// not change while the layers are in use.
func Open(ctx context.Context, image string, r io.ReaderAt, size int64) (*Source, error) {
	a := &archiveFS{r: r, files: map[string]section{}}
	docker := false
	in := &offsets{ctx: ctx, s: io.NewSectionReader(r, 0, size)}
	for tr := tar.NewReader(in); ; {
		h, err := tr.Next()
		if err != nil { // where it matters it is found again, by whoever reads the archive itself
			break
		}
		name := path.Clean(strings.TrimPrefix(h.Name, "/"))
		if h.Typeflag != tar.TypeReg || !fs.ValidPath(name) {
			continue
		}
		docker = docker || name == "manifest.json" || name == "repositories"
		at, _ := in.s.Seek(0, io.SeekCurrent)
		if name == v1.ImageLayoutFile || name == v1.ImageIndexFile || strings.HasPrefix(name, v1.ImageBlobsDir+"/") {
			if len(a.files) == maxBlobs {
				break
			}
			a.files[name] = section{at, h.Size}
		}
	}
	if err := ctx.Err(); err != nil {
		return nil, context.Cause(ctx)
	}
	_, layout := a.files[v1.ImageLayoutFile]
	switch {
	case layout:
		return OpenOCI(ctx, image, a)
	case docker:
		return nil, app.Errorf(app.Unsupported, "docker-archive", "image %s is what docker save wrote, in the form of before OCI", image).
			Do("turn it into an OCI image: skopeo copy docker-archive:IN.tar oci-archive:OUT.tar")
	}
	return &Source{Kind: RootFS, Size: size, Layers: []Layer{{Open: func() (io.ReadCloser, error) { return io.NopCloser(io.NewSectionReader(r, 0, size)), nil }}}}, nil
}

// offsets lets tar.Reader skip what a file holds, and ends with its context.
type offsets struct {
	ctx context.Context
	s   *io.SectionReader
}

func (o *offsets) Read(b []byte) (int, error) {
	if o.ctx.Err() != nil {
		return 0, context.Cause(o.ctx)
	}
	return o.s.Read(b)
}

func (o *offsets) Seek(off int64, whence int) (int64, error) { return o.s.Seek(off, whence) }

// section is where a file lies in an archive.
type section struct{ off, len int64 }

// archiveFS gives the files of an OCI image layout in a tar archive.
type archiveFS struct {
	r     io.ReaderAt
	files map[string]section
}

// Open implements fs.FS, for reading alone.
func (a *archiveFS) Open(name string) (fs.File, error) {
	s, ok := a.files[name]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return &blobFile{io.NewSectionReader(a.r, s.off, s.len)}, nil
}

type blobFile struct{ *io.SectionReader }

// Stat is not needed by any reader here.
func (*blobFile) Stat() (fs.FileInfo, error) {
	return nil, fmt.Errorf("stat: %w", errors.ErrUnsupported)
}

// Close has nothing to free.
func (*blobFile) Close() error { return nil }
