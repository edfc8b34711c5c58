package boot

import (
	"os"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// The configurations in testdata/mkconfig were made by grub-mkconfig of GRUB 2.06 (Debian 12) on file systems that had the
// kernels and settings in question; only what grub-probe said of disks was given to it.
func TestGrubMkconfig(t *testing.T) {
	root := "root=UUID=" + rootUUID + " ro"
	advanced := "gnulinux-advanced-" + rootUUID + ">gnulinux-6.1.0-49-amd64-advanced-" + rootUUID
	tests := []struct {
		name, cfg, env  string
		separate        bool   // /boot is partition 1, and the root file system 2
		readable        string // "boot": the root file system cannot be mounted
		kernel, initrds string
		args            string
	}{
		{name: "debian", cfg: "debian", kernel: "/boot/vmlinuz-6.1.0-50-amd64", initrds: "/boot/intel-uc.img /boot/amd-uc.img /boot/initrd.img-6.1.0-50-amd64",
			args: root + ` console=ttyS0,115200 "dyndbg=file a.c +p" note=a\b`}, // GRUB ends the command at the unquoted semicolon, too
		{name: "next boot once", cfg: "debian", env: "next_entry=" + advanced + "\n", kernel: "/boot/vmlinuz-6.1.0-49-amd64",
			initrds: "/boot/intel-uc.img /boot/amd-uc.img /boot/initrd.img-6.1.0-49-amd64", args: root + ` console=ttyS0,115200 "dyndbg=file a.c +p" note=a\b`},
		{name: "separate /boot, saved entry, microcode", cfg: "separate", env: "file", separate: true, kernel: "/vmlinuz-6.1.0-49-amd64",
			initrds: "/early_ucode.cpio /initrd.img-6.1.0-49-amd64", args: root + " net.ifnames=0"},
		{name: "nothing saved yet", cfg: "separate", separate: true, kernel: "/vmlinuz-6.1.0-50-amd64",
			initrds: "/early_ucode.cpio /initrd.img-6.1.0-50-amd64", args: root + " net.ifnames=0"},
		{name: "no initrd", cfg: "noinitrd", kernel: "/boot/vmlinuz-6.6.0", args: "root=/dev/vda1 ro"},
		{name: "a subvolume, and a default in the submenu", cfg: "btrfs", kernel: "/@/boot/vmlinuz-6.1.0-49-amd64", initrds: "/@/boot/initrd.img-6.1.0-49-amd64",
			args: root + " rootflags=subvol=@"},
		{name: "no submenu, an entry of the operator's by label", cfg: "custom", separate: true, kernel: "/vmlinuz-6.1.0-49-amd64", initrds: "/initrd.img-6.1.0-49-amd64", args: "root=LABEL=root ro"},
		{name: "the root on LVM", cfg: "lvm", separate: true, readable: "boot", kernel: "/vmlinuz-6.1.0-50-amd64", initrds: "/microcode.cpio /initrd.img-6.1.0-50-amd64",
			args: root + " crashkernel=256M"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			at := map[bool]string{true: "grub/", false: "boot/grub/"}[tt.separate]
			if tt.cfg == "btrfs" {
				at = "@/boot/grub/" // GRUB was installed with this prefix
			}
			files := map[string]string{at + "grub.cfg": testdata(t, tt.cfg+".cfg")}
			switch tt.env {
			case "":
			case "file":
				files[at+"grubenv"] = testdata(t, tt.cfg+".env")
			default:
				files[at+"grubenv"] = "# GRUB Environment Block\n" + tt.env + "#####"
			}
			esp := tree(t, 15, "BC01-E5F0", "", map[string]string{"EFI/debian/grub.cfg": "search.fs_uuid " + rootUUID + " root\nset prefix=($root)'/@/boot/grub'\nconfigfile $prefix/grub.cfg\n"})
			parts := []*partition{tree(t, 1, rootUUID, "root", files), esp}
			if tt.separate {
				parts = []*partition{tree(t, 1, bootUUID, "boot", files)}
				if tt.readable == "" {
					parts = append(parts, tree(t, 2, rootUUID, "root", map[string]string{"etc/fstab": ""}))
				}
			}
			for _, firmware := range []string{"bios", "uefi"} {
				e, err := find(parts, firmware, quiet)
				if err != nil {
					t.Fatal(err)
				}
				if e.kernel != tt.kernel || strings.Join(e.initrds, " ") != tt.initrds || e.args != tt.args || e.part.number != 1 {
					t.Errorf("%s: %d %s\n%q\n%q", firmware, e.part.number, e.kernel, e.initrds, e.args)
				}
			}
		})
	}
}

// A file system that a configuration looks for and that is not there must not become another one by chance.
func TestRootOfAnotherDisk(t *testing.T) {
	p := tree(t, 1, bootUUID, "", map[string]string{"boot/grub/grub.cfg": testdata(t, "debian.cfg"), "boot/vmlinuz-6.1.0-50-amd64": "K"})
	e, err := find([]*partition{p}, "bios", quiet)
	if err != nil || e.part.number != 1 { // "set root='hd0,msdos1'" stands before the search
		t.Errorf("%+v %v", e, err)
	}
	p.number = 3
	if e, err := find([]*partition{p}, "bios", quiet); err == nil && e.part != p {
		t.Errorf("%+v", e)
	}
}

func testdata(t testing.TB, name string) string {
	t.Helper()
	b, err := os.ReadFile("testdata/mkconfig/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// Ubuntu's cloud images start their kernel without an initrd first, with panic=-1: a kernel that has its drivers in the
// initrd would reset the machine.
func TestUbuntuWithoutInitrd(t *testing.T) {
	p := tree(t, 1, rootUUID, "cloudimg-rootfs", map[string]string{"boot/grub/grub.cfg": `
if [ -s $prefix/grubenv ]; then set have_grubenv=true; load_env; fi
if [ "${initrdfail}" = 2 ]; then
   set initrdfail=
elif [ "${initrdfail}" = 1 ]; then
   set next_entry="${prev_entry}"
   set prev_entry=
   if [ "${next_entry}" ]; then set initrdfail=2; fi
fi
if [ "${next_entry}" ] ; then set default="${next_entry}"; set boot_once=true; else set default="0"; fi
function initrdfail { if [ -n "${have_grubenv}" ]; then if [ -z "${initrdfail}" ]; then set initrdfail=1; fi; save_env initrdfail; fi; }
menuentry 'Ubuntu' --class ubuntu $menuentry_id_option 'gnulinux-simple-X' {
	search --no-floppy --fs-uuid --set=root ` + rootUUID + `
	if [ "${initrdfail}" = 1 ]; then
	  linux	/boot/vmlinuz-6.8.0-45-generic root=PARTUUID=6b29 ro console=ttyS0
	  initrd	/boot/initrd.img-6.8.0-45-generic
	else
	  linux	/boot/vmlinuz-6.8.0-45-generic root=PARTUUID=6b29 ro console=ttyS0 panic=-1
	fi
	initrdfail
}
`})
	e, err := find([]*partition{p}, "uefi", quiet)
	if err != nil || strings.Join(e.initrds, " ") != "/boot/initrd.img-6.8.0-45-generic" || strings.Contains(e.args, "panic") {
		t.Errorf("%+v %v", e, err)
	}
}

// An image that was made on loop devices without knowing its own UUIDs names a device of the machine that made it.
func TestRootOfTheMachineThatMadeTheImage(t *testing.T) {
	k := New(Config{Log: quiet, Load: func(*os.File, *os.File, string) error { t.Error("loaded"); return nil }})
	p := tree(t, 1, rootUUID, "", map[string]string{"vmlinuz": "K"})
	for _, root := range []string{"/dev/loop0p1", "/dev/mapper/loop0p1", "/dev/nbd0p2"} {
		_, err := k.loadEntry(entry{part: p, kernel: "/vmlinuz", args: "ro root=" + root}, "")
		if e, ok := app.AsError(err); !ok || e.Reason != "root-elsewhere" || e.WayOut == "" {
			t.Errorf("%s: %v", root, err)
		}
	}
}
