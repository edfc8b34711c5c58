package catalog

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/opencontainers/image-spec/specs-go/v1"
	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat"
)

// treeKind gives the kind of a declared format that is a root file system, RootFS or OCI, or "".
func treeKind(format string) string {
	kind, _, _ := strings.Cut(format, ".")
	if kind == flat.RootFS || kind == flat.OCI {
		return kind
	}
	return ""
}

// takeTar turns an archive into a disk. The archive is spooled without its compression, for it is read more than once; its
// digest and length are checked before anything in it is believed.
func (c *Catalog) takeTar(ctx context.Context, i *app.Image, s *stream, declared string, counted *source, limit int64, why string) (*app.Image, error) {
	f, err := os.CreateTemp(c.tmp(), "tar-*")
	if err != nil {
		return nil, fmt.Errorf("spooling an archive: %w", err)
	}
	defer func() {
		f.Close()
		os.Remove(f.Name())
	}()
	sum := sha256.New()
	n, err := io.Copy(io.MultiWriter(&spool{f, c}, sum), &bounded{r: s.r, left: limit, limit: limit, why: why})
	if err != nil {
		return nil, err
	}
	if err := counted.finish(); err != nil {
		return nil, err
	}
	t, err := flat.Open(ctx, i.Name, metered{f, counted.meter}, n)
	if err != nil {
		return nil, err
	}
	if kind := treeKind(declared); kind != "" && kind != t.Kind {
		return nil, app.Errorf(app.InvalidInput, "format-mismatch", "the image was declared as %s, its content is %s", kind, t.Kind).
			At("format").Do("leave the format out, or fetch the right file")
	}
	i.Format, i.SourceSize, i.SourceSHA = t.Kind+strings.TrimPrefix(s.format(), Tar), counted.n, counted.sum.sha256()
	return c.lay(ctx, i, t, tree{sum.Sum(nil), counted.n, limit, counted.meter})
}

// tree is what is known of a root file system beside what it holds.
type tree struct {
	seed      []byte // what UUIDs derive from, unless the source has a digest of its own
	delivered int64  // bytes it came in
	limit     int64  // bytes its disk may have
	meter     *meter
}

// lay makes the disk and cuts it into chunks. What came is read twice: to know where everything lies, and to put it there.
func (c *Catalog) lay(ctx context.Context, i *app.Image, t *flat.Source, about tree) (*app.Image, error) {
	if c.cfg.Loaders == nil {
		return nil, app.Errorf(app.Unsupported, "no-loaders", "this appliance carries no boot loader that a root file system could be given").
			Do("import a whole disk image, or use a bcd that was built by make build")
	}
	l, err := c.cfg.Loaders()
	if err != nil {
		return nil, app.Errorf(app.Unsupported, "no-loaders", "this appliance carries no boot loader that a root file system could be given: %w", err).
			Do("import a whole disk image, or use a bcd that was built by make build")
	}
	if t.Digest != "" { // however the same image is packed, its disk is the same
		about.seed = []byte(t.Digest)
	}
	about.meter.begin(app.ImageReading, t.Size)
	d, err := flat.New(ctx, flat.Config{Image: i.Name, Layers: t.Layers, Whiteouts: t.Whiteouts, Seed: about.seed, Delivered: about.delivered, MaxDisk: about.limit, Loaders: l})
	if err != nil {
		return nil, err
	}
	defer d.Close()
	about.meter.begin(app.ImageStoring, d.Size())
	b, err := c.chunks.NewBuild()
	if err != nil {
		return nil, err
	}
	defer b.Discard()
	if err := b.Add(ctx, d, about.meter.stored(c.watchSpace)); err != nil {
		return nil, err
	}
	return c.publish(ctx, i, b)
}

// directory is an OCI image layout that was not packed into an archive. It gives no bytes: what delivers it is the file system.
type directory struct{ root *os.Root }

// Read is never asked.
func (*directory) Read([]byte) (int, error) { return 0, io.EOF }

// Close closes the directory.
func (d *directory) Close() error { return d.root.Close() }

// Open implements fs.FS, for files alone.
func (d *directory) Open(name string) (fs.File, error) {
	f, err := d.root.OpenFile(name, openFlags, 0)
	if err != nil {
		return nil, err
	}
	return regular(f)
}

// openFlags do not wait for the other end of a pipe.
const openFlags = os.O_RDONLY | unix.O_NONBLOCK

// regular refuses what was opened and is no file: a pipe or a device may have no end.
func regular(f *os.File) (*os.File, error) {
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = app.Invalid("path", "%q is not a regular file", f.Name()).Do("make a copy of the image that holds files alone")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// openDirectory opens a layout. Symbolic links that lead out of it are not followed.
func openDirectory(path string) (io.ReadCloser, error) {
	root, err := os.OpenRoot(path)
	if err != nil {
		return nil, app.Invalid("path", "%q cannot be opened: %v", path, errors.Unwrap(err)).Do("give the path of a directory on the appliance that it may read")
	}
	return &directory{root}, nil
}

// directorySource refuses a directory that is no OCI image layout, and a digest over bytes that there are none of.
func directorySource(src Source, path string) error {
	switch info, err := os.Stat(filepath.Join(path, v1.ImageLayoutFile)); {
	case errors.Is(err, fs.ErrNotExist):
		return app.Invalid("path", "%q is a directory without the %s of an OCI image", path, v1.ImageLayoutFile).
			Do("pack a root file system into an archive first: tar -C DIR --numeric-owner --xattrs --xattrs-include='*' -cf rootfs.tar .")
	case err != nil:
		return app.Invalid("path", "%q cannot be read: %v", path, errors.Unwrap(err)).Do("let the appliance read it")
	case !info.Mode().IsRegular():
		return app.Invalid("path", "%q is no OCI image", path)
	case src.Digest != "":
		return app.Invalid("digest", "is of a file, and %q is a directory", path).Do("leave it out: every blob of an OCI image is checked by its own digest")
	case src.Format != "" && src.Format != flat.OCI:
		return app.Errorf(app.InvalidInput, "format-mismatch", "the image was declared as %s, and is an OCI image", src.Format).At("format").Do("leave the format out")
	}
	return nil
}

// takeDirectory imports an OCI image layout from a directory.
func (c *Catalog) takeDirectory(ctx context.Context, i *app.Image, d *directory, src Source, m *meter) (*app.Image, error) {
	t, err := flat.OpenOCI(ctx, i.Name, meteredFiles{d, m})
	if err != nil {
		return nil, err
	}
	limit := c.cfg.MaxRaw
	if src.MaxRaw > 0 {
		limit = min(limit, src.MaxRaw)
	}
	i.Format, i.SourceSize, i.SourceSHA = t.Kind, t.Size, t.Digest
	return c.lay(ctx, i, t, tree{nil, t.Size, limit, m})
}
