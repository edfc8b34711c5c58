package layout

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// tool runs a program of Debian's file-system tools, or skips with the package that has it.
func tool(t *testing.T, stdin string, name string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(name); err != nil {
		t.Skipf("%s is not installed (packages fdisk, e2fsprogs, dosfstools, mtools)", name)
	}
	c := exec.Command(name, args...)
	c.Stdin = strings.NewReader(stdin)
	if out, err := c.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v: %s", name, err, out)
	}
}

func blank(t *testing.T, name string, size int64) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(p, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(p, size); err != nil {
		t.Fatal(err)
	}
	return p
}

func detect(t *testing.T, path string, sector int) app.Layout {
	t.Helper()
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	info, _ := f.Stat()
	return Detect(f, info.Size(), sector)
}

// put copies a file into another at an offset.
func put(t *testing.T, dst string, off int64, src string) {
	t.Helper()
	b, err := os.ReadFile(src)
	if err != nil {
		t.Fatal(err)
	}
	f, err := os.OpenFile(dst, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, off); err != nil {
		t.Fatal(err)
	}
}

// TestGPTWithSystems reads what sfdisk, mkfs.vfat and mke2fs wrote: ESP with and without loader, BIOS boot, ext4.
func TestGPTWithSystems(t *testing.T) {
	img := blank(t, "disk", 80<<20)
	tool(t, `label: gpt
start=2048, size=2048, type=21686148-6449-6E6F-744E-656564454649
start=4096, size=65536, type=C12A7328-F81F-11D2-BA4B-00A0C93EC93B, name="ESP"
start=69632, size=32768, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name="root"
`, "sfdisk", "-q", img)
	esp := blank(t, "esp", 32<<20)
	tool(t, "", "mkfs.vfat", "-i", "0BC1E5F0", esp)
	root := blank(t, "root", 16<<20)
	tool(t, "", "mke2fs", "-q", "-t", "ext4", "-U", "11111111-2222-3333-4444-555555555555", root)
	put(t, img, 2<<20, esp)
	put(t, img, 34<<20, root)

	l := detect(t, img, 0)
	if l.Table != "gpt" || l.SectorSize != 512 || l.UEFI || l.BIOS || len(l.Partitions) != 3 {
		t.Fatalf("layout %+v", l)
	}
	if p := l.Partitions[1]; p.FS != "vfat" || p.FSUUID != "0BC1-E5F0" || p.Name != "ESP" || p.Start != 2<<20 || p.Size != 32<<20 {
		t.Errorf("ESP %+v", p)
	}
	if p := l.Partitions[2]; p.FS != "ext4" || p.FSUUID != "11111111-2222-3333-4444-555555555555" || p.Number != 3 {
		t.Errorf("root %+v", p)
	}

	loader := filepath.Join(t.TempDir(), "x")
	if err := os.WriteFile(loader, []byte("MZ"), 0o644); err != nil {
		t.Fatal(err)
	}
	tool(t, "", "mmd", "-i", esp, "::/EFI", "::/EFI/BOOT")
	tool(t, "", "mcopy", "-i", esp, loader, "::/EFI/BOOT/BOOTX64.EFI")
	put(t, img, 2<<20, esp)
	code := filepath.Join(t.TempDir(), "code")
	if err := os.WriteFile(code, []byte{0xeb, 0x63, 0x90}, 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, img, 0, code)
	put(t, img, 1<<20, code)
	if l := detect(t, img, 0); !l.UEFI || !l.BIOS {
		t.Errorf("with loaders: %+v", l)
	}
}

func TestFATWidths(t *testing.T) {
	for _, bits := range []string{"12", "16", "32"} {
		esp := blank(t, "esp", 40<<20)
		args := []string{"-F", bits, esp}
		if bits == "12" {
			args = append([]string{"-s", "32"}, args...)
		}
		tool(t, "", "mkfs.vfat", args...)
		tool(t, "", "mmd", "-i", esp, "::/EFI", "::/EFI/debian")
		f, _ := os.Open(esp)
		if HasLoader(f) {
			t.Errorf("FAT%s: a loader in an empty directory", bits)
		}
		tool(t, "", "mcopy", "-i", esp, os.Args[0], "::/EFI/debian/shimx64.efi")
		if !HasLoader(f) {
			t.Errorf("FAT%s: the loader was not found", bits)
		}
		f.Close()
	}
}

// TestGPT4096 is case 85's image: its header lies at byte 4096.
func TestGPT4096(t *testing.T) {
	img := blank(t, "disk", 64<<20)
	head, entries := make([]byte, 4096), make([]byte, 128*128)
	le := binary.LittleEndian
	copy(entries, "\xaf\x3d\xc6\x0f\x83\x84\x72\x47\x8e\x79\x3d\x69\xd8\x47\x7d\xe4")
	le.PutUint64(entries[32:], 256)
	le.PutUint64(entries[40:], 1279)
	copy(head, "EFI PART\x00\x00\x01\x00\x5c")
	for at, v := range map[int]uint64{24: 1, 32: 16383, 40: 6, 48: 16378, 72: 2} {
		le.PutUint64(head[at:], v)
	}
	le.PutUint32(head[80:], 128)
	le.PutUint32(head[84:], 128)
	le.PutUint32(head[88:], crc32.ChecksumIEEE(entries))
	le.PutUint32(head[16:], crc32.ChecksumIEEE(head[:92]))
	table := filepath.Join(t.TempDir(), "table")
	if err := os.WriteFile(table, append(head, entries...), 0o644); err != nil {
		t.Fatal(err)
	}
	put(t, img, 4096, table)
	l := detect(t, img, 0)
	if l.Table != "gpt" || l.SectorSize != 4096 || len(l.Partitions) != 1 || l.Partitions[0].Start != 1<<20 {
		t.Errorf("layout %+v", l)
	}
	if l := detect(t, img, 512); l.Table == "gpt" {
		t.Errorf("a 512-byte disk sees %+v", l)
	}
}

func TestMBRWithLogical(t *testing.T) {
	img := blank(t, "disk", 64<<20)
	tool(t, "label: dos\nstart=2048, size=16384, type=83, bootable\nstart=20480, size=65536, type=5\nstart=22528, size=8192, type=83\nstart=34816, size=8192, type=82\n",
		"sfdisk", "-q", img)
	l := detect(t, img, 0)
	var numbers []int
	for _, p := range l.Partitions {
		numbers = append(numbers, p.Number)
	}
	if l.Table != "mbr" || len(numbers) != 4 || numbers[2] != 5 || numbers[3] != 6 || l.Partitions[3].Start != 34816*512 {
		t.Errorf("layout %+v", l)
	}
}

func TestWholeDiskFileSystem(t *testing.T) {
	img := blank(t, "disk", 16<<20)
	tool(t, "", "mke2fs", "-q", "-t", "ext4", "-U", "11111111-2222-3333-4444-555555555555", img)
	l := detect(t, img, 0)
	if l.Table != "none" || len(IDs(l)) != 1 || IDs(l)[0] != "11111111-2222-3333-4444-555555555555" {
		t.Errorf("layout %+v", l)
	}
}

// TestLVM reads a physical volume laid out as pvcreate and vgcreate do.
func TestLVM(t *testing.T) {
	b := make([]byte, 1<<20)
	copy(b[512:], "LABELONE")
	copy(b[512+24:], "LVM2 001")
	copy(b[4096+4:], " LVM2 x[5A%r0N*>")
	meta := "vg-root {\nid = \"abc\"\nseqno = 3\n}\n"
	b[4096+41] = 2 // offset 512
	b[4096+48] = byte(len(meta))
	copy(b[4096+512:], meta)
	if fs, id := Probe(bytes.NewReader(b), 0, int64(len(b))); fs != "lvm" || id != "vg:vg-root" {
		t.Errorf("%s %s", fs, id)
	}
}

// FuzzDetect: no disk content panics or takes long.
func FuzzDetect(f *testing.F) {
	seed := make([]byte, 8192)
	copy(seed[512:], "EFI PART")
	f.Add(seed, true)
	seed = make([]byte, 2048)
	copy(seed[510:], "\x55\xaa")
	seed[0], seed[446+4], seed[446+8], seed[446+12] = 0xeb, 5, 1, 1
	copy(seed[54:], "FAT16   ")
	f.Add(seed, false)
	f.Fuzz(func(t *testing.T, b []byte, esp bool) {
		Detect(bytes.NewReader(b), int64(len(b)), 0)
		if esp {
			HasLoader(bytes.NewReader(b))
		}
	})
}
