package boot

import (
	"errors"
	"log/slog"
	"path"
	"strings"
)

// grubFiles are the places of the whole configuration, before the stubs on an EFI system partition that only lead there.
var grubFiles = []string{"/boot/grub/grub.cfg", "/grub/grub.cfg", "/boot/grub2/grub.cfg", "/grub2/grub.cfg"}

// reading is what the boot configurations of a disk say.
type reading struct {
	entry   entry
	err     error   // why there is no entry of a Linux kernel
	loader  string  // whose configuration was read last, "" for none
	sure    bool    // each of them was understood to its end
	chained []entry // defaults that start another loader
}

// failed notes a configuration of no use.
func (r *reading) failed(loader string, e entry, err error) {
	r.sure = errors.As(err, new(sure)) && (r.sure || r.loader == "")
	r.err, r.loader = err, loader
	if e.chain != "" {
		r.chained = append(r.chained, e)
	}
}

// find gives what the disk would start by default.
func find(parts []*partition, firmware string, log *slog.Logger) (entry, error) {
	r := read(parts, firmware, log)
	return r.entry, r.err
}

// read looks for what the disk would start by default. A GRUB configuration counts when its menu has an entry; entries of
// systemd-boot, and then of SYSLINUX, are looked for when no GRUB is there.
func read(parts []*partition, firmware string, log *slog.Logger) (r reading) {
	for _, name := range grubFiles {
		for _, p := range parts {
			if !exists(p, name) {
				continue
			}
			e, err := fromGRUB(parts, p, name, firmware, log)
			if err == nil {
				return reading{entry: e, loader: "GRUB"}
			}
			log.Info("a boot configuration is of no use", "partition", p.number, "file", name, "error", err)
			r.failed("GRUB", e, err)
		}
	}
	for _, p := range parts {
		for _, name := range stubs(p) {
			e, err := fromGRUB(parts, p, name, firmware, log)
			if err == nil {
				return reading{entry: e, loader: "GRUB"}
			}
			if r.loader == "" || e.chain != "" {
				r.failed("GRUB", e, err)
			}
			r.sure = r.sure && errors.As(err, new(sure))
		}
	}
	if e, ok := systemdBoot(parts); ok {
		return reading{entry: e, loader: "systemd-boot"}
	}
	if e, found, err := syslinux(parts); found {
		if err == nil {
			return reading{entry: e, loader: "SYSLINUX"}
		}
		r.failed("SYSLINUX", entry{}, err)
	}
	if r.err == nil {
		r.err = noEntry("it has neither a GRUB configuration nor entries of systemd-boot or SYSLINUX that can be read")
	}
	return r
}

func fromGRUB(parts []*partition, p *partition, name, firmware string, log *slog.Logger) (entry, error) {
	g := newGRUB(parts, p, name, firmware, log)
	if err := g.source("(" + device(p) + ")" + name); err != nil {
		return entry{}, noEntry(err.Error())
	}
	e, err := g.chosen()
	e.blind = g.blind
	return e, err
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
