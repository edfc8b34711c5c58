package boot

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Partitions of a real disk, in MiB.
const (
	espAt, espSize   = 1, 40
	rootAt, rootSize = 41, 96
	realDisk         = 144
)

// real is a disk image with a table and file systems that sfdisk and mkfs made.
type real struct {
	esp, root map[string]string // files
	behind    bool              // another partition follows the root
	fill      int               // MiB of the root that are taken
	shrunk    bool              // the root's file system ends at half of its partition
	firmware  string
}

func program(t *testing.T, stdin, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("left out: %s is not installed (packages fdisk, dosfstools, e2fsprogs, mtools)", name)
	}
	c := exec.CommandContext(t.Context(), name, args...)
	c.Stdin = strings.NewReader(stdin)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
}

// look makes the disk and looks at it.
func (d real) look(t *testing.T) (Found, error) {
	t.Helper()
	dev := t.TempDir()
	img := filepath.Join(dev, "sda")
	table := "label: gpt\nstart=1MiB, size=40MiB, type=U\nstart=41MiB, size=96MiB, type=L\n"
	if d.behind {
		table += "start=137MiB, size=4MiB, type=S\n"
	}
	if err := errors.Join(os.WriteFile(img, nil, 0o600), os.Truncate(img, realDisk<<20)); err != nil {
		t.Fatal(err)
	}
	program(t, table, "sfdisk", "-q", img)
	d.mkfs(t, img)
	k := New(Config{
		Disks: func(context.Context) ([]agentv1.Disk, error) {
			return []agentv1.Disk{{Name: "sda", Serial: "S1", Bytes: realDisk << 20, SectorSize: 512}}, nil
		},
		Log: quiet, Firmware: d.firmware, Dev: dev,
		Mount: func(source, target, _ string) (func() error, error) {
			return unpack(t, img, filepath.Base(source), target)
		},
		Room: func(string) (int64, int64, error) { return roomOf(t, img) },
	})
	return k.Look(t.Context(), agentv1.DiskTarget{Serial: "S1"})
}

// mkfs puts the file systems into the image.
func (d real) mkfs(t *testing.T, img string) {
	t.Helper()
	dir := t.TempDir()
	esp, root := filepath.Join(dir, "esp"), filepath.Join(dir, "root")
	for name, size := range map[string]int64{esp: espSize, root: rootSize} {
		if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, size<<20)); err != nil {
			t.Fatal(err)
		}
	}
	program(t, "", "mkfs.vfat", "-i", "BC01E5F0", esp)
	if len(d.esp) > 0 {
		tops, err := filepath.Glob(filepath.Join(tree(t, 0, "", "", d.esp).dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		program(t, "", "mcopy", append(append([]string{"-s", "-i", esp}, tops...), "::/")...)
	}
	at := tree(t, 0, "", "", d.root).dir
	if d.fill > 0 {
		if err := os.WriteFile(filepath.Join(at, "full"), []byte(strings.Repeat("x", d.fill<<20)), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	size := rootSize
	if d.shrunk {
		size = rootSize / 2
	}
	program(t, "", "mkfs.ext4", "-q", "-F", "-U", rootUUID, "-d", at, root, strconv.Itoa(size)+"M")
	for name, to := range map[string]int{esp: espAt, root: rootAt} {
		program(t, "", "dd", "status=none", "conv=notrunc,sparse", "bs=1M", "seek="+strconv.Itoa(to), "if="+name, "of="+img)
	}
}

// unpack takes the files out of a partition of an image: it stands for the mount, and needs no kernel that knows the file system.
func unpack(t *testing.T, img, node, target string) (func() error, error) {
	if node == "sda1" {
		program(t, "", "mcopy", "-s", "-n", "-i", img+"@@"+strconv.Itoa(espAt<<20), "::/", target)
	} else {
		program(t, "", "debugfs", "-R", "rdump / "+target, rootOf(img))
	}
	return func() error { return errors.Join(os.RemoveAll(target), os.Mkdir(target, 0o700)) }, nil
}

// rootOf names the root in an image as e2fsprogs take it.
func rootOf(img string) string { return img + "?offset=" + strconv.Itoa(rootAt<<20) }

// roomOf reads how many bytes the root has free, and in all.
func roomOf(t *testing.T, img string) (free, size int64, err error) {
	out, err := exec.CommandContext(t.Context(), "dumpe2fs", "-h", rootOf(img)).Output()
	if err != nil {
		return 0, 0, err
	}
	values := map[string]int64{}
	for line := range strings.Lines(string(out)) {
		key, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil {
			values[key] = n
		}
	}
	return values["Free blocks"] * values["Block size"], values["Block count"] * values["Block size"], nil
}

// debianFile is a file of one of Debian's packages.
func debianFile(t *testing.T, name, pkg string) string {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Skipf("left out: %s is not installed (%v)", pkg, err)
	}
	return string(b)
}

// What starts on real file systems, with the loaders and the configuration that Debian makes.
func TestLookAtRealDisks(t *testing.T) {
	const fallback = "EFI/BOOT/BOOTX64.EFI"
	mkconfig := func(t *testing.T) map[string]string {
		return map[string]string{"boot/grub/grub.cfg": systems["debian"].mkconfig(t), "boot/vmlinuz-6.1.0-50-amd64": "K", "boot/intel-uc.img": "U", "boot/amd-uc.img": "U", "boot/initrd.img-6.1.0-50-amd64": "I"}
	}
	grub := func(t *testing.T) string {
		return debianFile(t, "/usr/lib/grub/x86_64-efi/monolithic/grubx64.efi", "grub-efi-amd64-bin")
	}
	sdboot := func(t *testing.T) string {
		return debianFile(t, "/usr/lib/systemd/boot/efi/systemd-bootx64.efi", "systemd-boot-efi")
	}
	for name, c := range map[string]struct {
		make   func(t *testing.T) real
		entry  string // or
		reason string // or
		note   string
	}{
		"grub-mkconfig": {make: func(t *testing.T) real {
			return real{root: mkconfig(t), esp: map[string]string{fallback: grub(t)}}
		}, entry: "Debian GNU/Linux"},
		"grub-mkconfig, kernel gone": {make: func(t *testing.T) real {
			r := real{root: mkconfig(t), esp: map[string]string{fallback: grub(t)}}
			delete(r.root, "boot/vmlinuz-6.1.0-50-amd64")
			return r
		}, reason: "no-boot-entry"},
		"GRUB without a configuration": {make: func(t *testing.T) real {
			return real{esp: map[string]string{fallback: grub(t)}}
		}, reason: "no-boot-entry"},
		"GRUB, whose configuration is on another disk": {make: func(t *testing.T) real {
			return real{esp: map[string]string{"EFI/debian/grubx64.efi": grub(t), "EFI/debian/grub.cfg": "search.fs_uuid " + bootUUID + " root\nset prefix=($root)'/boot/grub'\nconfigfile $prefix/grub.cfg\n"}}
		}, reason: "no-boot-entry"},
		"systemd-boot with an entry": {make: func(t *testing.T) real {
			return real{esp: map[string]string{fallback: sdboot(t), "loader/entries/a.conf": "title A\nlinux /vmlinuz\noptions root=UUID=" + rootUUID + "\n", "vmlinuz": "K"}}
		}, entry: "A"},
		"systemd-boot without any": {make: func(t *testing.T) real {
			return real{esp: map[string]string{fallback: sdboot(t), "loader/loader.conf": "timeout 3\n"}}
		}, reason: "no-boot-entry"},
		"systemd-boot, kernel gone": {make: func(t *testing.T) real {
			return real{esp: map[string]string{fallback: sdboot(t), "loader/entries/a.conf": "title A\nlinux /vmlinuz\noptions root=UUID=" + rootUUID + "\n"}}
		}, reason: "no-boot-entry"},
		"systemd-boot, and what GRUB left behind": {make: func(t *testing.T) real {
			r := real{root: mkconfig(t), esp: map[string]string{fallback: sdboot(t), "EFI/debian/grubx64.efi": grub(t)}}
			delete(r.root, "boot/vmlinuz-6.1.0-50-amd64")
			return r
		}, note: "is not on partition 2"},
		"two stubs of GRUB, one of which is not understood": {make: func(t *testing.T) real {
			return real{esp: map[string]string{fallback: grub(t), "EFI/BOOT/grub.cfg": "set timeout=1\n", "EFI/debian/grub.cfg": "if true; then\n"}}
		}, note: "its menu is empty"},
		"EXTLINUX of Alpine": {make: func(*testing.T) real {
			return real{root: map[string]string{"boot/extlinux.conf": "DEFAULT menu.c32\nLABEL virt\n MENU DEFAULT\n LINUX vmlinuz-virt\n INITRD initramfs-virt\n APPEND root=UUID=" + rootUUID + "\n", "boot/vmlinuz-virt": "K", "boot/initramfs-virt": "I"}}
		}, entry: "virt"},
		"EXTLINUX, whose default is in another file": {make: func(*testing.T) real {
			return real{root: map[string]string{"boot/extlinux/extlinux.conf": "DEFAULT new\nINCLUDE new.conf\nLABEL old\n LINUX /boot/gone\n", "boot/extlinux/new.conf": "LABEL new\n LINUX /boot/vmlinuz\n", "boot/vmlinuz": "K"}}
		}, note: "is not on partition 2"},
		"systemd-boot with an EFI program": {make: func(t *testing.T) real {
			return real{esp: map[string]string{fallback: sdboot(t), "loader/entries/a.conf": "title A\nefi /efi/tool/tool.efi\n", "EFI/tool/tool.efi": portable(".text")}}
		}, entry: "entry a.conf, which starts /efi/tool/tool.efi"},
		"a unified kernel image behind systemd-boot": {make: func(t *testing.T) real {
			return real{esp: map[string]string{fallback: sdboot(t), "EFI/Linux/debian.efi": portable(".text", ".linux", ".initrd")}}
		}, entry: "unified kernel image /EFI/Linux/debian.efi"},
		"a unified kernel image that is the loader": {make: func(*testing.T) real {
			return real{esp: map[string]string{fallback: portable(".text", ".linux")}}
		}, entry: "unified kernel image /EFI/BOOT/BOOTX64.EFI"},
		"Windows": {make: func(*testing.T) real {
			return real{esp: map[string]string{"EFI/Microsoft/Boot/bootmgfw.efi": portable(".text"), "EFI/Microsoft/Boot/BCD": "regf"}}
		}, entry: "Windows boot manager /EFI/Microsoft/Boot/bootmgfw.efi"},
		"Windows without its entries": {make: func(*testing.T) real {
			return real{esp: map[string]string{"EFI/Microsoft/Boot/bootmgfw.efi": portable(".text")}}
		}, reason: "no-boot-entry"},
		"FreeBSD": {make: func(*testing.T) real {
			return real{esp: map[string]string{"EFI/freebsd/loader.efi": portable(".text") + "FreeBSD/amd64 EFI loader, Revision 3.0"}}
		}, entry: "FreeBSD's loader /EFI/freebsd/loader.efi"},
		"EXTLINUX": {make: func(*testing.T) real {
			return real{root: map[string]string{"boot/extlinux/extlinux.conf": "DEFAULT linux\nLABEL linux\n LINUX ../vmlinuz\n INITRD ../initrd\n APPEND root=UUID=" + rootUUID + " ro\n", "boot/vmlinuz": "K", "boot/initrd": "I"}}
		}, entry: "linux"},
		"a loader of another kind": {make: func(*testing.T) real {
			return real{esp: map[string]string{fallback: portable(".text", ".data")}}
		}, note: "neither a GRUB configuration nor"},
		"a full root that cannot grow": {make: func(*testing.T) real {
			return real{esp: map[string]string{fallback: portable(".linux")}, behind: true, fill: 70}
		}, reason: "root-full"},
		"a full root whose partition was grown": {make: func(*testing.T) real {
			return real{esp: map[string]string{fallback: portable(".linux")}, behind: true, fill: 30, shrunk: true}
		}, entry: "unified kernel image /EFI/BOOT/BOOTX64.EFI"},
		"a root with room that cannot grow": {make: func(*testing.T) real {
			return real{esp: map[string]string{fallback: portable(".linux")}, behind: true}
		}, entry: "unified kernel image /EFI/BOOT/BOOTX64.EFI"},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.make(t)
			d.firmware = "uefi"
			found, err := d.look(t)
			if err != nil {
				t.Fatal(err)
			}
			got := ""
			if e, ok := app.AsError(found.Refused); ok {
				got = e.Reason
				if !strings.Contains(e.Message, "sda") || !strings.Contains(e.WayOut, "skipChecks") {
					t.Error(e)
				}
			}
			if notes := strings.Join(found.Notes, "; "); got != c.reason || c.reason == "" && found.Entry != c.entry || c.note == "" && notes != "" || !strings.Contains(notes, c.note) {
				t.Errorf("%+v", found)
			}
		})
	}
}
