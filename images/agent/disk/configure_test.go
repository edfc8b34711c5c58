package disk

import (
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/disk/internal/seed"
	"github.com/better-compute/bcd/images/layout"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// run runs a program of Debian, or skips with the package that has it.
func run(t *testing.T, stdin, name string, args ...string) string {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed (packages fdisk, gdisk, e2fsprogs, mtools, mount)", name)
	}
	c := exec.Command(name, args...)
	c.Stdin = strings.NewReader(stdin)
	out, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", name, args, err, out)
	}
	return string(out)
}

var seedFiles = map[string][]byte{"meta-data": []byte("instance-id: i-1\n"), "user-data": []byte("#cloud-config\n"), "vendor-data": []byte("#cloud-config\n{}\n"), "network-config": []byte("version: 2\n")}

// installed is a disk of 64 MiB whose first size bytes are an image with a table, made by sfdisk.
func installed(t *testing.T, table string, size int64) *rig {
	t.Helper()
	r := newRig(t, nil, sda(80<<20))
	img := filepath.Join(t.TempDir(), "img")
	if err := os.WriteFile(img, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(img, size); err != nil {
		t.Fatal(err)
	}
	run(t, table, "sfdisk", "-q", img)
	b, err := os.ReadFile(img)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(filepath.Join(r.dir, "sda"), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, 0); err != nil {
		t.Fatal(err)
	}
	return r
}

func (r *rig) configure(t *testing.T, files map[string][]byte, args string) error {
	t.Helper()
	_, err := r.Configure(context.Background(), agentv1.Configure{Disk: agentv1.DiskTarget{Serial: "S1"}, Seed: files, KernelArgs: args}, quiet)
	return err
}

func (r *rig) layout(t *testing.T) app.Layout {
	t.Helper()
	b := r.content(t, "sda")
	return layout.Detect(bytes.NewReader(b), int64(len(b)), 512)
}

func (r *rig) checkSeed(t *testing.T, p app.Partition) {
	t.Helper()
	if p.FS != "vfat" || p.Size != seed.Size {
		t.Fatalf("seed partition %+v", p)
	}
	img := filepath.Join(t.TempDir(), "seed")
	if err := os.WriteFile(img, r.content(t, "sda")[p.Start:p.Start+p.Size], 0o644); err != nil {
		t.Fatal(err)
	}
	for name, want := range seedFiles {
		out := filepath.Join(t.TempDir(), "out")
		run(t, "", "mcopy", "-n", "-i", img, "::"+name, out)
		if got, _ := os.ReadFile(out); !bytes.Equal(got, want) {
			t.Errorf("%s holds %q", name, got)
		}
	}
}

const gptTable = "label: gpt\nstart=2048, size=4096, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B\nstart=6144, size=16384, name=root\n"

// TestConfigureGPT: the seed is the last partition, both headers are right by sgdisk and sfdisk, and a second run changes
// nothing but the seed.
func TestConfigureGPT(t *testing.T) {
	r := installed(t, gptTable, 16<<20)
	before := r.content(t, "sda")
	for range 2 {
		if err := r.configure(t, seedFiles, ""); err != nil {
			t.Fatal(err)
		}
		l := r.layout(t)
		if l.Table != "gpt" || len(l.Partitions) != 3 || l.Partitions[2].Name != seedName {
			t.Fatalf("layout %+v", l)
		}
		r.checkSeed(t, l.Partitions[2])
		if end := l.Partitions[2].Start + l.Partitions[2].Size; end > 80<<20-33*512 || end < 79<<20-1 {
			t.Errorf("the seed ends at %d", end)
		}
		path := filepath.Join(r.dir, "sda")
		if out := run(t, "", "sgdisk", "-v", path); !strings.Contains(out, "No problems found") {
			t.Errorf("sgdisk: %s", out)
		}
		run(t, "", "sfdisk", "-q", "--verify", path)
	}
	after := r.content(t, "sda")
	if !bytes.Equal(before[1<<20:11<<20], after[1<<20:11<<20]) {
		t.Error("partitions of the image were changed")
	}
	if bytes.Contains(after[11<<20:40<<20], []byte("EFI PART")) {
		t.Error("the image's own backup header is still there")
	}
}

// TestConfigureGrows lets the root of an image that asks for it reach to the seed, or to the disk's end, and no other.
func TestConfigureGrows(t *testing.T) {
	const table = "label: gpt\nfirst-lba: 2048\nstart=2048, size=2048, type=21686148-6449-6E6F-744E-656564454649, attrs=\"GUID:59\"\nstart=4096, size=8192, type=4F68BCE3-E8CD-4DB1-96E7-FBCAF984B709, name=root"
	for name, tc := range map[string]struct {
		table string
		files map[string][]byte
		end   int64 // of the root, MiB
	}{
		"with a seed":     {table + ", attrs=\"GUID:59\"\n", seedFiles, 47},
		"without":         {table + ", attrs=\"GUID:59\"\n", nil, 79},
		"not asked for":   {table + "\n", seedFiles, 6},
		"nor without one": {table + "\n", nil, 6},
	} {
		r := installed(t, tc.table, 16<<20)
		before := r.content(t, "sda")
		for range 2 {
			if err := r.configure(t, tc.files, ""); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			l := r.layout(t)
			if end := l.Partitions[1].Start + l.Partitions[1].Size; end != tc.end<<20 || l.Partitions[0].Size != 1<<20 {
				t.Errorf("%s: %+v", name, l.Partitions)
			}
			if out := run(t, "", "sgdisk", "-v", filepath.Join(r.dir, "sda")); !strings.Contains(out, "No problems found") {
				t.Errorf("%s: sgdisk: %s", name, out)
			}
		}
		if after := r.content(t, "sda"); !bytes.Equal(before[1<<20:6<<20], after[1<<20:6<<20]) {
			t.Errorf("%s: the partitions' content was changed", name)
		}
	}
}

func TestConfigureMovesBackupWithoutSeed(t *testing.T) {
	r := installed(t, gptTable, 16<<20)
	if err := r.configure(t, nil, ""); err != nil {
		t.Fatal(err)
	}
	if out := run(t, "", "sgdisk", "-v", filepath.Join(r.dir, "sda")); !strings.Contains(out, "No problems found") || strings.Contains(out, "corrupt") {
		t.Errorf("sgdisk: %s", out)
	}
}

func TestConfigureMBR(t *testing.T) {
	r := installed(t, "label: dos\nstart=2048, size=16384, type=83, bootable\n", 16<<20)
	for range 2 {
		if err := r.configure(t, seedFiles, ""); err != nil {
			t.Fatal(err)
		}
		l := r.layout(t)
		if len(l.Partitions) != 2 || l.Partitions[1].Number != 2 {
			t.Fatalf("layout %+v", l)
		}
		r.checkSeed(t, l.Partitions[1])
	}
}

func TestConfigureRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		table string
		size  int64
		want  string
	}{
		"no room":      {"label: gpt\nstart=2048\n", 79 << 20, "no-room-for-seed"},
		"MBR is full":  {"label: dos\nstart=2048, size=2048\nstart=4096, size=2048\nstart=6144, size=2048\nstart=8192, size=2048\n", 16 << 20, "partition-table-full"},
		"no arguments": {gptTable, 16 << 20, "no-boot-entry"},
	} {
		r := installed(t, c.table, c.size)
		before := r.content(t, "sda")
		args := ""
		if c.want == "no-boot-entry" {
			args = "quiet"
		}
		if err := r.configure(t, seedFiles, args); reason(err) != c.want {
			t.Errorf("%s: %v", name, err)
		}
		if args == "" && !bytes.Equal(before, r.content(t, "sda")) {
			t.Errorf("%s: the disk was changed", name)
		}
	}
	r := newRig(t, nil, sda(40<<20))
	if err := r.configure(t, seedFiles, ""); reason(err) != "no-partition-table" {
		t.Errorf("no table: %v", err)
	}
	r.untouched(t, "sda")
}

const grubCfg = `menuentry 'Debian GNU/Linux' {
	linux	/boot/vmlinuz-6.1.0 root=UUID=1111 ro quiet
	initrd	/boot/initrd.img-6.1.0
}
submenu 'Advanced' {
	menuentry 'recovery' {
		linux	/boot/vmlinuz-6.1.0 root=UUID=1111 ro single
	}
}
menuentry 'memtest' { linux16 /boot/memtest86+.bin }
	linux16	/boot/memtest86+.bin console=x
`

// TestKernelArgs edits a real ext4 file system behind a loop device, twice.
func TestKernelArgs(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("mounting needs root")
	}
	r := installed(t, gptTable, 16<<20)
	tree := t.TempDir()
	for name, text := range map[string]string{"boot/grub/grub.cfg": grubCfg, "etc/default/grub.d/10-image.cfg": "", "boot/loader/entries/a.conf": "title A\noptions root=/dev/vda1 ro\n",
		"etc/kernel/cmdline": "root=/dev/vda1 ro\n"} {
		p := filepath.Join(tree, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o444); err != nil {
			t.Fatal(err)
		}
	}
	disk := filepath.Join(r.dir, "sda")
	run(t, "", "mke2fs", "-q", "-F", "-t", "ext4", "-d", tree, "-E", "offset=3145728", disk, "8192k")
	mounted := 0
	mount := func(write bool) func(string, app.Partition) (string, func() error, error) {
		return func(_ string, p app.Partition) (string, func() error, error) {
			if p.FS != "ext4" {
				return t.TempDir(), func() error { return nil }, nil
			}
			mounted++
			dir := t.TempDir()
			loop := strings.TrimSpace(run(t, "", "losetup", "--find", "--show", "-o", "3145728", "--sizelimit", "8388608", disk))
			if out, err := exec.Command("mount", "-t", "ext4", loop, dir).CombinedOutput(); err != nil {
				_ = exec.Command("losetup", "-d", loop).Run()
				t.Skipf("ext4 cannot be mounted here: %s", out)
			}
			return dir, func() error {
				run(t, "", "umount", dir)
				run(t, "", "losetup", "-d", loop)
				return nil
			}, nil
		}
	}
	r.cfg.Mount = mount(true)
	for range 2 {
		if err := r.configure(t, seedFiles, `console=ttyS0,115200 ds=nocloud;s=x "a b"`); err != nil {
			t.Fatal(err)
		}
	}
	run(t, "", "e2fsck", "-n", "-f", disk+"?offset=3145728")
	dir, unmount, err := mount(false)("sda", app.Partition{FS: "ext4"})
	if err != nil {
		t.Fatal(err)
	}
	defer unmount()
	read := func(name string) string {
		b, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Error(err)
		}
		return string(b)
	}
	want := strings.NewReplacer("ro quiet", `ro quiet console=ttyS0,115200 'ds=nocloud;s=x' '"a b"'`, "ro single", `ro single console=ttyS0,115200 'ds=nocloud;s=x' '"a b"'`).Replace(grubCfg)
	if got := read("boot/grub/grub.cfg"); got != want {
		t.Errorf("grub.cfg:\n%s", got)
	}
	if got := read("boot/loader/entries/a.conf"); got != "title A\noptions root=/dev/vda1 ro console=ttyS0,115200 ds=nocloud;s=x \"a b\"\n" {
		t.Errorf("entry:\n%s", got)
	}
	if got := read("etc/default/grub.d/99-bcd.cfg"); !strings.HasSuffix(got, "\nGRUB_CMDLINE_LINUX=\"$GRUB_CMDLINE_LINUX console=ttyS0,115200 ds=nocloud;s=x \\\"a b\\\"\"\n") {
		t.Errorf("99-bcd.cfg:\n%s", got)
	}
	if got := read("etc/kernel/cmdline"); !strings.HasSuffix(got, " ds=nocloud;s=x \"a b\"\n") {
		t.Errorf("cmdline: %s", got)
	}
	if info, err := os.Stat(filepath.Join(dir, "boot/grub/grub.cfg")); err != nil || info.Mode().Perm() != 0o444 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestLoaderStaysInside: links of the image that lead out of it are followed nowhere.
func TestLoaderStaysInside(t *testing.T) {
	outside := filepath.Join(t.TempDir(), "victim")
	if err := os.WriteFile(outside, []byte(grubCfg), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, link := range []string{outside, "../../../../../../.." + outside} {
		dir := t.TempDir()
		if err := os.MkdirAll(filepath.Join(dir, "boot/grub"), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(link, filepath.Join(dir, "boot/grub/grub.cfg")); err != nil {
			t.Fatal(err)
		}
		if n, err := editLoader(dir, "quiet"); err == nil && n != 0 {
			t.Errorf("%s: %d entries", link, n)
		}
	}
	if b, _ := os.ReadFile(outside); string(b) != grubCfg {
		t.Error("a file outside the image was changed")
	}
}

// TestTwins: another disk with the image's file system or volume group stops the deploy, or is cleared when allowed.
func TestTwins(t *testing.T) {
	s := newSite(t, testRaw(1, 2<<20))
	target := sda(4 << 20)
	other := agentv1.Disk{Name: "sdb", Serial: "S2", Bytes: 80 << 20, SectorSize: 512}
	r := newRig(t, s, target, other)
	src := installed(t, gptTable, 16<<20)
	disk := filepath.Join(src.dir, "sda")
	run(t, "", "mke2fs", "-q", "-F", "-t", "ext4", "-U", "11111111-2222-3333-4444-555555555555", "-E", "offset=3145728", disk, "8192k")
	if err := os.Rename(disk, filepath.Join(r.dir, "sdb")); err != nil {
		t.Fatal(err)
	}
	o := s.order(target)
	o.FSUUIDs = []string{"11111111-2222-3333-4444-555555555555"}
	before := r.content(t, "sdb")
	_, err := r.Write(context.Background(), o, quiet)
	if reason(err) != "disk-twin" || !strings.Contains(err.Error(), "S2") {
		t.Fatalf("got %v", err)
	}
	r.untouched(t, "sda")
	o.WipeOthers = true
	if _, err := r.Write(context.Background(), o, quiet); err != nil {
		t.Fatal(err)
	}
	after := r.content(t, "sdb")
	if l := layout.Detect(bytes.NewReader(after), int64(len(after)), 512); l.Table != "none" || len(l.Partitions) != 0 {
		t.Errorf("the other disk still has %+v", l)
	}
	if fs, _ := layout.Probe(bytes.NewReader(after), 3<<20, 8<<20); fs != "" {
		t.Errorf("the other disk's %s is still there", fs)
	}
	if bytes.Equal(before, after) {
		t.Error("the other disk was not cleared")
	}
}

// TestStaleSeed: first-boot data on another disk would be taken by cloud-init.
func TestStaleSeed(t *testing.T) {
	s := newSite(t, testRaw(1, 2<<20))
	src := installed(t, gptTable, 16<<20)
	if err := src.configure(t, seedFiles, ""); err != nil {
		t.Fatal(err)
	}
	target := agentv1.Disk{Name: "sdb", Serial: "S2", Bytes: 4 << 20, SectorSize: 512}
	r := newRig(t, s, target)
	if err := os.Rename(filepath.Join(src.dir, "sda"), filepath.Join(r.dir, "sda")); err != nil {
		t.Fatal(err)
	}
	r.disks = append(r.disks, src.disks[0])
	o := s.order(target)
	if _, err := r.Write(context.Background(), o, quiet); reason(err) != "disk-twin" || !strings.Contains(err.Error(), "CIDATA") {
		t.Errorf("got %v", err)
	}
	r.untouched(t, "sdb")
	o.WipeOthers = true
	if _, err := r.Write(context.Background(), o, quiet); err != nil {
		t.Fatal(err)
	}
	if l := r.layout(t); len(l.Partitions) != 0 {
		t.Errorf("the other disk has %+v", l)
	}
}

// Field case 83: the kernel puts a p before the number where a disk's name ends in a digit.
func TestPartitionNode(t *testing.T) {
	for disk, want := range map[string]string{"sda": "sda3", "vdb": "vdb3", "nvme0n1": "nvme0n1p3", "nvme1n12": "nvme1n12p3", "mmcblk0": "mmcblk0p3"} {
		if got := PartitionNode(disk, 3); got != want {
			t.Errorf("%s: %s, want %s", disk, got, want)
		}
	}
}
