package site

import (
	"github.com/better-compute/bcd/images/flat"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
)

// imageLoaders gives the boot loaders this binary carries for root file systems that are imported as images.
func imageLoaders() (flat.Loaders, error) {
	dir, err := embed.FS(ramdisk.GRUB)
	if err != nil {
		return flat.Loaders{}, err
	}
	return flat.ReadLoaders(dir)
}
