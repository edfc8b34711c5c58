// Package wipe erases disks and proves it: it answers agent.wipe.
//
// Before anything else it plants sentinels, random blocks all over the disk, its first and last MiB included, and reads
// them back from the medium. Then it goes down a ladder until one rung is proven: the ways in which the disk erases itself
// (see internal/erase; they reach the spare areas that no host can read), discarding and zeroing by BLKDISCARD and
// BLKZEROOUT, overwriting every byte.
//
// A disk that erased itself counts as erased when no part of any sentinel is found again: after a cryptographic erase the
// rest is noise. A disk that was zeroed must read as zeros at every sentinel's place, in the first and the last MiB and in a
// random sample. All reading is direct I/O, past every cache of the kernel.
//
// The disks' own ways are tested on what real drives were captured saying, and on the specifications where nobody captured
// it: images/agent/internal/passthrough/replay/captured/README.md says which is which.
package wipe

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
	"github.com/better-compute/bcd/images/agent/wipe/internal/erase"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// How a disk is proven. Sizes are bytes.
const (
	block     = 4096
	sentinels = 256 // spread evenly, besides those in the first and last MiB
	atEdges   = 8   // sentinels in each of the first and last MiB
	samples   = 1024
	edge      = 1 << 20
	step      = 256 << 20 // of one BLKDISCARD or BLKZEROOUT
	writeStep = 4 << 20   // of an overwrite
	parallel  = 8         // disks at a time
)

// The methods, as a result names them.
const (
	discardZero = "discard+zero"
	overwrite   = "overwrite"
)

// secure is how an order names the disk's own ways, and all others after them.
const secure = "secure"

// methods are those that an order may name.
var methods = []string{"", secure, "discard", overwrite}

// Config of a Wiper. Disks and Log are required.
type Config struct {
	// Disks takes the inventory of disks, at the time of the order.
	Disks  func(ctx context.Context) ([]agentv1.Disk, error)
	Log    *slog.Logger
	Open   func(path string) (disk.Device, error) // nil: disk.Open
	DevDir string                                 // "": /dev
	Now    func() time.Time                       // nil: time.Now
	// Drive opens a disk to erase itself; nil for a disk that cannot. A nil func: the disk's own commands.
	Drive func(path string, d agentv1.Disk) (Drive, error)
}

// Drive is a disk that may be able to erase itself; *erase.Drive implements it.
type Drive interface {
	Ladder() erase.Ladder
	Close() error
}

// ownCommands opens a disk for its own erase commands.
func ownCommands(path string, d agentv1.Disk) (Drive, error) {
	drive, err := erase.Open(path, d)
	if drive == nil {
		return nil, err
	}
	return drive, err
}

// Wiper serves the wipe command.
type Wiper struct{ cfg Config }

// New makes a Wiper. It touches no disk.
func New(cfg Config) *Wiper {
	if cfg.Open == nil {
		cfg.Open = disk.Open
	}
	if cfg.DevDir == "" {
		cfg.DevDir = "/dev"
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Drive == nil {
		cfg.Drive = ownCommands
	}
	return &Wiper{cfg}
}

// Handlers gives the commands this package serves, by kind.
func (w *Wiper) Handlers() map[string]disk.Handler {
	return map[string]disk.Handler{agentv1.KindWipe: func(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		var order agentv1.Wipe
		if err := json.Unmarshal(cmd.Payload, &order); err != nil {
			return nil, app.Errorf(app.InvalidInput, "bad-payload", "the payload of %s cannot be read: %w", cmd.Kind, err)
		}
		return w.Wipe(ctx, order, progress)
	}}
}

// target is one disk to wipe.
type target struct {
	disk agentv1.Disk
	dev  disk.Device
	cfg  *Config
	from string                     // the order's method
	done func(n int64, note string) // progress: at most the size of the disk in all, whatever has to be repeated

	notes []string // what was tried and failed, and what the disk cannot do: sentences
}

// Wipe erases the disks of an order, and no others, several at a time. No disk is touched unless all of them are found,
// free and writable. A disk that fails does not stop the rest: it is named as not erased, and its note says why.
func (w *Wiper) Wipe(ctx context.Context, order agentv1.Wipe, progress func(agentv1.ProgressReport)) (*agentv1.WipeResult, error) {
	if !slices.Contains(methods, order.Method) {
		return nil, app.Errorf(app.InvalidInput, "invalid-args", "%.40q is no way to wipe a disk", order.Method).Do("use secure, discard or overwrite")
	}
	targets, err := w.open(ctx, order)
	defer func() {
		for _, t := range targets {
			t.dev.Close()
		}
	}()
	if err != nil {
		return nil, err
	}
	var total int64
	for _, t := range targets {
		total += t.dev.Size()
	}
	var mu sync.Mutex // disks are wiped side by side; progress is told in order, by one at a time
	var done int64
	report := func(n int64, note string) {
		mu.Lock()
		defer mu.Unlock()
		done = min(done+n, total)
		progress(agentv1.ProgressReport{Phase: "wipe", Message: note, Done: done, Total: total, Unit: "bytes"})
	}
	report(0, "")
	out := &agentv1.WipeResult{Disks: make([]agentv1.WipedDisk, len(targets))}
	var g errgroup.Group
	g.SetLimit(parallel)
	for _, group := range drives(targets, order.Method) {
		for _, t := range group {
			t.done, t.from = report, order.Method
		}
		g.Go(func() error {
			group.wipe(ctx, func(t *target, w agentv1.WipedDisk) { out.Disks[slices.Index(targets, t)] = w })
			return nil
		})
	}
	_ = g.Wait()
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return out, nil
}

// open finds and opens every disk of an order.
func (w *Wiper) open(ctx context.Context, order agentv1.Wipe) (out []*target, err error) {
	if len(order.Disks) == 0 {
		return nil, app.Errorf(app.InvalidInput, "no-disks", "the order names no disk to wipe")
	}
	disks, err := w.cfg.Disks(ctx)
	if err != nil {
		return nil, app.Errorf(app.Unavailable, "disks-not-read", "the disks of this machine cannot be listed: %w", err)
	}
	seen := map[string]bool{}
	for _, t := range order.Disks {
		d, err := disk.Match(disks, t)
		switch {
		case err != nil:
			return out, err
		case seen[d.Name]:
			return out, app.Errorf(app.InvalidInput, "disk-named-twice", "the order names %s twice", d.Name)
		case d.ReadOnly:
			return out, app.Errorf(app.Conflict, "disk-read-only", "%s is read-only", d.Name).Do("lift the write protection of the disk or its controller")
		}
		seen[d.Name] = true
		dev, err := w.cfg.Open(filepath.Join(w.cfg.DevDir, d.Name))
		switch {
		case errors.Is(err, disk.ErrInUse):
			return out, app.Errorf(app.Conflict, "disk-in-use", "%s is in use", d.Name).Do("unmount it and stop what uses it, or restart the machine into the ramdisk")
		case err != nil:
			return out, app.Errorf(app.Unavailable, "disk-not-opened", "%s cannot be opened: %w", d.Name, err)
		}
		out = append(out, &target{disk: d, dev: dev, cfg: &w.cfg})
	}
	return out, nil
}

// wipe does one disk, and says what became of it.
func (t *target) wipe(ctx context.Context) agentv1.WipedDisk {
	began := t.cfg.Now()
	planted, err := t.plant()
	method := ""
	if err == nil {
		method, err = t.descend(ctx, planted)
	}
	return t.ended(began, len(planted), method, err)
}

// ended says what became of a disk.
func (t *target) ended(began time.Time, planted int, method string, err error) agentv1.WipedDisk {
	out := agentv1.WipedDisk{Disk: agentv1.DiskTarget{Serial: t.disk.Serial, WWN: t.disk.WWN, Name: t.disk.Name, Bytes: t.dev.Size(), SectorSize: t.dev.SectorSize()},
		Model: t.disk.Model, Bytes: t.dev.Size(), Started: began, Sentinels: planted, Method: method}
	if err != nil {
		t.failed("", err)
	} else if out.Erased = true; t.dev.Reread() != nil {
		t.cfg.Log.Warn("partition table not read again", "disk", t.disk.Name)
	}
	out.Note, out.Ended = strings.Join(t.notes, "; "), t.cfg.Now()
	return out
}

// failed notes why a method did not do.
func (t *target) failed(method string, err error) {
	text := err.Error()
	if e, ok := app.AsError(err); ok {
		text = e.Message
	}
	if method != "" {
		text = method + ": " + text
	}
	t.cfg.Log.Warn("a wipe failed", "disk", t.disk.Name, "method", method, "err", err)
	t.notes = append(t.notes, text)
}

// descend tries one method after the other until one is proven, and names it.
func (t *target) descend(ctx context.Context, planted []sentinel) (method string, err error) {
	if t.from == "" || t.from == secure {
		if method, err = t.eraseItself(ctx, planted); method != "" || err != nil {
			return method, err
		}
	}
	for _, method := range []string{discardZero, overwrite} {
		if t.from == overwrite && method != overwrite {
			continue
		}
		switch method {
		case discardZero:
			err = t.zero(ctx)
		case overwrite:
			err = t.overwrite(ctx, 0, t.dev.Size())
		}
		if errors.Is(err, syscall.EOPNOTSUPP) && method == discardZero {
			t.failed(method, errors.New("the disk has no command to zero it"))
			continue
		}
		if err == nil {
			err = t.flush()
		}
		if err != nil {
			return "", err
		}
		if err = t.prove(planted); err == nil {
			return method, nil
		}
		if !errors.As(err, new(survived)) {
			return "", err
		}
		t.failed(method, fmt.Errorf("left %w", err))
	}
	return "", app.Errorf(app.Unavailable, "wipe-not-proven", "%s was overwritten and still gives back old bytes: %w", t.disk.Name, err).
		Do("take the disk out and destroy it, or erase it by its vendor's tool")
}

// eraseItself tries the disk's own methods. method is "" when none of them is proven; an error ends the wipe.
func (t *target) eraseItself(ctx context.Context, planted []sentinel) (method string, err error) {
	drive, err := t.cfg.Drive(filepath.Join(t.cfg.DevDir, t.disk.Name), t.disk)
	if err != nil {
		t.failed("", fmt.Errorf("the disk's own erase commands cannot be used: %w", err))
		return "", nil
	}
	if drive == nil {
		return "", nil
	}
	defer drive.Close()
	ladder := drive.Ladder()
	t.notes = append(t.notes, ladder.Notes...)
	for _, m := range ladder.Methods {
		err := m.Run(ctx, t.fraction(m.Name))
		if ctx.Err() != nil {
			return "", context.Cause(ctx)
		}
		if err == nil {
			err = t.settle(planted)
		}
		if err == nil {
			return m.Name, nil
		}
		t.failed(m.Name, err)
	}
	return "", nil
}

// fraction turns a disk's own word of its progress into bytes.
func (t *target) fraction(method string) erase.Progress {
	var told int64
	return func(done float64, note string) {
		n := max(int64(done*float64(t.dev.Size()))-told, 0)
		told += n
		if note != "" {
			note = ", " + note
		}
		t.done(n, t.disk.Name+": "+method+note)
	}
}

// settle looks for the sentinels after a disk has erased itself, and clears its ends, which may be noise that looks like a
// partition table.
func (t *target) settle(planted []sentinel) error {
	if err := t.flush(); err != nil {
		return err
	}
	if err := t.gone(planted); err != nil {
		return err
	}
	size := t.dev.Size()
	ends := min(edge, size)
	for _, off := range []int64{0, size - ends} {
		if err := t.overwrite(context.Background(), off, ends); err != nil {
			return err
		}
	}
	return t.flush()
}

func (t *target) flush() error {
	if err := t.dev.Sync(); err != nil {
		return t.ioError("flushing", -1, err)
	}
	return nil
}

// ioError names the disk and, when off is not negative, the place.
func (t *target) ioError(doing string, off int64, err error) error {
	place := ""
	if off >= 0 {
		place = fmt.Sprintf(" at offset %d", off)
	}
	return app.Errorf(app.Unavailable, "disk-io", "%s %s%s failed: %w", doing, t.disk.Name, place, err).
		Do("look at the disk's health and its cabling; a disk that cannot be wiped must be destroyed")
}
