// Package layout reads partition tables and file-system superblocks from any io.ReaderAt: an image in the chunk store, or
// a disk under the ramdisk. It trusts nothing it reads: counts are bounded, and what does not parse is left out.
//
// An LVM physical volume is reported with FS "lvm" and FSUUID "vg:NAME", because two disks that carry one volume group
// name are what stops a machine from booting, not two that carry one physical-volume id.
package layout

import (
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"io"
	"strings"
	"unicode/utf16"

	"github.com/better-compute/bcd/app"
)

// Partition type GUIDs, upper-case as tools print them.
const (
	TypeESP      = "C12A7328-F81F-11D2-BA4B-00A0C93EC93B"
	TypeBIOSBoot = "21686148-6449-6E6F-744E-656564454649"
	TypeData     = "EBD0A0A2-B9E5-4433-87C0-68B6B72699C7" // Microsoft basic data: where a vfat seed belongs
	unusedGUID   = "00000000-0000-0000-0000-000000000000"
)

const (
	maxEntries    = 1024 // of a GPT
	maxLogical    = 128  // partitions in an MBR's extended partition
	attrLegacyBIO = 1 << 2
)

// Detect reads the table of a disk or image of size bytes. sector is the logical sector size of a disk; 0 tries 512 and
// then 4096, as for an image. A disk without a table but with a file system has Table "none" and one
// partition, number 0, and no sector size of its own.
func Detect(r io.ReaderAt, size int64, sector int) app.Layout {
	sectors := []int{sector}
	if sector == 0 {
		sectors = []int{512, 4096}
	}
	for _, s := range sectors {
		if h, err := ReadGPT(r, size, s); err == nil {
			return fromGPT(r, h)
		}
	}
	if l, ok := fromMBR(r); ok {
		if sector != 0 {
			l.SectorSize = sector
		}
		return l
	}
	l := app.Layout{Table: "none", SectorSize: sector}
	if fs, uuid := Probe(r, 0, size); fs != "" {
		l.Partitions = []app.Partition{{Size: size, FS: fs, FSUUID: uuid}}
	}
	return l
}

// GPT is a partition table whose checksums hold.
type GPT struct {
	Sector    int
	Size      int64 // of the disk or image
	Header    []byte
	First     int64 // first usable LBA
	Last      int64 // last usable LBA
	Alternate int64 // LBA of the other header
	EntrySize int
	Entries   []byte // the whole array
}

// Entry gives the bytes of entry i.
func (g *GPT) Entry(i int) []byte { return g.Entries[i*g.EntrySize : (i+1)*g.EntrySize] }

// Count is the number of entries, used or not.
func (g *GPT) Count() int { return len(g.Entries) / g.EntrySize }

// ReadGPT reads the primary table for a sector size of 512 or 4096, or the error that says why there is none.
func ReadGPT(r io.ReaderAt, size int64, sector int) (*GPT, error) {
	h := make([]byte, sector)
	if _, err := r.ReadAt(h, int64(sector)); err != nil {
		return nil, fmt.Errorf("reading GPT header: %w", err)
	}
	if string(h[:8]) != "EFI PART" {
		return nil, fmt.Errorf("there is no GPT header at byte %d", sector)
	}
	le := binary.LittleEndian
	hlen := int(le.Uint32(h[12:]))
	if hlen < 92 || hlen > sector {
		return nil, fmt.Errorf("the GPT header claims to be %d bytes long", hlen)
	}
	sum := append([]byte(nil), h[:hlen]...)
	clear(sum[16:20])
	if crc32.ChecksumIEEE(sum) != le.Uint32(h[16:]) {
		return nil, fmt.Errorf("the checksum of the GPT header is wrong")
	}
	count, esize := le.Uint32(h[80:]), le.Uint32(h[84:])
	table, limit := le.Uint64(h[72:]), uint64(size/int64(sector))
	if count == 0 || count > maxEntries || esize < 128 || esize > 4096 || esize%8 != 0 || table < 2 || table > limit {
		return nil, fmt.Errorf("the GPT has %d entries of %d bytes at sector %d", count, esize, table)
	}
	g := &GPT{Sector: sector, Size: size, Header: h, EntrySize: int(esize), Entries: make([]byte, count*esize),
		First: int64(le.Uint64(h[40:])), Last: int64(le.Uint64(h[48:])), Alternate: int64(le.Uint64(h[32:]))}
	if _, err := r.ReadAt(g.Entries, int64(table)*int64(sector)); err != nil {
		return nil, fmt.Errorf("reading GPT entries: %w", err)
	}
	if crc32.ChecksumIEEE(g.Entries) != le.Uint32(h[88:]) {
		return nil, fmt.Errorf("the checksum of the GPT entries is wrong")
	}
	return g, nil
}

// Partitions lists the used entries that lie inside the disk.
func (g *GPT) Partitions() (out []app.Partition) {
	le := binary.LittleEndian
	limit := uint64(g.Size / int64(g.Sector))
	for i := range g.Count() {
		e := g.Entry(i)
		first, last := le.Uint64(e[32:]), le.Uint64(e[40:])
		kind := GUID(e)
		if kind == unusedGUID || last < first || first == 0 || last >= limit {
			continue
		}
		out = append(out, app.Partition{Number: i + 1, Start: int64(first) * int64(g.Sector),
			Size: int64(last-first+1) * int64(g.Sector), Type: kind, Name: name(e[56:128])})
	}
	return out
}

// GUID spells the mixed-endian form of partition tables, upper-case.
func GUID(b []byte) string {
	le := binary.LittleEndian
	return fmt.Sprintf("%08X-%04X-%04X-%04X-%012X", le.Uint32(b), le.Uint16(b[4:]), le.Uint16(b[6:]), b[8:10], b[10:16])
}

func name(b []byte) string {
	u := make([]uint16, 0, 36)
	for i := 0; i+1 < len(b); i += 2 {
		c := binary.LittleEndian.Uint16(b[i:])
		if c == 0 {
			break
		}
		u = append(u, c)
	}
	return clean(string(utf16.Decode(u)))
}

// clean keeps what may be shown of a label: it is hostile text.
func clean(s string) string {
	return strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r == 0xfffd {
			return -1
		}
		return r
	}, s)
}

func fromGPT(r io.ReaderAt, g *GPT) app.Layout {
	l := app.Layout{Table: "gpt", SectorSize: g.Sector, Partitions: g.Partitions()}
	legacy := false
	for i := range l.Partitions {
		p := &l.Partitions[i]
		p.FS, p.FSUUID = Probe(r, p.Start, p.Size)
		attrs := binary.LittleEndian.Uint64(g.Entry(p.Number - 1)[48:])
		switch {
		case p.Type == TypeESP:
			l.UEFI = l.UEFI || HasLoader(io.NewSectionReader(r, p.Start, p.Size))
		case p.Type == TypeBIOSBoot, attrs&attrLegacyBIO != 0:
			legacy = legacy || hasCode(r, p.Start, 512)
		}
	}
	l.BIOS = legacy && hasCode(r, 0, 440)
	return l
}

// hasCode reports whether n bytes at off are not all zero.
func hasCode(r io.ReaderAt, off int64, n int) bool {
	b := make([]byte, n)
	if _, err := r.ReadAt(b, off); err != nil {
		return false
	}
	for _, c := range b {
		if c != 0 {
			return true
		}
	}
	return false
}

func fromMBR(r io.ReaderAt) (app.Layout, bool) {
	l := app.Layout{Table: "mbr", SectorSize: 512}
	sector := make([]byte, 512)
	if _, err := r.ReadAt(sector, 0); err != nil || sector[510] != 0x55 || sector[511] != 0xaa {
		return l, false
	}
	for i := range 4 {
		e := sector[446+16*i : 462+16*i]
		if e[0]&0x7f != 0 {
			return l, false // a file system's boot sector, not a table
		}
		p, ok := mbrEntry(e, 0)
		if !ok {
			continue
		}
		p.Number = i + 1
		switch e[4] {
		case 0xee:
			return l, false
		case 0x05, 0x0f, 0x85:
			l.Partitions = append(l.Partitions, p)
			l.Partitions = append(l.Partitions, logical(r, p.Start)...)
			continue
		}
		p.FS, p.FSUUID = Probe(r, p.Start, p.Size)
		if e[4] == 0xef {
			l.UEFI = l.UEFI || HasLoader(io.NewSectionReader(r, p.Start, p.Size))
		}
		l.Partitions = append(l.Partitions, p)
	}
	if len(l.Partitions) == 0 {
		return l, false
	}
	l.BIOS = hasCode(r, 0, 440)
	return l, true
}

// mbrEntry reads an entry. It may reach beyond the disk: that is how an image that was cut short is known.
func mbrEntry(e []byte, base int64) (app.Partition, bool) {
	start := base + int64(binary.LittleEndian.Uint32(e[8:]))*512
	length := int64(binary.LittleEndian.Uint32(e[12:])) * 512
	ok := e[4] != 0 && length > 0 && start > base
	return app.Partition{Start: start, Size: length, Type: fmt.Sprintf("%02x", e[4])}, ok
}

// logical walks the chain of an extended partition.
func logical(r io.ReaderAt, extended int64) (out []app.Partition) {
	at := extended
	for n := 5; n < 5+maxLogical; n++ {
		b := make([]byte, 512)
		if _, err := r.ReadAt(b, at); err != nil || b[510] != 0x55 || b[511] != 0xaa {
			return out
		}
		if p, ok := mbrEntry(b[446:462], at); ok {
			p.Number = n
			p.FS, p.FSUUID = Probe(r, p.Start, p.Size)
			out = append(out, p)
		}
		next, ok := mbrEntry(b[462:478], extended)
		if !ok {
			return out
		}
		at = next.Start
	}
	return out
}

// IDs lists what must not be on two disks of one machine: file-system UUIDs and "vg:NAME".
func IDs(l app.Layout) (out []string) {
	for _, p := range l.Partitions {
		if p.FSUUID != "" {
			out = append(out, p.FSUUID)
		}
	}
	return out
}
