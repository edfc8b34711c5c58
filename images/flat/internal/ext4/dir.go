package ext4

import "encoding/binary"

// dirTail is the checksum at the end of each block of a directory.
const dirTail = 12

// fileTypes are what a directory says of an inode, by the upper four bits of its mode.
var fileTypes = [16]byte{1: 5, 2: 3, 4: 2, 6: 4, 8: 1, 10: 7, 12: 6}

// entry is one name in a directory.
type entry struct {
	name  string
	inode *Inode
}

func recordLen(name string) int { return (8 + len(name) + 3) &^ 3 }

// blocks spreads the names of a directory over its blocks, in their order.
func (i *Inode) blocks() (out [][]entry) {
	room := BlockSize - dirTail - recordLen(".") - recordLen("..")
	block := []entry{}
	for _, n := range i.names {
		if need := recordLen(n); need > room {
			out = append(out, block)
			block, room = nil, BlockSize-dirTail
		}
		room -= recordLen(n)
		block = append(block, entry{n, i.Entries[n]})
	}
	return append(out, block)
}

// directory encodes all blocks of a directory.
func (f *FS) directory(i *Inode) []byte {
	blocks := i.blocks()
	out := make([]byte, len(blocks)*BlockSize)
	le := binary.LittleEndian
	for n, entries := range blocks {
		b := out[n*BlockSize : (n+1)*BlockSize]
		at, last := 0, 0
		put := func(name string, number uint32, kind byte) {
			last = at
			le.PutUint32(b[at:], number)
			le.PutUint16(b[at+4:], uint16(recordLen(name)))
			b[at+6], b[at+7] = byte(len(name)), kind
			copy(b[at+8:], name)
			at += recordLen(name)
		}
		if n == 0 {
			put(".", i.number, fileTypes[Directory>>12])
			put("..", i.parent, fileTypes[Directory>>12])
		}
		for _, e := range entries {
			put(e.name, e.inode.number, fileTypes[e.inode.Mode>>12])
		}
		le.PutUint16(b[last+4:], uint16(BlockSize-dirTail-last)) // the last entry reaches to the tail
		tail := b[BlockSize-dirTail:]
		le.PutUint16(tail[4:], dirTail)
		tail[7] = 0xde
		le.PutUint32(tail[8:], crc(f.inodeSeed(i.number), b[:BlockSize-dirTail]))
	}
	return out
}
