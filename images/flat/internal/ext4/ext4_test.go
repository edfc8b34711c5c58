package ext4

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

var testOptions = Options{UUID: [16]byte{0xbc, 1, 2, 3, 4, 5, 0x86, 7, 0x88}, HashSeed: [16]byte{9, 8, 7}, Label: "root", Sec: 1_700_000_000}

// write makes the file system in a file, as a stream of regions.
func write(t *testing.T, fs *FS, content map[*Inode]string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "fs")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(fs.Size()); err != nil {
		t.Fatal(err)
	}
	last := int64(0)
	for _, r := range fs.Regions() {
		if r.Off < last || r.Len <= 0 || r.Off+r.Len > fs.Size() {
			t.Fatalf("a region at %d of %d bytes follows one that ends at %d, of %d", r.Off, r.Len, last, fs.Size())
		}
		last = r.Off + r.Len
		var b []byte
		if r.File != nil {
			b = []byte(content[r.File]) // of files of zeros: nothing
		} else if b = r.Bytes(); int64(len(b)) > r.Len {
			t.Fatalf("a region of %d bytes gives %d", r.Len, len(b))
		}
		if _, err := f.WriteAt(b, r.Off); err != nil {
			t.Fatal(err)
		}
	}
	return path
}

// fsck runs the file system's own checker.
func fsck(t *testing.T, path string) {
	t.Helper()
	tool, err := exec.LookPath("e2fsck")
	if err != nil {
		t.Skipf("left out: %v (install e2fsprogs)", err)
	}
	if out, err := exec.Command(tool, "-fn", path).CombinedOutput(); err != nil {
		t.Fatalf("e2fsck: %v\n%s", err, out)
	}
}

func debugfs(t *testing.T, path, request string) string {
	t.Helper()
	out, err := exec.Command("debugfs", "-R", request, path).Output()
	if err != nil {
		t.Fatalf("debugfs %s: %v", request, err)
	}
	return string(out)
}

func dir(entries map[string]*Inode) *Inode {
	return &Inode{Mode: Directory | 0o755, Sec: 1_600_000_000, Entries: entries}
}

// variety is a tree with one of everything.
func variety() *Inode {
	acl := []byte{2, 0, 0, 0, 1, 0, 6, 0, 0xff, 0xff, 0xff, 0xff, 2, 0, 4, 0, 0xe8, 3, 0, 0, 4, 0, 4, 0, 0xff, 0xff, 0xff, 0xff,
		0x10, 0, 4, 0, 0xff, 0xff, 0xff, 0xff, 0x20, 0, 4, 0, 0xff, 0xff, 0xff, 0xff}
	linked := &Inode{Mode: Regular | 0o644, Content: []byte("linked\n"), Order: 3}
	many := map[string]*Inode{}
	for n := range 3000 {
		many[fmt.Sprintf("a-name-that-fills-the-directory-%d", n)] = &Inode{Mode: Regular | 0o600, Content: []byte{}, Order: int64(100 + n)}
	}
	return dir(map[string]*Inode{
		"etc": dir(map[string]*Inode{
			"passwd": {Mode: Regular | 0o4755, UID: 70000, GID: 1 << 20, Sec: 5_000_000_000, Nsec: 999_999_999, Content: []byte("root\n"), Order: 1},
			"old":    {Mode: Regular | 0o644, Sec: -1, Content: []byte("1969\n"), Order: 2},
			"one":    linked, "two": linked,
		}),
		"short":  {Mode: Symlink | 0o777, Target: "etc/passwd"},
		"long":   {Mode: Symlink | 0o777, Target: strings.Repeat("a/", 100)},
		"null":   {Mode: CharDevice | 0o666, Major: 1, Minor: 3},
		"nvme":   {Mode: BlockDevice | 0o660, Major: 259, Minor: 300},
		"pipe":   {Mode: FIFO | 0o600},
		"socket": {Mode: Socket | 0o600},
		"ping": {Mode: Regular | 0o755, Content: []byte("\x7fELF"), Order: 4,
			XAttrs: map[string][]byte{"security.capability": {1, 0, 0, 2, 0, 0x20, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}}},
		"acl":      {Mode: Regular | 0o640, Content: []byte("x"), Order: 5, XAttrs: map[string][]byte{"system.posix_acl_access": acl, "user.a": []byte("b")}},
		"labels":   {Mode: Regular | 0o640, Content: []byte("x"), Order: 6, XAttrs: map[string][]byte{"user.long": bytes.Repeat([]byte("v"), 3000), "security.selinux": []byte("system_u:object_r:etc_t:s0\x00"), "trusted.t": {}}},
		"many":     dir(many),
		"\xff\xfe": {Mode: Regular | 0o600, Content: []byte("a name that is no text"), Order: 7},
	})
}

func TestVariety(t *testing.T) {
	fs, err := Plan(variety(), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, fs, nil)
	fsck(t, path)
	for request, want := range map[string]string{
		"cat /etc/passwd": "root\n", "cat /etc/two": "linked\n", "stat /short": `Fast link dest: "etc/passwd"`, "stat /nvme": "259:300",
		"stat /null": "01:03", "stat /etc/one": "Links: 2", "stat /etc/passwd": "User: 70000   Group: 1048576", "ea_get /acl user.a": "b",
		"ea_get /labels security.selinux": "etc_t", "ls /many": "a-name-that-fills-the-directory-2999", "stat /many": "Links: 2",
		"stats": "metadata_csum",
	} {
		if out := debugfs(t, path, request); !strings.Contains(out, want) {
			t.Errorf("%s: %q is not in\n%s", request, want, out)
		}
	}
	if out := debugfs(t, path, "stat /long"); !strings.Contains(out, "EXTENTS") {
		t.Errorf("a long link: %s", out)
	}
	again, err := Plan(variety(), testOptions)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(path)
	b, _ := os.ReadFile(write(t, again, nil))
	if !bytes.Equal(a, b) {
		t.Error("equal trees gave different bytes")
	}
}

// TestLarge has a file that needs an extent tree, and more inodes than its first group has.
func TestLarge(t *testing.T) {
	root := dir(map[string]*Inode{
		"big":  {Mode: Regular | 0o600, Size: 1<<30 + 1, Order: 1}, // zeros
		"next": {Mode: Regular | 0o600, Size: 5, Order: 2},
	})
	sub := map[string]*Inode{}
	for n := range 8200 {
		sub[fmt.Sprint(n)] = dir(map[string]*Inode{})
	}
	root.Entries["dirs"] = dir(sub)
	fs, err := Plan(root, testOptions)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(root.Entries["big"].nodes); n != 1 {
		t.Errorf("%d blocks of extents", n)
	}
	path := write(t, fs, map[*Inode]string{root.Entries["next"]: "five\n"})
	fsck(t, path)
	if out := debugfs(t, path, "cat /next"); out != "five\n" {
		t.Errorf("/next holds %q", out)
	}
}

// TestFree gives the room that was asked for.
func TestFree(t *testing.T) {
	o := testOptions
	o.Free = 2 << 30
	fs, err := Plan(dir(map[string]*Inode{}), o)
	if err != nil {
		t.Fatal(err)
	}
	if fs.Size() < o.Free+journalBlocks*BlockSize || fs.Size() > o.Free*5/4 {
		t.Errorf("%d bytes with %d free", fs.Size(), o.Free)
	}
	fsck(t, write(t, fs, nil))
}

func TestPlanRefuses(t *testing.T) {
	shared := dir(map[string]*Inode{})
	for name, root := range map[string]*Inode{
		"a file as root":           {Mode: Regular},
		"a slash in a name":        dir(map[string]*Inode{"a/b": {Mode: Regular}}),
		"a name that is too long":  dir(map[string]*Inode{strings.Repeat("n", 256): {Mode: Regular}}),
		"an empty link":            dir(map[string]*Inode{"l": {Mode: Symlink}}),
		"a negative size":          dir(map[string]*Inode{"f": {Mode: Regular, Size: -1}}),
		"a size beyond the format": dir(map[string]*Inode{"f": {Mode: Regular, Size: 1 << 60}}),
		"two names of a directory": dir(map[string]*Inode{"a": shared, "b": shared}),
		"a file as lost+found":     dir(map[string]*Inode{"lost+found": {Mode: Regular}}),
		"a foreign attribute":      dir(map[string]*Inode{"f": {Mode: Regular, XAttrs: map[string][]byte{"com.apple.x": {1}}}}),
		"a huge attribute":         dir(map[string]*Inode{"f": {Mode: Regular, XAttrs: map[string][]byte{"user.x": make([]byte, 5000)}}}),
		"a damaged ACL":            dir(map[string]*Inode{"f": {Mode: Regular, XAttrs: map[string][]byte{"system.posix_acl_access": {2, 0, 0}}}}),
	} {
		if _, err := Plan(root, testOptions); err == nil {
			t.Errorf("%s was taken", name)
		}
	}
}
