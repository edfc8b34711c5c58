package uki

// A FAT16 file system that holds one file, EFI/BOOT/BOOTX64.EFI, in one run at its end: firmware that boots from a medium
// looks for that name.
const (
	fatSector     = 512
	fatReserved   = 4   // sectors, so that the clusters begin at a CD's block
	fatRoots      = 512 // entries of the root directory
	fatMin        = 4200
	fatMax        = 65000 // clusters of FAT16 lie between 4085 and 65524; readers differ about the edges
	fatMedia      = 0xf8
	dirEntry      = 32
	fatFirstFile  = 4 // clusters 2 and 3 are the directories EFI and EFI/BOOT
	attrVolume    = 0x08
	attrDirectory = 0x10
	attrArchive   = 0x20
	fatDate       = 0x0021 // 1980-01-01, FAT's first day
)

// fat is the geometry of such a file system.
type fat struct {
	cluster  int64 // bytes
	clusters int64
	table    int64 // sectors of one allocation table
	file     int64 // bytes of the file
}

func newFAT(file int64) (f fat) {
	f.file = file
	for f.cluster = 2048; ; f.cluster *= 2 {
		if f.clusters = fatFirstFile - 2 + up(file, f.cluster)/f.cluster; f.clusters <= fatMax {
			break
		}
	}
	f.clusters = max(f.clusters, fatMin)
	f.table = up(up((f.clusters+2)*2, fatSector)/fatSector, 2) // both tables together fill whole CD blocks
	return f
}

// data is where cluster 2 begins, in bytes.
func (f fat) data() int64 { return (fatReserved+2*f.table)*fatSector + fatRoots*dirEntry }

// fileAt is where the file begins, in bytes.
func (f fat) fileAt() int64 { return f.data() + (fatFirstFile-2)*f.cluster }

// size is the length of the file system in bytes, whole CD blocks.
func (f fat) size() int64 { return f.data() + f.clusters*f.cluster }

// head is all before the file.
func (f fat) head() []byte {
	b := make([]byte, f.fileAt())
	f.bootSector(b)
	for n := range int64(2) {
		f.allocate(b[(fatReserved+n*f.table)*fatSector:])
	}
	root := b[(fatReserved+2*f.table)*fatSector:]
	entry(root, "BCD        ", attrVolume, 0, 0)
	entry(root[dirEntry:], "EFI        ", attrDirectory, 2, 0)
	efi := b[f.data():]
	entry(efi, ".          ", attrDirectory, 2, 0)
	entry(efi[dirEntry:], "..         ", attrDirectory, 0, 0)
	entry(efi[2*dirEntry:], "BOOT       ", attrDirectory, 3, 0)
	boot := b[f.data()+f.cluster:]
	entry(boot, ".          ", attrDirectory, 3, 0)
	entry(boot[dirEntry:], "..         ", attrDirectory, 2, 0)
	entry(boot[2*dirEntry:], "BOOTX64 EFI", attrArchive, fatFirstFile, f.file)
	return b
}

func (f fat) bootSector(b []byte) {
	copy(b, "\xeb\x3c\x90bcd     ")
	le.PutUint16(b[11:], fatSector)
	b[13] = byte(f.cluster / fatSector)
	le.PutUint16(b[14:], fatReserved)
	b[16] = 2 // tables
	le.PutUint16(b[17:], fatRoots)
	if total := f.size() / fatSector; total < 1<<16 {
		le.PutUint16(b[19:], uint16(total))
	} else {
		le.PutUint32(b[32:], uint32(total))
	}
	b[21] = fatMedia
	le.PutUint16(b[22:], uint16(f.table))
	le.PutUint16(b[24:], 32) // sectors of a track and heads: nobody's geometry, but none may be zero
	le.PutUint16(b[26:], 64)
	b[36], b[38] = 0x80, 0x29
	le.PutUint32(b[39:], 0xbcd00001) // serial number
	copy(b[43:], "BCD        FAT16   ")
	b[510], b[511] = 0x55, 0xaa
}

// allocate writes a table: the directories end where they begin, the file is one chain.
func (f fat) allocate(b []byte) {
	le.PutUint16(b, 0xff00|fatMedia)
	for _, c := range []int64{1, 2, 3} {
		le.PutUint16(b[c*2:], 0xffff)
	}
	last := fatFirstFile + up(f.file, f.cluster)/f.cluster - 1
	for c := int64(fatFirstFile); c < last; c++ {
		le.PutUint16(b[c*2:], uint16(c+1))
	}
	le.PutUint16(b[last*2:], 0xffff)
}

// entry writes a directory entry; name is eight characters and three, padded with spaces.
func entry(b []byte, name string, attr byte, cluster, size int64) {
	copy(b[:11], name)
	b[11] = attr
	for _, date := range []int{16, 18, 24} { // made, read, written
		le.PutUint16(b[date:], fatDate)
	}
	le.PutUint16(b[26:], uint16(cluster))
	le.PutUint32(b[28:], uint32(size))
}
