package boot

import (
	"log/slog"
	"path"
	"strings"
)

// grubFiles are the places of the whole configuration, before the stubs on an EFI system partition that only lead there.
var grubFiles = []string{"/boot/grub/grub.cfg", "/grub/grub.cfg", "/boot/grub2/grub.cfg", "/grub2/grub.cfg"}

// find gives what the disk would start by default. A GRUB configuration counts when its menu has an entry; systemd-boot's
// entries are looked for when no GRUB is there.
func find(parts []*partition, firmware string, log *slog.Logger) (entry, error) {
	var why error
	for _, name := range grubFiles {
		for _, p := range parts {
			if !exists(p, name) {
				continue
			}
			e, err := fromGRUB(parts, p, name, firmware, log)
			if err == nil {
				return e, nil
			}
			log.Info("a boot configuration is of no use", "partition", p.number, "file", name, "error", err)
			why = err
		}
	}
	for _, p := range parts {
		for _, name := range stubs(p) {
			if e, err := fromGRUB(parts, p, name, firmware, log); err == nil {
				return e, nil
			}
		}
	}
	if e, ok := systemdBoot(parts); ok {
		return e, nil
	}
	if why != nil {
		return entry{}, why
	}
	return entry{}, noEntry("it has neither a GRUB configuration nor systemd-boot entries that can be read")
}

func fromGRUB(parts []*partition, p *partition, name, firmware string, log *slog.Logger) (entry, error) {
	g := newGRUB(parts, p, name, firmware, log)
	if err := g.source("(" + device(p) + ")" + name); err != nil {
		return entry{}, noEntry(err.Error())
	}
	return g.chosen()
}

// stubs lists EFI/*/grub.cfg.
func stubs(p *partition) []string {
	var out []string
	efi := p.fold("/EFI")
	for _, vendor := range p.list(efi) {
		for _, name := range p.list(path.Join(efi, vendor)) {
			if strings.EqualFold(name, "grub.cfg") {
				out = append(out, path.Join(efi, vendor, name))
			}
		}
	}
	return out
}
