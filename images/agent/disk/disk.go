package disk

import (
	"context"
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Config of a Writer. BootURLs, Disks and Log are required.
type Config struct {
	BootURLs []string // of the boot data: http base URLs of the boot-file listener
	// Disks takes the inventory of disks, at the time of the order.
	Disks  func(ctx context.Context) ([]agentv1.Disk, error)
	Log    *slog.Logger
	Client *http.Client                      // nil: one made for bulk transfer
	Open   func(path string) (Device, error) // nil: Open of this package
	DevDir string                            // "": /dev
	Mounts string                            // "": /proc/mounts
	// Firmware of this machine, "uefi" or "bios": what a disk must be able to start. "": that is not looked at.
	Firmware string
	Workers  int // parallel connections, about 8 MiB each; 0: 8
	// Pause waits between tries to fetch. nil: it takes the time asked for.
	Pause func(ctx context.Context, d time.Duration) error
	// Mount makes partition p of a disk visible below a directory and gives the function that ends it. nil: the kernel's
	// partition node is mounted.
	Mount func(disk string, p app.Partition) (dir string, unmount func() error, err error)
}

// Writer serves the disk commands of one boot.
type Writer struct{ cfg Config }

// Handler does one command; it is what images/agent calls a Handler.
type Handler = func(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error)

// New makes a Writer. It touches no disk.
func New(cfg Config) *Writer {
	if cfg.Workers == 0 {
		cfg.Workers = 8
	}
	if cfg.Client == nil {
		cfg.Client = defaultClient(cfg.Workers)
	}
	if cfg.Pause == nil {
		cfg.Pause = pause
	}
	if cfg.Open == nil {
		cfg.Open = Open
	}
	if cfg.DevDir == "" {
		cfg.DevDir = "/dev"
	}
	if cfg.Mounts == "" {
		cfg.Mounts = "/proc/mounts"
	}
	w := &Writer{cfg: cfg}
	if cfg.Mount == nil {
		w.cfg.Mount = w.mountNode
	}
	return w
}

// Handlers gives the commands this package serves, by kind.
func (w *Writer) Handlers() map[string]Handler {
	return map[string]Handler{
		agentv1.KindWrite:     w.handleWrite,
		agentv1.KindVerify:    w.handleVerify,
		agentv1.KindConfigure: w.handleConfigure,
	}
}

func (w *Writer) handleWrite(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
	var order agentv1.Write
	if err := decode(cmd, &order); err != nil {
		return nil, err
	}
	return w.Write(ctx, order, progress)
}

func (w *Writer) handleVerify(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
	var order agentv1.Write
	if err := decode(cmd, &order); err != nil {
		return nil, err
	}
	return w.Verify(ctx, order, progress)
}

func (w *Writer) handleConfigure(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
	var order agentv1.Configure
	if err := decode(cmd, &order); err != nil {
		return nil, err
	}
	out, err := w.Configure(ctx, order, progress)
	if err != nil {
		return nil, err
	}
	return out, nil
}

func decode(cmd agentv1.Command, into any) error {
	if err := json.Unmarshal(cmd.Payload, into); err != nil {
		return app.Errorf(app.InvalidInput, "bad-payload", "the payload of %s cannot be read: %w", cmd.Kind, err)
	}
	return nil
}

// job is one order on an open disk.
type job struct {
	w     *Writer
	order agentv1.Write
	disk  agentv1.Disk
	dev   Device
	fetch *fetcher
	index *chunk.Index
	begin time.Time
	tell  func(agentv1.ProgressReport)

	flushing sync.Mutex   // held while the disk's cache is being emptied
	flushed  atomic.Int64 // bytes written when that was last begun
}

// begin checks an order, in the order that costs least, and opens its disk. The caller closes job.dev.
func (w *Writer) begin(ctx context.Context, order agentv1.Write, tell func(agentv1.ProgressReport)) (*job, []agentv1.Disk, error) {
	j := &job{w: w, order: order, begin: time.Now(), tell: tell}
	disks, err := w.cfg.Disks(ctx)
	if err != nil {
		return nil, nil, app.Errorf(app.Unavailable, "disks-not-read", "the disks of this machine cannot be listed: %w", err)
	}
	if j.disk, err = Match(disks, order.Disk); err != nil {
		return nil, nil, err
	}
	if j.fetch, err = newFetcher(&w.cfg); err != nil {
		return nil, nil, err
	}
	if j.dev, err = w.open(j.disk); err != nil {
		return nil, nil, err
	}
	if err = suits(j.dev, j.disk, order); err == nil {
		tell(agentv1.ProgressReport{Phase: "index"})
		j.index, err = j.fetch.index(ctx, order.IndexURL, order.IndexSHA256, denials)
	}
	if err == nil && j.index.RawBytes != order.RawBytes {
		err = app.Errorf(app.InvalidConfig, "image-size", "the order says the image has %d bytes, its index says %d", order.RawBytes, j.index.RawBytes)
	}
	if err != nil {
		j.dev.Close()
		return nil, nil, err
	}
	return j, disks, nil
}
