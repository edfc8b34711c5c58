package boot

import (
	"context"
	"errors"
	"fmt"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Found is how a disk stands before its first boot.
type Found struct {
	Entry, Kernel string   // what starts by default; no kernel for what is not Linux by a loader's configuration
	Notes         []string // sentences on what could not be made sure of
	Refused       error    // an *app.Error: the disk cannot start, or not for long
}

// Look tells what a disk starts by default, and refuses one on which that is certainly nothing. It loads nothing and leaves
// nothing mounted. err is of the looking.
func (k *Kexec) Look(ctx context.Context, target agentv1.DiskTarget) (found Found, err error) {
	disks, err := k.cfg.Disks(ctx)
	if err != nil {
		return found, fmt.Errorf("listing disks: %w", err)
	}
	d, err := disk.Match(disks, target)
	if err != nil {
		return found, err
	}
	m, release, err := k.mountAll(d)
	if err != nil {
		return found, err
	}
	defer func() { err = errors.Join(err, release()) }()
	f := facts{name: d.Name, reading: read(m.parts, k.cfg.Firmware, k.cfg.Log), loaders: lookForLoaders(&m, k.cfg.Firmware), hidden: m.hidden}
	f.missing, f.certain = f.reading.missing(&m)
	f.chained = f.reading.next()
	found = f.verdict()
	if found.Refused == nil {
		found.Refused = k.cramped(&m)
	}
	return found, nil
}

// leastFree is what a first boot writes before it could free anything, in bytes: host keys, cloud-init's state, the first log.
const leastFree = 32 << 20

// forItself is the part of a partition that a file system may keep for itself and not count as its size: an eighth.
const forItself = 8

// cramped refuses a root file system that is full and cannot grow.
func (k *Kexec) cramped(m *mounted) error {
	g := m.layout.Growth(m.disk.Bytes)
	if g.Root == nil || g.Room >= leastFree {
		return nil
	}
	for _, p := range m.parts {
		if p.number != g.Root.Number {
			continue
		}
		free, size, err := k.cfg.Room(p.dir)
		if err != nil || free >= leastFree || g.Root.Size-size-g.Root.Size/forItself >= leastFree { // or its partition was grown already
			return nil
		}
		return app.Errorf(app.Unsupported, "root-full", "the root file system on partition %d of %s has %d bytes free and no room to grow; a first boot needs %d", p.number, m.disk.Name, free, int64(leastFree)).
			Do("use an image with more room in its root, or whose root is the last partition, on a larger disk; " + skipWay)
	}
	return nil
}
