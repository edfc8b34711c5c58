package boot

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"
	"testing"
)

// portable makes the headers of a PE file with such sections.
func portable(sections ...string) string {
	const at = 0x80
	b := make([]byte, at+24+40*len(sections))
	copy(b, "MZ")
	binary.LittleEndian.PutUint32(b[0x3c:], at)
	copy(b[at:], "PE\x00\x00")
	binary.LittleEndian.PutUint16(b[at+6:], uint16(len(sections)))
	for i, s := range sections {
		copy(b[at+24+40*i:at+24+40*i+8], s)
	}
	return string(b)
}

func TestPESections(t *testing.T) {
	whole := portable(".text", ".linux", ".sixteen")
	for name, c := range map[string]struct {
		file string
		want []string
	}{
		"whole":              {whole, []string{".text", ".linux", ".sixteen"}},
		"cut in the table":   {whole[:len(whole)-1], []string{".text", ".linux"}},
		"cut in the headers": {whole[:0x90], nil},
		"no PE":              {"MZ" + strings.Repeat("\x00", 100), nil},
		"headers far away":   {"MZ" + strings.Repeat("\xff", 100), nil},
		"nothing":            {"", nil},
	} {
		if got := peSections(strings.NewReader(c.file)); !slices.Equal(got, c.want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}

func FuzzPESections(f *testing.F) {
	f.Add([]byte(portable(".text", ".linux")))
	f.Fuzz(func(t *testing.T, b []byte) {
		if n := len(peSections(bytes.NewReader(b))); n > maxSections {
			t.Errorf("%d sections", n)
		}
	})
}

// BIOS starts the code in the first sector; what UEFI would start is no matter then.
func TestBootCode(t *testing.T) {
	m := &mounted{code: make([]byte, 512), parts: []*partition{tree(t, 1, "", "", map[string]string{"EFI/BOOT/BOOTX64.EFI": portable(".linux")})}}
	m.parts[0].fs = "vfat"
	copy(m.code[0x180:], "GRUB \x00Geom\x00Hard Disk\x00Read\x00 Error")
	if l := lookForLoaders(m, "bios"); !slices.Equal(l.linux, []string{"GRUB"}) || len(l.systems) > 0 {
		t.Errorf("%+v", l)
	}
	if l := lookForLoaders(m, "uefi"); len(l.linux) > 0 || len(l.systems) != 1 {
		t.Errorf("%+v", l)
	}
	if l := lookForLoaders(m, ""); len(l.linux) != 1 || len(l.systems) != 1 {
		t.Errorf("%+v", l)
	}
	old := m.parts[0]
	m.parts[0] = tree(t, 1, "", "", map[string]string{"boot/grub/menu.lst": "default 0\n"})
	if l := lookForLoaders(m, "bios"); len(l.linux) > 0 || !l.legacy {
		t.Errorf("GRUB before version 2: %+v", l)
	}
	m.parts[0] = old
	copy(m.code[440:], "GRUB") // of the table
	clear(m.code[:440])
	if l := lookForLoaders(m, "bios"); len(l.linux) > 0 {
		t.Errorf("%+v", l)
	}
}

// A GRUB that carries its configuration in itself needs none on the disk.
func TestGRUBWithItsOwnConfiguration(t *testing.T) {
	m := &mounted{code: make([]byte, 512), parts: []*partition{tree(t, 1, "", "", map[string]string{"EFI/BOOT/BOOTX64.EFI": portable("mods") + "linux /boot/vmlinuz root=/dev/vda1"})}}
	m.parts[0].fs = "vfat"
	if l := lookForLoaders(m, "uefi"); len(l.linux) > 0 || len(l.systems) > 0 {
		t.Errorf("%+v", l)
	}
}
