package boot

import (
	"maps"
	"slices"
	"strings"
	"testing"
)

const machineID = "6a1c6b7d0e5f4a3b8c9d0e1f2a3b4c5d"

// rhel says what the configuration of RHEL 8 and Fedora says (GRUB_ENABLE_BLSCFG=true): the entry is the environment
// block's, the menu comes from the entries' files, and options that no file has stand in variables.
const rhel = `
if [ -s ${config_directory}/grubenv ]; then load_env -f ${config_directory}/grubenv; else load_env; fi
if [ -n "$next_entry" ]; then set default="$next_entry"; else set default="${saved_entry}"; fi
if [ "$boot_success" = 1 -o "$boot_indeterminate" = 1 ]; then set good=1; else set good=0; fi
if [ -f $prefix/user.cfg ]; then
	source $prefix/user.cfg
	if [ -n "$GRUB2_PASSWORD" ]; then password_pbkdf2 root $GRUB2_PASSWORD; fi
fi
set tuned_params="skew_tick=1"
set tuned_initrd=""
set root='hd0,gpt2'
search --no-floppy --fs-uuid --set=root --hint-bios=hd0,gpt2  ` + bootUUID + `
search --no-floppy --fs-uuid --set=boot --hint-bios=hd0,gpt2  ` + bootUUID + `
if [ -z "$kernelopts" ]; then
	set kernelopts="root=/dev/mapper/rhel-root ro crashkernel=auto "
fi
insmod blscfg
blscfg
if [ "$good" = 1 ]; then set timeout=1; fi
`

// rhelEntry is an entry as kernel-install of RHEL 8 writes it; its options come from the loader's variables.
func rhelEntry(version string) string {
	return "title Red Hat Enterprise Linux (" + version + ") 8.10 (Ootpa)\nversion " + version + "\nlinux /vmlinuz-" + version + "\ninitrd /initramfs-" + version +
		".img $tuned_initrd\noptions $kernelopts $tuned_params\nid rhel-20240515-" + version + "\ngrub_users $grub_users\ngrub_arg --unrestricted\ngrub_class kernel\n"
}

// fedoraEntry has its own options, as Fedora and RHEL 9 write them.
func fedoraEntry(version string) string {
	return "title Fedora Linux (" + version + ") 40 (Server Edition)\nversion " + version + "\nlinux /vmlinuz-" + version + "\ninitrd /initramfs-" + version +
		".img\noptions root=UUID=" + rootUUID + ` ro rootflags=subvol=root rhgb dyndbg="file b.c +p" quiet` + "\ngrub_users $grub_users\ngrub_class fedora\n"
}

func TestBLSDistributions(t *testing.T) {
	entries := func(of func(string) string, versions ...string) map[string]string {
		out := map[string]string{}
		for _, v := range versions {
			name := machineID + "-" + v
			if strings.HasPrefix(v, "0-rescue") {
				name = machineID + "-0-rescue"
			}
			out["loader/entries/"+name+".conf"] = of(v)
		}
		return out
	}
	rhel8 := entries(rhelEntry, "4.18.0-477.10.1.el8_8.x86_64", "4.18.0-553.el8_10.x86_64", "4.18.0-80.el8.x86_64", "0-rescue-"+machineID)
	fedora := entries(fedoraEntry, "6.8.5-301.fc40.x86_64", "6.8.10-300.fc40.x86_64", "6.9.0~rc3-1.fc40.x86_64", "0-rescue-"+machineID)
	tests := []struct {
		name, env, prepend string
		files              map[string]string
		kernel, args       string
		initrds            string
	}{
		{name: "the newest, options of the environment block", files: rhel8, env: "kernelopts=root=UUID=" + rootUUID + " ro crashkernel=auto\nboot_success=0\n",
			kernel: "/vmlinuz-4.18.0-553.el8_10.x86_64", args: "root=UUID=" + rootUUID + " ro crashkernel=auto skew_tick=1", initrds: "/initramfs-4.18.0-553.el8_10.x86_64.img"},
		{name: "the configuration's own options without a block", files: rhel8,
			kernel: "/vmlinuz-4.18.0-553.el8_10.x86_64", args: "root=/dev/mapper/rhel-root ro crashkernel=auto skew_tick=1", initrds: "/initramfs-4.18.0-553.el8_10.x86_64.img"},
		{name: "the saved entry", files: rhel8, env: "saved_entry=" + machineID + "-4.18.0-80.el8.x86_64\nkernelopts=root=/dev/sda3\n",
			kernel: "/vmlinuz-4.18.0-80.el8.x86_64", args: "root=/dev/sda3 skew_tick=1", initrds: "/initramfs-4.18.0-80.el8.x86_64.img"},
		{name: "options of the entry; a release candidate is newer than the last minor", files: fedora,
			kernel: "/vmlinuz-6.9.0~rc3-1.fc40.x86_64", args: "root=UUID=" + rootUUID + ` ro rootflags=subvol=root rhgb "dyndbg=file b.c +p" quiet`, initrds: "/initramfs-6.9.0~rc3-1.fc40.x86_64.img"},
		{name: "by number", files: fedora, env: "saved_entry=1\n", kernel: "/vmlinuz-6.8.10-300.fc40.x86_64",
			args: "root=UUID=" + rootUUID + ` ro rootflags=subvol=root rhgb "dyndbg=file b.c +p" quiet`, initrds: "/initramfs-6.8.10-300.fc40.x86_64.img"},
		{name: "an entry that is gone: the first", files: fedora, env: "saved_entry=" + machineID + "-5.0.0\n", kernel: "/vmlinuz-6.9.0~rc3-1.fc40.x86_64",
			args: "root=UUID=" + rootUUID + ` ro rootflags=subvol=root rhgb "dyndbg=file b.c +p" quiet`, initrds: "/initramfs-6.9.0~rc3-1.fc40.x86_64.img"},
		{name: "early initrds and default options", prepend: "set early_initrd=\"ucode.cpio acpi.cpio\"\nset default_kernelopts=\"root=/dev/sda9 ro\"\n",
			files: map[string]string{"loader/entries/a.conf": "linux /k/vmlinuz\ninitrd /k/rd\n"}, kernel: "/k/vmlinuz", args: "root=/dev/sda9 ro", initrds: "/k/ucode.cpio /k/acpi.cpio /k/rd"},
		{name: "another machine's architecture", files: map[string]string{"loader/entries/b.conf": "linux /arm\narchitecture aa64\noptions root=/dev/a\n", "loader/entries/a.conf": "linux /x64\narchitecture X64\noptions root=/dev/b\n"},
			kernel: "/x64", args: "root=/dev/b"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := maps.Clone(tt.files)
			files["grub2/grub.cfg"] = tt.prepend + rhel
			if tt.env != "" {
				files["grub2/grubenv"] = "# GRUB Environment Block\n# WARNING: Do not edit this file by tools other than grub2-editenv!!!\n" + tt.env + strings.Repeat("#", 100)
			}
			parts := []*partition{
				tree(t, 1, "BC01-E5F0", "", map[string]string{"EFI/redhat/grub.cfg": "search --no-floppy --fs-uuid --set=dev " + bootUUID + "\nset prefix=($dev)/grub2\nexport $prefix\nconfigfile $prefix/grub.cfg\n"}),
				tree(t, 2, bootUUID, "", files), tree(t, 3, rootUUID, "", nil),
			}
			e, err := find(parts, "uefi", quiet)
			if err != nil || e.kernel != tt.kernel || e.args != tt.args || strings.Join(e.initrds, " ") != tt.initrds || e.part.number != 2 {
				t.Errorf("%+v %v", e, err)
			}
		})
	}
}

// Of btrfs GRUB sees the top of the tree, so Fedora names the folder of the entries.
func TestBLSOnASubvolume(t *testing.T) {
	p := tree(t, 1, rootUUID, "", map[string]string{
		"boot/grub2/grub.cfg": "set blsdir=\"/root/boot/loader/entries\"\nblscfg\n", "root/boot/vmlinuz": "K",
		"root/boot/loader/entries/a.conf": "linux /root/boot/vmlinuz\ninitrd /root/boot/rd\noptions root=/dev/vda1\n",
	})
	e, err := find([]*partition{p}, "bios", quiet)
	if err != nil || e.kernel != "/root/boot/vmlinuz" {
		t.Errorf("%+v %v", e, err)
	}
}

func TestSystemdBootDefaults(t *testing.T) {
	entry := func(kernel, more string) string { return "linux /" + kernel + "\noptions root=/dev/sda2 rw\n" + more }
	named := func(v string) string { return "loader/entries/" + machineID + "-" + v + ".conf" }
	tests := []struct {
		name, conf string
		files      map[string]string
		want       string
	}{
		{"the newest by name", "", map[string]string{named("6.9.1"): entry("old", ""), named("6.10.0"): entry("new", "")}, "new"},
		{"a pattern", "# default none\ndefault *-6.9.*\n", map[string]string{named("6.9.1"): entry("old", ""), named("6.10.0"): entry("new", "")}, "old"},
		{"a pattern with its suffix", "default\t" + machineID + "-6.9.1.conf\n", map[string]string{named("6.9.1"): entry("old", ""), named("6.10.0"): entry("new", "")}, "old"},
		{"a pattern that fits none", "default @saved\n", map[string]string{named("6.9.1"): entry("old", ""), named("6.10.0"): entry("new", "")}, "new"},
		{"one that has no tries left is last", "", map[string]string{named("6.10.0+0-3"): entry("bad", ""), named("6.9.1"): entry("good", "")}, "good"},
		{"one that is being tried keeps its place", "", map[string]string{named("6.10.0+3-0"): entry("new", ""), named("6.9.1"): entry("old", "")}, "new"},
		{"a counted name fits its pattern", "default " + machineID + "-6.9.1\n", map[string]string{named("6.9.1+3"): entry("old", ""), named("6.10.0"): entry("new", "")}, "old"},
		{"one whose kernel is not there is passed over", "default *-6.10.*\n", map[string]string{named("6.10.0"): entry("gone", ""), named("6.9.1"): entry("old", ""), "old": "K"}, "old"},
		{"a sort key before none", "", map[string]string{"loader/entries/z.conf": entry("z", ""), "loader/entries/a.conf": entry("a", "sort-key fedora\nversion 1\n")}, "a"},
		{"the sort key, then the version", "", map[string]string{"loader/entries/1.conf": entry("a1", "sort-key a\nversion 6.1-1\n"), "loader/entries/2.conf": entry("a2", "sort-key a\nversion 6.1.1\n"),
			"loader/entries/3.conf": entry("b9", "sort-key b\nversion 9\n")}, "a2"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := maps.Clone(tt.files)
			if tt.conf != "" {
				files["loader/loader.conf"] = tt.conf
			}
			e, err := find([]*partition{tree(t, 1, "AAAA-BBBB", "", files)}, "uefi", quiet)
			if err != nil || e.kernel != "/"+tt.want {
				t.Errorf("%+v %v", e, err)
			}
		})
	}
}

// loader.conf is on the EFI system partition, kernels may be on an extended boot partition.
func TestSystemdBootOnTwoPartitions(t *testing.T) {
	esp := tree(t, 1, "AAAA-BBBB", "", map[string]string{"loader/loader.conf": "default six*\n", "loader/entries/five.conf": "linux /five\noptions root=/dev/sda3\n"})
	xbootldr := tree(t, 2, bootUUID, "", map[string]string{"loader/entries/six.conf": "linux /" + machineID + "/6.1/linux\ninitrd /" + machineID + "/6.1/initrd\noptions root=/dev/sda3\n"})
	for _, parts := range [][]*partition{{esp, xbootldr}, {xbootldr, esp}} {
		e, err := find(parts, "uefi", quiet)
		if err != nil || e.kernel != "/"+machineID+"/6.1/linux" || e.part != xbootldr {
			t.Errorf("%+v %v", e, err)
		}
	}
}

func TestCompareUAPI(t *testing.T) {
	// The order of the specification's own example, oldest first, with a few more.
	order := []string{"~rc1", "122.1", "123~rc1-1", "123", "123-a", "123-a.1", "123-1", "123-1.1", "123^post1", "123.a-1", "123.1-1", "123a-1", "124-1"}
	for i := range order {
		for j := range order {
			c := compareUAPI(order[i], order[j])
			if i < j && c >= 0 || i == j && c != 0 || i > j && c <= 0 {
				t.Errorf("%q and %q: %d", order[i], order[j], c)
			}
		}
	}
	for _, same := range [][2]string{{"007", "7"}, {"~", "~"}, {"a+", "a"}} {
		if c := compareUAPI(same[0], same[1]); c != 0 {
			t.Errorf("%v: %d", same, c)
		}
	}
}

func FuzzVersions(f *testing.F) {
	f.Add("123~rc1-1", "123.a-1")
	f.Add("6.8.5-301.fc40.x86_64", "6.9.0~rc3-1")
	f.Fuzz(func(t *testing.T, a, b string) {
		for name, compare := range map[string]func(a, b string) int{"rpm": compareVersions, "uapi": compareUAPI} {
			if x, y := compare(a, b), compare(b, a); (x < 0) != (y > 0) || (x == 0) != (y == 0) {
				t.Errorf("%s: %q %q: %d and %d", name, a, b, x, y)
			}
			if compare(a, a) != 0 {
				t.Errorf("%s: %q is not itself", name, a)
			}
		}
	})
}

func FuzzBLS(f *testing.F) {
	f.Add(rhelEntry("4.18.0"), "a+3-1", "default a*\n")
	f.Add(fedoraEntry("6.8"), "b", "default \n")
	f.Add("linux\t/k\noptions \"a b\" 'c\nlinux /x\narchitecture x64", "c+0", "default [")
	f.Fuzz(func(t *testing.T, body, name, conf string) {
		if name = strings.Map(func(r rune) rune { return map[bool]rune{true: r, false: 'x'}[r > ' ' && r != '/' && r < 0x7f] }, name); name == "" || len(name) > 200 {
			return
		}
		files := map[string]string{"loader/entries/" + name + ".conf": body, "loader/loader.conf": conf}
		p := tree(t, 1, rootUUID, "", files)
		if e, ok := systemdBoot([]*partition{p}); ok && (e.kernel == "" || e.part != p) {
			t.Errorf("%+v", e)
		}
		g := newGRUB([]*partition{p}, p, "/grub2/grub.cfg", "uefi", quiet)
		g.vars["kernelopts"] = body
		g.blscfg(nil)
		if e, err := g.chosen(); err == nil && (e.kernel == "" || slices.Contains(e.initrds, "")) {
			t.Errorf("%+v", e)
		}
	})
}
