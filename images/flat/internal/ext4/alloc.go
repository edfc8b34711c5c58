package ext4

import "fmt"

// hasSuper reports whether a group begins with copies of superblock and descriptors: the first two, and the powers of
// three, five and seven.
func hasSuper(group int64) bool {
	if group <= 1 {
		return true
	}
	for _, base := range []int64{3, 5, 7} {
		n := base
		for n < group {
			n *= base
		}
		if n == group {
			return true
		}
	}
	return false
}

// overhead is how many blocks at the start of a group are not for files.
func overhead(group int64) int64 {
	n := int64(2 + tableBlocks)
	if hasSuper(group) {
		n += 1 + gdtBlocks
	}
	return n
}

// bitmapAt is the block bitmap of a group; the inode bitmap and the inode table follow it.
func bitmapAt(group int64) int64 {
	return group*blocksPerGroup + overhead(group) - tableBlocks - 2
}

// take gives the next count blocks, around the metadata of groups.
func (f *FS) take(count int64) (out []extent) {
	for logical := int64(0); logical < count; {
		group := f.next / blocksPerGroup
		f.next = max(f.next, group*blocksPerGroup+overhead(group))
		n := min(count-logical, (group+1)*blocksPerGroup-f.next)
		if n > 0 {
			out = append(out, extent{logical, f.next, n})
		}
		f.next += n
		logical += n
	}
	return out
}

func (f *FS) takeOne() int64 { return f.take(1)[0].block }

// allocate gives everything its blocks: metadata first, then files in their order.
func (f *FS) allocate() error {
	f.dind = f.takeOne()
	f.journal = f.take(journalBlocks)[0] // the first group has room for all of it
	f.journal.count = journalBlocks
	err := f.each(func(i *Inode) error {
		if inline, err := i.inlineAttrs(); err != nil {
			return err
		} else if !inline {
			i.xattr = f.takeOne()
		}
		switch i.Mode & TypeMask {
		case Directory:
			i.Size = int64(len(i.blocks())) * BlockSize
			return f.give(i)
		case Symlink:
			i.Size = int64(len(i.Target))
			if i.Size == 0 || i.Size > MaxTarget {
				return fmt.Errorf("a symbolic link has a target of %d bytes", i.Size)
			}
			if !i.fastLink() {
				return f.give(i)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, i := range f.inodes {
		if i.Mode&TypeMask != Regular {
			continue
		}
		if i.Content != nil {
			i.Size = int64(len(i.Content))
		}
		if err := f.give(i); err != nil {
			return err
		}
	}
	return nil
}

// give allocates an inode's blocks, and behind them those of its extent tree.
func (f *FS) give(i *Inode) error {
	if i.Size < 0 || i.Size > MaxFile {
		return fmt.Errorf("a file of %d bytes is larger than %d", i.Size, MaxFile)
	}
	i.extents = f.take((i.Size + BlockSize - 1) / BlockSize)
	if len(i.extents) <= inlineExtents {
		return nil
	}
	for n := 0; n < len(i.extents); n += extentsPerBlock {
		i.nodes = append(i.nodes, f.takeOne())
	}
	if len(i.nodes) > inlineExtents {
		return fmt.Errorf("a file of %d bytes is in %d pieces", i.Size, len(i.extents))
	}
	return nil
}

// grow decides how many groups there are, so that free blocks remain.
func (f *FS) grow() error {
	groups := max((f.next+blocksPerGroup-1)/blocksPerGroup, int64(len(f.inodes)+firstInode-1+inodesPerGroup-1)/inodesPerGroup)
	left := groups*blocksPerGroup - f.next
	for g := f.next/blocksPerGroup + 1; g < groups; g++ {
		left -= overhead(g)
	}
	for left < f.Free/BlockSize+f.next/100 {
		left += blocksPerGroup - overhead(groups)
		groups++
	}
	if groups > maxGroups {
		return fmt.Errorf("the file system would have %d block groups, the limit is %d", groups, maxGroups)
	}
	f.groups = int(groups)
	return nil
}
