package disk

import (
	"crypto/rand"
	"encoding/binary"
	"encoding/hex"
	"hash/crc32"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk/internal/seed"
	"github.com/better-compute/bcd/images/layout"
)

// seedName is the GPT name of the partition for first-boot data: how a second Configure finds it again.
const seedName = app.SeedPartition

const mib = 1 << 20

// place finds room for the seed partition at the end of a disk. ends are where the other partitions end, limit is the end
// of what the table can use.
func place(ends []int64, limit int64) (int64, error) {
	start := (limit - seed.Size) / mib * mib
	for _, e := range ends {
		if e > start {
			return 0, app.Errorf(app.Unsupported, "no-room-for-seed", "the image leaves no %d bytes free at the end of the disk for the first-boot data", int64(seed.Size)).
				Do("choose a disk at least %d MiB larger than the image, or an image with a smaller last partition", seed.Size/mib+2)
		}
	}
	return start, nil
}

// gptEdit is a GPT on its way to the whole disk it lies on.
type gptEdit struct {
	*layout.GPT
	dev  Device
	last int64 // LBA of the backup header: the disk's last sector
	span int64 // sectors of the entry array
}

func editGPT(dev Device, g *layout.GPT) *gptEdit {
	s := int64(dev.SectorSize())
	return &gptEdit{g, dev, dev.Size()/s - 1, (int64(len(g.Entries)) + s - 1) / s}
}

// addSeed finds or makes the seed partition and gives its byte offset. The table is not written yet.
func (e *gptEdit) addSeed() (int64, error) {
	s := int64(e.Sector)
	var ends []int64
	free := -1
	for i := range e.Count() {
		b := e.Entry(i)
		first, last := int64(binary.LittleEndian.Uint64(b[32:])), int64(binary.LittleEndian.Uint64(b[40:]))
		switch {
		case strings.Trim(string(b[:16]), "\x00") == "":
			if free < 0 {
				free = i
			}
		case entryName(b) == seedName && layout.GUID(b) == layout.TypeData && (last-first+1)*s == seed.Size && first > 0 && last < e.last-e.span:
			return first * s, nil
		default:
			ends = append(ends, (last+1)*s)
		}
	}
	if free < 0 {
		return 0, app.Errorf(app.Unsupported, "partition-table-full", "the image's partition table has no free entry for the first-boot data").
			Do("use an image with fewer partitions")
	}
	start, err := place(ends, (e.last-e.span)*s)
	if err != nil {
		return 0, err
	}
	b := e.Entry(free)
	copy(b, guid(layout.TypeData))
	_, _ = rand.Read(b[16:32]) // crypto/rand.Read never fails
	b[16+7], b[16+8] = b[16+7]&0x0f|0x40, b[16+8]&0x3f|0x80
	binary.LittleEndian.PutUint64(b[32:], uint64(start/s))
	binary.LittleEndian.PutUint64(b[40:], uint64(start/s+seed.Size/s-1))
	clear(b[48:128])
	for i, c := range utf16.Encode([]rune(seedName)) {
		binary.LittleEndian.PutUint16(b[56+2*i:], c)
	}
	return start, nil
}

// growFlag of a partition, from the Discoverable Partitions Specification: its file system may be grown to its size. It is
// set on the root of images that were made of a root file system, which need not know how to grow it.
const growFlag = 1 << 59

// grow lets the last partition before end reach to it, when it is flagged so. Its content is not touched: the system grows
// its file system itself when it starts.
func (e *gptEdit) grow(end int64) {
	var root []byte
	at := int64(-1)
	for i := range e.Count() {
		b := e.Entry(i)
		first, last := int64(binary.LittleEndian.Uint64(b[32:])), int64(binary.LittleEndian.Uint64(b[40:]))
		if strings.Trim(string(b[:16]), "\x00") != "" && first > at && (last+1)*int64(e.Sector) <= end {
			root, at = b, first
		}
	}
	if root == nil || binary.LittleEndian.Uint64(root[48:])&growFlag == 0 {
		return
	}
	if last := uint64(end/mib*mib/int64(e.Sector) - 1); last > binary.LittleEndian.Uint64(root[40:]) {
		binary.LittleEndian.PutUint64(root[40:], last)
	}
}

func entryName(b []byte) string {
	u := make([]uint16, 0, 36)
	for i := 56; i < 128; i += 2 {
		if c := binary.LittleEndian.Uint16(b[i:]); c != 0 {
			u = append(u, c)
		}
	}
	return string(utf16.Decode(u))
}

// guid gives the bytes of a partition type in the mixed-endian form of the table.
func guid(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, "-", ""))
	if err != nil {
		panic("a constant is no GUID: " + s)
	}
	b[0], b[1], b[2], b[3], b[4], b[5], b[6], b[7] = b[3], b[2], b[1], b[0], b[5], b[4], b[7], b[6]
	return b
}

// write puts the backup at the disk's last sectors, then the primary, then the protective MBR. At every instant one of
// the two tables is whole.
func (e *gptEdit) write() error {
	s := int64(e.Sector)
	old := e.Alternate
	table := int64(binary.LittleEndian.Uint64(e.Header[72:]))
	for _, p := range []struct {
		off int64
		b   []byte
	}{
		{(e.last - e.span) * s, e.Entries}, {e.last * s, e.header(e.last, 1, e.last-e.span)},
		{table * s, e.Entries}, {s, e.header(1, e.last, table)},
	} {
		if err := patch(e.dev, p.off, p.b); err != nil {
			return err
		}
	}
	if err := e.dropOld(old); err != nil {
		return err
	}
	return e.protect()
}

// header makes the header for one of the two places.
func (e *gptEdit) header(at, other, table int64) []byte {
	h := append([]byte(nil), e.Header...)
	le := binary.LittleEndian
	le.PutUint64(h[24:], uint64(at))
	le.PutUint64(h[32:], uint64(other))
	le.PutUint64(h[48:], uint64(e.last-e.span-1))
	le.PutUint64(h[72:], uint64(table))
	le.PutUint32(h[88:], crc32.ChecksumIEEE(e.Entries))
	clear(h[16:20])
	le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:le.Uint32(h[12:])]))
	return h
}

// dropOld clears the backup header that the image brought along, unless a partition covers it by now.
func (e *gptEdit) dropOld(lba int64) error {
	if lba <= 1 || lba >= e.last-e.span {
		return nil
	}
	off := lba * int64(e.Sector)
	for _, p := range e.Partitions() {
		if off >= p.Start && off < p.Start+p.Size {
			return nil
		}
	}
	b := make([]byte, e.Sector)
	if _, err := (loose{e.dev}).ReadAt(b, off); err != nil || string(b[:8]) != "EFI PART" {
		return err
	}
	return patch(e.dev, off, make([]byte, e.Sector))
}

// protect makes the protective MBR's entry as large as the disk. Firmware checks it, and some partitioners refuse to work
// when it is not.
func (e *gptEdit) protect() error {
	b := make([]byte, 512)
	if _, err := (loose{e.dev}).ReadAt(b, 0); err != nil {
		return err
	}
	for i := 446; i < 510; i += 16 {
		if b[i+4] == 0xee {
			start := int64(binary.LittleEndian.Uint32(b[i+8:]))
			binary.LittleEndian.PutUint32(b[i+12:], uint32(min(e.last+1-start, 0xffffffff)))
			return patch(e.dev, 0, b)
		}
	}
	return nil
}

// addSeedMBR finds or makes a primary partition for the seed. The sector is written by the function it gives.
func addSeedMBR(dev Device, l app.Layout) (start int64, write func() error, err error) {
	b := make([]byte, 512)
	if _, err := (loose{dev}).ReadAt(b, 0); err != nil {
		return 0, nil, err
	}
	var ends []int64
	for _, p := range l.Partitions {
		if p.Number <= 4 && p.Size == seed.Size && p.FS == "vfat" && isSeed(loose{dev}, p.Start) {
			return p.Start, func() error { return nil }, nil
		}
		ends = append(ends, p.Start+p.Size)
	}
	for i := 446; i < 510; i += 16 {
		if b[i+4] != 0 {
			continue
		}
		start, err := place(ends, min(dev.Size(), 1<<32*512))
		if err != nil {
			return 0, nil, err
		}
		copy(b[i:], []byte{0, 0xfe, 0xff, 0xff, 0x0e, 0xfe, 0xff, 0xff}) // FAT16 by LBA; the CHS fields say "look at the LBA"
		binary.LittleEndian.PutUint32(b[i+8:], uint32(start/512))
		binary.LittleEndian.PutUint32(b[i+12:], seed.Size/512)
		return start, func() error { return patch(dev, 0, b) }, nil
	}
	return 0, nil, app.Errorf(app.Unsupported, "partition-table-full", "the image's MBR has no free entry for the first-boot data").
		Do("use an image with at most three primary partitions, or with a GPT")
}

// isSeed looks for a FAT that cloud-init would take, whoever made it.
func isSeed(r io.ReaderAt, off int64) bool {
	b := make([]byte, 512)
	if _, err := r.ReadAt(b, off); err != nil {
		return false
	}
	return strings.EqualFold(string(b[43:49]), "CIDATA") || strings.EqualFold(string(b[71:77]), "CIDATA") // FAT16, FAT32
}
