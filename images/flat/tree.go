package flat

import (
	"fmt"
	"path"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat/internal/ext4"
)

// The bounds of a tree.
const (
	maxEntries = 1 << 20   // of all layers together
	maxText    = 128 << 20 // bytes of names, link targets and attributes, of all layers together
	maxPath    = 4096      // bytes of one name in an archive
	maxLinks   = 40        // symbolic links on the way to a file, as the kernel has it
)

// dirent names a place in the tree.
type dirent struct {
	dir  *ext4.Inode
	name string
}

// tree is the root file system as the layers so far have made it.
type tree struct {
	image string // for messages
	root  *ext4.Inode
	sec   int64 // of what no archive brings

	entries, text int
	fresh         map[dirent]bool // made or changed by the layer being read
}

func newTree(image string, sec int64) *tree {
	return &tree{image: image, root: &ext4.Inode{Mode: ext4.Directory | 0o755, Sec: sec, Entries: map[string]*ext4.Inode{}}, sec: sec, fresh: map[dirent]bool{}}
}

// refuse says what is wrong with one entry of an archive.
func (t *tree) refuse(file, reason, format string, args ...any) *app.Error {
	return app.Errorf(app.InvalidInput, reason, "the root file system of image %s cannot be taken: %.300q %s", t.image, file, fmt.Sprintf(format, args...))
}

// bound counts what an entry holds in memory.
func (t *tree) bound(file string, text int) error {
	t.entries++
	t.text += text
	if t.entries > maxEntries || t.text > maxText {
		return app.Errorf(app.TooLarge, "too-many-files", "the root file system of image %s has more than %d files, or names of more than %d bytes: that is reached at %.300q", t.image, maxEntries, maxText, file).
			Do("leave out what a machine does not need to boot, such as caches and containers, and bring it there afterwards")
	}
	return nil
}

// split cleans a name as archives spell it and gives its parts. The root itself has none.
func (t *tree) split(file string) ([]string, error) {
	if len(file) > maxPath || strings.ContainsRune(file, 0) {
		return nil, t.refuse(file, "bad-name", "is no name for a file").Do("make the archive again with tar")
	}
	var parts []string
	for _, p := range strings.Split(file, "/") {
		switch {
		case p == "" || p == ".":
		case p == "..":
			return nil, t.refuse(file, "leaves-root", "leads out of the root file system").Do("make the archive of the directory itself: tar -C DIR -cf rootfs.tar .")
		case len(p) > ext4.MaxName:
			return nil, t.refuse(file, "bad-name", "has a name of %d bytes, the limit is %d", len(p), ext4.MaxName).Do("rename the file")
		default:
			parts = append(parts, p)
		}
	}
	return parts, nil
}

// walk goes down from the root. Symbolic links on the way are followed inside the tree, the last part's only with follow;
// missing directories are made with create. Without the file it gives where it would be.
func (t *tree) walk(parts []string, follow, create bool) (at dirent, found *ext4.Inode, err error) {
	stack := []dirent{}
	dir := t.root
	for links := 0; len(parts) > 0; {
		p := parts[0]
		parts = parts[1:]
		switch p {
		case "", ".":
			continue
		case "..":
			if len(stack) > 0 {
				dir = stack[len(stack)-1].dir
				stack = stack[:len(stack)-1]
			}
			continue
		}
		next := dir.Entries[p]
		last := len(parts) == 0
		switch {
		case next != nil && next.Mode&ext4.TypeMask == ext4.Symlink && (!last || follow):
			if links++; links > maxLinks {
				return at, nil, fmt.Errorf("more than %d symbolic links lead to it", maxLinks)
			}
			if path.IsAbs(next.Target) {
				dir, stack = t.root, stack[:0]
			}
			parts = append(strings.Split(next.Target, "/"), parts...)
			if len(parts) > maxPath {
				return at, nil, fmt.Errorf("the symbolic links that lead to it are too long")
			}
			continue
		case last:
			return dirent{dir, p}, next, nil
		case next == nil && create:
			next = &ext4.Inode{Mode: ext4.Directory | 0o755, Sec: t.sec, Entries: map[string]*ext4.Inode{}}
			dir.Entries[p] = next
			t.fresh[dirent{dir, p}] = true
			if err := t.bound(p, len(p)); err != nil {
				return at, nil, err
			}
		case next == nil:
			return dirent{}, nil, nil
		case !next.IsDir():
			return at, nil, fmt.Errorf("%q on its way is no directory", p)
		}
		if create {
			t.fresh[dirent{dir, p}] = true
		}
		stack = append(stack, dirent{dir, p})
		dir = next
	}
	return dirent{}, dir, nil
}

// lookup finds a file by its absolute name, through symbolic links; nil when it is not there.
func (t *tree) lookup(name string) *ext4.Inode {
	_, i, err := t.walk(strings.Split(name, "/"), true, false)
	if err != nil {
		return nil
	}
	return i
}

// place is where a new entry goes.
func (t *tree) place(file string) (dirent, *ext4.Inode, error) {
	parts, err := t.split(file)
	if err != nil {
		return dirent{}, nil, err
	}
	at, old, err := t.walk(parts, false, true)
	if err != nil {
		if _, told := app.AsError(err); told {
			return at, nil, err
		}
		return at, nil, t.refuse(file, "bad-entry", "cannot be placed: %v", err).Do("make the archive again with tar, of a directory that holds the whole system")
	}
	return at, old, nil
}

// put sets an entry. A directory over a directory keeps what is in it.
func (t *tree) put(file string, i *ext4.Inode) error {
	at, old, err := t.place(file)
	if err != nil {
		return err
	}
	text := len(at.name) + len(i.Target) + len(i.Content)
	for name, value := range i.XAttrs {
		text += len(name) + len(value)
	}
	if err := t.bound(file, text); err != nil {
		return err
	}
	if at.dir == nil { // the root
		if !i.IsDir() {
			return t.refuse(file, "bad-entry", "is no directory").Do("make the archive again with tar")
		}
		i.Entries = t.root.Entries
		*t.root = *i
		return nil
	}
	if old != nil && old.IsDir() && i.IsDir() {
		i.Entries = old.Entries
		*old = *i
	} else {
		at.dir.Entries[at.name] = i
	}
	t.fresh[at] = true
	return nil
}

// link adds a name to a file that is there.
func (t *tree) link(file, target string) error {
	parts, err := t.split(target)
	if err != nil {
		return t.refuse(file, "leaves-root", "is a hard link to %.300q, out of the root file system", target).Do("make the archive again with tar")
	}
	_, i, err := t.walk(parts, false, false)
	switch {
	case err != nil || i == nil:
		return t.refuse(file, "bad-link", "is a hard link to %.300q, which does not come before it", target).Do("make the archive again with tar, of the whole system")
	case i.IsDir():
		return t.refuse(file, "bad-link", "is a hard link to the directory %.300q", target).Do("make the archive again with tar")
	}
	at, _, err := t.place(file)
	if err != nil {
		return err
	}
	if at.dir == nil {
		return t.refuse(file, "bad-entry", "is no directory").Do("make the archive again with tar")
	}
	if err := t.bound(file, len(at.name)); err != nil {
		return err
	}
	at.dir.Entries[at.name] = i
	t.fresh[at] = true
	return nil
}

// whiteout does what an OCI layer says by the name of an entry, and reports whether it was one. What the layer itself brings
// stays.
func (t *tree) whiteout(file string) (bool, error) {
	const mark, opaque = ".wh.", ".wh..wh..opq"
	dir, base := path.Split(strings.TrimRight(file, "/"))
	if !strings.HasPrefix(base, mark) {
		return false, nil
	}
	at, i, err := t.place(dir)
	if err != nil {
		return true, err
	}
	if at.dir == nil {
		i = t.root
	}
	if i == nil || !i.IsDir() {
		return true, nil
	}
	switch name := base[len(mark):]; {
	case base == opaque:
		for name := range i.Entries {
			t.removeOlder(dirent{i, name})
		}
	case strings.HasPrefix(base, mark+mark) || name == "":
	default:
		t.removeOlder(dirent{i, name})
	}
	return true, nil
}

// removeOlder removes what layers below brought.
func (t *tree) removeOlder(at dirent) {
	i := at.dir.Entries[at.name]
	switch {
	case i == nil:
	case !t.fresh[at]:
		delete(at.dir.Entries, at.name)
	case i.IsDir():
		for name := range i.Entries {
			t.removeOlder(dirent{i, name})
		}
	}
}
