package disk

import (
	"fmt"
	"strings"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// OfImage puts the name of the image into an error of an order about it, and what became of it.
func OfImage(name, what string, err error) error {
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

// growth tells what of a disk the root file system will never reach. An image without a root that is known as one has no notes
// on it.
func growth(d agentv1.Disk, l app.Layout, image string) (notes []string) {
	if image == "" {
		image = "that was written"
	}
	g := l.Growth(d.Bytes)
	if g.Beyond > 0 {
		notes = append(notes, fmt.Sprintf("image %s has an MBR, which reaches 2 TiB: the last %d bytes of %s stay unused (use an image with a GPT)", image, g.Beyond, d.Name))
	}
	if g.Behind != nil {
		notes = append(notes, fmt.Sprintf("the root of image %s cannot grow on %s: partition %d lies behind it (partition %d), and %d bytes at the end of the disk stay unused "+
			"(use an image whose root is the last partition, or give the rest to a file system of its own in user-data)", image, d.Name, g.Behind.Number, g.Root.Number, g.Unused))
	}
	return notes
}
