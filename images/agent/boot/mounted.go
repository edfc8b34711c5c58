package boot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk"
	"github.com/better-compute/bcd/images/layout"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// mounted is a disk whose file systems can be read.
type mounted struct {
	disk   agentv1.Disk
	layout app.Layout
	parts  []*partition
	hidden []string // partitions that may hold more than can be read of them, and why
	code   []byte   // the disk's first sector
}

// mountAll mounts every file system of the disk that a boot loader could read. release undoes it.
func (k *Kexec) mountAll(d agentv1.Disk) (m mounted, release func() error, err error) {
	base, err := os.MkdirTemp("", "boot-")
	if err != nil {
		return m, nil, fmt.Errorf("making mount points: %w", err)
	}
	var undo []func() error
	release = func() error {
		var errs []error
		for i := len(undo) - 1; i >= 0; i-- {
			errs = append(errs, undo[i]())
		}
		return errors.Join(append(errs, os.Remove(base))...)
	}
	node := filepath.Join(k.cfg.Dev, d.Name)
	f, err := os.Open(node)
	if err != nil {
		return m, nil, errors.Join(app.Errorf(app.Unavailable, "disk-not-opened", "%s cannot be opened: %w", d.Name, err), release())
	}
	defer f.Close()
	m = mounted{disk: d, layout: layout.Detect(f, d.Bytes, d.SectorSize), code: make([]byte, 512)}
	if _, err := f.ReadAt(m.code, 0); err != nil {
		return m, nil, errors.Join(app.Errorf(app.Unavailable, "disk-not-read", "%s cannot be read: %w", d.Name, err), release())
	}
	for _, p := range m.layout.Partitions {
		if why := unreadable(f, p); why != "" {
			m.hidden = append(m.hidden, fmt.Sprintf("partition %d (%s)", p.Number, why))
		}
		if !mountable(p) {
			continue
		}
		dir := filepath.Join(base, fmt.Sprint(p.Number))
		if err := os.Mkdir(dir, 0o700); err != nil {
			return m, nil, errors.Join(fmt.Errorf("making mount point: %w", err), release())
		}
		un, err := k.cfg.Mount(filepath.Join(k.cfg.Dev, disk.PartitionNode(d.Name, p.Number)), dir, p.FS)
		if err != nil {
			k.cfg.Log.Warn("a file system of the disk cannot be mounted", "partition", p.Number, "kind", p.FS, "error", err)
			m.hidden = append(m.hidden, fmt.Sprintf("partition %d (%s, which cannot be mounted)", p.Number, p.FS))
			un = func() error { return nil }
		} else {
			m.parts = append(m.parts, &partition{number: p.Number, fs: p.FS, uuid: p.FSUUID, label: label(f, p), dir: dir})
		}
		undo = append(undo, func() error { return errors.Join(un(), os.Remove(dir)) })
	}
	return m, release, nil
}

func mountable(p app.Partition) bool {
	return p.Number != 0 && (p.FS == "ext4" || p.FS == "xfs" || p.FS == "btrfs" || p.FS == "vfat")
}

// bare are the types of partitions that hold no file system: for GRUB's own image on BIOS and PReP, and Microsoft's reserve.
var bare = []string{layout.TypeBIOSBoot, "9E1A2D38-C612-4316-AA26-8B49521E5A8B", "E3C9E316-0B5C-4DB8-817D-F92DF00215AE", "41"}

// unreadable tells why a partition may hold a boot configuration that is not seen, "" when it does not: what cannot be mounted
// here, volumes of btrfs below the top one, and what a journal holds that is not replayed.
func unreadable(r io.ReaderAt, p app.Partition) string {
	const incompatAt, needsRecovery = 1024 + 0x60, 4 // s_feature_incompat, EXT4_FEATURE_INCOMPAT_RECOVER
	switch {
	case p.FS == "swap" || slices.Contains(bare, p.Type):
		return ""
	case p.FS == "":
		return "of an unknown kind"
	case !mountable(p):
		return p.FS
	case p.FS == "btrfs":
		return "btrfs, of which the top volume alone is read"
	case p.FS == "ext4":
		b := make([]byte, 4)
		if _, err := r.ReadAt(b, p.Start+incompatAt); err != nil || b[0]&needsRecovery != 0 {
			return "ext4, whose journal is not replayed"
		}
	}
	return ""
}

// label reads a file system's label where its superblock keeps it.
func label(r io.ReaderAt, p app.Partition) string {
	at := map[string][2]int64{"ext4": {1024 + 0x78, 16}, "xfs": {108, 12}, "btrfs": {0x10000 + 0x12b, 256}, "vfat": {71, 11}}[p.FS]
	if at[1] == 0 {
		return ""
	}
	b := make([]byte, at[1])
	if _, err := r.ReadAt(b, p.Start+at[0]); err != nil {
		return ""
	}
	s, _, _ := strings.Cut(string(b), "\x00")
	return strings.TrimRight(s, " ")
}
