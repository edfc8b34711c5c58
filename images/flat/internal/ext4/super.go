package ext4

import (
	"bytes"
	"encoding/binary"
)

// Features, as the kernel numbers them.
const (
	compat   = 0x4 | 0x8 | 0x10 | 0x20               // has_journal, ext_attr, resize_inode, dir_index
	incompat = 0x2 | 0x40 | 0x80 | 0x200             // filetype, extents, 64bit, flex_bg
	roCompat = 0x1 | 0x2 | 0x8 | 0x20 | 0x40 | 0x400 // sparse_super, large_file, huge_file, dir_nlink, extra_isize, metadata_csum
	descs    = 1                                     // place of the descriptors behind the superblock, blocks
	flexBits = 4                                     // groups that growth packs together, as a power of two
)

func (f *FS) blocks() int64 { return int64(f.groups) * blocksPerGroup }

// descBlocks is how many blocks the descriptors take; the rest of gdtBlocks is for growth.
func (f *FS) descBlocks() int { return (f.groups + descsPerBlock - 1) / descsPerBlock }

// usedIn is how many blocks of a group are in use.
func (f *FS) usedIn(group int) int64 {
	first := int64(group) * blocksPerGroup
	return max(overhead(int64(group)), min(f.next-first, blocksPerGroup))
}

// inodesIn is how many inodes of a group are in use; they are its first ones.
func (f *FS) inodesIn(group int) int {
	return max(0, min(firstInode-1+len(f.inodes)-group*inodesPerGroup, inodesPerGroup))
}

// bits gives a bitmap block with its first n bits set, and all from limit on.
func bits(n, limit int64) []byte {
	b := make([]byte, BlockSize)
	for i := range b {
		at := int64(i) * 8
		switch {
		case at+8 <= n || at >= limit:
			b[i] = 0xff
		case at < n:
			b[i] = 1<<(n-at) - 1
		}
	}
	return b
}

func (f *FS) blockBitmap(group int) []byte { return bits(f.usedIn(group), blocksPerGroup) }
func (f *FS) inodeBitmap(group int) []byte { return bits(int64(f.inodesIn(group)), inodesPerGroup) }

// table encodes the used part of a group's inode table.
func (f *FS) table(group int) []byte {
	n := f.inodesIn(group)
	b := make([]byte, (n*inodeSize+BlockSize-1)/BlockSize*BlockSize)
	for k := range n {
		number := uint32(group*inodesPerGroup + k + 1)
		at := b[k*inodeSize : (k+1)*inodeSize]
		switch {
		case number == rootInode:
			f.encodeInode(at, f.root)
		case number == resizeInode:
			f.encodeResize(at)
		case number == journalInode:
			f.encodeInode(at, f.journalInode())
		case number >= firstInode:
			f.encodeInode(at, f.inodes[number-firstInode])
		}
	}
	return b
}

func (f *FS) journalInode() *Inode {
	return &Inode{Mode: Regular | 0o600, Size: journalBlocks * BlockSize, Sec: f.Sec, number: journalInode, links: 1, extents: []extent{f.journal}}
}

// journalSuper is the first block of an empty journal; its fields are big-endian.
func (f *FS) journalSuper() []byte {
	b := make([]byte, BlockSize)
	be := binary.BigEndian
	for at, v := range map[int]uint32{0: 0xc03b3998, 4: 4, 12: BlockSize, 16: journalBlocks, 20: 1, 24: 1, 64: 1} {
		be.PutUint32(b[at:], v)
	}
	copy(b[48:], f.UUID[:])
	return b
}

// backups are the groups besides the first that hold copies.
func (f *FS) backups() (out []int64) {
	for g := int64(1); g < int64(f.groups); g++ {
		if hasSuper(g) {
			out = append(out, g)
		}
	}
	return out
}

// encodeResize fills the inode that owns the room for more descriptors: its double indirect block names those blocks of
// the first group, and each of them names its own copies.
func (f *FS) encodeResize(b []byte) {
	le := binary.LittleEndian
	const pointers = BlockSize / 4
	size := uint64(pointers*pointers+pointers+12) * BlockSize
	spare := int64(gdtBlocks - f.descBlocks())
	le.PutUint16(b[0:], Regular|0o600)
	le.PutUint16(b[26:], 1)
	le.PutUint32(b[4:], uint32(size))
	le.PutUint32(b[108:], uint32(size>>32))
	le.PutUint32(b[28:], uint32((1+spare*int64(1+len(f.backups())))*(BlockSize/512)))
	le.PutUint32(b[40+4*13:], uint32(f.dind))
	putTimes(b, f.Sec, 0)
	f.sumInode(b, resizeInode)
}

// dindBlock names the reserved descriptor blocks of the first group.
func (f *FS) dindBlock() []byte {
	b := make([]byte, BlockSize)
	for n := f.descBlocks(); n < gdtBlocks; n++ {
		binary.LittleEndian.PutUint32(b[n%(BlockSize/4)*4:], uint32(descs+n))
	}
	return b
}

// reserved are the reserved descriptor blocks of the first group: where their copies are.
func (f *FS) reserved() []byte {
	list := f.backups()
	b := make([]byte, (gdtBlocks-f.descBlocks())*BlockSize)
	for n := range gdtBlocks - f.descBlocks() {
		for k, g := range list {
			binary.LittleEndian.PutUint32(b[n*BlockSize+4*k:], uint32(g*blocksPerGroup+descs+int64(f.descBlocks()+n)))
		}
	}
	return b
}

// descriptors encodes the table of groups.
func (f *FS) descriptors() []byte {
	b := make([]byte, f.descBlocks()*BlockSize)
	for g := range f.groups {
		f.descriptor(b[g*descSize:(g+1)*descSize], g)
	}
	return b
}

func (f *FS) descriptor(b []byte, g int) {
	le := binary.LittleEndian
	split := func(lo, hi int, v int64) {
		le.PutUint16(b[lo:], uint16(v))
		le.PutUint16(b[hi:], uint16(v>>16))
	}
	bitmap := bitmapAt(int64(g))
	for n, at := range []int{0x00, 0x04, 0x08} { // block bitmap, inode bitmap, inode table
		le.PutUint32(b[at:], uint32(bitmap+int64(n)))
		le.PutUint32(b[at+0x20:], uint32((bitmap+int64(n))>>32))
	}
	free := int64(inodesPerGroup - f.inodesIn(g))
	split(0x0c, 0x2c, blocksPerGroup-f.usedIn(g))
	split(0x0e, 0x2e, free)
	split(0x10, 0x30, int64(f.dirs[g]))
	le.PutUint16(b[0x12:], 4) // the inode table is all zeros where it is not used
	split(0x1c, 0x32, free)   // inodes at the end that were never used
	split(0x18, 0x38, int64(crc(f.seed, f.blockBitmap(g))))
	split(0x1a, 0x3a, int64(crc(f.seed, f.inodeBitmap(g)[:inodesPerGroup/8])))
	le.PutUint16(b[0x1e:], uint16(crc(crc32le(f.seed, uint32(g)), b)))
}

// super encodes the superblock as a group holds it.
func (f *FS) super(group int) []byte {
	b := make([]byte, 1024)
	le := binary.LittleEndian
	var freeBlocks, freeInodes int64
	for g := range f.groups {
		freeBlocks += blocksPerGroup - f.usedIn(g)
		freeInodes += int64(inodesPerGroup - f.inodesIn(g))
	}
	for at, v := range map[int]int64{
		0x00: int64(f.groups) * inodesPerGroup, 0x04: f.blocks(), 0x150: f.blocks() >> 32,
		0x08: f.blocks() / 100, 0x0c: freeBlocks, 0x158: freeBlocks >> 32, 0x10: freeInodes,
		0x18: 2, 0x1c: 2, 0x20: blocksPerGroup, 0x24: blocksPerGroup, 0x28: inodesPerGroup,
		0x30: f.Sec, 0x40: f.Sec, 0x108: f.Sec, 0x4c: 1, 0x54: firstInode,
		0x5c: compat, 0x60: incompat, 0x64: roCompat, 0xe0: journalInode, 0x100: 0x0c, // user_xattr, acl
		0x160: 1, // the signed hash of directories
	} {
		le.PutUint32(b[at:], uint32(v))
	}
	for at, v := range map[int]int{
		0x36: 0xffff, 0x38: 0xef53, 0x3a: 1, 0x3c: 1, 0x58: inodeSize, 0x5a: group, 0xce: gdtBlocks - f.descBlocks(), 0xfe: descSize,
		0x15c: extraSize, 0x15e: extraSize,
	} {
		le.PutUint16(b[at:], uint16(v))
	}
	copy(b[0x68:], f.UUID[:])
	copy(b[0x78:0x88], f.Label)
	copy(b[0xec:], f.HashSeed[:])
	b[0xfc], b[0xfd] = 1, 1 // half MD4; a copy of the journal's blocks follows
	inode := make([]byte, inodeSize)
	f.encodeInode(inode, f.journalInode())
	copy(b[0x10c:], inode[40:100])
	copy(b[0x10c+60:], inode[108:112])
	copy(b[0x10c+64:], inode[4:8])
	b[0x174], b[0x175] = flexBits, 1 // CRC-32C
	le.PutUint32(b[0x3fc:], crc(^uint32(0), b[:0x3fc]))
	return b
}

// head is a group's copy of superblock and descriptors.
func (f *FS) head(group int) []byte {
	b := make([]byte, (1+gdtBlocks)*BlockSize)
	at := 0
	if group == 0 {
		at = 1024
		copy(b[(descs+f.descBlocks())*BlockSize:], f.reserved())
	}
	copy(b[at:], f.super(group))
	copy(b[descs*BlockSize:], f.descriptors())
	return bytes.TrimRight(b, "\x00")
}
