package flat

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io/fs"
)

// Loaders are the parts of GRUB that lie outside the root file system. Both find the root as the third partition of the disk
// they were loaded from, and go on with its /boot/grub/grub.cfg.
type Loaders struct {
	Boot []byte // boot.img, for the MBR
	Core []byte // core.img, for the BIOS boot partition
	EFI  []byte // for /EFI/BOOT/BOOTX64.EFI
}

// The names of the loaders' files, as the ramdisk's build writes them.
const (
	BootFile = "grub-boot.img"
	CoreFile = "grub-core.img"
	EFIFile  = "grub-x64.efi"
)

// ReadLoaders reads the loaders from a directory.
func ReadLoaders(dir fs.FS) (l Loaders, err error) {
	for name, into := range map[string]*[]byte{BootFile: &l.Boot, CoreFile: &l.Core, EFIFile: &l.EFI} {
		if *into, err = fs.ReadFile(dir, name); err != nil {
			return l, fmt.Errorf("reading a boot loader for images: %w", err)
		}
	}
	return l, l.check()
}

// check looks for what each loader must begin or end with.
func (l *Loaders) check() error {
	const amd64 = 0x8664
	pe := int64(0)
	if len(l.EFI) > 64 && string(l.EFI[:2]) == "MZ" {
		pe = int64(binary.LittleEndian.Uint32(l.EFI[60:]))
	}
	switch {
	case len(l.Boot) != sector || !bytes.HasSuffix(l.Boot, []byte{0x55, 0xaa}):
		return fmt.Errorf("%s is no boot sector", BootFile)
	case len(l.Core) < 2*sector || len(l.Core) > biosSectors*sector:
		return fmt.Errorf("%s has %d bytes", CoreFile, len(l.Core))
	case pe == 0 || pe+6 > int64(len(l.EFI)) || string(l.EFI[pe:pe+4]) != "PE\x00\x00" || binary.LittleEndian.Uint16(l.EFI[pe+4:]) != amd64:
		return fmt.Errorf("%s is no EFI program for x86-64", EFIFile)
	}
	return nil
}
