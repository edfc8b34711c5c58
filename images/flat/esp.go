package flat

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// The EFI system partition is FAT32, which some firmware insists on, with clusters of one sector: FAT32 needs 65525 of them.
const (
	fatReserved = 32 // sectors before the tables
	fatSectors  = 1009
	fatTables   = 2
	fatData     = fatReserved + fatTables*fatSectors
	fatClusters = espSectors - fatData
	fatEnd      = 0x0fffffff
)

// esp encodes the used part of a file system that holds one loader at the removable-media path, which needs no boot variable.
func esp(loader []byte, serial string) ([]byte, error) {
	id, err := strconv.ParseUint(strings.ReplaceAll(serial, "-", ""), 16, 32)
	if err != nil {
		return nil, fmt.Errorf("%q is no serial number of a FAT file system", serial)
	}
	const first = 5 // of the loader's clusters: the root, EFI and BOOT have one each
	count := (len(loader) + sector - 1) / sector
	if count == 0 || count > fatClusters-first {
		return nil, fmt.Errorf("a loader of %d bytes has no room on the EFI system partition", len(loader))
	}
	b := make([]byte, (fatData+first-2+count)*sector)
	le := binary.LittleEndian
	fatBoot(b, uint32(id))
	copy(b[6*sector:], b[:2*sector]) // firmware looks there when the first sectors are damaged
	table := b[fatReserved*sector:]
	le.PutUint32(table, 0x0ffffff8)
	for n := 1; n < first; n++ {
		le.PutUint32(table[4*n:], fatEnd)
	}
	for n := range count {
		next := uint32(first + n + 1)
		if n == count-1 {
			next = fatEnd
		}
		le.PutUint32(table[4*(first+n):], next)
	}
	info := b[sector:]
	le.PutUint32(info[488:], uint32(fatClusters-(first-2)-count))
	le.PutUint32(info[492:], uint32(first+count))
	copy(b[7*sector:8*sector], info)
	copy(b[(fatReserved+fatSectors)*sector:fatData*sector], b[fatReserved*sector:])
	cluster := func(n int) []byte { return b[(fatData+n-2)*sector:] }
	fatEntries(cluster(2), fatEntry{"ESP        ", 0x08, 0, 0}, fatEntry{"EFI        ", 0x10, 3, 0})
	fatEntries(cluster(3), fatEntry{".          ", 0x10, 3, 0}, fatEntry{"..         ", 0x10, 0, 0}, fatEntry{"BOOT       ", 0x10, 4, 0})
	fatEntries(cluster(4), fatEntry{".          ", 0x10, 4, 0}, fatEntry{"..         ", 0x10, 3, 0}, fatEntry{"BOOTX64 EFI", 0x20, first, len(loader)})
	copy(cluster(first), loader)
	return b, nil
}

// fatBoot writes the boot sector and the sector behind it.
func fatBoot(b []byte, id uint32) {
	le := binary.LittleEndian
	copy(b, "\xeb\x58\x90BCD     ")
	le.PutUint16(b[11:], sector)
	b[13] = 1
	le.PutUint16(b[14:], fatReserved)
	b[16], b[21] = fatTables, 0xf8
	le.PutUint16(b[24:], 32)
	le.PutUint16(b[26:], 64)
	le.PutUint32(b[28:], espStart)
	le.PutUint32(b[32:], espSectors)
	le.PutUint32(b[36:], fatSectors)
	le.PutUint32(b[44:], 2)
	le.PutUint16(b[48:], 1)
	le.PutUint16(b[50:], 6)
	b[64], b[66] = 0x80, 0x29
	le.PutUint32(b[67:], id)
	copy(b[71:], "ESP        FAT32   ")
	b[510], b[511] = 0x55, 0xaa
	info := b[sector:]
	copy(info, "RRaA")
	copy(info[484:], "rrAa")
	info[510], info[511] = 0x55, 0xaa
}

// fatEntry is an entry of a directory: an 8.3 name, attributes, the first cluster and the length.
type fatEntry struct {
	name    string
	attr    byte
	cluster int
	size    int
}

func fatEntries(dir []byte, list ...fatEntry) {
	le := binary.LittleEndian
	for n, e := range list {
		b := dir[32*n:]
		copy(b, e.name)
		b[11] = e.attr
		for _, at := range []int{16, 18, 24} {
			le.PutUint16(b[at:], 1<<5|1) // 1 January 1980
		}
		le.PutUint16(b[20:], uint16(e.cluster>>16))
		le.PutUint16(b[26:], uint16(e.cluster))
		le.PutUint32(b[28:], uint32(e.size))
	}
}
