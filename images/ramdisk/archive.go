package ramdisk

import (
	"fmt"
	"io"
	"maps"
	"path"
	"slices"

	"github.com/u-root/u-root/pkg/cpio"
)

// archive collects the records of one cpio by name. Owner, group and times stay zero, inode numbers count up in the order
// of names, and parents come before their children: equal content gives equal bytes.
type archive struct {
	records map[string]cpio.Record
}

func newArchive() *archive { return &archive{records: map[string]cpio.Record{}} }

func (a *archive) dir(name string, perm uint64) {
	a.parents(name)
	a.records[name] = cpio.Directory(name, perm)
}

func (a *archive) file(name string, content []byte, perm uint64) {
	a.parents(name)
	a.records[name] = cpio.StaticFile(name, string(content), perm)
}

// section adds a file whose content is read when the archive is written.
func (a *archive) section(name string, r io.ReaderAt, size int64, perm uint64) {
	a.parents(name)
	a.records[name] = cpio.Record{ReaderAt: r, Info: cpio.Info{Name: name, Mode: cpio.S_IFREG | perm, FileSize: uint64(size)}}
}

func (a *archive) link(name, target string) {
	a.parents(name)
	a.records[name] = cpio.Symlink(name, target)
}

func (a *archive) device(name string, perm, major, minor uint64) {
	a.parents(name)
	a.records[name] = cpio.CharDev(name, perm, major, minor)
}

// parents adds what is missing above a name: the kernel drops a file whose directory it has not seen.
func (a *archive) parents(name string) {
	for d := path.Dir(name); d != "." && d != "/"; d = path.Dir(d) {
		if _, ok := a.records[d]; !ok {
			a.records[d] = cpio.Directory(d, 0o755)
		}
	}
}

// write emits the archive with its trailer and gives the number of bytes.
func (a *archive) write(w io.Writer) (int64, error) {
	c := &counter{w: w}
	out := cpio.Newc.Writer(c)
	for i, name := range slices.Sorted(maps.Keys(a.records)) {
		r := a.records[name]
		r.Ino = uint64(i + 1)
		r.NLink = 1
		if err := out.WriteRecord(r); err != nil {
			return 0, fmt.Errorf("writing %q to the archive: %w", name, err)
		}
	}
	if err := cpio.WriteTrailer(out); err != nil {
		return 0, fmt.Errorf("ending the archive: %w", err)
	}
	return c.n, nil
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
