package ext4

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The geometry. Every group is whole, so that a file system is a multiple of GroupBytes long.
const (
	BlockSize  = 4096
	GroupBytes = blocksPerGroup * BlockSize

	blocksPerGroup = 8 * BlockSize // what one block of bitmap covers
	inodesPerGroup = 8192          // one for every 16 KiB, as mke2fs has it
	inodeSize      = 256
	tableBlocks    = inodesPerGroup * inodeSize / BlockSize
	descSize       = 64
	descsPerBlock  = BlockSize / descSize
	gdtBlocks      = 1024 // descriptors in use and room for more: enough for 8 TiB
	journalBlocks  = 16384

	rootInode      = 2
	resizeInode    = 7
	journalInode   = 8
	firstInode     = 11
	lostFoundInode = 11
)

// The limits of the format, or of this package where the format's are higher.
const (
	MaxName   = 255
	MaxTarget = BlockSize - 1
	MaxLinks  = 65000
	MaxFile   = int64(4*extentsPerBlock) * 64 << 20 // bytes: two levels of extents of at least 64 MiB each
	maxGroups = gdtBlocks * descsPerBlock
)

// Types and permissions of Inode.Mode, as stat(2) gives them.
const (
	TypeMask    = 0xf000
	FIFO        = 0x1000
	CharDevice  = 0x2000
	Directory   = 0x4000
	BlockDevice = 0x6000
	Regular     = 0x8000
	Symlink     = 0xa000
	Socket      = 0xc000
)

// Inode is a file of any type. Two entries that lead to one Inode are hard links.
type Inode struct {
	Mode         uint16 // type and permissions
	UID, GID     uint32
	Sec          int64 // modification, which stands for all times
	Nsec         uint32
	Size         int64  // of a regular file
	Content      []byte // of a regular file that is held in memory; nil: it comes from elsewhere
	Target       string // of a symbolic link
	Major, Minor uint32 // of a device
	XAttrs       map[string][]byte
	Entries      map[string]*Inode // of a directory; must not hold "." and ".."
	Order        int64             // files lie on the disk in this order

	number  uint32
	parent  uint32 // of a directory
	links   int
	extents []extent
	nodes   []int64 // blocks of the extent tree
	xattr   int64   // block of attributes that have no room in the inode; 0: none
	names   []string
}

// IsDir reports whether the inode is a directory.
func (i *Inode) IsDir() bool { return i.Mode&TypeMask == Directory }

// Options of a file system.
type Options struct {
	UUID     [16]byte
	HashSeed [16]byte
	Label    string // at most 16 bytes
	Free     int64  // bytes that must be left for new files, besides what is reserved for root
	Sec      int64  // when it was made, in seconds since 1970
}

// FS is a file system that is laid out.
type FS struct {
	Options
	groups int
	inodes []*Inode // in the order of their numbers, from firstInode on; nil: unused
	root   *Inode
	next   int64 // every block before it is in use
	seed   uint32

	journal extent
	dind    int64 // block of the resize inode's double indirection
	dirs    []int // directories by group
}

// extent is a run of blocks.
type extent struct {
	logical int64
	block   int64
	count   int64
}

// Plan lays out a tree. The tree must not be changed afterwards.
func Plan(root *Inode, o Options) (*FS, error) {
	if !root.IsDir() || len(o.Label) > 16 {
		return nil, fmt.Errorf("a file system needs a directory as its root, and a label of at most 16 bytes")
	}
	f := &FS{Options: o, root: root, seed: crc(^uint32(0), o.UUID[:])}
	if err := f.number(); err != nil {
		return nil, err
	}
	if err := f.allocate(); err != nil {
		return nil, err
	}
	if err := f.grow(); err != nil {
		return nil, err
	}
	f.countDirs()
	return f, nil
}

// Size of the file system in bytes.
func (f *FS) Size() int64 { return int64(f.groups) * GroupBytes }

// number gives every inode its number: the root and lost+found have theirs, the others follow in their order.
func (f *FS) number() error {
	lost := f.root.Entries["lost+found"]
	switch {
	case lost == nil:
		lost = &Inode{Mode: Directory | 0o700, Sec: f.Sec, Entries: map[string]*Inode{}}
		f.root.Entries["lost+found"] = lost
	case !lost.IsDir():
		return fmt.Errorf("/lost+found is not a directory")
	}
	f.root.number, f.root.parent, lost.number = rootInode, rootInode, lostFoundInode
	all := []*Inode{lost}
	seen := map[*Inode]bool{f.root: true, lost: true}
	for queue := []*Inode{f.root}; len(queue) > 0; queue = queue[1:] {
		dir := queue[0]
		dir.links += 2
		dir.names = slices.Sorted(maps.Keys(dir.Entries))
		for _, name := range dir.names {
			i := dir.Entries[name]
			if err := checkName(name); err != nil {
				return err
			}
			if i.IsDir() {
				if i.parent != 0 || i == f.root {
					return fmt.Errorf("the directory %q has two names", name)
				}
				i.parent = ^uint32(0) // until its parent has a number
				dir.links++
				queue = append(queue, i)
			} else {
				i.links++
			}
			if !seen[i] {
				seen[i] = true
				all = append(all, i)
			}
		}
	}
	slices.SortStableFunc(all[1:], func(a, b *Inode) int { return cmp.Compare(a.Order, b.Order) })
	for n, i := range all {
		i.number = uint32(firstInode + n)
		if !i.IsDir() && i.links > MaxLinks {
			return fmt.Errorf("a file has %d names, the limit is %d", i.links, MaxLinks)
		}
	}
	f.inodes = all
	for _, dir := range append([]*Inode{f.root}, all...) {
		for _, i := range dir.Entries {
			if i.IsDir() {
				i.parent = dir.number
			}
		}
	}
	return nil
}

func checkName(n string) error {
	if n == "" || n == "." || n == ".." || len(n) > MaxName || strings.ContainsAny(n, "/\x00") {
		return fmt.Errorf("%.300q is no name for a file", n)
	}
	return nil
}

// each calls do with the root and every other inode.
func (f *FS) each(do func(*Inode) error) error {
	if err := do(f.root); err != nil {
		return err
	}
	for _, i := range f.inodes {
		if err := do(i); err != nil {
			return err
		}
	}
	return nil
}

func (f *FS) countDirs() {
	f.dirs = make([]int, f.groups)
	_ = f.each(func(i *Inode) error {
		if i.IsDir() {
			f.dirs[(i.number-1)/inodesPerGroup]++
		}
		return nil
	})
}
