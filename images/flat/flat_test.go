package flat

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/diskfs/go-diskfs"
	"github.com/diskfs/go-diskfs/partition/gpt"
)

// TestDisk makes a disk and has other programs than this one look at it.
func TestDisk(t *testing.T) {
	archive := pack(t, system(
		file{tar.Header{Name: "./usr/bin/ping", Typeflag: tar.TypeReg, Mode: 0o755, Uid: 12, Gid: 34, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01\x00\x00\x02\x00 \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00", "SCHILY.xattr.com.apple.provenance": "x"}}, "ELF"},
		hardlink("./usr/bin/ping6", "./usr/bin/ping"), reg("./etc/machine-id", "11112222333344445555666677778888\n"), reg("./etc/hostname", "web\n"),
		reg("./etc/fstab", "# UNCONFIGURED FSTAB FOR BASE SYSTEM\n"), reg("./.dockerenv", ""), reg("./big", strings.Repeat("0123456789abcdef", 100_000)),
		file{tar.Header{Name: "./dev/console", Typeflag: tar.TypeChar, Mode: 0o600, Devmajor: 5, Devminor: 1}, ""},
	))
	d, err := build(t, archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	path := write(t, d)
	check(t, path)
	for name, want := range map[string]string{
		"/etc/machine-id": "", "/etc/hostname": "web\n", "/usr/bin/ping6": "ELF", "/sbin/init": "#!/bin/true\n", "/big": strings.Repeat("0123456789abcdef", 100_000), "/.dockerenv": "",
	} {
		if got := cat(t, path, name); got != want {
			t.Errorf("%s holds %.100q, want %.100q", name, got, want)
		}
	}
	grub, fstab := cat(t, path, "/boot/grub/grub.cfg"), cat(t, path, "/etc/fstab")
	if !strings.Contains(grub, "linux /boot/vmlinuz-6.1.0-10-amd64 root=UUID=") || !strings.Contains(grub, "initrd /boot/initrd.img-6.1.0-10-amd64") {
		t.Errorf("grub.cfg: %s", grub)
	}
	if !strings.HasPrefix(fstab, "# UNCONFIGURED") || !strings.Contains(fstab, " / ext4 ") || !strings.Contains(fstab, "/boot/efi vfat") {
		t.Errorf("fstab: %s", fstab)
	}
	checkTable(t, path)

	again, err := build(t, archive, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(path)
	if b, _ := os.ReadFile(write(t, again)); !bytes.Equal(a, b) {
		t.Error("the same archive gave two disks")
	}
}

// checkTable reads the table and the EFI system partition with another library.
func checkTable(t *testing.T, path string) {
	t.Helper()
	d, err := diskfs.Open(path, diskfs.WithOpenMode(diskfs.ReadOnly))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	table, err := d.GetPartitionTable()
	if err != nil {
		t.Fatal(err)
	}
	g, ok := table.(*gpt.Table)
	if !ok || g.Partitions[0].Type != gpt.BIOSBoot || g.Partitions[1].Type != gpt.EFISystemPartition || g.Partitions[2].Name != "root" {
		t.Fatalf("%+v", table)
	}
	fs, err := d.GetFilesystem(2)
	if err != nil {
		t.Fatal(err)
	}
	f, err := fs.OpenFile("/EFI/BOOT/BOOTX64.EFI", os.O_RDONLY)
	if err != nil {
		t.Fatal(err)
	}
	if b, err := io.ReadAll(f); err != nil || !bytes.HasPrefix(b, fakeLoaders().EFI) {
		t.Errorf("%d bytes of a loader, %v", len(b), err)
	}
}

// TestNames keeps what the system itself calls its root, and makes up what it does not.
func TestNames(t *testing.T) {
	const own = "0f0e0d0c-1111-4222-8333-444455556666"
	grub := "menuentry x {\n\tlinux /boot/vmlinuz root=UUID=" + own + " ro\n}\n"
	for name, tc := range map[string]struct {
		files     []file
		fstab     string // a part of it
		grub      string
		wantUUID  string
		wantLabel string
	}{
		"own UUID":     {[]file{reg("etc/fstab", "UUID="+own+" / ext4 defaults 0 1\nUUID=AB12-CD34 /boot/efi vfat umask=0077 0 1"), reg("boot/grub/grub.cfg", grub)}, "UUID=AB12-CD34 /boot/efi vfat umask=0077 0 1\n", grub, own, "root"},
		"other loader": {[]file{reg("etc/fstab", "UUID="+own+" / ext4 defaults 0 1\n"), reg("boot/grub/grub.cfg", "linux /vmlinuz root=/dev/sda1\n")}, own, "Written when", own, "root"},
		"own label":    {[]file{reg("etc/fstab", "LABEL=cloudimg-rootfs / ext4 defaults 0 1\n")}, "LABEL=cloudimg-rootfs / ext4", "Written when", "", "cloudimg-rootfs"},
		"device":       {[]file{reg("etc/fstab", "/dev/sda1 / ext4 defaults 0 1\n")}, "UUID=", "Written when", "", "root"},
		"another type": {[]file{reg("etc/fstab", "UUID="+own+" / xfs defaults 0 1\n")}, "UUID=" + own + " / ext4 errors=remount-ro", "Written when", own, "root"},
		"harmless":     {[]file{reg("etc/fstab", "tmpfs /tmp tmpfs size=1G 0 0\nUUID="+own+" /srv ext4 nofail 0 2\nnas:/home /home nfs defaults 0 0\n/swapfile none swap sw 0 0\n")}, "nas:/home", "Written when", "", "root"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := build(t, pack(t, system(tc.files...)), nil)
			if err != nil {
				t.Fatal(err)
			}
			path := write(t, d)
			check(t, path)
			if got := cat(t, path, "/etc/fstab"); !strings.Contains(got, tc.fstab) {
				t.Errorf("fstab: %s", got)
			}
			if got := cat(t, path, "/boot/grub/grub.cfg"); !strings.Contains(got, tc.grub) || tc.wantUUID != "" && !strings.Contains(got, tc.wantUUID) {
				t.Errorf("grub.cfg: %s", got)
			}
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			super := make([]byte, 1024)
			if _, err := f.ReadAt(super, rootStart*sector+1024); err != nil {
				t.Fatal(err)
			}
			if label := string(bytes.TrimRight(super[0x78:0x88], "\x00")); label != tc.wantLabel {
				t.Errorf("label %q", label)
			}
			if got := fmt.Sprintf("%x-%x-%x-%x-%x", super[0x68:0x6c], super[0x6c:0x6e], super[0x6e:0x70], super[0x70:0x72], super[0x72:0x78]); tc.wantUUID != "" && got != tc.wantUUID {
				t.Errorf("UUID %s", got)
			}
		})
	}
}

// TestKernels finds the kernel by every distribution's names.
func TestKernels(t *testing.T) {
	base := []file{reg("usr/sbin/init", "x"), symlink("sbin", "usr/sbin"), folder("etc")}
	for name, tc := range map[string]struct {
		files []file
		want  kernel
	}{
		"Debian's links":    {[]file{reg("boot/vmlinuz-6.1", "k"), reg("boot/initrd.img-6.1", "i"), symlink("vmlinuz", "boot/vmlinuz-6.1"), symlink("initrd.img", "boot/initrd.img-6.1")}, kernel{"/vmlinuz", "/initrd.img", "6.1"}},
		"a dangling link":   {[]file{reg("boot/vmlinuz-6.1", "k"), reg("boot/initrd.img-6.1", "i"), symlink("vmlinuz", "boot/vmlinuz-6.2"), symlink("initrd.img", "boot/initrd.img-6.2")}, kernel{"/boot/vmlinuz-6.1", "/boot/initrd.img-6.1", "6.1"}},
		"Red Hat":           {[]file{reg("boot/vmlinuz-5.14.0-503.el9.x86_64", "k"), reg("boot/initramfs-5.14.0-503.el9.x86_64.img", "i")}, kernel{"/boot/vmlinuz-5.14.0-503.el9.x86_64", "/boot/initramfs-5.14.0-503.el9.x86_64.img", "5.14.0-503.el9.x86_64"}},
		"SUSE":              {[]file{reg("boot/vmlinuz-6.4-default", "k"), reg("boot/initrd-6.4-default", "i")}, kernel{"/boot/vmlinuz-6.4-default", "/boot/initrd-6.4-default", "6.4-default"}},
		"Arch":              {[]file{reg("boot/vmlinuz-linux", "k"), reg("boot/initramfs-linux.img", "i")}, kernel{"/boot/vmlinuz-linux", "/boot/initramfs-linux.img", ""}},
		"bootc":             {[]file{reg("usr/lib/modules/6.12.1/vmlinuz", "k"), reg("usr/lib/modules/6.12.1/initramfs.img", "i")}, kernel{"/usr/lib/modules/6.12.1/vmlinuz", "/usr/lib/modules/6.12.1/initramfs.img", "6.12.1"}},
		"the newest":        {[]file{reg("boot/vmlinuz-6.9.0", "k"), reg("boot/initrd.img-6.9.0", "i"), reg("boot/vmlinuz-6.10.0", "k"), reg("boot/initrd.img-6.10.0", "i")}, kernel{"/boot/vmlinuz-6.10.0", "/boot/initrd.img-6.10.0", "6.10.0"}},
		"one without":       {[]file{reg("boot/vmlinuz-6.9.0", "k"), reg("boot/initrd.img-6.9.0", "i"), reg("boot/vmlinuz-6.10.0", "k")}, kernel{"/boot/vmlinuz-6.9.0", "/boot/initrd.img-6.9.0", "6.9.0"}},
		"a hostile version": {[]file{reg("boot/vmlinuz-6.9.0", "k"), reg("boot/initrd.img-6.9.0", "i"), reg("boot/vmlinuz-9'\n}evil", "k"), reg("boot/initrd.img-9'\n}evil", "i")}, kernel{"/boot/vmlinuz-6.9.0", "/boot/initrd.img-6.9.0", "6.9.0"}},
	} {
		r := reader{tree: newTree("web", madeAt), ctx: t.Context(), limits: limits{1 << 30, 1 << 30, ""}}
		b := pack(t, append(base, tc.files...))
		if err := r.layer(0, Layer{Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }}); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, err := r.kernel(); err != nil || got != tc.want {
			t.Errorf("%s: %+v, %v", name, got, err)
		}
	}
}

// TestRefuses names what is wrong, the file, and the way out, and takes nothing.
func TestRefuses(t *testing.T) {
	const mount = "UUID=0f0e0d0c-1111-4222-8333-444455556666"
	loop := []file{symlink("a", "b"), symlink("b", "a")}
	for name, tc := range map[string]struct {
		files  []file
		reason string
		part   string // of the message
	}{
		"traversal":            {system(reg("../etc/passwd", "x")), "leaves-root", "../etc/passwd"},
		"traversal inside":     {system(reg("./etc/../../x", "x")), "leaves-root", "/etc/../../x"},
		"hard link out":        {system(hardlink("./x", "../../etc/shadow")), "leaves-root", "./x"},
		"hard link to nothing": {system(hardlink("./x", "./none")), "bad-link", "./none"},
		"hard link to a dir":   {system(hardlink("./x", "./etc")), "bad-link", "./etc"},
		"file as directory":    {system(reg("./usr/sbin/init/x", "x")), "bad-entry", "init"},
		"links in a ring":      {system(append(loop, reg("./a/x", "x"))...), "bad-entry", "./a/x"},
		"long name":            {system(reg("./"+strings.Repeat("n", 256), "x")), "bad-name", "nnn"},
		"long path":            {system(reg("./"+strings.Repeat("n/", 3000)+"x", "x")), "bad-name", "n/n"},
		"strange device":       {system(file{tar.Header{Name: "./d", Typeflag: tar.TypeBlock, Devmajor: 1 << 20}, ""}), "bad-device", "./d"},
		"strange type":         {system(file{tar.Header{Name: "./d", Typeflag: 'V'}, ""}), "bad-entry", "./d"},
		"strange owner":        {system(file{tar.Header{Name: "./d", Typeflag: tar.TypeReg, Uid: 1 << 40}, ""}), "bad-owner", "./d"},
		"huge attribute":       {system(file{tar.Header{Name: "./d", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.x": strings.Repeat("x", 5000)}}, ""}), "bad-attributes", "./d"},
		"root that is a file":  {system(file{tar.Header{Name: "./", Typeflag: tar.TypeSymlink, Linkname: "/etc"}, ""}), "bad-entry", "./"},
		"lost+found":           {system(reg("./lost+found", "")), "bad-entry", "lost+found"},
		"a container":          {[]file{reg("./bin/sh", "x")}, "no-init", "/sbin/init"},
		"no kernel":            {[]file{reg("./sbin/init", "x")}, "no-kernel", "/boot"},
		"no initrd":            {[]file{reg("./sbin/init", "x"), reg("./boot/vmlinuz-6.1", "x")}, "no-initrd", "vmlinuz-6.1"},
		"a disk it lacks":      {system(reg("./etc/fstab", mount+" /home ext4 defaults 0 2\n")), "fstab-needs-disk", "/home"},
		"a swap it lacks":      {system(reg("./etc/fstab", mount+" none swap sw 0 0\n")), "fstab-needs-disk", "none"},
		"fstab that is a dir":  {system(folder("./etc/fstab")), "bad-fstab", "etc/fstab"},
		"etc that is a file":   {[]file{reg("./sbin/init", "x"), reg("./boot/vmlinuz-6.1", "x"), reg("./boot/initrd.img-6.1", "x"), reg("./etc", "x")}, "bad-entry", "etc/"},
		"a claim of its size":  {system(file{tar.Header{Name: "./d", Typeflag: tar.TypeReg, Size: 0}, ""}), "", ""},
	} {
		d, err := build(t, pack(t, tc.files), nil)
		if tc.reason == "" {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			continue
		}
		if err == nil {
			d.Close()
			t.Errorf("%s was taken", name)
			continue
		}
		if got := reason(t, err); got != tc.reason || !strings.Contains(err.Error(), tc.part) || !strings.Contains(err.Error(), "web") {
			t.Errorf("%s: %s: %v", name, got, err)
		}
	}
}

// TestDamaged cuts archives, and puts bytes behind them.
func TestDamaged(t *testing.T) {
	whole := pack(t, system(reg("./last", strings.Repeat("\x00", 2048))))
	end := len(whole) - 1024
	for name, tc := range map[string]struct {
		b      []byte
		reason string
	}{
		"without the end mark": {whole[:end], "archive-truncated"}, "in a header": {whole[:end-3000], "archive-truncated"}, "in a file": {whole[:end-1000], "archive-truncated"},
		"a flipped header": {append(append(bytes.Clone(whole[:512+100]), 0xff), whole[613:]...), "archive-damaged"}, "two archives": {append(bytes.Clone(whole), whole...), "archive-damaged"},
		"padded":    {append(bytes.Clone(whole), make([]byte, 10240)...), ""},
		"half mark": {whole[:len(whole)-512], ""},
	} {
		d, err := build(t, tc.b, nil)
		if err == nil {
			d.Close()
		}
		if got := ""; err != nil {
			if got = reason(t, err); got != tc.reason {
				t.Errorf("%s: %v", name, err)
			}
		} else if tc.reason != "" {
			t.Errorf("%s was taken", name)
		}
	}
}

// rawEntry makes an entry that tar.Writer would not.
func rawEntry(name string, kind byte, text string) []byte {
	h := make([]byte, 512)
	copy(h, name)
	copy(h[100:], "0000644\x000000000\x000000000\x00")
	copy(h[124:], fmt.Sprintf("%011o\x0000000000000\x00", len(text)))
	h[156] = kind
	copy(h[257:], "ustar\x0000")
	copy(h[148:], "        ")
	sum := 0
	for _, b := range h {
		sum += int(b)
	}
	copy(h[148:], fmt.Sprintf("%06o\x00 ", sum))
	return append(append(h, text...), make([]byte, (512-len(text)%512)%512)...)
}

// TestBombs claim more than was delivered.
func TestBombs(t *testing.T) {
	sparse := func(size string) []byte {
		records := ""
		for _, r := range []string{"GNU.sparse.major=1", "GNU.sparse.minor=0", "GNU.sparse.name=./bomb", "GNU.sparse.realsize=" + size} {
			n := len(r) + 4 // two digits, a blank and a line's end
			records += fmt.Sprintf("%d %s\n", n, r)
		}
		return slices.Concat(rawEntry("x", 'x', records), rawEntry("bomb", '0', "1\n0\n0\n"+strings.Repeat("\x00", 506)), pack(t, system()))
	}
	for name, tc := range map[string]struct {
		b      []byte
		reason string
	}{
		"sparse beyond all":   {sparse("9000000000000000000"), "file-too-large"},
		"sparse beyond ratio": {sparse("60000000000"), "image-too-large"},
	} {
		if _, err := build(t, tc.b, nil); err == nil || reason(t, err) != tc.reason {
			t.Errorf("%s: %v", name, err)
		}
	}
	small := func(c *Config) { c.MaxDisk = 100 << 20 }
	if _, err := build(t, pack(t, system()), small); err == nil || reason(t, err) != "image-too-large" {
		t.Errorf("a small limit: %v", err)
	}
	many := newTree("web", 0)
	many.entries = maxEntries
	if err := many.put("./one-more", newTree("", 0).root); err == nil || reason(t, err) != "too-many-files" {
		t.Errorf("too many files: %v", err)
	}
}

// again gives the same bytes for ever.
type again struct {
	b  []byte
	at int
}

func (a *again) Read(p []byte) (int, error) {
	n := copy(p, a.b[a.at:])
	a.at = (a.at + n) % len(a.b)
	return n, nil
}

// TestEndless ends layers that a few delivered bytes make endless, though no file in them is large.
func TestEndless(t *testing.T) {
	global := pack(t, []file{{tar.Header{Name: "g", Typeflag: tar.TypeXGlobalHeader, PAXRecords: map[string]string{"comment": "x"}}, ""}})
	whole := pack(t, system())
	for name, layers := range map[string][]io.Reader{
		"zeros after the end":        {io.MultiReader(bytes.NewReader(whole), &again{b: make([]byte, 512)})},
		"entries that say nothing":   {&again{b: global[:len(global)-1024]}},
		"the same, after much":       {bytes.NewReader(slices.Concat(whole, make([]byte, 1<<20-len(whole)))), io.MultiReader(bytes.NewReader(whole), &again{b: make([]byte, 512)})},
		"whiteouts of what is there": {&again{b: pack(t, []file{reg("etc/.wh.x", "")})[:512]}},
	} {
		r := reader{tree: newTree("web", 0), ctx: t.Context(), whiteout: true, limits: limits{content: 1 << 20, bytes: 1 << 20}}
		var err error
		for n, l := range layers {
			if err = r.layer(n, Layer{Open: func() (io.ReadCloser, error) { return io.NopCloser(io.LimitReader(l, 64<<20)), nil }}); err != nil {
				break
			}
		}
		if err == nil || reason(t, err) != "image-too-large" || r.bytes > 2<<20 {
			t.Errorf("%s: %d bytes were read: %v", name, r.bytes, err)
		}
	}
}

// TestChanged finds that a layer is another one when it is read again.
func TestChanged(t *testing.T) {
	a, b := pack(t, system(reg("./x", "short"))), pack(t, system(reg("./x", "longer by far")))
	reads := 0
	d, err := New(t.Context(), Config{Image: "web", Seed: []byte{1}, MaxDisk: 1 << 40, Loaders: fakeLoaders(), Layers: []Layer{{Open: func() (io.ReadCloser, error) {
		if reads++; reads > 1 {
			return io.NopCloser(bytes.NewReader(b)), nil
		}
		return io.NopCloser(bytes.NewReader(a)), nil
	}}}})
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	if _, err := io.Copy(io.Discard, d); !errors.Is(err, errChanged) {
		t.Errorf("%v", err)
	}
}

// TestCancelled ends with its context.
func TestCancelled(t *testing.T) {
	d, err := build(t, pack(t, system()), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	ctx, cancel := context.WithCancelCause(t.Context())
	d.feed.ctx = ctx
	stopped := errors.New("stopped")
	cancel(stopped)
	if _, err := io.Copy(io.Discard, d); !errors.Is(err, stopped) {
		t.Errorf("%v", err)
	}
	ctx2, cancel2 := context.WithTimeout(t.Context(), -time.Second)
	defer cancel2()
	b := pack(t, system())
	if _, err := Open(ctx2, "web", bytes.NewReader(b), int64(len(b))); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}
