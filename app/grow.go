package app

import "strings"

// SeedPartition is the GPT name of the partition that a deploy adds for first-boot data, at the end of the disk.
const SeedPartition = "bcd-seed"

// Bounds of what is worth a word about a root file system's room, in bytes.
const (
	littleRoom = 64 << 20 // behind a root: alignment, no room to grow
	muchUnused = 1 << 30  // of a disk
	reachOfMBR = 512 << 32
)

// Growth is how far the root file system of a layout can grow on a disk. Sizes are bytes.
type Growth struct {
	Root   *Partition // the largest that an installed system's root can be on; nil: none is known, and the rest says nothing of one
	Behind *Partition // keeps the root from the end of the disk, where much is unused; nil: nothing does
	Room   int64      // that the root's partition can grow by
	Unused int64      // at the end of the disk, for Behind
	Beyond int64      // at the end of the disk, more than a little, that the layout's MBR does not reach
}

// Growth reads the layout of an image, or of the disk it is on, for a disk of so many bytes.
func (l *Layout) Growth(disk int64) (g Growth) {
	limit := disk
	if l.Table == "mbr" && limit > reachOfMBR+muchUnused {
		limit, g.Beyond = reachOfMBR, limit-reachOfMBR
	}
	if g.Root = l.root(); g.Root == nil {
		return g
	}
	end := g.Root.Start + g.Root.Size
	next, last := &Partition{Start: limit}, end
	for i := range l.Partitions {
		p := &l.Partitions[i]
		if p.Name == SeedPartition || p.FS == "vfat" && p.Start+p.Size >= limit-littleRoom { // first-boot data lies at the end
			limit = min(limit, p.Start)
			continue
		}
		if p.Start >= end && p.Start < next.Start {
			next = p
		}
		last = max(last, p.Start+p.Size)
	}
	g.Room = max(0, min(next.Start, limit)-end)
	if next.Size > 0 && g.Room < littleRoom && limit-last >= muchUnused {
		g.Behind, g.Unused = next, limit-last
	}
	return g
}

// typeXBOOTLDR is the type of an extended boot partition (Discoverable Partitions Specification).
const typeXBOOTLDR = "BC13C2FF-59E6-4262-A352-B275FD6F7172"

// root is the largest partition that an installed system's root can be on. One that says that it is for booting is none: systems
// that make their root at their first boot, such as Talos, come with such a one.
func (l *Layout) root() (root *Partition) {
	for i, p := range l.Partitions {
		if strings.EqualFold(p.Name, "boot") || strings.EqualFold(p.Type, typeXBOOTLDR) {
			continue
		}
		if p.Number > 0 && (p.FS == "ext4" || p.FS == "xfs" || p.FS == "btrfs" || p.FS == "lvm") && (root == nil || p.Size > root.Size) {
			root = &l.Partitions[i]
		}
	}
	return root
}
