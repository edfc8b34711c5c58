package ext4

import (
	"cmp"
	"slices"
)

// Region is a part of the file system that is not all zeros.
type Region struct {
	Off   int64         // bytes, from the start of the file system
	Len   int64         // bytes
	File  *Inode        // whose content it is, or nil
	At    int64         // offset in that file
	Bytes func() []byte // when File is nil: at most Len bytes; zeros follow
}

// Regions lists all that is not zero, in the order of the disk. Files that are held elsewhere come in their order, each
// from its start to its end.
func (f *FS) Regions() []Region {
	var out []Region
	add := func(block, blocks int64, b func() []byte) {
		out = append(out, Region{Off: block * BlockSize, Len: blocks * BlockSize, Bytes: b})
	}
	for g := range f.groups {
		at := bitmapAt(int64(g))
		switch {
		case g == 0:
			add(0, 1+gdtBlocks, func() []byte { return f.head(g) })
		case hasSuper(int64(g)):
			add(int64(g)*blocksPerGroup, descs+int64(f.descBlocks()), func() []byte { return f.head(g) })
		}
		add(at, 1, func() []byte { return f.blockBitmap(g) })
		add(at+1, 1, func() []byte { return f.inodeBitmap(g) })
		if n := int64(f.inodesIn(g)); n > 0 {
			add(at+2, (n*inodeSize+BlockSize-1)/BlockSize, func() []byte { return f.table(g) })
		}
	}
	add(f.dind, 1, f.dindBlock)
	add(f.journal.block, 1, f.journalSuper)
	_ = f.each(func(i *Inode) error {
		for n, block := range i.nodes {
			add(block, 1, func() []byte { return f.node(i, n) })
		}
		if i.xattr != 0 {
			add(i.xattr, 1, func() []byte { return f.attrBlock(i) })
		}
		out = append(out, f.content(i)...)
		return nil
	})
	slices.SortFunc(out, func(a, b Region) int { return cmp.Compare(a.Off, b.Off) })
	return out
}

// content lists the regions of an inode's own blocks.
func (f *FS) content(i *Inode) (out []Region) {
	for _, e := range i.extents {
		r := Region{Off: e.block * BlockSize, Len: e.count * BlockSize, At: e.logical * BlockSize}
		part := func(b []byte) []byte { return b[min(r.At, int64(len(b))):min(r.At+r.Len, int64(len(b)))] }
		switch i.Mode & TypeMask {
		case Directory:
			r.Bytes = func() []byte { return part(f.directory(i)) }
		case Symlink:
			r.Bytes = func() []byte { return []byte(i.Target) }
		case Regular:
			if i.Content == nil {
				r.Len = min(r.Len, i.Size-r.At)
				r.File = i
				break
			}
			r.Bytes = func() []byte { return part(i.Content) }
		}
		out = append(out, r)
	}
	return out
}
