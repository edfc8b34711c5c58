package boot

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// system is a machine whose GRUB is configured: what grub-mkconfig of Debian finds there.
type system struct {
	settings string // /etc/default/grub
	custom   string // what the operator added to the menu
	kernels  string // versions
	early    string // names of initrds with microcode
	noInitrd bool
	separate bool   // /boot is a file system of its own
	fs       string // of both
	table    string // of partitions
	subvol   string // where the root file system begins, on btrfs
}

const kernels = "6.1.0-49-amd64 6.1.0-50-amd64"

// systems are the machines whose configurations are read. Partition 1 holds the kernels.
var systems = map[string]system{
	"debian": {fs: "ext2", table: "msdos", kernels: kernels, early: "intel-uc.img amd-uc.img", settings: `
GRUB_DISTRIBUTOR=Debian
GRUB_CMDLINE_LINUX='console=ttyS0,115200 dyndbg="file a.c +p" note=a\\b;c'
GRUB_CMDLINE_LINUX_DEFAULT=quiet`},
	"separate": {fs: "ext2", table: "gpt", kernels: kernels, early: "early_ucode.cpio", separate: true, settings: `
GRUB_DISTRIBUTOR="Bob's Linux"
GRUB_DEFAULT=saved
GRUB_SAVEDEFAULT=true
GRUB_TERMINAL='serial console'
GRUB_SERIAL_COMMAND='serial --unit=0 --speed=115200'
GRUB_CMDLINE_LINUX=net.ifnames=0`},
	"noinitrd": {fs: "ext2", table: "gpt", kernels: "6.6.0", noInitrd: true, settings: "GRUB_DISTRIBUTOR=Tiny\nGRUB_TIMEOUT=0"},
	"btrfs":    {fs: "btrfs", table: "gpt", kernels: kernels, subvol: "/@", settings: "GRUB_DISTRIBUTOR=Sub\nGRUB_DEFAULT='1>2'"},
	"custom": {fs: "xfs", table: "msdos", kernels: kernels, separate: true, settings: `
GRUB_DISTRIBUTOR=Flat
GRUB_DISABLE_SUBMENU=y
GRUB_DISABLE_RECOVERY=true
GRUB_DEFAULT=by-label`, custom: `
menuentry "By label" --class gnu --id by-label {
	search --no-floppy --label boot --set=root
	linuxefi	/vmlinuz-6.1.0-49-amd64 root=LABEL=root ro
	initrdefi	/initrd.img-6.1.0-49-amd64
}`},
	"lvm": {fs: "ext2", table: "gpt", kernels: kernels, early: "microcode.cpio", separate: true,
		settings: "GRUB_DISTRIBUTOR=Vol\nGRUB_CMDLINE_LINUX=crashkernel=256M"},
}

// TestGrubMkconfig reads what a real grub-mkconfig (Debian's grub-common) writes on each of these systems.
func TestGrubMkconfig(t *testing.T) {
	root := "root=UUID=" + rootUUID + " ro"
	old := "gnulinux-advanced-" + rootUUID + ">gnulinux-6.1.0-49-amd64-advanced-" + rootUUID
	tests := []struct {
		name, system    string
		env             string // a line of the environment block
		unread          bool   // the root file system cannot be mounted
		kernel, initrds string
		args            string
	}{
		{name: "debian", system: "debian", kernel: "/boot/vmlinuz-6.1.0-50-amd64", initrds: "/boot/intel-uc.img /boot/amd-uc.img /boot/initrd.img-6.1.0-50-amd64",
			args: root + ` console=ttyS0,115200 "dyndbg=file a.c +p" note=a\b`}, // GRUB ends the command at the unquoted semicolon, too
		{name: "next boot once", system: "debian", env: "next_entry=" + old, kernel: "/boot/vmlinuz-6.1.0-49-amd64",
			initrds: "/boot/intel-uc.img /boot/amd-uc.img /boot/initrd.img-6.1.0-49-amd64", args: root + ` console=ttyS0,115200 "dyndbg=file a.c +p" note=a\b`},
		{name: "separate /boot, saved entry, microcode", system: "separate", env: "saved_entry=" + old, kernel: "/vmlinuz-6.1.0-49-amd64",
			initrds: "/early_ucode.cpio /initrd.img-6.1.0-49-amd64", args: root + " net.ifnames=0"},
		{name: "nothing saved yet", system: "separate", kernel: "/vmlinuz-6.1.0-50-amd64",
			initrds: "/early_ucode.cpio /initrd.img-6.1.0-50-amd64", args: root + " net.ifnames=0"},
		{name: "no initrd", system: "noinitrd", kernel: "/boot/vmlinuz-6.6.0", args: "root=/dev/vda1 ro"},
		{name: "a subvolume, and a default in the submenu", system: "btrfs", kernel: "/@/boot/vmlinuz-6.1.0-49-amd64", initrds: "/@/boot/initrd.img-6.1.0-49-amd64",
			args: root + " rootflags=subvol=@"},
		{name: "no submenu, an entry of the operator's by label", system: "custom", kernel: "/vmlinuz-6.1.0-49-amd64", initrds: "/initrd.img-6.1.0-49-amd64", args: "root=LABEL=root ro"},
		{name: "the root on LVM", system: "lvm", unread: true, kernel: "/vmlinuz-6.1.0-50-amd64", initrds: "/microcode.cpio /initrd.img-6.1.0-50-amd64",
			args: root + " crashkernel=256M"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := systems[tt.system]
			at := map[bool]string{true: "grub/", false: "boot/grub/"}[s.separate]
			if s.subvol != "" {
				at = "@/boot/grub/" // GRUB was installed with this prefix
			}
			files := map[string]string{at + "grub.cfg": s.mkconfig(t)}
			if tt.env != "" {
				files[at+"grubenv"] = "# GRUB Environment Block\n" + tt.env + "\n#####"
			}
			esp := tree(t, 15, "BC01-E5F0", "", map[string]string{"EFI/debian/grub.cfg": "search.fs_uuid " + rootUUID + " root\nset prefix=($root)'/@/boot/grub'\nconfigfile $prefix/grub.cfg\n"})
			parts := []*partition{tree(t, 1, rootUUID, "root", files), esp}
			if s.separate {
				parts = []*partition{tree(t, 1, bootUUID, "boot", files)}
				if !tt.unread {
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
	p := tree(t, 1, bootUUID, "", map[string]string{"boot/grub/grub.cfg": systems["debian"].mkconfig(t), "boot/vmlinuz-6.1.0-50-amd64": "K"})
	e, err := find([]*partition{p}, "bios", quiet)
	if err != nil || e.part.number != 1 { // "set root='hd0,msdos1'" stands before the search
		t.Errorf("%+v %v", e, err)
	}
	p.number = 3
	if e, err := find([]*partition{p}, "bios", quiet); err == nil && e.part != p {
		t.Errorf("%+v", e)
	}
}

// probe stands in for grub-probe, which asks the kernel about disks: partition 1 is /boot or both, partition 2 the root.
const probe = `#!/bin/sh
of=/dev/vda1
while [ $# -gt 0 ]; do
	case $1 in
	--target=*) target=${1#--target=} ;;
	-t | --target) target=$2; shift ;;
	--device) of=$2; shift ;;
	/boot*) of=/dev/vda1 ;;
	/*) of=/dev/vda$ROOT_PART ;;
	esac
	shift
done
n=${of#/dev/vda}
case $target in
device) echo "$of" ;;
fs) echo "$FS" ;;
fs_uuid) [ "$n" = "$ROOT_PART" ] && echo "$ROOT_UUID" || echo "$BOOT_UUID" ;;
partmap) echo "$TABLE" ;;
compatibility_hint) echo "hd0,$TABLE$n" ;;
hints_string) echo "--hint-bios=hd0,$TABLE$n --hint-efi=hd0,$TABLE$n --hint-baremetal=ahci0,$TABLE$n " ;;
esac
`

// relpath stands in for grub-mkrelpath, which asks the kernel about mounts.
const relpath = `#!/bin/sh
p=$1
[ "$ROOT_PART" = 1 ] || p=${p#/boot}
[ "$p" != / ] || p=
echo "$SUBVOL$p"
`

// enter turns a tree into the root of a process that has the host's programs, but for those that would ask about disks.
const enter = `set -e
mount --bind /usr "$1/usr"
mount --bind "$1/probe" "$1/usr/sbin/grub-probe"
mount --bind "$1/relpath" "$1/usr/bin/grub-mkrelpath"
mount --bind /dev/null "$1/dev/null"
exec chroot "$1" /usr/sbin/grub-mkconfig`

// mkconfig gives the grub.cfg of s. It leaves the test out, with the reason, where grub-mkconfig cannot run.
func (s system) mkconfig(t *testing.T) string {
	t.Helper()
	if _, err := os.Stat("/etc/grub.d/10_linux"); err != nil || os.Getuid() != 0 {
		t.Skipf("left out: it needs root, to mount in a namespace of its own, and Debian's grub-common (%v)", err)
	}
	cmd := exec.CommandContext(t.Context(), "sh", "-c", enter, "sh", s.root(t))
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNS}
	part := map[bool]string{true: "2", false: "1"}[s.separate]
	cmd.Env = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C", "FS=" + s.fs, "TABLE=" + s.table, "SUBVOL=" + s.subvol,
		"ROOT_PART=" + part, "ROOT_UUID=" + rootUUID, "BOOT_UUID=" + bootUUID}
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if errors.Is(err, syscall.EPERM) {
		t.Skipf("left out: a mount namespace cannot be made here: %v", err)
	}
	if err != nil {
		t.Fatalf("grub-mkconfig: %v: %s", err, said.String())
	}
	return string(out)
}

// root makes the tree that grub-mkconfig sees.
func (s system) root(t *testing.T) string {
	t.Helper()
	files := map[string]string{
		"bin": "->usr/bin", "sbin": "->usr/sbin", "lib": "->usr/lib", "lib64": "->usr/lib64", "dev/null": "",
		"dev/disk/by-uuid/" + rootUUID: "", "etc/default/grub": s.settings, "probe": probe, "relpath": relpath,
		"etc/grub.d/40_custom": "#!/bin/sh\ncat <<'END'" + s.custom + "\nEND\n",
	}
	for _, name := range []string{"etc/grub.d/00_header", "etc/grub.d/10_linux"} {
		b, err := os.ReadFile("/" + name)
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(b)
	}
	for version := range strings.FieldsSeq(s.kernels) {
		files["boot/vmlinuz-"+version], files["boot/config-"+version] = "kernel", ""
		if !s.noInitrd {
			files["boot/initrd.img-"+version] = "initrd"
		}
	}
	for name := range strings.FieldsSeq(s.early) {
		files["boot/"+name] = "microcode"
	}
	dir := tree(t, 0, "", "", files).dir
	err := os.Mkdir(filepath.Join(dir, "usr"), 0o755)
	for _, name := range []string{"probe", "relpath", "etc/grub.d/00_header", "etc/grub.d/10_linux", "etc/grub.d/40_custom"} {
		err = errors.Join(err, os.Chmod(filepath.Join(dir, name), 0o755))
	}
	if err != nil {
		t.Fatal(err)
	}
	return dir
}
