package osimage

import (
	"encoding/binary"
	"fmt"
	"io"
)

// Places in GRUB's boot.img and in the first sector of core.img, from GRUB's include/grub/i386/pc/boot.h.
const (
	sector = 512

	bootKernelSector = 0x5c  // uint64: where core.img begins
	bootDriveCheck   = 0x66  // two octets of code; see embed
	bootCodeEnd      = 0x1b8 // the disk signature and the partition table follow and stay
	coreBlockList    = 0x1f4 // last block list entry of core.img's first sector: uint64 start, uint16 sectors, uint16 segment
	// coreSegment is where the rest of core.img is loaded: one sector after 0x8000.
	coreSegment = 0x820
)

// disk is what boot code is written to.
type disk interface {
	io.ReaderAt
	io.WriterAt
}

// embed makes a disk bootable by BIOS: core.img goes whole into the BIOS boot partition at LBA first, which has room for
// sectors, and boot.img into the MBR around the disk signature and the partition table. It is what grub-bios-setup does
// for a device, without a device.
func embed(d disk, bootImg, coreImg []byte, first, sectors int64) error {
	if len(bootImg) != sector || bootImg[510] != 0x55 || bootImg[511] != 0xaa {
		return fmt.Errorf("boot.img has %d octets and no boot signature", len(bootImg))
	}
	need := int64(len(coreImg)+sector-1) / sector
	if need < 2 || need > sectors || need-1 > 0xffff {
		return fmt.Errorf("core.img needs %d sectors, the BIOS boot partition has %d", need, sectors)
	}
	core := make([]byte, need*sector)
	copy(core, coreImg)
	list := core[coreBlockList:sector]
	binary.LittleEndian.PutUint64(list, uint64(first+1))
	binary.LittleEndian.PutUint16(list[8:], uint16(need-1))
	binary.LittleEndian.PutUint16(list[10:], coreSegment)
	if _, err := d.WriteAt(core, first*sector); err != nil {
		return fmt.Errorf("writing core.img: %w", err)
	}

	mbr := make([]byte, sector)
	if _, err := d.ReadAt(mbr, 0); err != nil {
		return fmt.Errorf("reading the MBR: %w", err)
	}
	copy(mbr[:bootCodeEnd], bootImg)
	binary.LittleEndian.PutUint64(mbr[bootKernelSector:], uint64(first))
	// Two no-operations in place of a jump: DL is checked, since some BIOSes pass a floppy's number for a hard disk.
	mbr[bootDriveCheck], mbr[bootDriveCheck+1] = 0x90, 0x90
	if _, err := d.WriteAt(mbr, 0); err != nil {
		return fmt.Errorf("writing the MBR: %w", err)
	}
	return nil
}
