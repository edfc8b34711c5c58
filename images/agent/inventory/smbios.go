package inventory

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Limits of the SMBIOS table.
const (
	maxTable      = 1 << 20 // bytes
	maxStructures = 8192
)

// table is an SMBIOS table with the version that says how to read it.
type table struct {
	major, minor byte
	structures   []structure
}

// structure is one structure: formatted is the part of fixed layout, header included.
type structure struct {
	kind      byte
	formatted []byte
	strings   []string
}

// parseSMBIOS reads an entry point and the table it belongs to (DSP0134). On damage it gives what stands before it, with an
// error.
func parseSMBIOS(entry, data []byte) (table, error) {
	var t table
	switch {
	case bytes.HasPrefix(entry, []byte("_SM3_")) && len(entry) >= 9:
		t.major, t.minor = entry[7], entry[8]
	case bytes.HasPrefix(entry, []byte("_SM_")) && len(entry) >= 8:
		t.major, t.minor = entry[6], entry[7]
	default:
		return t, errors.New("the SMBIOS entry point is missing or unknown")
	}
	if len(data) > maxTable {
		data = data[:maxTable]
	}
	for len(data) > 0 {
		s, rest, err := nextStructure(data)
		if err != nil {
			return t, fmt.Errorf("reading SMBIOS structure %d: %w", len(t.structures), err)
		}
		t.structures, data = append(t.structures, s), rest
		if s.kind == 127 {
			return t, nil
		}
		if len(t.structures) == maxStructures {
			return t, fmt.Errorf("the SMBIOS table has more than %d structures", maxStructures)
		}
	}
	if len(t.structures) == 0 {
		return t, errors.New("the SMBIOS table is empty")
	}
	return t, nil
}

// nextStructure splits the first structure off: a header of type, length and handle, the formatted part, then strings that
// each end in a NUL and together end in another.
func nextStructure(b []byte) (structure, []byte, error) {
	if len(b) < 4 {
		return structure{}, nil, errors.New("the header is cut off")
	}
	n := int(b[1])
	if n < 4 {
		return structure{}, nil, fmt.Errorf("its length is %d", n)
	}
	if n > len(b) {
		return structure{}, nil, fmt.Errorf("its length is %d, %d bytes are left", n, len(b))
	}
	s := structure{kind: b[0], formatted: b[:n]}
	b = b[n:]
	if len(b) >= 2 && b[0] == 0 && b[1] == 0 {
		return s, b[2:], nil
	}
	for len(b) > 0 && b[0] != 0 {
		end := bytes.IndexByte(b, 0)
		if end < 0 {
			return s, nil, errors.New("its strings have no end")
		}
		s.strings = append(s.strings, string(b[:end]))
		b = b[end+1:]
	}
	if len(b) == 0 {
		return s, nil, errors.New("its strings have no end")
	}
	return s, b[1:], nil
}

// str gives the string whose index stands at off; "" for index 0, an index of no string, and a placeholder.
func (s *structure) str(off int) string {
	if off >= len(s.formatted) {
		return ""
	}
	i := int(s.formatted[off])
	if i == 0 || i > len(s.strings) {
		return ""
	}
	return app.CleanSerial(text(s.strings[i-1]))
}

func (s *structure) word(off int) int {
	if off+2 > len(s.formatted) {
		return 0
	}
	return int(binary.LittleEndian.Uint16(s.formatted[off:]))
}

func (s *structure) dword(off int) int64 {
	if off+4 > len(s.formatted) {
		return 0
	}
	return int64(binary.LittleEndian.Uint32(s.formatted[off:]))
}

// uuid reads the system UUID. Since SMBIOS 2.6 its first three fields are little-endian; before, the standard did not say
// and firmware wrote them in the order they are printed.
func (t *table) uuid(s *structure) string {
	if len(s.formatted) < 0x18 {
		return ""
	}
	b := [16]byte(s.formatted[0x08:0x18])
	if t.major > 2 || (t.major == 2 && t.minor >= 6) {
		b[0], b[1], b[2], b[3] = b[3], b[2], b[1], b[0]
		b[4], b[5], b[6], b[7] = b[5], b[4], b[7], b[6]
	}
	return string(app.UUIDFromBytes(b))
}

// system fills in what SMBIOS says. Where the table is unusable it takes what the kernel made of it.
func (c *Collector) system(inv *agentv1.Inventory) error {
	dir := c.cfg.Sys + "/firmware/dmi/tables"
	t, err := parseSMBIOS(readBytes(dir+"/smbios_entry_point", 64), readBytes(dir+"/DMI", maxTable))
	if len(t.structures) == 0 {
		c.kernelDMI(&inv.System)
		return err
	}
	seen := map[byte]bool{}
	for i := range t.structures {
		s := &t.structures[i]
		if s.kind <= 3 && seen[s.kind] { // blades and multi-board machines repeat them: the first is the system
			continue
		}
		seen[s.kind] = true
		switch s.kind {
		case 0:
			inv.System.BIOSVendor, inv.System.BIOSVersion, inv.System.BIOSDate = s.str(4), s.str(5), s.str(8)
		case 1:
			inv.System.Manufacturer, inv.System.Product, inv.System.Serial = s.str(4), s.str(5), s.str(7)
			inv.System.UUID = t.uuid(s)
		case 2:
			inv.System.BoardProduct, inv.System.BoardSerial = s.str(5), s.str(7)
		case 3:
			inv.System.ChassisTag = s.str(8)
		case 17:
			if m, ok := s.module(); ok && len(inv.Memory.Modules) < maxModules {
				inv.Memory.Modules = append(inv.Memory.Modules, m)
			}
		case 43:
			if len(s.formatted) > 9 {
				inv.TPM = map[byte]string{1: "1.2", 2: "2.0"}[s.formatted[8]]
			}
		}
	}
	return err
}

// kernelDMI takes the identity from the kernel's own reading of the table.
func (c *Collector) kernelDMI(s *agentv1.System) {
	id := func(name string) string { return app.CleanSerial(text(read(c.cfg.Sys+"/class/dmi/id", name))) }
	s.Manufacturer, s.Product, s.Serial = id("sys_vendor"), id("product_name"), id("product_serial")
	s.BoardProduct, s.BoardSerial, s.ChassisTag = id("board_name"), id("board_serial"), id("chassis_asset_tag")
	s.BIOSVendor, s.BIOSVersion, s.BIOSDate = id("bios_vendor"), id("bios_version"), id("bios_date")
	if u, err := app.ParseUUID(id("product_uuid")); err == nil {
		s.UUID = string(u)
	}
}

// module reads a memory device; it reports false for an empty slot.
func (s *structure) module() (agentv1.Module, bool) {
	m := agentv1.Module{Slot: s.str(0x10), Speed: s.word(0x15), Serial: s.str(0x18), Part: s.str(0x1a)}
	switch size := int64(s.word(0x0c)); {
	case size == 0 || size == 0xffff: // empty, unknown
		return m, false
	case size == 0x7fff:
		m.Bytes = (s.dword(0x1c) & 0x7fffffff) << 20
	case size&0x8000 != 0:
		m.Bytes = (size & 0x7fff) << 10
	default:
		m.Bytes = size << 20
	}
	return m, m.Bytes > 0
}
