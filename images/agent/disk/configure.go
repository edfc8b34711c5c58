package disk

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk/internal/seed"
	"github.com/better-compute/bcd/images/layout"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Configure prepares a disk that Write left for its first boot: the backup GPT moves to the disk's end, a partition with
// the seed files is added there, the last partition grows up to it where the image asks for that, and kernel arguments go into the installed boot loader. It
// reads back what it wrote and may be repeated. A disk to boot from on which this machine's firmware finds no loader is refused; what a
// person may not want so stands in the result's notes.
func (w *Writer) Configure(ctx context.Context, order agentv1.Configure, progress func(agentv1.ProgressReport)) (_ *agentv1.ConfigureResult, err error) {
	defer func() { err = OfImage(order.Image, "is not ready to start", err) }()
	disks, err := w.cfg.Disks(ctx)
	if err != nil {
		return nil, app.Errorf(app.Unavailable, "disks-not-read", "the disks of this machine cannot be listed: %w", err)
	}
	d, err := Match(disks, order.Disk)
	if err != nil {
		return nil, err
	}
	defer func() { err = w.ifGone(ctx, d, err) }()
	if order.KernelArgs != "" {
		if err := app.ValidLine("kernelArgs", order.KernelArgs, 2048); err != nil {
			return nil, err
		}
	}
	progress(agentv1.ProgressReport{Phase: "seed"})
	l, err := w.plant(d, order.Seed)
	if err != nil {
		return nil, err
	}
	if order.Boots {
		err = w.starts(d, l)
	}
	if err != nil {
		return nil, err
	}
	out := &agentv1.ConfigureResult{Notes: growth(d, l, order.Image)}
	if order.KernelArgs == "" || ctx.Err() != nil {
		return out, context.Cause(ctx)
	}
	progress(agentv1.ProgressReport{Phase: "loader"})
	return out, w.loaderArgs(d, l, order.KernelArgs)
}

// plant writes table and seed, and gives the layout as it is then. The disk is closed again when it returns: a mounted
// partition and an exclusive disk exclude each other.
func (w *Writer) plant(d agentv1.Disk, files map[string][]byte) (l app.Layout, err error) {
	dev, err := w.open(d)
	if err != nil {
		return l, err
	}
	defer func() { err = errors.Join(err, dev.Close()) }()
	if err := w.writeTable(dev, d, files); err != nil {
		if _, ok := app.AsError(err); ok {
			return l, err
		}
		return l, ioError(d.Name, "configuring", err)
	}
	if err := dev.Sync(); err != nil {
		return l, ioError(d.Name, "flushing", err)
	}
	if err := dev.Reread(); err != nil {
		return l, ioError(d.Name, "reading the partition table of", err)
	}
	return layout.Detect(loose{dev}, dev.Size(), dev.SectorSize()), nil
}

func (w *Writer) writeTable(dev Device, d agentv1.Disk, files map[string][]byte) error {
	g, err := layout.ReadGPT(loose{dev}, dev.Size(), dev.SectorSize())
	if err == nil {
		e := editGPT(dev, g)
		if len(files) == 0 {
			e.grow((e.last - e.span) * int64(e.Sector))
			return e.write()
		}
		start, err := e.addSeed()
		if err != nil {
			return err
		}
		if err := sow(dev, start, files); err != nil {
			return err
		}
		e.grow(start)
		return e.write()
	}
	if len(files) == 0 {
		return nil
	}
	l := layout.Detect(loose{dev}, dev.Size(), dev.SectorSize())
	if l.Table != "mbr" {
		return app.Errorf(app.Unsupported, "no-partition-table", "%s has no partition table that first-boot data could be added to", d.Name).
			Do("use an image of a whole disk with a GPT or MBR")
	}
	start, write, err := addSeedMBR(dev, l)
	if err != nil {
		return err
	}
	if err := sow(dev, start, files); err != nil {
		return err
	}
	return write()
}

// sow writes the seed's file system and reads it back.
func sow(dev Device, start int64, files map[string][]byte) error {
	var id [4]byte
	_, _ = rand.Read(id[:]) // crypto/rand.Read never fails
	img, err := seed.Make(files, dev.SectorSize(), binary.LittleEndian.Uint32(id[:]))
	if err != nil {
		return app.Errorf(app.InvalidInput, "seed", "the first-boot data cannot be written: %w", err)
	}
	buf, err := Buffer(len(img))
	if err != nil {
		return err
	}
	defer Free(buf)
	copy(buf, img)
	if err := dev.Zero(start, seed.Size); err != nil {
		return atOffset{start, seed.Size, err}
	}
	n := int64(len(img))
	if _, err := dev.WriteAt(buf[:n], start); err != nil {
		return atOffset{start, n, err}
	}
	clear(buf)
	if _, err := dev.ReadAt(buf[:n], start); err != nil {
		return atOffset{start, n, err}
	}
	if !bytes.Equal(buf[:n], img) {
		return app.Errorf(app.Unavailable, "read-back-mismatch", "the first-boot data reads back different from what was written at offset %d", start).
			Do("replace the disk or choose another, and deploy again")
	}
	return nil
}

// loaderArgs adds kernel arguments wherever the image keeps a boot configuration.
func (w *Writer) loaderArgs(d agentv1.Disk, l app.Layout, args string) error {
	edited := 0
	for _, p := range l.Partitions {
		if p.FS != "ext4" && p.FS != "xfs" && p.FS != "btrfs" && p.FS != "vfat" || p.Name == seedName {
			continue
		}
		dir, unmount, err := w.cfg.Mount(d.Name, p)
		if err != nil && p.FS == "vfat" { // an ESP: its entry, if it has one, mostly leads to the root's
			w.cfg.Log.Warn("boot partition not looked at", "disk", d.Name, "partition", p.Number, "err", err)
			continue
		}
		if err != nil {
			return app.Errorf(app.Unavailable, "not-mounted", "partition %d of %s, which holds %s, cannot be mounted: %w", p.Number, d.Name, p.FS, err).
				Do("check the image's file system")
		}
		n, err := editLoader(dir, args)
		if err := errors.Join(err, unmount()); err != nil {
			return app.Errorf(app.Unavailable, "loader-not-edited", "kernel arguments cannot be written on partition %d of %s: %w", p.Number, d.Name, err).
				Do("check the image's file system")
		}
		edited += n
	}
	if edited == 0 {
		return app.Errorf(app.Unsupported, "no-boot-entry", "the image has no boot configuration that kernel arguments could be added to").
			Do("deploy without kernel arguments, or use an image with GRUB, systemd-boot or extlinux")
	}
	w.cfg.Log.Info("kernel arguments added", "disk", d.Name, "entries", edited)
	return nil
}

// mountNode mounts the kernel's node of a partition: sda1, nvme0n1p1.
func (w *Writer) mountNode(disk string, p app.Partition) (string, func() error, error) {
	node := filepath.Join(w.cfg.DevDir, PartitionNode(disk, p.Number))
	dir, err := os.MkdirTemp("", "bcd-mount-")
	if err != nil {
		return "", nil, err
	}
	if err := unix.Mount(node, dir, p.FS, unix.MS_NOSUID|unix.MS_NODEV|unix.MS_NOEXEC, ""); err != nil {
		return "", nil, errors.Join(&fs.PathError{Op: "mount", Path: node, Err: err}, os.Remove(dir))
	}
	return dir, func() error {
		if err := unix.Unmount(dir, 0); err != nil {
			return &fs.PathError{Op: "unmount", Path: dir, Err: err}
		}
		return os.Remove(dir)
	}, nil
}
