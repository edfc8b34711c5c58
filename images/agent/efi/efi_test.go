package efi

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"errors"
	"hash/crc32"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf16"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/u-root/u-root/pkg/efivarfs"
	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// nvram stands in for firmware. What refuse returns for a variable's name is the kernel's answer to a write.
type nvram struct {
	vars   map[string][]byte
	attrs  map[string]efivarfs.VariableAttributes
	refuse func(name string) error
	forget bool // takes writes of BootOrder and keeps none
	writes []string
}

func (n *nvram) Get(d efivarfs.VariableDescriptor) (efivarfs.VariableAttributes, []byte, error) {
	b, ok := n.vars[d.Name]
	if !ok || d.GUID != global {
		return 0, nil, efivarfs.ErrVarNotExist
	}
	return n.attrs[d.Name], bytes.Clone(b), nil
}

func (n *nvram) List() (out []efivarfs.VariableDescriptor, err error) {
	for name := range n.vars {
		out = append(out, efivarfs.VariableDescriptor{Name: name, GUID: global})
	}
	// Another vendor's variable of the same name is none of ours.
	return append(out, efivarfs.VariableDescriptor{Name: "Boot0077", GUID: uuid.MustParse("00000000-0000-4000-8000-000000000001")}), nil
}

func (n *nvram) Set(d efivarfs.VariableDescriptor, a efivarfs.VariableAttributes, b []byte) error {
	if n.refuse != nil {
		if err := n.refuse(d.Name); err != nil {
			return err
		}
	}
	n.writes = append(n.writes, d.Name)
	if !n.forget {
		n.vars[d.Name], n.attrs[d.Name] = bytes.Clone(b), a
	}
	return nil
}

func (n *nvram) Remove(d efivarfs.VariableDescriptor) error {
	if n.refuse != nil {
		if err := n.refuse(d.Name); err != nil {
			return err
		}
	}
	n.writes = append(n.writes, "-"+d.Name)
	delete(n.vars, d.Name)
	return nil
}

func node(typ, sub byte, data ...byte) []byte {
	b := []byte{typ, sub, 0, 0}
	binary.LittleEndian.PutUint16(b[2:], uint16(4+len(data)))
	return append(b, data...)
}

func wide(s string) (b []byte) {
	for _, c := range append(utf16.Encode([]rune(s)), 0) {
		b = binary.LittleEndian.AppendUint16(b, c)
	}
	return b
}

var (
	end     = node(typeEnd, 0xff)
	root    = node(typeACPI, 1, 0xd0, 0x41, 0x03, 0x0a, 0, 0, 0, 0)
	pci     = node(typeHardware, 1, 0, 2)
	mac     = node(typeMessaging, 11, slices.Concat([]byte{0, 0, 0x5e, 0, 0x53, 1}, make([]byte, 26), []byte{1})...)
	ipv4    = node(typeMessaging, 12, make([]byte, 23)...)
	ipv6    = node(typeMessaging, 13, make([]byte, 56)...)
	uri     = node(typeMessaging, 24)
	shimESP = partGUID(1)
)

func partGUID(n byte) []byte {
	return []byte{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, n}
}

func hd(guid []byte) []byte {
	b := make([]byte, 38)
	b[0] = 1
	binary.LittleEndian.PutUint64(b[4:], 0x800)
	binary.LittleEndian.PutUint64(b[12:], 0x1000)
	copy(b[20:], guid)
	b[36], b[37] = 2, 2
	return node(typeMedia, 1, b...)
}

func file(name string) []byte { return node(typeMedia, 4, wide(name)...) }

func option(name string, attrs uint32, data string, path ...[]byte) []byte {
	return Option{attrs, utf16.Encode([]rune(name)), append(slices.Concat(path...), end...), []byte(data)}.Marshal()
}

func ids(n ...uint16) (b []byte) {
	for _, x := range n {
		b = binary.LittleEndian.AppendUint16(b, x)
	}
	return b
}

// machine is firmware with the network, a disk and a shell, and a system that put itself first.
func machine() *nvram {
	n := &nvram{attrs: map[string]efivarfs.VariableAttributes{"BootOrder": 7, "Boot0005": 7}, vars: map[string][]byte{
		"Boot0000":    option("UiApp", 0x109, "", node(typeMedia, 7, make([]byte, 16)...), node(typeMedia, 6, make([]byte, 16)...)),
		"Boot0001":    option("UEFI PXEv4 (MAC:00005E005301)", 1, "auto", root, pci, mac, ipv4),
		"Boot0002":    option("UEFI HTTPv6 (MAC:00005E005301)", 1, "auto", root, pci, mac, ipv6, uri),
		"Boot0003":    option("UEFI Misc Device", 1, "auto", root, pci),
		"Boot0004":    option("EFI Internal Shell", 1, "", node(typeMedia, 7, make([]byte, 16)...), node(typeMedia, 6, make([]byte, 16)...)),
		"Boot0005":    option("debian", 1, "", hd(shimESP), file(`\EFI\debian\shimx64.efi`)),
		"Boot0006":    {1, 2, 3},
		"BootOrder":   ids(5, 0, 1, 2, 3, 4),
		"BootCurrent": ids(1),
		"Timeout":     ids(3),
	}}
	return n
}

func own(n *nvram, order ...string) (out []agentv1.BootEntry) {
	s, err := Variables{n}.read()
	if err != nil {
		panic(err)
	}
	v := s.view()
	for _, id := range order {
		i := slices.IndexFunc(v.Entries, func(e agentv1.BootEntry) bool { return e.ID == id })
		out = append(out, v.Entries[i])
	}
	return out
}

// disk makes a file with a partition table that has partitions of these GUIDs.
func disk(t *testing.T, guids ...[]byte) (dev string, d agentv1.Disk) {
	t.Helper()
	const size = 1 << 20
	b := make([]byte, size)
	le := binary.LittleEndian
	for i, g := range guids {
		e := b[1024+128*i:]
		copy(e, partGUID(0xff))
		copy(e[16:], g)
		le.PutUint64(e[32:], uint64(100+10*i))
		le.PutUint64(e[40:], uint64(105+10*i))
	}
	if len(guids) > 0 {
		h := b[512:1024]
		copy(h, "EFI PART")
		le.PutUint32(h[8:], 0x10000)
		le.PutUint32(h[12:], 92)
		le.PutUint64(h[24:], 1)
		le.PutUint64(h[72:], 2)
		le.PutUint32(h[80:], 128)
		le.PutUint32(h[84:], 128)
		le.PutUint32(h[88:], crc32.ChecksumIEEE(b[1024:1024+128*128]))
		le.PutUint32(h[16:], crc32.ChecksumIEEE(h[:92]))
	}
	dev = t.TempDir()
	if err := os.WriteFile(filepath.Join(dev, "vda"), b, 0o600); err != nil {
		t.Fatal(err)
	}
	return dev, agentv1.Disk{Name: "vda", Serial: "S1", Bytes: size, SectorSize: 512}
}

func keeper(n *nvram, dev string, disks ...agentv1.Disk) *Keeper {
	return New(Config{Firmware: "uefi", Log: slog.New(slog.DiscardHandler), Dev: dev,
		Disks: func(context.Context) ([]agentv1.Disk, error) { return disks, nil },
		Open:  func() (efivarfs.EFIVar, error) { return n, nil }})
}

func TestReadsWhatFirmwareHolds(t *testing.T) {
	dev, d := disk(t, shimESP)
	r := keeper(machine(), dev, d).Keep(t.Context(), agentv1.BootOrder{})
	want := []agentv1.BootEntry{
		{ID: "Boot0005", Name: "debian", Kind: "system", Partition: "gpt:00112233-4455-6677-8899-aabbccddee01", File: `\EFI\debian\shimx64.efi`,
			Path: `HD(1,GPT,00112233-4455-6677-8899-aabbccddee01,0x800,0x1000)/\EFI\debian\shimx64.efi`},
		{ID: "Boot0000", Name: "UiApp", Kind: "firmware", Path: "Fv(00000000-0000-0000-0000-000000000000)/FvFile(00000000-0000-0000-0000-000000000000)"},
		{ID: "Boot0001", Name: "UEFI PXEv4 (MAC:00005E005301)", Kind: "network", Protocol: "PXE IPv4", MAC: "00:00:5e:00:53:01",
			Path: "PciRoot(0x0)/Pci(0x2,0x0)/MAC(00005e005301,0x1)/IPv4(0.0.0.0)"},
		{ID: "Boot0002", Name: "UEFI HTTPv6 (MAC:00005E005301)", Kind: "network", Protocol: "HTTP IPv6", MAC: "00:00:5e:00:53:01",
			Path: "PciRoot(0x0)/Pci(0x2,0x0)/MAC(00005e005301,0x1)/IPv6(::)/Uri()"},
		{ID: "Boot0003", Name: "UEFI Misc Device", Kind: "disk", Path: "PciRoot(0x0)/Pci(0x2,0x0)"},
		{ID: "Boot0004", Name: "EFI Internal Shell", Kind: "firmware", Path: "Fv(00000000-0000-0000-0000-000000000000)/FvFile(00000000-0000-0000-0000-000000000000)"},
	}
	if diff := cmp.Diff(want, r.Found.Entries); diff != "" {
		t.Error(diff)
	}
	if r.Found.Current != "Boot0001" || r.Found.Next != "" || r.Found.Timeout == nil || *r.Found.Timeout != 3 || len(r.Found.Order) != 6 || r.Now != nil || r.Problem != nil || r.Firmware != "uefi" {
		t.Errorf("%+v", r)
	}
	if diff := cmp.Diff([]agentv1.BootPartition{{Partition: "gpt:00112233-4455-6677-8899-aabbccddee01", Disk: agentv1.DiskTarget{Serial: "S1", Name: "vda", Bytes: 1 << 20, SectorSize: 512}}}, r.Partitions); diff != "" {
		t.Error(diff)
	}
}

func TestOnlyTheOneWriterWrites(t *testing.T) {
	n := machine()
	dev, d := disk(t)
	order := agentv1.BootOrder{Policy: "as-found", Own: own(n, "Boot0000", "Boot0001", "Boot0002", "Boot0003", "Boot0004"), Remove: []string{"gpt:00112233-4455-6677-8899-aabbccddee01"}}
	if r := keeper(n, dev, d).Keep(t.Context(), order); r.Now != nil || len(n.writes) != 0 {
		t.Errorf("wrote %v: %+v", n.writes, r)
	}
}

// A system that put itself first is put back, once: what is right is not written again.
func TestPutsOursBack(t *testing.T) {
	n := machine()
	dev, d := disk(t, shimESP)
	order := agentv1.BootOrder{Write: true, Policy: "as-found", Own: own(n, "Boot0000", "Boot0001", "Boot0002", "Boot0003", "Boot0004")}
	k := keeper(n, dev, d)
	r := k.Keep(t.Context(), order)
	want := []string{"Boot0000", "Boot0001", "Boot0002", "Boot0003", "Boot0005", "Boot0004"}
	if r.Problem != nil || r.Now == nil || !slices.Equal(r.Now.Order, want) || r.Found.Order[0] != "Boot0005" {
		t.Fatalf("%+v", r)
	}
	if !bytes.Equal(n.vars["BootOrder"], ids(0, 1, 2, 3, 5, 4)) || !slices.Equal(n.writes, []string{"BootOrder"}) {
		t.Errorf("wrote %v, and the order is %x", n.writes, n.vars["BootOrder"])
	}
	if r := k.Keep(t.Context(), order); r.Now != nil || len(n.writes) != 1 {
		t.Errorf("wrote again: %v", n.writes)
	}
}

// Entries go that a wiped disk left: those of partitions that are ours, gone, and on no disk.
func TestRemovesWhatAWipedDiskLeft(t *testing.T) {
	ours := "gpt:00112233-4455-6677-8899-aabbccddee01"
	full := func() *nvram {
		n := machine()
		n.vars["Boot0007"] = option("foreign", 1, "", hd(partGUID(9)), file(`\EFI\foreign\grub.efi`))
		n.vars["BootOrder"] = ids(5, 0, 1, 7)
		return n
	}
	for name, c := range map[string]struct {
		disk    [][]byte
		remove  []string
		removed bool
		order   []byte
	}{
		"wiped":                      {nil, []string{ours}, true, ids(0, 1, 7)},
		"another disk has it":        {[][]byte{shimESP}, []string{ours}, false, ids(5, 0, 1, 7)},
		"not ours":                   {nil, nil, false, ids(5, 0, 1, 7)},
		"ours is another, also gone": {nil, []string{"gpt:00112233-4455-6677-8899-aabbccddee02"}, false, ids(5, 0, 1, 7)},
	} {
		t.Run(name, func(t *testing.T) {
			n := full()
			dev, d := disk(t, c.disk...)
			r := keeper(n, dev, d).Keep(t.Context(), agentv1.BootOrder{Write: true, Policy: "as-found", Remove: c.remove})
			_, there := n.vars["Boot0005"]
			if there == c.removed || (len(r.Removed) == 1) != c.removed || r.Problem != nil || !bytes.Equal(n.vars["BootOrder"], c.order) {
				t.Errorf("%+v, order %x", r, n.vars["BootOrder"])
			}
			if n.vars["Boot0007"] == nil || n.vars["Boot0001"] == nil {
				t.Error("an entry that is not ours is gone")
			}
		})
	}
}

// The process ended after the order was written and before the entry was removed: doing it again ends it.
func TestAKillBetweenWritesRepeatsSafely(t *testing.T) {
	n := machine()
	n.vars["BootOrder"] = ids(0, 1)
	dev, d := disk(t)
	r := keeper(n, dev, d).Keep(t.Context(), agentv1.BootOrder{Write: true, Remove: []string{"gpt:00112233-4455-6677-8899-aabbccddee01"}})
	if _, there := n.vars["Boot0005"]; there || r.Problem != nil || !slices.Equal(n.writes, []string{"-Boot0005"}) {
		t.Errorf("%v, %+v", n.writes, r)
	}
}

// A disk that cannot be read may have the partition.
func TestNothingIsRemovedWhileADiskCannotBeRead(t *testing.T) {
	n := machine()
	r := keeper(n, t.TempDir(), agentv1.Disk{Name: "sdz", Bytes: 1 << 20, SectorSize: 512}).Keep(t.Context(), agentv1.BootOrder{Write: true, Remove: []string{"gpt:00112233-4455-6677-8899-aabbccddee01"}})
	if n.vars["Boot0005"] == nil || len(r.Partial) != 1 || !strings.Contains(r.Partial[0], "sdz") {
		t.Errorf("%+v", r)
	}
}

func TestFirmwareThatTakesNoWrite(t *testing.T) {
	for name, c := range map[string]struct {
		err    error
		forget bool
		reason string
	}{
		"full":               {unix.ENOSPC, false, app.ReasonNVRAMFull},
		"read-only":          {unix.EROFS, false, app.ReasonNVRAMReadOnly},
		"security violation": {unix.EACCES, false, app.ReasonNVRAMReadOnly},
		"immutable":          {efivarfs.ErrVarPermission, false, app.ReasonNVRAMReadOnly},
		"device error":       {unix.EIO, false, "nvram-write-failed"},
		"does not keep it":   {nil, true, "boot-order-not-kept"},
	} {
		t.Run(name, func(t *testing.T) {
			n := machine()
			dev, d := disk(t, shimESP)
			order := agentv1.BootOrder{Write: true, Policy: "as-found", Own: own(n, "Boot0001", "Boot0003")}
			n.refuse, n.forget = func(string) error { return c.err }, c.forget
			r := keeper(n, dev, d).Keep(t.Context(), order)
			if r.Problem == nil || r.Problem.Reason != c.reason || r.Problem.WayOut == "" || r.Now == nil || r.Now.Order[0] != "Boot0005" {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestVariablesThatCannotBeHad(t *testing.T) {
	k := keeper(machine(), t.TempDir())
	k.cfg.Open = func() (efivarfs.EFIVar, error) { return nil, efivarfs.ErrNoFS }
	if r := k.Keep(t.Context(), agentv1.BootOrder{Write: true}); r.Problem == nil || r.Problem.Reason != app.ReasonNVRAMUnavailable {
		t.Errorf("%+v", r)
	}
	k.cfg.Firmware = "bios"
	if r := k.Keep(t.Context(), agentv1.BootOrder{Write: true}); r.Problem != nil || r.Firmware != "bios" || len(r.Found.Entries) != 0 {
		t.Errorf("a BIOS machine: %+v", r)
	}
	k.cfg.Disks = func(context.Context) ([]agentv1.Disk, error) { return nil, errors.New("no disks") }
	if r := k.Keep(t.Context(), agentv1.BootOrder{}); len(r.Partial) != 1 {
		t.Errorf("%+v", r)
	}
}

func TestHandlerReadsItsPayload(t *testing.T) {
	h := keeper(machine(), t.TempDir()).Handlers()[agentv1.KindBootOrder]
	if _, err := h(t.Context(), agentv1.Command{Payload: json.RawMessage(`{"write":3}`)}, func(agentv1.ProgressReport) {}); app.CodeOf(err) != app.InvalidInput {
		t.Error(err)
	}
	out, err := h(t.Context(), agentv1.Command{Payload: json.RawMessage(`{}`)}, func(agentv1.ProgressReport) {})
	if r, ok := out.(*agentv1.BootOrderResult); err != nil || !ok || len(r.Found.Entries) != 6 {
		t.Errorf("%+v, %v", out, err)
	}
}

// Firmware may hold more than anybody looks at.
func TestReadingIsBounded(t *testing.T) {
	n := machine()
	for i := range 2000 {
		n.vars[bootName(uint16(0x100+i))] = option(strings.Repeat("x", 1000), 1, "", root)
		n.vars["BootOrder"] = append(n.vars["BootOrder"], ids(uint16(0x100+i))...)
	}
	s, err := Variables{n}.read()
	if err != nil || len(s.options) > maxEntries || len(s.order) > maxEntries {
		t.Errorf("%d options, %d in the order, %v", len(s.options), len(s.order), err)
	}
	for _, e := range s.view().Entries {
		if len(e.Name) > maxText || len(e.Path) > maxPath {
			t.Errorf("%d bytes of name, %d of path", len(e.Name), len(e.Path))
		}
	}
}

func TestOptionsThatAreNone(t *testing.T) {
	whole := option("debian", 1, "data", hd(shimESP), file(`\a`))
	for n := range len(whole) - len("data") {
		if _, err := ParseOption(whole[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken for an option", n, len(whole))
		}
	}
	if _, err := ParseOption(make([]byte, maxOption+1)); err == nil {
		t.Error("an option without a bound")
	}
}

func TestPathsThatEndEarly(t *testing.T) {
	for name, path := range map[string][]byte{"no end": root, "length below the header": {1, 1, 3, 0}, "length beyond the path": {1, 1, 200, 0, 1}, "nothing": nil} {
		if _, ok := ParsePath(path); ok {
			t.Errorf("%s is a path", name)
		}
		e := app.BootEntry{}
		describe(&e, Option{Path: path})
		if !strings.HasSuffix(e.Path, "?") || e.Kind == "" {
			t.Errorf("%s: %+v", name, e)
		}
	}
}

func TestKindsOfEntries(t *testing.T) {
	vendor := node(typeHardware, 4, make([]byte, 20)...)
	for name, c := range map[string]struct {
		option []byte
		kind   string
	}{
		"BBS network":        {option("Legacy", 1, "", node(typeBBS, 1, 0x80, 0, 0, 0, 'x', 0)), "network"},
		"BBS disk":           {option("Legacy", 1, "", node(typeBBS, 1, 2, 0, 0, 0, 0)), "disk"},
		"BBS CD":             {option("Legacy", 1, "", node(typeBBS, 1, 3, 0, 0, 0, 0)), "medium"},
		"iSCSI":              {option("SAN", 1, "", root, mac, ipv4, node(typeMessaging, 19, make([]byte, 20)...)), "disk"},
		"USB":                {option("Stick", 1, "", root, pci, node(typeMessaging, 5, 1, 0)), "medium"},
		"NVMe":               {option("SSD", 1, "", root, pci, node(typeMessaging, 23, make([]byte, 12)...)), "disk"},
		"disk with an ESP":   {option("Fixed Disk", 1, "", root, pci, hd(shimESP)), "disk"},
		"file by itself":     {option("x", 1, "", file(`\EFI\x.efi`)), "system"},
		"maker's network":    {option("PXE Device 1: Integrated NIC", 1, "", vendor), "network"},
		"maker's something":  {option("Vendor thing", 1, "", vendor), "other"},
		"application":        {option("Thing", 0x101, "", vendor), "firmware"},
		"nothing to start":   {option("Empty", 1, ""), "other"},
		"unknown node alone": {option("New", 1, "", node(0x42, 0x99, 1, 2, 3)), "other"},
	} {
		o, err := ParseOption(c.option)
		if err != nil {
			t.Fatal(name, err)
		}
		e := app.BootEntry{}
		if describe(&e, o); e.Kind != c.kind {
			t.Errorf("%s is %+v", name, e)
		}
		if !bytes.Equal(o.Marshal(), c.option) {
			t.Errorf("%s: written back as other bytes", name)
		}
	}
}

// What firmware and installers of the field's machines hold, as it was published: see the name.
func TestRecordedOptions(t *testing.T) {
	for name, c := range map[string]struct{ hex, name, path, kind string }{
		// the example of u-root's package of UEFI variables
		"a generic loader": {
			"010000005e005500450046004900200" + "04f005300000004012a000100000040000000000000000" + "0f0000000000000cd5c63814f1b3f4db7b7f78a5b029f35020204043000" +
				"5c004500460049005c0042004f004f0054005c0042004f004f0054005800360034002e0045004600490000007fff04000000424f",
			"UEFI OS", `HD(1,GPT,81635ccd-1b4f-4d3f-b7b7-f78a5b029f35,0x40,0xf000)/\EFI\BOOT\BOOTX64.EFI`, "system",
		},
	} {
		raw, err := hex.DecodeString(c.hex)
		if err != nil {
			t.Fatal(name, err)
		}
		o, err := ParseOption(raw)
		if err != nil {
			t.Fatal(name, err)
		}
		e := app.BootEntry{}
		if describe(&e, o); o.Name() != c.name || e.Path != c.path || e.Kind != c.kind {
			t.Errorf("%s: %q %+v", name, o.Name(), e)
		}
		if !bytes.Equal(o.Marshal(), raw) {
			t.Errorf("%s: written back as other bytes", name)
		}
	}
}

func FuzzOption(f *testing.F) {
	for _, v := range machine().vars {
		f.Add(v)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := ParseOption(b)
		if err != nil {
			return
		}
		if !bytes.Equal(o.Marshal(), b) {
			t.Fatalf("%x became %x", b, o.Marshal())
		}
		e := app.BootEntry{Name: o.Name()}
		describe(&e, o)
		if len(e.Name) > maxText || len(e.Path) > maxPath || len(e.File) > maxText || e.Kind == "" || strings.ContainsAny(e.Name+e.Path+e.File, "\n\r\x1b\x00") {
			t.Fatalf("%+v", e)
		}
	})
}
