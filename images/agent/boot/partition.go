package boot

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"sort"
	"strings"

	"golang.org/x/sys/unix"
)

// partition is a mounted file system of the disk.
type partition struct {
	number int
	fs     string // "ext4", "xfs", "btrfs", "vfat"
	uuid   string // as the file system spells it
	label  string
	dir    string // where it is mounted
}

var errNoPartition = errors.New("there is no such partition")

// open opens a file below the partition. Symbolic links, absolute ones too, stay inside it.
func (p *partition) open(name string) (*os.File, error) {
	if p == nil {
		return nil, errNoPartition
	}
	root, err := os.Open(p.dir)
	if err != nil {
		return nil, fmt.Errorf("opening partition %d: %w", p.number, err)
	}
	defer root.Close()
	name = path.Clean("/" + name)
	fd, err := unix.Openat2(int(root.Fd()), "."+name, &unix.OpenHow{
		Flags: unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK, Resolve: unix.RESOLVE_IN_ROOT | unix.RESOLVE_NO_MAGICLINKS,
	})
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// stat tells whether a path is a folder, and its size.
func (p *partition) stat(name string) (dir bool, size int64, err error) {
	f, err := p.open(name)
	if err != nil {
		return false, 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return false, 0, err
	}
	return st.IsDir(), st.Size(), nil
}

// read gives a regular file of at most limit bytes.
func (p *partition) read(name string, limit int64) ([]byte, error) {
	f, err := p.open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() || st.Size() > limit {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", name, limit)
	}
	return io.ReadAll(io.LimitReader(f, limit))
}

// list gives the names in a folder, sorted, at most 1024.
func (p *partition) list(name string) []string {
	f, err := p.open(name)
	if err != nil {
		return nil
	}
	defer f.Close()
	names, _ := f.Readdirnames(1024) // a folder that cannot be read holds nothing for us
	sort.Strings(names)
	return names
}

// fold finds the spelling of a path on a file system that ignores case, for folders of firmware such as EFI.
func (p *partition) fold(name string) string {
	at := ""
	for part := range strings.SplitSeq(strings.Trim(name, "/"), "/") {
		for _, have := range p.list(at + "/") {
			if strings.EqualFold(have, part) {
				part = have
				break
			}
		}
		at += "/" + part
	}
	return at
}
