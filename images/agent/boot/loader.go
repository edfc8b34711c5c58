package boot

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
)

// Bounds of what is read of loaders.
const (
	maxLoaders  = 64       // files below EFI
	maxHeaders  = 64 << 10 // bytes, of a PE file
	maxSections = 96
	maxText     = 8 << 20 // bytes that are searched for a name
)

// loaders are what a firmware could start, other than a Linux kernel by a configuration that was read.
type loaders struct {
	systems []string // that need nothing more: a unified kernel image, Windows, a BSD
	broken  []string // sentences on those that lack something
	linux   []string // that need a configuration: "GRUB", "systemd-boot"
	legacy  bool     // there is a configuration of GRUB before version 2, which is not read
}

func (l *loaders) needs(name string) {
	if !slices.Contains(l.linux, name) {
		l.linux = append(l.linux, name)
	}
}

// legacyFiles are where GRUB before version 2 keeps its menu.
var legacyFiles = []string{"/boot/grub/menu.lst", "/grub/menu.lst", "/boot/grub/grub.conf", "/grub/grub.conf"}

// lookForLoaders looks at the boot code for BIOS or at the EFI system partitions; a firmware that is not known gets both.
func lookForLoaders(m *mounted, firmware string) (l loaders) {
	for _, p := range m.parts {
		for _, name := range legacyFiles {
			l.legacy = l.legacy || exists(p, name)
		}
	}
	if firmware != "uefi" && !l.legacy && bytes.Contains(m.code[:440], []byte("GRUB")) {
		l.needs("GRUB")
	}
	if firmware == "bios" {
		return l
	}
	seen := 0
	for _, p := range m.parts {
		l.entries(p)
		if p.fs != "vfat" {
			continue
		}
		efi := p.fold("/EFI")
		for _, vendor := range p.list(efi) {
			dir := path.Join(efi, vendor)
			if strings.EqualFold(vendor, "Microsoft") {
				l.windows(p, dir)
				continue
			}
			for _, name := range p.list(dir) {
				if seen++; seen <= maxLoaders && strings.EqualFold(path.Ext(name), ".efi") {
					l.add(p, path.Join(dir, name))
				}
			}
		}
	}
	return l
}

// entries takes systemd-boot's entries of EFI programs for systems.
func (l *loaders) entries(p *partition) {
	dir := p.fold("/loader/entries")
	for i, name := range p.list(dir) {
		b, err := p.read(path.Join(dir, name), maxHeaders)
		if err != nil || i >= maxBLS {
			continue
		}
		for line := range strings.Lines(string(b)) {
			f := strings.Fields(line)
			if len(f) == 2 && (f[0] == "efi" || f[0] == "uki") && exists(p, p.fold(f[1])) {
				l.systems = append(l.systems, fmt.Sprintf("entry %s, which starts %s", clip(name, 80), clip(f[1], 80)))
			}
		}
	}
}

// windows takes its boot manager for a system when it has its store of entries.
func (l *loaders) windows(p *partition, dir string) {
	manager, store := p.fold(path.Join(dir, "Boot/bootmgfw.efi")), p.fold(path.Join(dir, "Boot/BCD"))
	switch {
	case !exists(p, manager):
	case !exists(p, store):
		l.broken = append(l.broken, fmt.Sprintf("it has the Windows boot manager, and no %s beside it, which lists what to start", path.Join(dir, "Boot/BCD")))
	default:
		l.systems = append(l.systems, "Windows boot manager "+manager)
	}
}

// add says what a loader is by its sections, or by the name of a BSD in it.
func (l *loaders) add(p *partition, name string) {
	f, err := p.open(name)
	if err != nil {
		return
	}
	defer f.Close()
	sections := peSections(f)
	switch {
	case slices.Contains(sections, ".linux"):
		l.systems = append(l.systems, "unified kernel image "+name)
	case slices.Contains(sections, ".sdmagic"):
		l.needs("systemd-boot")
	case slices.Contains(sections, "mods"): // of grub-mkimage
		if holds(f, "vmlinuz") {
			return // it carries a configuration of its own
		}
		l.needs("GRUB")
	case len(sections) > 0:
		for _, bsd := range []string{"FreeBSD", "OpenBSD", "NetBSD"} {
			if holds(f, bsd) {
				l.systems = append(l.systems, bsd+"'s loader "+name)
				return
			}
		}
	}
}

// holds reports whether a text is in the first bytes of a file.
func holds(r io.ReaderAt, text string) bool {
	b, err := io.ReadAll(io.NewSectionReader(r, 0, maxText))
	return err == nil && bytes.Contains(b, []byte(text))
}

// peSections names the sections of a PE file (Microsoft Portable Executable and COFF Format Specification), nil for what is none.
func peSections(r io.ReaderAt) (names []string) {
	b := make([]byte, maxHeaders)
	n, _ := r.ReadAt(b, 0)
	if b = b[:n]; n < 64 || string(b[:2]) != "MZ" {
		return nil
	}
	at := int64(binary.LittleEndian.Uint32(b[0x3c:]))
	if at+24 > int64(n) || string(b[at:at+4]) != "PE\x00\x00" {
		return nil
	}
	count, table := int(binary.LittleEndian.Uint16(b[at+6:])), at+24+int64(binary.LittleEndian.Uint16(b[at+20:]))
	for i := range int64(min(count, maxSections)) {
		s := table + 40*i
		if s+40 > int64(n) {
			break
		}
		name, _, _ := bytes.Cut(b[s:s+8], []byte{0})
		names = append(names, string(name))
	}
	return names
}
