package inventory

import (
	"encoding/binary"
	"strings"
	"testing"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// structureBytes makes a structure of a kind with a formatted area (header excluded) and strings.
func structureBytes(kind byte, area []byte, texts ...string) []byte {
	b := append([]byte{kind, byte(4 + len(area)), 0, kind}, area...)
	for _, s := range texts {
		b = append(append(b, s...), 0)
	}
	if len(texts) == 0 {
		b = append(b, 0)
	}
	return append(b, 0)
}

func entryPoint(major, minor byte) []byte {
	return append([]byte{'_', 'S', 'M', '3', '_', 0, 24, major, minor}, make([]byte, 15)...)
}

var (
	rawUUID = []byte{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	end     = structureBytes(127, nil)
)

// systemBytes makes a type 1 structure: manufacturer, product, version, serial, UUID, wake-up.
func systemBytes(serial string) []byte {
	area := append([]byte{1, 2, 0, 3}, rawUUID...)
	return structureBytes(1, append(area, 6, 0, 0), "Maker", "Model", serial)
}

func take(t testing.TB, entry, table []byte, more map[string]string) agentv1.Inventory {
	files := map[string]string{"firmware/dmi/tables/smbios_entry_point": string(entry), "firmware/dmi/tables/DMI": string(table), "block/.keep": "", "class/net/.keep": ""}
	for k, v := range more {
		files[k] = v
	}
	proc := tree(t, t.TempDir(), map[string]string{"cpuinfo": "processor\t: 0\nmodel name\t: CPU\n\n", "meminfo": "MemTotal: 1024 kB\n"})
	return New(Config{Sys: tree(t, t.TempDir(), files), Proc: proc, Log: quiet}).Take(t.Context())
}

// Case 79: the first three fields are little-endian since SMBIOS 2.6.
func TestUUIDByteOrder(t *testing.T) {
	for _, tt := range []struct {
		entry []byte
		want  string
	}{
		{entryPoint(3, 2), "00112233-4455-6677-8899-aabbccddeeff"},
		{[]byte("_SM_\x00\x1f\x02\x08\x00\x00"), "00112233-4455-6677-8899-aabbccddeeff"},
		{[]byte("_SM_\x00\x1f\x02\x06\x00\x00"), "00112233-4455-6677-8899-aabbccddeeff"},
		{[]byte("_SM_\x00\x1f\x02\x04\x00\x00"), "33221100-5544-7766-8899-aabbccddeeff"},
	} {
		inv := take(t, tt.entry, append(systemBytes("S1"), end...), nil)
		if inv.System.UUID != tt.want {
			t.Errorf("version %d.%d: %s, want %s", tt.entry[6], tt.entry[7], inv.System.UUID, tt.want)
		}
	}
}

// Case 77: placeholders are no identities.
func TestPlaceholderSerials(t *testing.T) {
	for _, s := range []string{
		"To be filled by O.E.M.", "Default string", "System Serial Number", "0123456789", "Not Specified", "<BAD INDEX>", "", "   ", "None", "  default STRING ",
	} {
		if inv := take(t, entryPoint(3, 0), append(systemBytes(s), end...), nil); inv.System.Serial != "" || inv.System.Product == "" && s != "" {
			t.Errorf("%q became %q (%+v)", s, inv.System.Serial, inv.System)
		}
	}
	if inv := take(t, entryPoint(3, 0), append(systemBytes(" ABC\x1b[1m123\n"), end...), nil); inv.System.Serial != "ABC[1m123" {
		t.Errorf("serial %q", inv.System.Serial)
	}
}

// Case 81: whatever the table is, the inventory comes to an end, and tells that SMBIOS is missing or partial.
func TestMalformedSMBIOS(t *testing.T) {
	good := systemBytes("S1")
	short := structureBytes(1, []byte{1, 2, 0, 3}, "Maker", "Model", "S1") // version 2.0: no UUID
	badIndex := structureBytes(1, append([]byte{1, 2, 0, 7}, rawUUID...), "Maker", "Model", "S1")
	long := append([]byte{}, good...)
	long[1] = 0x7f
	tiny := append([]byte{}, good...)
	tiny[1] = 2
	open := good[:len(good)-2]
	tests := []struct {
		name         string
		entry, table []byte
		serial       string
		partial      bool
	}{
		{"empty", nil, nil, "", true},
		{"empty table", entryPoint(3, 0), nil, "", true},
		{"short type 1", entryPoint(2, 0), append(short, end...), "S1", false},
		{"length past the end", entryPoint(3, 0), long, "", true},
		{"length 2", entryPoint(3, 0), tiny, "", true},
		{"no double NUL", entryPoint(3, 0), open, "", true},
		{"damage after the system", entryPoint(3, 0), append(append([]byte{}, good...), 17, 0xff, 0), "S1", true},
		{"string index 7 of 3", entryPoint(3, 0), append(badIndex, end...), "", false},
		{"no end structure", entryPoint(3, 0), good, "S1", false},
		{"more structures counted than there are", []byte("_SM_\x00\x1f\x03\x00\xff\xff\x00\x00\x00\x00\x00\x00_DMI_\x00\xff\xff\x00\x00\x00\x00\xff\xff\x30"), append(append([]byte{}, good...), end...), "S1", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			files := map[string]string{}
			disk(files, "sda", "x", nil)
			inv := take(t, tt.entry, tt.table, files)
			told := strings.Contains(strings.Join(inv.Partial, " "), "smbios")
			if inv.System.Serial != tt.serial || told != tt.partial || len(inv.Disks) != 1 || len(inv.CPUs) != 1 {
				t.Errorf("serial %q, partial %q, %d disks", inv.System.Serial, inv.Partial, len(inv.Disks))
			}
		})
	}
}

// Case 81: a machine without SMBIOS, as some of arm64.
func TestNoSMBIOS(t *testing.T) {
	files := map[string]string{"class/net/.keep": ""}
	disk(files, "sda", "x", nil)
	proc := tree(t, t.TempDir(), map[string]string{"cpuinfo": "processor\t: 0\nmodel name\t: CPU\n\n", "meminfo": "MemTotal: 1024 kB\n"})
	inv := New(Config{Sys: tree(t, t.TempDir(), files), Proc: proc, Log: quiet}).Take(t.Context())
	if !strings.Contains(strings.Join(inv.Partial, " "), "smbios") || len(inv.Disks) != 1 || len(inv.CPUs) != 1 || inv.Memory.Bytes != 1<<20 {
		t.Errorf("%+v", inv)
	}
}

func TestKernelDMIStandsIn(t *testing.T) {
	inv := take(t, nil, nil, map[string]string{
		"class/dmi/id/product_serial": "FROM-KERNEL\n", "class/dmi/id/product_uuid": "00112233-4455-6677-8899-AABBCCDDEEFF\n",
	})
	if inv.System.Serial != "FROM-KERNEL" || inv.System.UUID != "00112233-4455-6677-8899-aabbccddeeff" {
		t.Errorf("%+v", inv.System)
	}
}

func TestMemoryModules(t *testing.T) {
	module := func(size uint16, extended uint32) []byte {
		area := make([]byte, 0x22-4)
		binary.LittleEndian.PutUint16(area[0x0c-4:], size)
		area[0x10-4], area[0x18-4], area[0x1a-4] = 1, 2, 3
		binary.LittleEndian.PutUint16(area[0x15-4:], 3200)
		binary.LittleEndian.PutUint32(area[0x1c-4:], extended)
		return structureBytes(17, area, "DIMM_A1", "SN1", "PART1")
	}
	var table []byte
	for _, m := range [][]byte{module(16384, 0), module(0, 0), module(0xffff, 0), module(0x7fff, 65536), module(0x8000|512, 0)} {
		table = append(table, m...)
	}
	inv := take(t, entryPoint(3, 2), append(table, end...), nil)
	want := []int64{16 << 30, 64 << 30, 512 << 10}
	if len(inv.Memory.Modules) != len(want) {
		t.Fatalf("%+v", inv.Memory)
	}
	for i, m := range inv.Memory.Modules {
		if m.Bytes != want[i] || m.Slot != "DIMM_A1" || m.Serial != "SN1" || m.Part != "PART1" || m.Speed != 3200 {
			t.Errorf("%+v", m)
		}
	}
	if inv.Memory.Bytes != 16<<30+64<<30+512<<10 {
		t.Errorf("%d bytes", inv.Memory.Bytes)
	}
}

func FuzzSMBIOS(f *testing.F) {
	f.Add(entryPoint(3, 0), append(systemBytes("S1"), end...))
	f.Add([]byte("_SM_\x00\x1f\x02\x04\x00\x00"), structureBytes(17, make([]byte, 30), "a"))
	f.Fuzz(func(t *testing.T, entry, table []byte) {
		got, err := parseSMBIOS(entry, table)
		if err == nil && len(got.structures) == 0 {
			t.Error("nothing, and no error")
		}
		for i := range got.structures {
			s := &got.structures[i]
			for off := range 64 {
				_, _, _ = s.str(off), s.word(off), s.dword(off)
			}
			_ = got.uuid(s)
			_, _ = s.module()
		}
	})
}
