package layout

import (
	"encoding/binary"
	"io"

	"github.com/better-compute/bcd/app"
)

// TableISO is app.Layout.Table of a CD or DVD image.
const TableISO = app.TableISO

// isoSector is the block of ISO 9660, bytes.
const isoSector = 2048

// ISO reads the boot catalog (El Torito) of an ISO 9660 image: for which firmware it boots. A hybrid image, which also has
// a partition table, is one too.
func ISO(r io.ReaderAt) (l app.Layout, ok bool) {
	b := make([]byte, isoSector)
	if !isoRead(r, b, 16) || string(b[1:6]) != "CD001" {
		return l, false
	}
	l = app.Layout{Table: TableISO, SectorSize: isoSector}
	if !isoRead(r, b, 17) || b[0] != 0 || string(b[1:6]) != "CD001" || string(b[7:30]) != "EL TORITO SPECIFICATION" {
		return l, true
	}
	if !isoRead(r, b, int64(binary.LittleEndian.Uint32(b[0x47:]))) || b[0] != 1 || b[0x1e] != 0x55 || b[0x1f] != 0xAA {
		return l, true
	}
	platform := b[1]
	for at := 32; at < len(b); at += 32 {
		switch b[at] {
		case 0x88: // bootable
			l.BIOS = l.BIOS || platform == 0
			l.UEFI = l.UEFI || platform == 0xEF
		case 0x90, 0x91: // header of a section
			platform = b[at+1]
		}
	}
	return l, true
}

func isoRead(r io.ReaderAt, b []byte, block int64) bool {
	n, _ := r.ReadAt(b, block*isoSector)
	return n == len(b)
}
