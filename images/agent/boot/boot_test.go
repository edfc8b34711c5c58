package boot

import (
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

const (
	rootUUID = "5f8f25d6-7d3f-4b2e-9a51-0c2d3e4f5a6b"
	bootUUID = "6e7d8c9b-0a1b-4c2d-8e3f-4a5b6c7d8e9f"
)

var quiet = slog.New(slog.DiscardHandler)

// tree makes a partition of files; a value that starts with "->" is a symbolic link.
func tree(t testing.TB, number int, uuid, label string, files map[string]string) *partition {
	t.Helper()
	p := &partition{number: number, uuid: uuid, label: label, dir: t.TempDir()}
	for name, body := range files {
		at := filepath.Join(p.dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
			t.Fatal(err)
		}
		var err error
		if to, ok := strings.CutPrefix(body, "->"); ok {
			err = os.Symlink(to, at)
		} else {
			err = os.WriteFile(at, []byte(body), 0o644)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return p
}

// debian is a configuration in the form of Debian's, with def as the chosen entry: what grub-mkconfig itself writes is read
// in TestGrubMkconfig.
func debian(def string) string {
	return `
load_env
if [ -n "$next_entry" ]; then
	set default="$next_entry"
else
	set default="` + def + `"
fi
if [ "x$feature_menuentry_id" = xy ]; then
	name="--id"
else
	name=""
fi
export name
function video { if [ "x$feature_all_video_module" = xy ]; then insmod all_video; else insmod vbe; fi; }
if loadfont unicode ; then video; insmod gfxterm; fi
menuentry 'Debian GNU/Linux' --class debian $name 'simple-X' {
	video
	set root='hd0,gpt2'
	if [ "$feature_platform_search_hint" = y ]; then
		search --no-floppy --fs-uuid --set=root --hint-bios=hd0,gpt2  ` + rootUUID + `
	else
		search --fs-uuid --set=root ` + rootUUID + `
	fi
	echo	'Loading ...'
	linux	/boot/vmlinuz-6.1.0-50 root=UUID=` + rootUUID + ` ro  quiet dyndbg="file a.c +p"
	initrd	/boot/microcode.cpio /boot/initrd.img-6.1.0-50
}
submenu 'Advanced options for Debian GNU/Linux' $name 'advanced-X' {
	menuentry 'Debian, with Linux 6.1.0-50' $name 'adv-50' {
		search --fs-uuid --set=root ` + rootUUID + `
		linux /boot/vmlinuz-6.1.0-50 root=UUID=` + rootUUID + ` ro
	}
	menuentry 'Debian, with Linux 6.1.0-49' $name 'adv-49' {
		search --fs-uuid --set=root ` + rootUUID + `
		linux /boot/vmlinuz-6.1.0-49 root=UUID=` + rootUUID + ` ro
		initrd /boot/initrd.img-6.1.0-49
	}
}
menuentry "it's memtest" { linux16 /boot/memtest86+.bin; }
`
}

func TestDebianDefaults(t *testing.T) {
	tests := []struct{ def, env, kernel, title, fails string }{
		{def: "0", kernel: "/boot/vmlinuz-6.1.0-50", title: "Debian GNU/Linux"},
		{def: "advanced-X>adv-49", kernel: "/boot/vmlinuz-6.1.0-49"},
		{def: "1>1", kernel: "/boot/vmlinuz-6.1.0-49"},
		{def: "1", kernel: "/boot/vmlinuz-6.1.0-50", title: "Debian, with Linux 6.1.0-50"},
		{def: "Advanced options for Debian GNU/Linux>Debian, with Linux 6.1.0-49", kernel: "/boot/vmlinuz-6.1.0-49"},
		{def: "7", kernel: "/boot/vmlinuz-6.1.0-50", title: "Debian GNU/Linux"}, // GRUB falls back to the first
		{def: "${saved_entry}", env: "saved_entry=adv-49\n", kernel: "/boot/vmlinuz-6.1.0-50"},
		{def: "${saved_entry}", env: "saved_entry=advanced-X>adv-49\n", kernel: "/boot/vmlinuz-6.1.0-49"},
		{def: "0", env: "next_entry=1>1\n", kernel: "/boot/vmlinuz-6.1.0-49"},
	}
	for _, tt := range tests {
		t.Run(tt.def+tt.env, func(t *testing.T) {
			files := map[string]string{"boot/grub/grub.cfg": debian(tt.def)}
			if tt.env != "" {
				files["boot/grub/grubenv"] = "# GRUB Environment Block\n" + tt.env + "#####"
			}
			e, err := find([]*partition{tree(t, 1, "BC01-E5F0", "", nil), tree(t, 2, rootUUID, "root", files)}, "uefi", quiet)
			if err != nil || e.kernel != tt.kernel || e.part.number != 2 || (tt.title != "" && e.title != tt.title) {
				t.Fatalf("%+v %v", e, err)
			}
		})
	}
}

func TestAllInitrdsAndQuotedArguments(t *testing.T) {
	p := tree(t, 2, rootUUID, "", map[string]string{"boot/grub/grub.cfg": debian("0")})
	e, err := find([]*partition{p}, "bios", quiet)
	if err != nil {
		t.Fatal(err)
	}
	if strings.Join(e.initrds, " ") != "/boot/microcode.cpio /boot/initrd.img-6.1.0-50" {
		t.Errorf("initrds %q", e.initrds)
	}
	if want := `root=UUID=` + rootUUID + ` ro quiet "dyndbg=file a.c +p"`; e.args != want {
		t.Errorf("args %q, want %q", e.args, want)
	}
}

// Case 97: the configuration is on a boot partition of its own, and its paths start there.
func TestSeparateBootPartition(t *testing.T) {
	cfg := `set default="2"
menuentry one { linux /vmlinuz-1 root=/dev/sda1 }
menuentry two { linux /vmlinuz-2 root=/dev/sda1 }
menuentry three --id third { search --set=root --fs-uuid ` + bootUUID + `
 linux /vmlinuz root=UUID=` + rootUUID + ` ro
 initrd /initrd.img
}
`
	root := tree(t, 1, rootUUID, "", map[string]string{"etc/fstab": "UUID=" + rootUUID + " / ext4 defaults 0 1\n"})
	boot := tree(t, 16, bootUUID, "BOOT", map[string]string{
		"grub/grub.cfg": cfg, "vmlinuz-6": "KERNEL", "vmlinuz": "->/vmlinuz-6", "initrd.img": "INITRD",
	})
	for name, parts := range map[string][]*partition{"grub": {root, boot}, "other order": {boot, root}} {
		e, err := find(parts, "bios", quiet)
		if err != nil || e.kernel != "/vmlinuz" || e.part.number != 16 || e.args != "root=UUID="+rootUUID+" ro" {
			t.Fatalf("%s: %+v %v", name, e, err)
		}
		f, err := copyOut(e.part, []string{e.kernel}, 100)
		if err != nil {
			t.Fatalf("following the link: %v", err)
		}
		b := make([]byte, 6)
		if _, err := f.Read(b); err != nil || string(b) != "KERNEL" {
			t.Errorf("%q %v", b, err)
		}
		f.Close()
	}
}

func TestGRUBWithBLS(t *testing.T) {
	cfg := `load_env -f ${config_directory}/grubenv
if [ -f ${config_directory}/user.cfg ]; then source ${config_directory}/user.cfg; fi
set default="${saved_entry}"
search --no-floppy --set prefix --file /grub2/grub.cfg
set tuned_initrd=""
insmod blscfg
blscfg
`
	entry := func(v string) string {
		return "title Fedora (" + v + ")\nversion " + v + "\nlinux /vmlinuz-" + v + "\ninitrd /initramfs-" + v + ".img $tuned_initrd\ninitrd /extra.cpio\n" +
			"options root=UUID=" + rootUUID + " ro $kernelopts\noptions rhgb\n"
	}
	files := map[string]string{
		"grub2/grub.cfg": cfg, "grub2/grubenv": "# GRUB Environment Block\nsaved_entry=m-6.9.1\nkernelopts=quiet\n###",
		"loader/entries/m-6.9.1.conf": entry("6.9.1"), "loader/entries/m-6.10.0.conf": entry("6.10.0"),
	}
	e, err := find([]*partition{tree(t, 3, rootUUID, "", nil), tree(t, 2, bootUUID, "", files)}, "uefi", quiet)
	if err != nil || e.kernel != "/vmlinuz-6.9.1" || e.args != "root=UUID="+rootUUID+" ro quiet rhgb" {
		t.Fatalf("%+v %v", e, err)
	}
	if strings.Join(e.initrds, " ") != "/initramfs-6.9.1.img /extra.cpio" {
		t.Errorf("initrds %q", e.initrds)
	}
	files["grub2/grubenv"] = "# GRUB Environment Block\n###"
	e, err = find([]*partition{tree(t, 2, bootUUID, "", files)}, "uefi", quiet)
	if err != nil || e.kernel != "/vmlinuz-6.10.0" {
		t.Errorf("newest: %+v %v", e, err)
	}
}

func TestBLSBelowBootFolder(t *testing.T) {
	p := tree(t, 1, rootUUID, "", map[string]string{
		"boot/grub2/grub.cfg": "blscfg\n", "boot/loader/entries/a.conf": "linux /vmlinuz\ninitrd /initrd\noptions root=/dev/vda1\n",
		"boot/vmlinuz": "K", "boot/initrd": "I",
	})
	e, err := find([]*partition{p}, "bios", quiet)
	if err != nil || e.kernel != "/boot/vmlinuz" || e.initrds[0] != "/boot/initrd" {
		t.Errorf("%+v %v", e, err)
	}
}

func TestSystemdBoot(t *testing.T) {
	files := map[string]string{
		"loader/loader.conf": "timeout 3\ndefault arch-lts*\n", "loader/entries/arch.conf": "linux /vmlinuz\noptions root=/dev/sda2\n",
		"loader/entries/arch-lts.conf": "title LTS\nlinux\t/vmlinuz-lts\ninitrd /ucode.img\ninitrd /lts.img\noptions root=/dev/sda2 rw\n",
	}
	e, err := find([]*partition{tree(t, 1, "AAAA-BBBB", "", files)}, "uefi", quiet)
	if err != nil || e.kernel != "/vmlinuz-lts" || len(e.initrds) != 2 || e.args != "root=/dev/sda2 rw" {
		t.Errorf("%+v %v", e, err)
	}
}

func TestStubLeadsToRoot(t *testing.T) {
	esp := tree(t, 1, "AAAA-BBBB", "", map[string]string{
		"EFI/ubuntu/grub.cfg": "search.fs_uuid " + rootUUID + " root hd0,gpt2 \nset prefix=($root)'/@/boot/grub'\nconfigfile $prefix/grub.cfg\n",
	})
	root := tree(t, 2, rootUUID, "", map[string]string{"@/boot/grub/grub.cfg": "menuentry a { linux /@/boot/vmlinuz root=/dev/sda2 }\n"})
	e, err := find([]*partition{esp, root}, "uefi", quiet)
	if err != nil || e.kernel != "/@/boot/vmlinuz" || e.part.number != 2 {
		t.Errorf("%+v %v", e, err)
	}
}

func TestNothingToBoot(t *testing.T) {
	for name, files := range map[string]map[string]string{
		"empty":     {},
		"no menu":   {"boot/grub/grub.cfg": "set timeout=1\n"},
		"no linux":  {"boot/grub/grub.cfg": "menuentry w { chainloader /bootmgr }\n"},
		"open":      {"boot/grub/grub.cfg": "menuentry w {\n if [ 1 ]; then\n"},
		"recursive": {"boot/grub/grub.cfg": "source /boot/grub/grub.cfg\n"},
		"function":  {"boot/grub/grub.cfg": "function f { f; }\nf\n"},
		"pipe out":  {"boot/grub/grub.cfg": "->/../../../../etc/hostname"},
	} {
		_, err := find([]*partition{tree(t, 1, rootUUID, "", files)}, "bios", quiet)
		if e, ok := app.AsError(err); !ok || e.Reason != "no-boot-entry" || e.WayOut == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestNeverWithoutRoot(t *testing.T) {
	k := New(Config{Log: quiet, Load: func(*os.File, *os.File, string) error { t.Error("loaded"); return nil }})
	p := tree(t, 1, rootUUID, "", map[string]string{"vmlinuz": "K"})
	for _, args := range []string{"", "ro quiet", "root=", "xroot=/dev/sda1", "systemd.root=/dev/sda"} {
		_, err := k.loadEntry(entry{part: p, kernel: "/vmlinuz", args: args}, "console=ttyS0")
		if e, ok := app.AsError(err); !ok || e.Reason != "no-root-argument" || !strings.Contains(e.WayOut, "firmware") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

func TestInitrdsAreJoinedOnFourByteEdges(t *testing.T) {
	p := tree(t, 1, rootUUID, "", map[string]string{"k": "KERNEL", "a": "AAAAA", "b": "BB", "c": "C"})
	var got, line string
	k := New(Config{Log: quiet, Load: func(kernel, initrd *os.File, cmdline string) error {
		b := make([]byte, 100)
		n, err := initrd.Read(b)
		got, line = string(b[:n]), cmdline
		return err
	}})
	r, err := k.loadEntry(entry{part: p, kernel: "/k", initrds: []string{"/a", "/b", "/c"}, args: "root=/dev/vda1"}, "console=ttyS0")
	if err != nil || got != "AAAAA\x00\x00\x00BB\x00\x00C" || line != "root=/dev/vda1 console=ttyS0" || len(r.Initrds) != 3 {
		t.Errorf("%q %q %+v %v", got, line, r, err)
	}
	if _, err := k.loadEntry(entry{part: p, kernel: "/k", initrds: []string{"/missing"}, args: "root=/dev/vda1"}, ""); err == nil {
		t.Error("an entry with a missing initrd was loaded")
	}
}

func TestCompareVersions(t *testing.T) {
	for _, p := range [][2]string{{"6.10.0", "6.9.9"}, {"6.1.0-50", "6.1.0-9"}, {"6.1", "6.1~rc1"}, {"6.1.1", "6.1"}, {"5.14.0-70.el9", "5.14.0-7.el9"}} {
		if compareVersions(p[0], p[1]) <= 0 || compareVersions(p[1], p[0]) >= 0 {
			t.Errorf("%s is newer than %s", p[0], p[1])
		}
	}
}

func FuzzGRUB(f *testing.F) {
	f.Add(debian("1>1"))
	f.Add("menuentry a { linux ($root)/k root=1; initrd /i }\nset default=a\n")
	f.Add("if [ -z $x -o ! -f /a ]; then blscfg; elif true; then search --set=a -f /k; fi")
	f.Add("set a=$a$a$a$a; function g { set a=$a$a; g; g; }; g")
	p := tree(f, 1, rootUUID, "root", map[string]string{"k": "K", "loader/entries/a.conf": "linux /k\noptions root=$a\n"})
	f.Fuzz(func(t *testing.T, s string) {
		nodes, err := parse(s)
		if err != nil {
			return
		}
		g := newGRUB([]*partition{p}, p, "/grub/grub.cfg", "bios", quiet)
		if _, err := g.run(nodes); err != nil {
			return
		}
		if e, err := g.chosen(); err == nil && e.kernel == "" {
			t.Errorf("an entry without a kernel: %+v", e)
		}
	})
}

func TestScriptsThatGrow(t *testing.T) {
	grow := "set a=xxxxxxxxxxxxxxxx\nfunction g { set a=$a$a$a$a; if [ -n \"$a\" ]; then set b=\"$a $a $a\"; fi; }\n" + strings.Repeat("g\n", 20000)
	for name, cfg := range map[string]string{"doubling": grow, "one word": "set a=" + strings.Repeat("x", 8000) + "\nset b=" + strings.Repeat("$a", 200000)} {
		p := tree(t, 1, rootUUID, "", map[string]string{"grub/grub.cfg": cfg})
		start := processorTime(t)
		if _, err := find([]*partition{p}, "bios", quiet); err == nil {
			t.Error(name + ": found an entry")
		}
		if d := processorTime(t) - start; d > 20*time.Second {
			t.Errorf("%s took %s", name, d)
		}
	}
}

// processorTime is what this process has used of the processors so far, however busy the machine is.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
