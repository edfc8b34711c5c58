// Package seed makes the small FAT16 file system that carries cloud-init's NoCloud files: label CIDATA, a few files in its
// root directory, long names.
//
// It is written here because it must suit disks of 4096-byte sectors, where a file system's sector may not be smaller
// than the disk's, and because a whole file-system library is a lot for a ramdisk to carry.
package seed

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"
	"unicode/utf16"
)

// Size of the file system in bytes, on any sector size: about 8000 clusters of 4 KiB, which only FAT16 can be.
const Size = 32 << 20

// MaxBytes is what the files may take together, and MaxFiles their number.
const (
	MaxBytes = 16 << 20
	MaxFiles = 32
)

const (
	cluster     = 4096
	rootEntries = 512
	reserved    = 8 // sectors of 512; 4096 bytes on any disk
)

// Make gives the file system's content up to its last byte in use; the rest of Size is zeros. sector is 512 or 4096, id
// becomes the volume id.
func Make(files map[string][]byte, sector int, id uint32) ([]byte, error) {
	if sector != 512 && sector != 4096 {
		return nil, fmt.Errorf("a sector of %d bytes suits no FAT", sector)
	}
	names, total := make([]string, 0, len(files)), 0
	for n, b := range files {
		if err := checkName(n); err != nil {
			return nil, err
		}
		names = append(names, n)
		total += len(b)
	}
	if total > MaxBytes || len(files) > MaxFiles {
		return nil, fmt.Errorf("the seed has %d files of %d bytes, the limits are %d and %d", len(files), total, MaxFiles, MaxBytes)
	}
	slices.Sort(names)

	head := max(reserved*512, sector) // of the reserved sectors, bytes
	fatLen := alignUp((Size/cluster+2)*2, sector)
	root := head + 2*fatLen
	data := root + rootEntries*32
	img := make([]byte, alignUp(data, cluster)+total+len(files)*cluster)
	boot(img, sector, head/sector, fatLen/sector, id)
	fat := img[head : head+fatLen]
	le := binary.LittleEndian
	le.PutUint16(fat, 0xfff8)
	le.PutUint16(fat[2:], 0xffff)
	dir := label(img[root:root], "CIDATA")
	next := 2
	for i, n := range names {
		first := 0
		content := files[n]
		if len(content) > 0 {
			first = next
			copy(img[data+(next-2)*cluster:], content)
			for rest := len(content); rest > 0; rest -= cluster {
				link := next + 1
				if rest <= cluster {
					link = 0xffff
				}
				le.PutUint16(fat[next*2:], uint16(link))
				next++
			}
		}
		dir = entry(dir, n, i, first, len(content))
	}
	copy(img[head+fatLen:root], fat)
	return img[:alignUp(data+(next-2)*cluster, cluster)], nil
}

func alignUp(n, to int) int { return (n + to - 1) / to * to }

func checkName(n string) error {
	if n == "" || len(n) > 100 || strings.ContainsAny(n, "\\/:*?\"<>|\x00") || strings.HasPrefix(n, ".") || strings.HasSuffix(n, ".") {
		return fmt.Errorf("%.100q is no name for a seed file", n)
	}
	for _, r := range n {
		if r < 0x20 || r > 0x7e {
			return errors.New("a seed file's name holds other characters than ASCII")
		}
	}
	return nil
}

// boot writes the boot sector.
func boot(b []byte, sector, reserved, fatSectors int, id uint32) {
	le := binary.LittleEndian
	copy(b, "\xeb\x3c\x90BCD     ")
	le.PutUint16(b[11:], uint16(sector))
	b[13] = byte(cluster / sector)
	le.PutUint16(b[14:], uint16(reserved))
	b[16] = 2 // tables
	le.PutUint16(b[17:], rootEntries)
	if n := Size / sector; n < 1<<16 {
		le.PutUint16(b[19:], uint16(n))
	} else {
		le.PutUint32(b[32:], uint32(n))
	}
	b[21] = 0xf8
	le.PutUint16(b[22:], uint16(fatSectors))
	le.PutUint16(b[24:], 32)
	le.PutUint16(b[26:], 64)
	b[36], b[38] = 0x80, 0x29
	le.PutUint32(b[39:], id)
	copy(b[43:], "CIDATA     FAT16   ")
	b[510], b[511] = 0x55, 0xaa
}

func label(dir []byte, name string) []byte {
	e := make([]byte, 32)
	copy(e, fmt.Sprintf("%-11s", name))
	e[11] = 0x08
	return append(dir, e...)
}

// entry appends the long-name entries and the entry of a file.
func entry(dir []byte, name string, n, first, size int) []byte {
	short := fmt.Sprintf("BCD%05d   ", n) // unique; nobody looks a seed file up by it
	var sum byte
	for _, c := range []byte(short) {
		sum = sum>>1 | sum<<7
		sum += c
	}
	units := append(utf16.Encode([]rune(name)), 0)
	parts := (len(units) + 12) / 13
	for len(units) < parts*13 {
		units = append(units, 0xffff)
	}
	if len(name)%13 == 0 { // a name that fills its entries has no terminator
		parts--
	}
	for p := parts; p > 0; p-- {
		e := make([]byte, 32)
		e[0], e[11], e[13] = byte(p), 0x0f, sum
		if p == parts {
			e[0] |= 0x40
		}
		for i, at := range []int{1, 3, 5, 7, 9, 14, 16, 18, 20, 22, 24, 28, 30} {
			binary.LittleEndian.PutUint16(e[at:], units[(p-1)*13+i])
		}
		dir = append(dir, e...)
	}
	e := make([]byte, 32)
	copy(e, short)
	e[11] = 0x20
	binary.LittleEndian.PutUint16(e[24:], 1<<5|1) // 1 January 1980
	binary.LittleEndian.PutUint16(e[26:], uint16(first))
	binary.LittleEndian.PutUint32(e[28:], uint32(size))
	return append(dir, e...)
}
