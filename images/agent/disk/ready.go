package disk

import (
	"fmt"
	"strings"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// ofImage puts the name of the image into an error of an order about it, and what became of it.
func ofImage(name, what string, err error) error {
	e, ok := app.AsError(err)
	if !ok || name == "" || strings.Contains(e.Message, "image "+name) {
		return err
	}
	c := *e
	c.Message = fmt.Sprintf("image %s %s: %s", name, what, e.Message)
	return &c
}

// starts refuses a disk on which this machine's firmware finds nothing to start, before anyone waits for it.
func (w *Writer) starts(d agentv1.Disk, l app.Layout) error {
	switch {
	case w.cfg.Firmware == string(app.FirmwareUEFI) && !l.UEFI:
		return app.Errorf(app.Unsupported, "no-esp", "this machine boots by UEFI, and %s has no EFI system partition with a loader", d.Name).
			Do("deploy an image with an ESP, or set the machine to BIOS boot and commission it again")
	case w.cfg.Firmware == string(app.FirmwareBIOS) && !l.BIOS:
		return app.Errorf(app.Unsupported, "no-bios-boot", "this machine boots by BIOS, and %s has no BIOS boot code", d.Name).
			Do("deploy an image that boots by BIOS, or set the machine to UEFI boot and commission it again")
	}
	return nil
}

// Bounds of what is worth a note, in bytes.
const (
	littleRoom = 64 << 20 // behind a root: alignment, no room to grow
	muchUnused = 1 << 30  // of a disk
	reachOfMBR = 512 << 32
)

// growth tells what of a disk the root file system will never reach. An image without a root that is known as one has no notes
// on it.
func growth(d agentv1.Disk, l app.Layout, image string) (notes []string) {
	if image == "" {
		image = "that was written"
	}
	limit := d.Bytes
	if l.Table == "mbr" && limit > reachOfMBR+muchUnused {
		limit = reachOfMBR
		notes = append(notes, fmt.Sprintf("image %s has an MBR, which reaches 2 TiB: the last %d bytes of %s stay unused (use an image with a GPT)", image, d.Bytes-limit, d.Name))
	}
	root := rootOf(l)
	if root == nil {
		return notes
	}
	end, behind, last := root.Start+root.Size, app.Partition{Start: limit}, root.Start+root.Size
	for _, p := range l.Partitions {
		switch {
		case p.Name == seedName, p.FS == "vfat" && p.Start+p.Size >= limit-littleRoom: // first-boot data lies at the end
			limit = min(limit, p.Start)
		case p.Start >= end && p.Start < behind.Start:
			behind = p
		}
		if p.Name != seedName && p.Start < limit {
			last = max(last, p.Start+p.Size)
		}
	}
	if behind.Size == 0 || behind.Start-end >= littleRoom || limit-last < muchUnused {
		return notes
	}
	return append(notes, fmt.Sprintf("the root of image %s cannot grow on %s: partition %d lies behind it (partition %d), and %d bytes at the end of the disk stay unused "+
		"(use an image whose root is the last partition, or give the rest to a file system of its own in user-data)", image, d.Name, behind.Number, root.Number, limit-last))
}

// rootOf is the largest partition that an installed system's root can be on.
func rootOf(l app.Layout) (root *app.Partition) {
	for i, p := range l.Partitions {
		if p.Number > 0 && (p.FS == "ext4" || p.FS == "xfs" || p.FS == "btrfs" || p.FS == "lvm") && (root == nil || p.Size > root.Size) {
			root = &l.Partitions[i]
		}
	}
	return root
}
