package uki

import (
	"bytes"
	"crypto/sha256"
	"debug/pe"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

const (
	debianStub = "/usr/lib/systemd/boot/efi/linuxx64.efi.stub"
	slot       = 16 << 10
)

// parts are a kernel and an initramfs of odd lengths.
func parts(t testing.TB) Config {
	t.Helper()
	if _, err := os.Stat(debianStub); err != nil {
		t.Skipf("left out: %v (Debian's systemd-boot-efi has it)", err)
	}
	dir := t.TempDir()
	random := rand.NewChaCha8([32]byte{7})
	for name, n := range map[string]int{"vmlinuz": 3_000_001, "initramfs.zst": 5_000_003} {
		b := make([]byte, n)
		_, _ = random.Read(b)
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return Config{Stub: debianStub, Kernel: filepath.Join(dir, "vmlinuz"), Initramfs: filepath.Join(dir, "initramfs.zst"), Slot: slot}
}

func maker(t testing.TB) (*Maker, Config) {
	t.Helper()
	cfg := parts(t)
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return m, cfg
}

var node = Machine{BootData: []byte("070701 boot data of a machine..."), Cmdline: "console=ttyS0,115200 rdinit=/init"}

func all(t testing.TB, i *Image) []byte {
	t.Helper()
	b, err := io.ReadAll(io.NewSectionReader(i, 0, i.Size()))
	if err != nil || int64(len(b)) != i.Size() {
		t.Fatalf("%d of %d bytes: %v", len(b), i.Size(), err)
	}
	return b
}

func images(t testing.TB) (program, cd *Image, cfg Config) {
	t.Helper()
	m, cfg := maker(t)
	program, err := m.UKI(node)
	if err != nil {
		t.Fatal(err)
	}
	if cd, err = ISO(program); err != nil {
		t.Fatal(err)
	}
	return program, cd, cfg
}

// What a reader of PE files finds in the sections is what was put in.
func TestSections(t *testing.T) {
	program, _, cfg := images(t)
	f, err := pe.NewFile(program)
	if err != nil {
		t.Fatal(err)
	}
	kernel, _ := os.ReadFile(cfg.Kernel)
	initramfs, _ := os.ReadFile(cfg.Initramfs)
	want := map[string][]byte{
		".osrel": []byte(osrel), ".cmdline": []byte(node.Cmdline + "\x00"), ".linux": kernel,
		".initrd": append(append(bytes.Clone(node.BootData), make([]byte, slot-len(node.BootData))...), initramfs...),
	}
	var end uint32
	for _, s := range f.Sections {
		if s.VirtualAddress < end {
			t.Errorf("%s begins at %#x, before the end of the section before", s.Name, s.VirtualAddress)
		}
		end = s.VirtualAddress + s.VirtualSize
		b, ok := want[s.Name]
		if !ok {
			continue
		}
		delete(want, s.Name)
		got, err := s.Data()
		if err != nil || len(got) < len(b) || !bytes.Equal(got[:len(b)], b) || int(s.VirtualSize) != len(b) {
			t.Errorf("%s: %d bytes, want %d: %v", s.Name, s.VirtualSize, len(b), err)
		}
	}
	if len(want) > 0 {
		t.Errorf("missing: %v", want)
	}
	h := f.OptionalHeader.(*pe.OptionalHeader64)
	if h.SizeOfImage < end || h.SizeOfImage%h.SectionAlignment != 0 && h.SizeOfImage%4096 != 0 || h.CheckSum != 0 {
		t.Errorf("image of %#x bytes, sections end at %#x, checksum %#x", h.SizeOfImage, end, h.CheckSum)
	}
	if f.NumberOfSections != uint16(len(f.Sections)) || int64(h.SizeOfHeaders) > int64(f.Sections[0].Offset) {
		t.Errorf("headers of %d bytes, first section at %d", h.SizeOfHeaders, f.Sections[0].Offset)
	}
}

// Equal inputs give equal bytes and tags; anything else gives others. Images of one size have their boot data in one place.
func TestDeterminism(t *testing.T) {
	m, _ := maker(t)
	type digest struct {
		program, cd [32]byte
		tag         string
	}
	of := func(x Machine) (d digest, size int64) {
		program, err := m.UKI(x)
		if err != nil {
			t.Fatal(err)
		}
		cd, err := ISO(program)
		if err != nil {
			t.Fatal(err)
		}
		return digest{sha256.Sum256(all(t, program)), sha256.Sum256(all(t, cd)), program.Tag() + cd.Tag()}, program.Size()
	}
	first, size := of(node)
	if again, _ := of(node); again != first {
		t.Error("the same machine got other bytes")
	}
	for name, x := range map[string]Machine{
		"boot data": {BootData: []byte("070701 boot data of another....."), Cmdline: node.Cmdline},
		"arguments": {BootData: node.BootData, Cmdline: strings.Replace(node.Cmdline, "S0", "S1", 1)},
	} {
		d, n := of(x)
		if d.program == first.program || d.cd == first.cd || d.tag == first.tag {
			t.Errorf("other %s gave the same bytes or tag", name)
		}
		if n != size {
			t.Errorf("other %s changed the size from %d to %d", name, size, n)
		}
	}
}

// Any range, read in any way, holds what the whole does.
func TestRanges(t *testing.T) {
	program, cd, _ := images(t)
	for name, i := range map[string]*Image{"program": program, "CD": cd} {
		whole := all(t, i)
		r := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			off := r.Int64N(i.Size())
			p := make([]byte, r.IntN(70_000))
			n, err := i.ReadAt(p, off)
			if want := whole[off:min(i.Size(), off+int64(len(p)))]; !bytes.Equal(p[:n], want) || (err == io.EOF) != (n < len(p)) || err != nil && err != io.EOF {
				t.Fatalf("%s: %d bytes at %d: got %d, %v", name, len(p), off, n, err)
			}
		}
		for _, x := range []struct {
			off, n, want int64
			err          error
		}{{i.Size(), 1, 0, io.EOF}, {i.Size() + 5, 1, 0, io.EOF}, {i.Size() - 1, 1, 1, nil}, {i.Size() - 1, 2, 1, io.EOF}, {0, 0, 0, nil}} {
			if n, err := i.ReadAt(make([]byte, x.n), x.off); int64(n) != x.want || err != x.err {
				t.Errorf("%s: %d bytes at %d: %d, %v", name, x.n, x.off, n, err)
			}
		}
		if _, err := i.ReadAt(make([]byte, 1), -1); err == nil {
			t.Errorf("%s: a negative offset was read", name)
		}
	}
}

// Replaced files do not change what is made of the old ones; one that became shorter is an error, not zeros.
func TestFilesUnderneath(t *testing.T) {
	m, cfg := maker(t)
	program, err := m.UKI(node)
	if err != nil {
		t.Fatal(err)
	}
	before := sha256.Sum256(all(t, program))
	if err := os.Rename(cfg.Kernel, cfg.Kernel+".old"); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(cfg.Kernel, []byte("another kernel"), 0o600); err != nil {
		t.Fatal(err)
	}
	if sha256.Sum256(all(t, program)) != before {
		t.Error("the image changed with the file's replacement")
	}
	if err := os.Truncate(cfg.Kernel+".old", 1000); err != nil {
		t.Fatal(err)
	}
	if _, err := io.Copy(io.Discard, io.NewSectionReader(program, 0, program.Size())); err == nil {
		t.Error("a kernel that was cut short was read without an error")
	}
}

func TestRefusals(t *testing.T) {
	m, cfg := maker(t)
	for name, c := range map[string]struct {
		m      Machine
		reason string
	}{
		"slot overflow":     {Machine{BootData: make([]byte, slot+4)}, "boot-data-too-large"},
		"long arguments":    {Machine{BootData: node.BootData, Cmdline: strings.Repeat("x", MaxCmdline+1)}, "kernel-arguments-too-long"},
		"two lines":         {Machine{BootData: node.BootData, Cmdline: "a\nb"}, "kernel-arguments-unprintable"},
		"end in the middle": {Machine{BootData: node.BootData, Cmdline: "a\x00b"}, "kernel-arguments-unprintable"},
	} {
		if e, ok := app.AsError(second(m.UKI(c.m))); !ok || e.Reason != c.reason || e.WayOut == "" {
			t.Errorf("%s: %v", name, e)
		}
	}
	for name, change := range map[string]func(*Config){
		"no stub":        func(c *Config) { c.Stub += ".absent" },
		"no kernel":      func(c *Config) { c.Kernel += ".absent" },
		"no initramfs":   func(c *Config) { c.Initramfs = t.TempDir() },
		"kernel as stub": func(c *Config) { c.Stub = c.Kernel },
		"odd slot":       func(c *Config) { c.Slot = 6 },
	} {
		bad := cfg
		change(&bad)
		if got, err := New(bad); err == nil {
			t.Errorf("%s: accepted", name)
			_ = got.Close()
		}
	}
	if _, err := ISO(&Image{size: maxOnCD + 1}); app.CodeOf(err) != app.TooLarge {
		t.Errorf("a program too large for a CD: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// The CD as foreign programs read it: xorriso the catalog and the tree, mtools the file system inside.
func TestForeignReaders(t *testing.T) {
	program, cd, _ := images(t)
	name := filepath.Join(t.TempDir(), "boot.iso")
	if err := os.WriteFile(name, all(t, cd), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Run("xorriso", func(t *testing.T) {
		out := foreign(t, "xorriso", "-indev", name, "-report_el_torito", "plain", "-find", "/", "-exec", "lsdl", "--")
		for _, want := range []string{"El Torito boot img :   1  UEFI  y   none", "efiboot.img", "El Torito img path :   1  /efiboot.img"} {
			if !strings.Contains(strings.ToLower(out), strings.ToLower(want)) {
				t.Errorf("it does not say %q:\n%s", want, out)
			}
		}
	})
	t.Run("mtools", func(t *testing.T) {
		to := filepath.Join(t.TempDir(), "boot.efi")
		foreign(t, "mcopy", "-n", "-i", name+"@@49152", "::EFI/BOOT/BOOTX64.EFI", to)
		if b, err := os.ReadFile(to); err != nil || !bytes.Equal(b, all(t, program)) {
			t.Errorf("mcopy took other bytes out: %v", err)
		}
	})
	t.Run("fsck.fat", func(t *testing.T) {
		fat := filepath.Join(t.TempDir(), "fat")
		if err := os.WriteFile(fat, all(t, cd)[isoBoot*isoBlock:], 0o600); err != nil {
			t.Fatal(err)
		}
		if out := foreign(t, "fsck.fat", "-n", "-v", fat); !strings.Contains(out, ": 4 files") || strings.Contains(out, "differ") {
			t.Error(out)
		}
	})
	t.Run("sfdisk", func(t *testing.T) {
		if out := foreign(t, "sfdisk", "-d", name); !strings.Contains(out, "start=          96") || !strings.Contains(out, "type=ef") {
			t.Error(out)
		}
	})
}

func foreign(t *testing.T, program string, args ...string) string {
	t.Helper()
	path, err := exec.LookPath(program)
	if err != nil {
		if path = "/usr/sbin/" + program; !exists(path) {
			t.Skipf("left out: %v", err)
		}
	}
	out, err := exec.Command(path, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", program, err, out)
	}
	return string(out)
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// Every length of program lies in the file system as it should, at each size of cluster.
func TestFATGeometry(t *testing.T) {
	for _, size := range []int64{1, 2047, 2048, 2049, 8 << 20, 32 << 20, 129_995_999, 130 << 20, 500 << 20, maxOnCD} {
		f := newFAT(size)
		if f.clusters < fatMin || f.clusters > fatMax || f.fileAt()+size > f.size() || f.size()%isoBlock != 0 || f.data()%isoBlock != 0 ||
			f.table*fatSector < (f.clusters+2)*2 || f.cluster > 64<<10 {
			t.Errorf("%d bytes: %+v", size, f)
		}
	}
}

func FuzzStub(f *testing.F) {
	if raw, err := os.ReadFile(debianStub); err == nil {
		f.Add(raw[:0x400])
	}
	f.Add([]byte("MZ"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		s, err := parseStub(raw)
		if err != nil {
			return
		}
		sections := [added]section{{name: ".a", size: 1}, {name: ".b", size: 1 << 20}, {name: ".c", size: 12345}, {name: ".d", size: 7}}
		head, size, err := s.head(&sections)
		if err == nil && (int64(len(head)) > size || sections[0].at < int64(len(raw)) || size > maxImage) {
			t.Fatalf("head of %d bytes, image of %d, %+v", len(head), size, sections)
		}
	})
}
