package disk

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/layout"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Match finds the one disk that a target names: every field set must match, and exactly one disk may match. Its errors
// are *app.Error: disk-not-found, disk-ambiguous, disk-changed.
func Match(disks []agentv1.Disk, t agentv1.DiskTarget) (agentv1.Disk, error) {
	if t.Serial == "" && t.WWN == "" && t.Name == "" {
		return agentv1.Disk{}, app.Errorf(app.InvalidInput, "disk-not-named", "the order names no disk by serial, WWN or name")
	}
	var found []agentv1.Disk
	for _, d := range disks {
		if (t.Serial == "" || app.SameSerial(d.Serial, t.Serial)) && (t.WWN == "" || app.SameWWN(d.WWN, t.WWN)) && (t.Name == "" || d.Name == t.Name) {
			found = append(found, d)
		}
	}
	switch len(found) {
	case 1:
	case 0:
		return agentv1.Disk{}, app.Errorf(app.NotFound, "disk-not-found", "no disk of this machine is %s; it has %s", spell(t), list(disks)).
			Do("commission the machine again if its disks were changed, then choose a disk")
	default:
		return agentv1.Disk{}, app.Errorf(app.Conflict, "disk-ambiguous", "%s names %d disks: %s", spell(t), len(found), list(found)).
			Do("choose the disk by its WWN as well")
	}
	d := found[0]
	if t.Bytes != 0 && d.Bytes != t.Bytes {
		return d, app.Errorf(app.Conflict, "disk-changed", "%s has %d bytes, the order is for a disk of %d", d.Name, d.Bytes, t.Bytes).
			Do("commission the machine again")
	}
	if t.SectorSize != 0 && d.SectorSize != t.SectorSize {
		return d, app.Errorf(app.Conflict, "disk-changed", "%s has sectors of %d bytes, the order is for a disk of %d", d.Name, d.SectorSize, t.SectorSize).
			Do("commission the machine again")
	}
	return d, nil
}

func spell(t agentv1.DiskTarget) string {
	var parts []string
	for _, p := range [][2]string{{"serial", t.Serial}, {"WWN", t.WWN}, {"name", t.Name}} {
		if p[1] != "" {
			parts = append(parts, fmt.Sprintf("%s %q", p[0], p[1]))
		}
	}
	return strings.Join(parts, " and ")
}

func list(disks []agentv1.Disk) string {
	if len(disks) == 0 {
		return "no disks"
	}
	var parts []string
	for _, d := range disks {
		parts = append(parts, fmt.Sprintf("%s (serial %q, WWN %q, %d bytes)", d.Name, d.Serial, d.WWN, d.Bytes))
	}
	return strings.Join(parts, ", ")
}

// suits refuses a disk that the image cannot work on. It looks at the device itself, not only at the inventory.
func suits(dev Device, d agentv1.Disk, w agentv1.Write) error {
	sector := dev.SectorSize()
	switch {
	case d.ReadOnly:
		return app.Errorf(app.Conflict, "disk-read-only", "%s is read-only", d.Name).
			Do("lift the write protection of the disk or its controller")
	case w.SectorSize != 0 && w.SectorSize != sector:
		return app.Errorf(app.Unsupported, "sector-size-mismatch",
			"the image is made for sectors of %d bytes and %s has sectors of %d: it would find no partition table", w.SectorSize, d.Name, sector).
			Do("choose another disk, reformat this one to %d-byte sectors, or import an image made for %d", w.SectorSize, sector)
	case dev.Size() < w.RawBytes:
		return app.Errorf(app.Unsupported, "disk-too-small", "the image needs %d bytes and %s has %d", w.RawBytes, d.Name, dev.Size()).
			Do("choose a disk of at least %d bytes", w.RawBytes)
	}
	return nil
}

// open opens a disk for writing, and names what holds it when it is in use.
func (w *Writer) open(d agentv1.Disk) (Device, error) {
	path := filepath.Join(w.cfg.DevDir, d.Name)
	dev, err := w.cfg.Open(path)
	switch {
	case errors.Is(err, ErrInUse):
		return nil, app.Errorf(app.Conflict, "disk-in-use", "%s is in use%s", d.Name, w.holder(d.Name)).
			Do("unmount it and stop what uses it, or restart the machine into the ramdisk")
	case err != nil:
		return nil, app.Errorf(app.Unavailable, "disk-not-opened", "%s cannot be opened: %w", d.Name, err)
	}
	return dev, nil
}

// holder tells where a disk or one of its partitions is mounted, as " (mounted at /mnt)".
func (w *Writer) holder(name string) string {
	b, err := os.ReadFile(w.cfg.Mounts)
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && strings.HasPrefix(f[0], "/dev/"+name) {
			return fmt.Sprintf(" (%s is mounted at %s)", f[0], f[1])
		}
	}
	return ""
}

// twin is another disk that carries file systems or volume groups of the image, or first-boot data.
type twin struct {
	disk  agentv1.Disk
	parts []app.Partition // those that do
	what  []string        // in words
}

// twins looks at every other disk for ids and for a file system labelled CIDATA: cloud-init takes the first it finds, and
// would set the machine up with an earlier deploy's data. A disk that cannot be read is no twin: it cannot be booted from
// either.
func (w *Writer) twins(ctx context.Context, disks []agentv1.Disk, target string, ids []string) (out []twin) {
	for _, d := range disks {
		if d.Name == target || ctx.Err() != nil {
			continue
		}
		f, err := os.Open(filepath.Join(w.cfg.DevDir, d.Name))
		if err != nil {
			w.cfg.Log.Info("another disk cannot be looked at", "disk", d.Name, "err", err)
			continue
		}
		t := twin{disk: d}
		for _, p := range layout.Detect(f, d.Bytes, d.SectorSize).Partitions {
			switch {
			case p.FSUUID != "" && slices.ContainsFunc(ids, func(s string) bool { return strings.EqualFold(s, p.FSUUID) }):
				t.what = append(t.what, "the image's file system "+p.FSUUID)
			case p.FS == "vfat" && isSeed(f, p.Start):
				t.what = append(t.what, "first-boot data (CIDATA) of an earlier deploy")
			default:
				continue
			}
			t.parts = append(t.parts, p)
		}
		f.Close()
		if len(t.parts) > 0 {
			out = append(out, t)
		}
	}
	return out
}

// noTwins refuses, or with WipeOthers clears, other disks with the image's identifiers: the boot loader and the kernel find
// their root by them.
func (w *Writer) noTwins(ctx context.Context, disks []agentv1.Disk, target string, order agentv1.Write) error {
	for _, t := range w.twins(ctx, disks, target, order.FSUUIDs) {
		if !order.WipeOthers {
			return app.Errorf(app.Conflict, "disk-twin", "%s (serial %q) carries %s already; the machine could take it from either disk",
				t.disk.Name, t.disk.Serial, strings.Join(t.what, " and ")).
				Do("deploy to that disk, wipe or remove it, or allow this deploy to clear other disks")
		}
		if err := w.clearTwin(t); err != nil {
			return err
		}
		w.cfg.Log.Warn("another disk with the image's file systems was cleared", "disk", t.disk.Name, "serial", t.disk.Serial, "had", t.what)
	}
	return nil
}

// clearTwin removes the tables of a disk and the superblocks of its matching partitions.
func (w *Writer) clearTwin(t twin) error {
	dev, err := w.open(t.disk)
	if err != nil {
		return err
	}
	defer dev.Close()
	for _, p := range t.parts {
		if err := clearEdges(dev, p.Start, min(p.Size, dev.Size()-p.Start)); err != nil {
			return ioError(t.disk.Name, "clearing", err)
		}
	}
	if err := clearEdges(dev, 0, dev.Size()); err != nil {
		return ioError(t.disk.Name, "clearing", err)
	}
	if err := dev.Sync(); err != nil {
		return ioError(t.disk.Name, "flushing", err)
	}
	return dev.Reread()
}

const edge = 1 << 20

// clearEdges zeroes the first and the last MiB of a range.
func clearEdges(dev Device, off, size int64) error {
	if size <= 2*edge {
		return dev.Zero(off, size)
	}
	if err := dev.Zero(off, edge); err != nil {
		return atOffset{off, edge, err}
	}
	if err := dev.Zero(off+size-edge, edge); err != nil {
		return atOffset{off + size - edge, edge, err}
	}
	return nil
}

// atOffset is a device error with its place.
type atOffset struct {
	off, n int64
	err    error
}

func (e atOffset) Error() string { return fmt.Sprintf("%d bytes at offset %d: %v", e.n, e.off, e.err) }
func (e atOffset) Unwrap() error { return e.err }

// ioError names a disk, what was done and, when known, where.
func ioError(name, doing string, err error) error {
	return app.Errorf(app.Unavailable, "disk-io", "%s %s failed: %w", doing, name, err).
		Do("look at the disk's health and its cabling, and replace it if it fails again")
}
