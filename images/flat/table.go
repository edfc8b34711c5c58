package flat

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"unicode/utf16"
)

// The disk's layout, in sectors of 512 bytes. The root is last and ends before the backup table's MiB.
const (
	sector = 512
	mib    = 1 << 20 / sector

	biosStart   = 1 * mib
	biosSectors = 1 * mib
	espStart    = biosStart + biosSectors
	espSectors  = 64 * mib
	rootStart   = espStart + espSectors
	tailSectors = 1 * mib

	tableSectors = 32
	entrySize    = 128
)

// Types of partitions, as package layout spells them; the root's is "Linux root, x86-64" of the Discoverable Partitions
// Specification.
const (
	typeBIOS = "21686148-6449-6E6F-744E-656564454649"
	typeESP  = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
	typeRoot = "4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709"
)

// growFlag of a partition, from the same specification: its file system may be grown to the partition's size.
const growFlag = 1 << 59

// table encodes the sectors at both ends of a disk of size bytes: MBR with GRUB's boot code, and GPT.
func table(seed []byte, boot []byte, size int64) (head, tail []byte, err error) {
	last := size/sector - 1
	entries := make([]byte, tableSectors*sector)
	for n, p := range []struct {
		kind, name   string
		start, count int64
		flags        uint64
	}{
		{typeBIOS, "bios", biosStart, biosSectors, 0}, {typeESP, "esp", espStart, espSectors, 0},
		{typeRoot, "root", rootStart, last + 1 - tailSectors - rootStart, growFlag},
	} {
		e := entries[n*entrySize:]
		copy(e, mixed(p.kind))
		copy(e[16:], mixed(uuid(seed, p.name+" partition")))
		le := binary.LittleEndian
		le.PutUint64(e[32:], uint64(p.start))
		le.PutUint64(e[40:], uint64(p.start+p.count-1))
		le.PutUint64(e[48:], p.flags)
		for k, c := range utf16.Encode([]rune(p.name)) {
			le.PutUint16(e[56+2*k:], c)
		}
	}
	head = make([]byte, (2+tableSectors)*sector)
	if err := mbr(head, boot, uuidBytes(seed, "signature"), last); err != nil {
		return nil, nil, err
	}
	copy(head[sector:], header(seed, entries, 1, last, 2, last))
	copy(head[2*sector:], entries)
	return head, slices.Concat(entries, header(seed, entries, last, 1, last-tableSectors, last)), nil
}

// header encodes a GPT header for one of its two places.
func header(seed, entries []byte, at, other, table, last int64) []byte {
	h := make([]byte, sector)
	le := binary.LittleEndian
	copy(h, "EFI PART\x00\x00\x01\x00")
	le.PutUint32(h[12:], 92)
	for n, v := range []int64{at, other, 2048, last - tableSectors - 1} {
		le.PutUint64(h[24+8*n:], uint64(v))
	}
	copy(h[56:], mixed(uuid(seed, "table")))
	le.PutUint64(h[72:], uint64(table))
	le.PutUint32(h[80:], uint32(len(entries)/entrySize))
	le.PutUint32(h[84:], entrySize)
	le.PutUint32(h[88:], crc32.ChecksumIEEE(entries))
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))
	return h
}

// mixed gives the bytes of a GUID in the mixed-endian form of the table.
func mixed(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil {
		panic("a constant is no GUID: " + s)
	}
	b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7] = b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6]
	return b
}

// Places in GRUB's boot.img and in the first sector of core.img, from GRUB's include/grub/i386/pc/boot.h.
const (
	bootKernelSector = 0x5c  // uint64: where core.img begins
	bootDriveCheck   = 0x66  // two bytes of code
	bootCodeEnd      = 0x1b8 // the disk signature and the partition table follow
	coreBlockList    = 0x1f4 // last block list entry of core.img's first sector: uint64 start, uint16 sectors, uint16 segment
	coreSegment      = 0x820 // where the rest of core.img is loaded: one sector after 0x8000
)

// mbr writes boot code, a disk signature and the protective entry.
func mbr(b, boot []byte, signature [16]byte, last int64) error {
	if len(boot) != sector || boot[510] != 0x55 || boot[511] != 0xaa {
		return fmt.Errorf("boot.img has %d bytes and no boot signature", len(boot))
	}
	le := binary.LittleEndian
	copy(b[:bootCodeEnd], boot)
	le.PutUint64(b[bootKernelSector:], biosStart)
	// Two no-operations in place of a jump: DL is checked, since some BIOSes pass a floppy's number for a hard disk.
	b[bootDriveCheck], b[bootDriveCheck+1] = 0x90, 0x90
	copy(b[bootCodeEnd:], signature[:4])
	copy(b[446:], []byte{0, 0, 2, 0, 0xee, 0xff, 0xff, 0xff, 1})
	le.PutUint32(b[458:], uint32(min(last, 0xffffffff)))
	b[510], b[511] = 0x55, 0xaa
	return nil
}

// embed makes core.img what grub-bios-setup writes: it knows where the rest of it lies.
func embed(core []byte) ([]byte, error) {
	need := (len(core) + sector - 1) / sector
	if need < 2 || need > biosSectors || need-1 > 0xffff {
		return nil, fmt.Errorf("core.img needs %d sectors, the BIOS boot partition has %d", need, biosSectors)
	}
	out := make([]byte, need*sector)
	copy(out, core)
	list := out[coreBlockList:sector]
	binary.LittleEndian.PutUint64(list, biosStart+1)
	binary.LittleEndian.PutUint16(list[8:], uint16(need-1))
	binary.LittleEndian.PutUint16(list[10:], coreSegment)
	return out, nil
}
