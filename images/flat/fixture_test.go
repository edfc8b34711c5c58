package flat

import (
	"archive/tar"
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// file is one entry of an archive that a test makes.
type file struct {
	tar.Header
	text string
}

func reg(name, text string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeReg, Mode: 0o644, ModTime: time.Unix(1_600_000_000, 0)}, text}
}

func folder(name string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeDir, Mode: 0o755, ModTime: time.Unix(1_600_000_000, 0)}, ""}
}

func symlink(name, to string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeSymlink, Linkname: to, Mode: 0o777}, ""}
}

func hardlink(name, to string) file {
	return file{tar.Header{Name: name, Typeflag: tar.TypeLink, Linkname: to}, ""}
}

// system is the least that can be booted, and more.
func system(more ...file) []file {
	return append([]file{
		folder("./"), folder("./usr/"), folder("./usr/sbin/"), symlink("./sbin", "usr/sbin"), reg("./usr/sbin/init", "#!/bin/true\n"), folder("./etc/"),
		folder("./boot/"), reg("./boot/vmlinuz-6.1.0-9-amd64", "old kernel"), reg("./boot/initrd.img-6.1.0-9-amd64", "old initrd"),
		reg("./boot/vmlinuz-6.1.0-10-amd64", "kernel"), reg("./boot/initrd.img-6.1.0-10-amd64", "initrd"),
	}, more...)
}

// pack makes an archive.
func pack(t testing.TB, files []file) []byte {
	t.Helper()
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for _, f := range files {
		if f.Typeflag == tar.TypeReg {
			f.Size = int64(len(f.text))
		}
		if err := w.WriteHeader(&f.Header); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, f.text); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// fakeLoaders look like loaders from afar.
func fakeLoaders() Loaders {
	l := Loaders{Boot: bytes.Repeat([]byte{0xb0}, sector), Core: bytes.Repeat([]byte{0xc0}, 9000), EFI: append([]byte("MZ"), make([]byte, 998)...)}
	l.Boot[510], l.Boot[511] = 0x55, 0xaa
	l.EFI[60] = 64
	copy(l.EFI[64:], "PE\x00\x00\x64\x86")
	return l
}

// build makes a disk of an archive, as an import does.
func build(t testing.TB, archive []byte, change func(*Config)) (*Disk, error) {
	t.Helper()
	s, err := Open(t.Context(), "web", bytes.NewReader(archive), int64(len(archive)))
	if err != nil {
		return nil, err
	}
	sum := sha256.Sum256(archive)
	cfg := Config{Image: "web", Layers: s.Layers, Whiteouts: s.Whiteouts, Seed: sum[:], Delivered: int64(len(archive)), MaxDisk: 1 << 40, Free: 1, Loaders: fakeLoaders()}
	if change != nil {
		change(&cfg)
	}
	return New(t.Context(), cfg)
}

// write puts a disk into a sparse file, as package chunk would read it.
func write(t testing.TB, d *Disk) string {
	t.Helper()
	defer d.Close()
	path := filepath.Join(t.TempDir(), "disk.raw")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	at := int64(0)
	for buf := make([]byte, 1<<20); ; {
		skipped, err := d.SkipHole()
		if err != nil || skipped%4096 != 0 {
			t.Fatalf("a hole of %d bytes, %v", skipped, err)
		}
		at += skipped
		n, err := io.ReadFull(d, buf)
		if _, werr := f.WriteAt(buf[:n], at); werr != nil {
			t.Fatal(werr)
		}
		at += int64(n)
		if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if at != d.Size() {
		t.Fatalf("the disk gave %d bytes, and has %d", at, d.Size())
	}
	if err := f.Truncate(at); err != nil {
		t.Fatal(err)
	}
	return path
}

// root names the root file system in a disk, for the tools of e2fsprogs.
func root(path string) string { return path + "?offset=69206016" }

// check has foreign programs look at a disk.
func check(t testing.TB, path string) {
	t.Helper()
	esp := filepath.Join(t.TempDir(), "esp")
	for _, c := range [][]string{
		{"e2fsck", "-fn", root(path)}, {"sfdisk", "--verify", "--no-tell-kernel", path}, {"sgdisk", "--verify", path},
		{"dd", "if=" + path, "of=" + esp, "bs=1M", "skip=2", "count=64", "status=none"}, {"fsck.vfat", "-n", esp},
	} {
		tool, err := exec.LookPath(c[0])
		if err != nil {
			t.Logf("left out: %v (install e2fsprogs, fdisk, gdisk and dosfstools)", err)
			continue
		}
		out, err := exec.Command(tool, c[1:]...).CombinedOutput()
		if err != nil || c[0] == "sgdisk" && !bytes.Contains(out, []byte("No problems found")) {
			t.Errorf("%s: %v\n%s", strings.Join(c, " "), err, out)
		}
	}
}

// cat gives a file of the root.
func cat(t testing.TB, path, name string) string {
	t.Helper()
	out, err := exec.Command("debugfs", "-R", "cat "+name, root(path)).Output()
	if err != nil {
		t.Skipf("left out: %v (install e2fsprogs)", err)
	}
	return string(out)
}

// reason of an error that a person can act on.
func reason(t testing.TB, err error) string {
	t.Helper()
	e, ok := app.AsError(err)
	if !ok {
		t.Errorf("%v is no error for a person", err)
		return ""
	}
	if e.WayOut == "" {
		t.Errorf("%v names no way out", err)
	}
	return e.Reason
}

var le = binary.LittleEndian
