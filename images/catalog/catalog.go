// Package catalog keeps the operating-system images: it imports them into the chunk store, lists and deletes them, and opens
// their files for the boot listener.
//
// An import reads raw disks, qcow2 and ISO images, root file systems as tar archives and OCI images, also compressed by gzip,
// xz or zstd, from an upload, a file or a URL, as a stream: memory stays small whatever the size (what cannot be read in order,
// once, is spooled to a file first). A root file system becomes a disk of the layout of package flat. A digest given with an import is
// over the bytes as delivered, that is, of the compressed file. An image is offered only when everything held: digest,
// declared format and size, a complete partition table, and its files on the medium. Whatever else happens, including a
// crash, leaves nothing: half-made files lie in one directory that New empties.
//
// On disk, below Config.Dir: packs/NAME and images/ID/index (see package chunk), images/ID/image.iso, tmp/ for what is
// being made.
package catalog

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
	"github.com/better-compute/bcd/images/flat"
)

// The states of an image.
const (
	Importing = "importing"
	Ready     = "ready"
	Failed    = "failed"
)

// DefaultReserve is what imports leave free, in bytes: the database may share the file system.
const DefaultReserve = 512 << 20

// Config of a Catalog. Dir, Store and Log are required.
type Config struct {
	Dir   string // absolute
	Store app.ImageStore
	Log   *slog.Logger
	// Client fetches images by URL. Its dialer must refuse addresses that the appliance alone may reach: BMC networks,
	// loopback. nil: imports by URL are refused.
	Client *http.Client
	// InUse names what needs an image's bytes now, such as a running deploy, or gives "". nil: nothing ever does.
	InUse func(ctx context.Context, imageID string) (string, error)
	// Loaders gives the boot loaders that root file systems and OCI images are given. nil: those are refused.
	Loaders func() (flat.Loaders, error)
	MaxRaw  int64 // largest disk an image may describe, bytes; 0: 2 TiB
	Reserve int64 // bytes of Dir's file system that imports leave free; 0: DefaultReserve
	Now     func() time.Time
	// Pause waits between tries to fetch a URL; nil: it takes the time asked for.
	Pause func(ctx context.Context, d time.Duration) error
}

// Catalog is the set of images. Make it with New; Run must be running while imports by StartURL are to go on.
type Catalog struct {
	cfg    Config
	chunks *chunk.Store

	mu      sync.Mutex
	running map[string]context.CancelCauseFunc // imports by image id
	closed  bool
	wg      sync.WaitGroup
}

// New opens the catalog and removes what a crash left: half-made files, images without a row, rows without bytes.
func New(ctx context.Context, cfg Config) (*Catalog, error) {
	if cfg.MaxRaw == 0 {
		cfg.MaxRaw = 2 << 40
	}
	if cfg.Reserve == 0 {
		cfg.Reserve = DefaultReserve
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Pause == nil {
		cfg.Pause = pause
	}
	c := &Catalog{cfg: cfg, running: map[string]context.CancelCauseFunc{}}
	if err := os.RemoveAll(c.tmp()); err != nil {
		return nil, fmt.Errorf("removing half-made images: %w", err)
	}
	if err := os.MkdirAll(filepath.Join(cfg.Dir, "images"), 0o755); err != nil {
		return nil, fmt.Errorf("opening image catalog: %w", err)
	}
	var err error
	if c.chunks, err = chunk.OpenStore(filepath.Join(cfg.Dir, "packs"), c.tmp(), cfg.Log); err != nil {
		return nil, err
	}
	if err := c.recover(ctx); err != nil {
		return nil, err
	}
	return c, nil
}

func (c *Catalog) tmp() string               { return filepath.Join(c.cfg.Dir, "tmp") }
func (c *Catalog) imageDir(id string) string { return filepath.Join(c.cfg.Dir, "images", id) }

// recover makes rows and files agree after a crash.
func (c *Catalog) recover(ctx context.Context) error {
	rows, err := c.cfg.Store.ListImages(ctx)
	if err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	ready := map[string]bool{}
	for _, i := range rows {
		switch i.State {
		case Ready:
			ready[i.ID] = true
			if err := c.readable(&i); err != nil {
				c.cfg.Log.Error("an image cannot be read", "image", i.Name, "err", err)
				c.fail(ctx, i.ID, unreadable(err))
			}
		case Importing:
			c.fail(ctx, i.ID, app.Errorf(app.Interrupted, "import-interrupted", "the appliance was stopped during the import").Do("import it again"))
		}
	}
	list, err := os.ReadDir(filepath.Join(c.cfg.Dir, "images"))
	if err != nil {
		return fmt.Errorf("listing images: %w", err)
	}
	for _, d := range list {
		if !ready[d.Name()] {
			if err := os.RemoveAll(c.imageDir(d.Name())); err != nil {
				return fmt.Errorf("removing half-made image: %w", err)
			}
		}
	}
	return c.collect(ctx)
}

// readable finds out whether an image that is ready can be served.
func (c *Catalog) readable(i *app.Image) error {
	if isISO(i) {
		return c.checkISO(i)
	}
	_, err := c.index(i.ID, i.Index)
	return err
}

// unreadable says why an image that was ready is so no more.
func unreadable(err error) error {
	if e, ok := app.AsError(err); ok && e.Reason == "chunk-index-version" {
		return app.Errorf(app.Unsupported, "image-version", "it was imported by another version of this program, whose chunk index this one does not read").Do("import it again")
	}
	return app.Errorf(app.Unavailable, "image-damaged", "its chunk index is missing or damaged").Do("import it again")
}

// Run waits for ctx, then ends the imports that StartURL began and returns when they have.
func (c *Catalog) Run(ctx context.Context) error {
	<-ctx.Done()
	c.mu.Lock()
	c.closed = true
	for _, cancel := range c.running {
		cancel(errStopping)
	}
	c.mu.Unlock()
	c.wg.Wait()
	return nil
}

var (
	errStopping  = app.Errorf(app.Interrupted, "import-interrupted", "the appliance was stopped during the import").Do("import it again")
	errCancelled = app.Errorf(app.Conflict, "import-cancelled", "the import was cancelled")
)

// Delete removes an image, and the packs that no other image needs. One that InUse names is a Conflict; one being
// imported is cancelled.
func (c *Catalog) Delete(ctx context.Context, id string) error {
	i, err := c.cfg.Store.Image(ctx, id)
	if err != nil {
		return err
	}
	if c.cfg.InUse != nil {
		switch what, err := c.cfg.InUse(ctx, i.ID); {
		case err != nil:
			return fmt.Errorf("asking who uses image %q: %w", i.Name, err)
		case what != "":
			return app.Errorf(app.Conflict, "image-in-use", "image %s is needed by %s", i.Name, what).
				Do("wait until that has ended, or abort it")
		}
	}
	c.mu.Lock()
	if cancel := c.running[i.ID]; cancel != nil {
		cancel(errCancelled)
	}
	c.mu.Unlock()
	if err := c.cfg.Store.DeleteImage(ctx, i.ID); err != nil {
		return err
	}
	if err := os.RemoveAll(c.imageDir(i.ID)); err != nil {
		return fmt.Errorf("removing image %q: %w", i.Name, err)
	}
	return c.collect(ctx)
}

// collect removes packs that no ready image needs. While an import runs it does nothing: the import's end collects.
func (c *Catalog) collect(ctx context.Context) error {
	n, bytes, err := c.chunks.GC(func() (map[chunk.PackID]bool, error) {
		rows, err := c.cfg.Store.ListImages(ctx)
		if err != nil {
			return nil, fmt.Errorf("listing images: %w", err)
		}
		keep := map[chunk.PackID]bool{}
		for _, i := range rows {
			if i.State != Ready || isISO(&i) {
				continue
			}
			x, err := c.index(i.ID, i.Index)
			if err != nil {
				return nil, fmt.Errorf("reading index of image %q: %w", i.Name, err)
			}
			for _, p := range x.Packs {
				keep[p] = true
			}
		}
		return keep, nil
	})
	if errors.Is(err, chunk.ErrBusy) {
		return nil
	}
	if n > 0 {
		c.cfg.Log.Info("packs removed", "packs", n, "bytes", bytes)
	}
	return err
}

// index reads and checks the index of an image.
func (c *Catalog) index(id, digest string) (*chunk.Index, error) {
	b, err := os.ReadFile(filepath.Join(c.imageDir(id), "index"))
	if err != nil {
		return nil, err
	}
	if got := chunk.Digest(b); got != digest {
		return nil, fmt.Errorf("its SHA-256 is %s, the row says %s", got, digest)
	}
	return chunk.ParseIndex(b)
}

// IndexPath is where the boot listener serves the index of an image.
func IndexPath(i *app.Image) string { return "/images/" + i.ID + "/index" }

// OpenIndex opens the index of an image, or the whole of an ISO, for the boot listener: rest is what follows "/images/" in
// the path, "ID/index" or "ID/image.iso".
// What is not exactly in that form gives fs.ErrNotExist. The caller closes the file.
func (c *Catalog) OpenIndex(_ context.Context, rest string) (*os.File, error) {
	id, file, _ := strings.Cut(rest, "/")
	if file != "index" && file != isoFile || app.ValidName("id", id) != nil {
		return nil, fs.ErrNotExist
	}
	return os.Open(filepath.Join(c.imageDir(id), file))
}

// OpenPack opens a pack for the boot listener: rest is what follows "/packs/" in the path. Anything but the name of a
// pack gives fs.ErrNotExist. The caller closes the file.
func (c *Catalog) OpenPack(_ context.Context, rest string) (*os.File, error) {
	id, err := chunk.ParsePackID(rest)
	if err != nil {
		return nil, fs.ErrNotExist
	}
	return c.chunks.Open(id)
}
