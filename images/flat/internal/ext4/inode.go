package ext4

import (
	"encoding/binary"
	"hash/crc32"
)

const (
	inlineExtents   = 4   // an inode's own
	extentsPerBlock = 340 // of a block, with the checksum behind them
	extentsFlag     = 0x80000
	extraSize       = 32 // of the fields behind the first 128 bytes
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// crc goes on with a CRC-32C as the kernel has it: not inverted at either end.
func crc(sum uint32, b []byte) uint32 { return ^crc32.Update(^sum, castagnoli, b) }

func crc32le(sum, v uint32) uint32 { return crc(sum, binary.LittleEndian.AppendUint32(nil, v)) }

// inodeSeed is what every checksum of an inode and its blocks starts with. The generation is always zero.
func (f *FS) inodeSeed(number uint32) uint32 { return crc32le(crc32le(f.seed, number), 0) }

// fastLink reports whether a symbolic link's target lies in the inode.
func (i *Inode) fastLink() bool { return len(i.Target) < 60 }

// held is how many blocks an inode holds, with those of its extent tree and its attributes.
func (i *Inode) held() int64 {
	n := int64(len(i.nodes))
	for _, e := range i.extents {
		n += e.count
	}
	if i.xattr != 0 {
		n++
	}
	return n
}

// encodeInode fills the 256 bytes of an inode.
func (f *FS) encodeInode(b []byte, i *Inode) {
	le := binary.LittleEndian
	le.PutUint16(b[0:], i.Mode)
	le.PutUint16(b[2:], uint16(i.UID))
	le.PutUint16(b[24:], uint16(i.GID))
	le.PutUint16(b[120:], uint16(i.UID>>16))
	le.PutUint16(b[122:], uint16(i.GID>>16))
	le.PutUint32(b[4:], uint32(i.Size))
	le.PutUint32(b[108:], uint32(i.Size>>32))
	links := i.links
	if i.IsDir() && links > MaxLinks {
		links = 1 // "many"
	}
	le.PutUint16(b[26:], uint16(links))
	sectors := i.held() * (BlockSize / 512)
	le.PutUint32(b[28:], uint32(sectors))
	le.PutUint16(b[116:], uint16(sectors>>32))
	le.PutUint32(b[104:], uint32(i.xattr))
	le.PutUint16(b[118:], uint16(i.xattr>>32))
	putTimes(b, i.Sec, i.Nsec)
	switch i.Mode & TypeMask {
	case CharDevice, BlockDevice:
		putDevice(b[40:], i.Major, i.Minor)
	case FIFO, Socket:
	case Symlink:
		if i.fastLink() {
			copy(b[40:100], i.Target)
			break
		}
		fallthrough
	default:
		le.PutUint32(b[32:], extentsFlag)
		i.putExtents(b[40:100])
	}
	i.putInlineAttrs(b)
	f.sumInode(b, i.number)
}

func (f *FS) sumInode(b []byte, number uint32) {
	le := binary.LittleEndian
	le.PutUint16(b[128:], extraSize)
	sum := crc(f.inodeSeed(number), b)
	le.PutUint16(b[124:], uint16(sum))
	le.PutUint16(b[130:], uint16(sum>>16))
}

// putTimes writes all four times: seconds in 34 bits, the upper two beside the nanoseconds.
func putTimes(b []byte, sec int64, nsec uint32) {
	le := binary.LittleEndian
	sec = max(-1<<31, min(sec, 1<<34-1<<31-1))
	epoch := uint32((sec-int64(int32(sec)))>>32) & 3
	for at, extra := range map[int]int{8: 140, 12: 132, 16: 136, 144: 148} {
		le.PutUint32(b[at:], uint32(sec))
		le.PutUint32(b[extra:], nsec<<2|epoch)
	}
}

// putDevice writes the number of a device in the old form where it fits, else in the new one.
func putDevice(b []byte, major, minor uint32) {
	if major < 256 && minor < 256 {
		binary.LittleEndian.PutUint32(b, major<<8|minor)
		return
	}
	binary.LittleEndian.PutUint32(b[4:], minor&0xff|major<<8|minor&^0xff<<12)
}

func putHeader(b []byte, entries, limit, depth int) {
	le := binary.LittleEndian
	le.PutUint16(b, 0xf30a)
	le.PutUint16(b[2:], uint16(entries))
	le.PutUint16(b[4:], uint16(limit))
	le.PutUint16(b[6:], uint16(depth))
}

func putLeaves(b []byte, list []extent) {
	le := binary.LittleEndian
	for n, e := range list {
		at := b[12+12*n:]
		le.PutUint32(at, uint32(e.logical))
		le.PutUint16(at[4:], uint16(e.count))
		le.PutUint16(at[6:], uint16(e.block>>32))
		le.PutUint32(at[8:], uint32(e.block))
	}
}

// putExtents writes the root of the extent tree.
func (i *Inode) putExtents(b []byte) {
	if len(i.nodes) == 0 {
		putHeader(b, len(i.extents), inlineExtents, 0)
		putLeaves(b, i.extents)
		return
	}
	putHeader(b, len(i.nodes), inlineExtents, 1)
	le := binary.LittleEndian
	for n, block := range i.nodes {
		at := b[12+12*n:]
		le.PutUint32(at, uint32(i.extents[n*extentsPerBlock].logical))
		le.PutUint32(at[4:], uint32(block))
		le.PutUint16(at[8:], uint16(block>>32))
	}
}

// node encodes block n of an inode's extent tree.
func (f *FS) node(i *Inode, n int) []byte {
	b := make([]byte, BlockSize)
	list := i.extents[n*extentsPerBlock : min((n+1)*extentsPerBlock, len(i.extents))]
	putHeader(b, len(list), extentsPerBlock, 0)
	putLeaves(b, list)
	binary.LittleEndian.PutUint32(b[12+12*extentsPerBlock:], crc(f.inodeSeed(i.number), b[:12+12*extentsPerBlock]))
	return b
}
