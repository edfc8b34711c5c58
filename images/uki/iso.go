package uki

import (
	"bytes"
	"encoding/binary"

	"github.com/better-compute/bcd/app"
)

// Where things are on the CD, in its blocks (ECMA-119 and the El Torito specification).
const (
	isoBlock      = 2048
	isoVolume     = 16
	isoBootRecord = 17
	isoEnd        = 18
	isoCatalog    = 19
	isoPaths      = 20 // little-endian
	isoPathsBig   = 21
	isoRoot       = 22
	isoBoot       = 24 // the FAT file system, to the end
	isoPathsLen   = 10 // bytes: the root directory alone
	isoBootName   = "EFIBOOT.IMG;1"
)

// maxOnCD is the largest EFI program that FAT16 with clusters of 64 KiB at most holds.
const maxOnCD = 64 << 10 * (fatMax - 2)

// ISO is a CD that boots a UKI on UEFI machines: ISO 9660 with one file, a FAT file system that El Torito's catalog names and
// that holds the program as EFI/BOOT/BOOTX64.EFI. For BMCs that show it as a disk, its first sector has a partition table
// that names the same file system.
func ISO(program *Image) (*Image, error) {
	if program.size > maxOnCD {
		return nil, app.Errorf(app.TooLarge, "boot-image-too-large", "the boot program has %d bytes, a CD takes %d", program.size, int64(maxOnCD)).
			Do("build a ramdisk with fewer drivers and firmware files")
	}
	f := newFAT(program.size)
	head := make([]byte, isoBoot*isoBlock+f.fileAt())
	copy(head[isoBoot*isoBlock:], f.head())
	size := isoBoot*isoBlock + f.size()
	partition(head, f.size())
	block := func(n int64) []byte { return head[n*isoBlock:][:isoBlock] }
	volume(block(isoVolume), size/isoBlock)
	bootRecord(block(isoBootRecord))
	copy(block(isoEnd), "\xffCD001\x01")
	catalog(block(isoCatalog))
	copy(block(isoPaths), "\x01\x00\x16\x00\x00\x00\x01\x00\x00\x00") // the root is block 22
	copy(block(isoPathsBig), "\x01\x00\x00\x00\x00\x16\x00\x01\x00\x00")
	root := block(isoRoot)
	n := record(root, "\x00", isoRoot, isoBlock, true)
	n += record(root[n:], "\x01", isoRoot, isoBlock, true)
	record(root[n:], isoBootName, isoBoot, f.size(), false)
	at := isoBoot*isoBlock + f.fileAt()
	cd := &Image{size: size, tag: tagOf([]byte("iso"), []byte(program.tag)), pieces: []piece{{0, at, bytes.NewReader(head)}}}
	for _, p := range program.pieces {
		cd.pieces = append(cd.pieces, piece{at + p.at, p.size, p.r})
	}
	return cd, nil
}

// partition writes an MBR that names the file system as an EFI system partition.
func partition(b []byte, size int64) {
	p := b[446:]
	copy(p, "\x00\xfe\xff\xff\xef\xfe\xff\xff")
	le.PutUint32(p[8:], isoBoot*isoBlock/fatSector)
	le.PutUint32(p[12:], uint32(size/fatSector))
	b[510], b[511] = 0x55, 0xaa
}

// volume writes the primary volume descriptor. No time is given anywhere: equal inputs give equal bytes.
func volume(b []byte, blocks int64) {
	copy(b, "\x01CD001\x01")
	fill := func(from, to int, s string) {
		for i := from; i < to; i++ {
			b[i] = ' '
		}
		copy(b[from:to], s)
	}
	fill(8, 40, "")
	fill(40, 72, "BCD")
	both32(b[80:], blocks)
	both16(b[120:], 1) // disks of the set, and which this is
	both16(b[124:], 1)
	both16(b[128:], isoBlock)
	both32(b[132:], isoPathsLen)
	le.PutUint32(b[140:], isoPaths)
	binary.BigEndian.PutUint32(b[148:], isoPathsBig)
	record(b[156:], "\x00", isoRoot, isoBlock, true)
	fill(190, 813, "")
	for at := 813; at < 881; at += 17 { // four times: none
		copy(b[at:], "0000000000000000\x00")
	}
	b[881] = 1
}

func bootRecord(b []byte) {
	copy(b, "\x00CD001\x01EL TORITO SPECIFICATION")
	le.PutUint32(b[0x47:], isoCatalog)
}

// catalog writes El Torito's validation entry and the one boot entry. Its length of 1 means "to the end of the CD" (UEFI
// specification 2.10, 13.3.2.1): the field counts 32 MiB at most, and every installer of Windows has 1 there.
func catalog(b []byte) {
	b[0], b[1] = 1, 0xef // UEFI
	copy(b[4:], "bcd")
	b[30], b[31] = 0x55, 0xaa
	var sum uint16
	for i := 0; i < 32; i += 2 {
		sum += le.Uint16(b[i:])
	}
	le.PutUint16(b[28:], -sum)
	e := b[32:]
	e[0] = 0x88 // bootable, no emulation
	le.PutUint16(e[6:], 1)
	le.PutUint32(e[8:], isoBoot)
}

// record writes a directory record and gives its length.
func record(b []byte, name string, at, size int64, dir bool) int {
	n := 33 + len(name)
	n += n & 1
	b[0] = byte(n)
	both32(b[2:], at)
	both32(b[10:], size)
	if dir {
		b[25] = 2
	}
	both16(b[28:], 1)
	b[32] = byte(len(name))
	copy(b[33:], name)
	return n
}

// both32 writes a number in both byte orders, as ISO 9660 wants.
func both32(b []byte, n int64) {
	le.PutUint32(b, uint32(n))
	binary.BigEndian.PutUint32(b[4:], uint32(n))
}

func both16(b []byte, n int64) {
	le.PutUint16(b, uint16(n))
	binary.BigEndian.PutUint16(b[2:], uint16(n))
}
