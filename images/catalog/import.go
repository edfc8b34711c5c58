package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/catalog/internal/qcow2"
	"github.com/better-compute/bcd/images/chunk"
)

// Source says what an import is to be.
type Source struct {
	Name   string // an app.ValidName, unique
	Format string // "raw", "qcow2", "iso", "rootfs", "oci", or one of them with ".gz", ".xz", ".zst"; "": told by the content
	Digest string // SHA-256 or SHA-512 over the bytes as delivered, hex, in any case, with or without "sha256:"; "": none
	Size   int64  // bytes as delivered; 0: unknown
	MaxRaw int64  // largest disk the image may describe; 0: the catalog's limit
}

// Import reads an image from r until its end and returns when it is ready. After an error nothing is left but a row that
// says "failed" and why; the next import of that name replaces it.
func (c *Catalog) Import(ctx context.Context, src Source, r io.Reader) (*app.Image, error) {
	i, run, err := c.begin(ctx, src)
	if err != nil {
		return nil, err
	}
	return run(ctx, i, func(ctx context.Context, m *meter) (io.ReadCloser, error) { return io.NopCloser(r), nil })
}

// ImportFile imports a file of this machine, while the caller waits.
func (c *Catalog) ImportFile(ctx context.Context, src Source, path string) (*app.Image, error) {
	if err := c.fileSource(&src, path); err != nil {
		return nil, err
	}
	i, run, err := c.begin(ctx, src)
	if err != nil {
		return nil, err
	}
	return run(ctx, i, openFile(path))
}

// StartFile begins to import a file and gives the image as it is then, "importing".
func (c *Catalog) StartFile(ctx context.Context, src Source, path string) (*app.Image, error) {
	if err := c.fileSource(&src, path); err != nil {
		return nil, err
	}
	return c.start(ctx, src, openFile(path))
}

// StartURL begins to import from an http or https URL and gives the image as it is then, "importing". Source.Digest must
// be set. A transfer that is cut goes on where it stopped, if the server says that the file is still the same.
func (c *Catalog) StartURL(ctx context.Context, src Source, url string) (*app.Image, error) {
	if c.cfg.Client == nil {
		return nil, app.Errorf(app.Unsupported, "no-url-imports", "this appliance fetches no images from URLs").Do("upload the image")
	}
	if src.Digest == "" {
		return nil, app.Invalid("digest", "is required for an import from a URL").Do("give the SHA-256 that the publisher of the image states")
	}
	u, err := checkURL(url)
	if err != nil {
		return nil, err
	}
	return c.start(ctx, src, func(ctx context.Context, m *meter) (io.ReadCloser, error) { return c.fetch(ctx, u, m) })
}

// Cancel ends an import under way; it is no error when there is none.
func (c *Catalog) Cancel(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if cancel := c.running[id]; cancel != nil {
		cancel(errCancelled)
	}
}

func (c *Catalog) fileSource(src *Source, path string) error {
	info, err := os.Stat(path)
	switch {
	case err != nil:
		return app.Invalid("path", "%q cannot be read: %v", path, errors.Unwrap(err)).Do("give the path of a file on the appliance that it may read")
	case info.IsDir():
		return directorySource(*src, path)
	case !info.Mode().IsRegular():
		return app.Invalid("path", "%q is not a regular file", path)
	}
	src.Size = info.Size()
	return nil
}

func openFile(path string) opener {
	return func(context.Context, *meter) (io.ReadCloser, error) {
		f, err := os.OpenFile(path, openFlags, 0)
		if err != nil {
			return nil, err
		}
		if info, err := f.Stat(); err == nil && info.IsDir() {
			_ = f.Close() // it was only looked at
			return openDirectory(path)
		}
		return regular(f)
	}
}

// opener opens the source of an import.
type opener func(ctx context.Context, m *meter) (io.ReadCloser, error)

type runner func(ctx context.Context, i *app.Image, open opener) (*app.Image, error)

// start runs an import in the background, for as long as Run runs.
func (c *Catalog) start(ctx context.Context, src Source, open opener) (*app.Image, error) {
	i, run, err := c.begin(ctx, src)
	if err != nil {
		return nil, err
	}
	copied := *i
	go func() { _, _ = run(context.WithoutCancel(ctx), i, open) }() // wg was raised by begin; the outcome is in the row
	return &copied, nil
}

// begin checks a source and makes the row. The runner must be called; it ends what begin began.
func (c *Catalog) begin(ctx context.Context, src Source) (*app.Image, runner, error) {
	if err := app.ValidName("name", src.Name); err != nil {
		return nil, nil, err
	}
	sum, err := newDigest(src.Digest)
	if err != nil {
		return nil, nil, err
	}
	if err := c.room(src.Size); err != nil {
		return nil, nil, err
	}
	if err := c.replaceFailed(ctx, src.Name); err != nil {
		return nil, nil, err
	}
	i := &app.Image{ID: app.NewID("img"), Name: src.Name, State: Importing, Phase: app.ImageReceiving, Format: src.Format, Total: src.Size, Created: c.cfg.Now()}
	own, cancel := context.WithCancelCause(context.Background())
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		cancel(nil)
		return nil, nil, errStopping
	}
	c.wg.Add(1)
	c.running[i.ID] = cancel
	c.mu.Unlock()
	end := func() {
		c.mu.Lock()
		delete(c.running, i.ID)
		c.mu.Unlock()
		cancel(nil)
		c.wg.Done()
	}
	if err := c.cfg.Store.CreateImage(ctx, i); err != nil {
		end()
		return nil, nil, err
	}
	return i, func(ctx context.Context, i *app.Image, open opener) (*app.Image, error) {
		defer end()
		ctx, stop := context.WithCancelCause(ctx)
		defer stop(nil)
		defer context.AfterFunc(own, func() { stop(context.Cause(own)) })()
		return c.run(ctx, i, src, sum, open)
	}, nil
}

// replaceFailed frees a name that a failed import holds.
func (c *Catalog) replaceFailed(ctx context.Context, name string) error {
	old, err := c.cfg.Store.Image(ctx, name)
	switch {
	case app.CodeOf(err) == app.NotFound:
		return nil
	case err != nil || old.State != Failed:
		return err
	}
	return c.cfg.Store.DeleteImage(ctx, old.ID)
}

// run imports, and settles the row whatever happened.
func (c *Catalog) run(ctx context.Context, i *app.Image, src Source, sum *digest, open opener) (*app.Image, error) {
	defer debug.FreeOSMemory() // compressors hold far more than an appliance at rest; the collector alone would keep it for minutes
	m := c.newMeter(ctx, i.ID, src.Size)
	done, err := c.take(ctx, i, src, sum, m, open)
	m.stop()
	if err == nil {
		return done, nil
	}
	if cause := context.Cause(ctx); cause != nil && errors.Is(err, context.Canceled) {
		err = cause
	}
	err = c.storage(err, src.Size)
	// The row must be settled even when the request that asked for the import is gone.
	settle := context.WithoutCancel(ctx)
	c.fail(settle, i.ID, err)
	if e := os.RemoveAll(c.imageDir(i.ID)); e != nil {
		err = errors.Join(err, e)
	}
	if e := c.collect(settle); e != nil {
		c.cfg.Log.Error("packs not collected", "err", e)
	}
	return nil, err
}

// fail writes down why an image is none.
func (c *Catalog) fail(ctx context.Context, id string, cause error) {
	reason := "an internal error, which is in the appliance's log"
	if e, ok := app.AsError(cause); ok {
		reason = e.Error()
	} else if errors.Is(cause, context.Canceled) {
		reason = "the import was cancelled"
	}
	c.cfg.Log.Warn("image failed", "image", id, "err", cause)
	_, err := c.cfg.Store.UpdateImage(ctx, id, func(i *app.Image) error {
		i.State, i.Reason, i.Phase, i.Done, i.Total = Failed, reason, "", 0, 0
		return nil
	})
	if err != nil && app.CodeOf(err) != app.NotFound { // a cancelled import's row may be deleted
		c.cfg.Log.Error("the failure of an image could not be written down", "image", id, "err", err)
	}
}

// take does the import up to the row that offers it.
func (c *Catalog) take(ctx context.Context, i *app.Image, src Source, sum *digest, m *meter, open opener) (*app.Image, error) {
	in, err := open(ctx, m)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	if d, ok := in.(*directory); ok {
		return c.takeDirectory(ctx, i, d, src, m)
	}
	counted := &source{ctx: ctx, r: in, sum: sum, meter: m, size: src.Size}
	s, err := decode(counted, src.Format)
	if err != nil {
		return nil, err
	}
	defer s.close()
	limit, why := c.cfg.MaxRaw, "the limit of this appliance"
	if src.MaxRaw > 0 && src.MaxRaw < limit {
		limit, why = src.MaxRaw, "the limit given with the import"
	}
	if s.inner == Tar {
		return c.takeTar(ctx, i, s, src.Format, counted, limit, why)
	}
	if s.inner == ISO {
		return c.takeISO(ctx, i, &bounded{r: s.r, left: limit, limit: limit, why: why}, counted, s.format())
	}
	raw, done, err := c.raw(s, m, limit, why)
	if err != nil {
		return nil, err
	}
	defer done()
	b, err := c.chunks.NewBuild()
	if err != nil {
		return nil, err
	}
	defer b.Discard()
	if err := b.Add(ctx, raw, m.stored(c.watchSpace)); err != nil {
		return nil, err
	}
	if err := counted.finish(); err != nil {
		return nil, err
	}
	i.Format, i.SourceSize, i.SourceSHA = s.format(), counted.n, sum.sha256()
	return c.publish(ctx, i, b)
}

// raw gives the raw bytes of a decoded stream; done frees what it took.
func (c *Catalog) raw(s *stream, m *meter, limit int64, why string) (r io.Reader, done func(), err error) {
	if s.inner == Raw {
		return &bounded{r: s.r, left: limit, limit: limit, why: why}, func() {}, nil
	}
	head, _ := s.r.Peek(112)
	if len(head) >= 104 {
		size, err := qcow2.Check(head)
		if err != nil {
			return nil, nil, err
		}
		if size > limit {
			return nil, nil, tooLarge(limit, why)
		}
	}
	f, err := os.CreateTemp(c.tmp(), "qcow2-*")
	if err != nil {
		return nil, nil, fmt.Errorf("spooling qcow2 image: %w", err)
	}
	done = func() {
		f.Close()
		os.Remove(f.Name())
	}
	n, err := io.Copy(&spool{f, c}, &bounded{r: s.r, left: limit, limit: limit, why: why})
	if err == nil {
		var q *qcow2.Reader
		if q, err = qcow2.New(f, n); err == nil {
			m.begin(app.ImageStoring, q.Size())
			free := done
			return q, func() { q.Close(); free() }, nil
		}
	}
	done()
	return nil, nil, err
}

// publish checks what was built, makes it durable and offers it: packs, then index, then row.
func (c *Catalog) publish(ctx context.Context, i *app.Image, b *chunk.Build) (*app.Image, error) {
	x := b.Index()
	if len(x.Chunks) == 0 {
		return nil, app.Errorf(app.InvalidInput, "image-empty", "all %d bytes of the image are zero", x.RawBytes).Do("check the file it comes from")
	}
	if x.RawBytes > c.cfg.MaxRaw {
		return nil, tooLarge(c.cfg.MaxRaw, "the limit of this appliance")
	}
	var err error
	if i.Layout, err = inspect(x, b); err != nil {
		return nil, err
	}
	enc, err := x.Encode()
	if err != nil {
		return nil, err
	}
	i.State, i.RawBytes, i.UsedBytes, i.StoreBytes, i.Index = Ready, x.RawBytes, x.UsedBytes(), b.AddedBytes(), chunk.Digest(enc)
	i.Phase, i.Done, i.Total, i.Reason = "", 0, 0, ""
	var out *app.Image
	err = b.Commit(func() error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := c.writeIndex(i.ID, enc); err != nil {
			return err
		}
		out, err = c.offer(ctx, i)
		return err
	})
	return out, err
}

// offer writes the row that makes an image ready.
func (c *Catalog) offer(ctx context.Context, i *app.Image) (*app.Image, error) {
	return c.cfg.Store.UpdateImage(ctx, i.ID, func(row *app.Image) error {
		if row.State != Importing {
			return app.Errorf(app.Conflict, "image-changed", "image %s is %s, not importing", row.Name, row.State)
		}
		*row = *i
		return nil
	})
}

// writeIndex writes the index so that after a crash it is whole or absent.
func (c *Catalog) writeIndex(id string, enc []byte) error {
	tmp, err := os.MkdirTemp(c.tmp(), "image-*")
	if err != nil {
		return fmt.Errorf("writing chunk index: %w", err)
	}
	defer os.RemoveAll(tmp)
	if err := errors.Join(writeSynced(filepath.Join(tmp, "index"), enc), os.Chmod(tmp, 0o755), syncDir(tmp)); err != nil {
		return fmt.Errorf("writing chunk index: %w", err)
	}
	if err := os.Rename(tmp, c.imageDir(id)); err != nil {
		return fmt.Errorf("writing chunk index: %w", err)
	}
	return syncDir(filepath.Dir(c.imageDir(id)))
}

func writeSynced(path string, b []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	return errors.Join(err, f.Sync(), f.Close())
}

func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
