package flat

import (
	"cmp"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/flat/internal/ext4"
)

// consoles are where an installed system that has no word of its own talks: the screen, and the serial port that is recorded.
const consoles = "console=tty0 console=ttyS0,115200n8"

// system makes a tree one that a disk can be booted from. It gives what the disk must be called.
func (t *tree) system(n names) (names, error) {
	if i := cmp.Or(t.lookup("sbin/init"), t.lookup("lib/systemd/systemd"), t.lookup("usr/lib/systemd/systemd")); i == nil || i.Mode&ext4.TypeMask != ext4.Regular {
		return n, app.Errorf(app.InvalidInput, "no-init", "the root file system of image %s holds no /sbin/init: it is that of a container, which no machine can boot", t.image).
			Do("install an init system and a kernel in it, on Debian: apt-get install systemd-sysv linux-image-amd64")
	}
	k, err := t.kernel()
	if err != nil {
		return n, err
	}
	if n, err = t.fstab(n); err != nil {
		return n, err
	}
	if err := t.loader(n, k); err != nil {
		return n, err
	}
	for _, d := range []string{"dev", "proc", "sys", "run"} {
		if err := t.directory(d, 0o755); err != nil {
			return n, err
		}
	}
	if err := t.directory("tmp", 0o1777); err != nil {
		return n, err
	}
	// Empty, not missing: each machine makes its own on its first boot, and that boot counts as the first.
	if err := t.file("etc/machine-id", "", 0o444); err != nil {
		return n, err
	}
	delete(t.root.Entries, ".dockerenv") // systemd would take the machine for a container
	return n, nil
}

// directory makes a directory where none is.
func (t *tree) directory(name string, mode uint16) error {
	if i := t.lookup(name); i != nil && i.IsDir() {
		return nil
	}
	return t.put(name, &ext4.Inode{Mode: ext4.Directory | mode, Sec: t.sec, Entries: map[string]*ext4.Inode{}})
}

// file sets the content of a file; a symbolic link there is followed.
func (t *tree) file(name, text string, mode uint16) error {
	i := &ext4.Inode{Mode: ext4.Regular | mode, Sec: t.sec, Content: []byte(text)}
	at, old, err := t.walk(strings.Split(name, "/"), true, true)
	if err != nil || at.dir == nil || old != nil && old.IsDir() {
		return t.refuse(name, "bad-entry", "is no file, and a machine that boots needs it").Do("remove it from the root file system")
	}
	if old != nil {
		i.Mode, i.UID, i.GID, i.XAttrs = ext4.Regular|old.Mode&0o7777, old.UID, old.GID, old.XAttrs
	}
	at.dir.Entries[at.name] = i
	return nil
}

// content gives the text of a file that was kept.
func (t *tree) content(name string) (string, bool) {
	i := t.lookup(name)
	if i == nil || i.Mode&ext4.TypeMask != ext4.Regular {
		return "", false
	}
	return string(i.Content), i.Content != nil || i.Size == 0
}

// kernel is what the loader starts: absolute names, and what uname -r will say.
type kernel struct {
	image, initrd, version string
}

// pairs are the names by which distributions keep a kernel and its initial file system in /boot; * is the version.
var pairs = []struct{ image, initrd string }{
	{"vmlinuz-*", "initrd.img-*"}, // Debian, Ubuntu
	{"vmlinuz-*", "initramfs-*.img"},
	{"vmlinuz-*", "initrd-*"}, // SUSE
	{"vmlinuz-*", "initramfs-*"},
	{"vmlinuz-*", "initramfs-*-fallback.img"},
}

// links are the names that follow a distribution's newest kernel.
var links = []struct{ image, initrd string }{
	{"vmlinuz", "initrd.img"}, {"boot/vmlinuz", "boot/initrd.img"}, {"boot/vmlinuz", "boot/initrd"}, {"boot/vmlinuz-linux", "boot/initramfs-linux.img"},
}

// safeName keeps what would mean something else in a grub.cfg out of it.
var safeName = regexp.MustCompile(`^[A-Za-z0-9._+~-]+$`)

// kernel finds the kernel to boot: the one that the distribution's links lead to, else the newest.
func (t *tree) kernel() (kernel, error) {
	for _, l := range links {
		if t.regular(l.image) && t.regular(l.initrd) {
			return kernel{"/" + l.image, "/" + l.initrd, t.versionOf(l.image)}, nil
		}
	}
	var all []kernel
	lonely := ""
	if boot := t.lookup("boot"); boot != nil && boot.IsDir() {
		for name := range boot.Entries {
			version, ok := strings.CutPrefix(name, "vmlinuz-")
			if !ok || !safeName.MatchString(name) || !t.regular("boot/"+name) {
				continue
			}
			initrd := t.initrd(version)
			if initrd == "" {
				lonely = name
				continue
			}
			all = append(all, kernel{"/boot/" + name, initrd, version})
		}
	}
	if modules := t.lookup("usr/lib/modules"); modules != nil && modules.IsDir() {
		for version := range modules.Entries {
			dir := "usr/lib/modules/" + version
			if safeName.MatchString(version) && t.regular(dir+"/vmlinuz") && t.regular(dir+"/initramfs.img") {
				all = append(all, kernel{"/" + dir + "/vmlinuz", "/" + dir + "/initramfs.img", version})
			}
		}
	}
	if len(all) > 0 {
		return slices.MaxFunc(all, func(a, b kernel) int {
			return cmp.Or(compareVersions(a.version, b.version), strings.Compare(a.image, b.image))
		}), nil
	}
	if lonely != "" {
		return kernel{}, app.Errorf(app.InvalidInput, "no-initrd", "the root file system of image %s holds the kernel /boot/%s without its initial file system, so it would not find its root", t.image, lonely).
			Do("make one in it, on Debian: apt-get install initramfs-tools && update-initramfs -c -k all")
	}
	return kernel{}, app.Errorf(app.InvalidInput, "no-kernel", "the root file system of image %s holds no kernel with an initial file system in /boot", t.image).
		Do("install one in it, on Debian: apt-get install linux-image-amd64 initramfs-tools")
}

func (t *tree) regular(name string) bool {
	i := t.lookup(name)
	return i != nil && i.Mode&ext4.TypeMask == ext4.Regular && (i.Size > 0 || len(i.Content) > 0)
}

func (t *tree) initrd(version string) string {
	for _, p := range pairs {
		if name := "boot/" + strings.Replace(p.initrd, "*", version, 1); t.regular(name) {
			return "/" + name
		}
	}
	return ""
}

// versionOf tells a kernel's version by the name that a link leads to.
func (t *tree) versionOf(name string) string {
	_, i, err := t.walk(strings.Split(name, "/"), false, false)
	if err != nil || i == nil || i.Target == "" {
		return ""
	}
	version := strings.TrimPrefix(path.Base(i.Target), "vmlinuz-")
	if !safeName.MatchString(version) {
		return ""
	}
	return version
}

// compareVersions compares numbers as numbers: 6.10 is newer than 6.9.
func compareVersions(a, b string) int {
	number := regexp.MustCompile(`[0-9]+|[^0-9]+`)
	x, y := number.FindAllString(a, -1), number.FindAllString(b, -1)
	for k := range min(len(x), len(y)) {
		m, e1 := strconv.ParseUint(x[k], 10, 64)
		n, e2 := strconv.ParseUint(y[k], 10, 64)
		c := strings.Compare(x[k], y[k])
		if e1 == nil && e2 == nil {
			c = cmp.Compare(m, n)
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(x), len(y))
}

// loader writes the boot configuration, unless the one that is there starts this root.
func (t *tree) loader(n names, k kernel) error {
	const name = "boot/grub/grub.cfg"
	if text, ok := t.content(name); ok && starts(text, n) {
		return nil
	}
	title := strings.TrimSpace("Linux " + k.version)
	return t.file(name, fmt.Sprintf(`# Written when this root file system was imported as an image. grub-mkconfig, where the system has it, writes a new one.
serial --unit=0 --speed=115200
terminal_input console serial
terminal_output console serial
set default=0
set timeout=1

menuentry '%s' {
	search --no-floppy --fs-uuid --set=root %s
	linux %s root=UUID=%s ro %s
	initrd %s
}
`, title, n.root, k.image, n.root, consoles, k.initrd), 0o644)
}

// starts reports whether a grub.cfg has an entry for this root.
func starts(text string, n names) bool {
	for line := range strings.Lines(text) {
		f := strings.Fields(line)
		if len(f) > 2 && strings.HasPrefix(f[0], "linux") && (slices.Contains(f, "root=UUID="+n.root) || n.label != defaultLabel && slices.Contains(f, "root=LABEL="+n.label)) {
			return true
		}
	}
	return false
}
