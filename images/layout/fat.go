package layout

import (
	"encoding/binary"
	"errors"
	"io"
	"strings"
)

// What HasLoader walks at most: bytes of one directory, and directories below EFI.
const (
	maxDirBytes = 128 << 10
	maxVendors  = 32
)

// HasLoader reports whether a FAT file system holds an EFI loader: EFI/BOOT/BOOT*.EFI, or a .EFI file in any directory
// below EFI.
func HasLoader(r io.ReaderAt) bool {
	f, err := openFAT(r)
	if err != nil {
		return false
	}
	efi, ok := f.find(f.root(), "EFI")
	if !ok {
		return false
	}
	walked := 0
	for _, vendor := range efi {
		if !vendor.dir || strings.HasPrefix(vendor.name, ".") {
			continue
		}
		if walked++; walked > maxVendors {
			return false
		}
		for _, file := range f.list(f.chain(vendor.cluster)) {
			if !file.dir && strings.HasSuffix(file.name, ".EFI") && file.size > 0 {
				return true
			}
		}
	}
	return false
}

// fat reads FAT12, FAT16 and FAT32, short names only.
type fat struct {
	r        io.ReaderAt
	bits     int
	cluster  int64 // bytes
	fatAt    int64
	rootAt   int64 // FAT12/16
	rootLen  int64
	rootClus uint32 // FAT32
	dataAt   int64
	clusters uint32
}

type fatFile struct {
	name    string // "BOOTX64.EFI", upper-case
	dir     bool
	cluster uint32
	size    uint32
}

func openFAT(r io.ReaderAt) (*fat, error) {
	b := make([]byte, 512)
	if _, err := r.ReadAt(b, 0); err != nil {
		return nil, err
	}
	if _, ok := fatID(b); !ok {
		return nil, errors.New("not a FAT file system")
	}
	le := binary.LittleEndian
	sector, perCluster := int64(le.Uint16(b[11:])), int64(b[13])
	reserved, fats, roots := int64(le.Uint16(b[14:])), int64(b[16]), int64(le.Uint16(b[17:]))
	total, fatLen := int64(le.Uint16(b[19:])), int64(le.Uint16(b[22:]))
	if total == 0 {
		total = int64(le.Uint32(b[32:]))
	}
	f := &fat{r: r, rootClus: le.Uint32(b[44:])}
	if fatLen == 0 {
		f.bits, fatLen = 32, int64(le.Uint32(b[36:]))
	}
	if sector < 512 || sector > 4096 || perCluster == 0 || fats == 0 || fats > 4 {
		return nil, errors.New("impossible FAT geometry")
	}
	f.cluster = sector * perCluster
	f.fatAt = reserved * sector
	f.rootAt, f.rootLen = f.fatAt+fats*fatLen*sector, (roots*32+sector-1)/sector*sector
	f.dataAt = f.rootAt + f.rootLen
	data := total - f.dataAt/sector
	if data <= 0 || data/perCluster > 1<<28 {
		return nil, errors.New("impossible FAT geometry")
	}
	f.clusters = uint32(data / perCluster)
	switch {
	case f.bits == 32:
	case f.clusters < 4085:
		f.bits = 12
	default:
		f.bits = 16
	}
	return f, nil
}

func (f *fat) root() []byte {
	if f.bits == 32 {
		return f.chain(f.rootClus)
	}
	b := make([]byte, min(f.rootLen, maxDirBytes))
	if _, err := f.r.ReadAt(b, f.rootAt); err != nil {
		return nil
	}
	return b
}

// chain reads the clusters of a directory, at most maxDirBytes: a loop in the table ends there.
func (f *fat) chain(c uint32) (out []byte) {
	for c >= 2 && c < f.clusters+2 && len(out) < maxDirBytes {
		b := make([]byte, f.cluster)
		if _, err := f.r.ReadAt(b, f.dataAt+int64(c-2)*f.cluster); err != nil {
			return out
		}
		out = append(out, b...)
		c = f.next(c)
	}
	return out
}

func (f *fat) next(c uint32) uint32 {
	var b [4]byte
	le := binary.LittleEndian
	switch f.bits {
	case 32:
		_, _ = f.r.ReadAt(b[:], f.fatAt+int64(c)*4) // zero on error ends the chain
		return le.Uint32(b[:]) & 0x0fffffff
	case 16:
		_, _ = f.r.ReadAt(b[:2], f.fatAt+int64(c)*2)
	default:
		_, _ = f.r.ReadAt(b[:2], f.fatAt+int64(c)*3/2)
		v := le.Uint32(b[:])
		if c&1 == 1 {
			return v >> 4
		}
		return v & 0xfff
	}
	return le.Uint32(b[:])
}

func (f *fat) find(dir []byte, name string) ([]fatFile, bool) {
	for _, e := range f.list(dir) {
		if e.dir && e.name == name {
			return f.list(f.chain(e.cluster)), true
		}
	}
	return nil, false
}

func (f *fat) list(dir []byte) (out []fatFile) {
	le := binary.LittleEndian
	for ; len(dir) >= 32; dir = dir[32:] {
		e := dir[:32]
		if e[0] == 0 {
			break
		}
		if e[0] == 0xe5 || e[11]&0x08 != 0 { // deleted, volume label or long name
			continue
		}
		name := strings.TrimRight(string(e[:8]), " ")
		if ext := strings.TrimRight(string(e[8:11]), " "); ext != "" {
			name += "." + ext
		}
		out = append(out, fatFile{name: strings.ToUpper(name), dir: e[11]&0x10 != 0,
			cluster: uint32(le.Uint16(e[20:]))<<16 | uint32(le.Uint16(e[26:])), size: le.Uint32(e[28:])})
	}
	return out
}
