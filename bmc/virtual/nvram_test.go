package virtual

import (
	"bytes"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"unicode/utf16"
)

// blankVariables is the file with which Debian's OVMF begins.
func blankVariables(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile(ovmfVars)
	if err != nil {
		t.Skip("left out: no UEFI firmware for virtual machines: apt-get install ovmf")
	}
	return b
}

// option is an EFI_LOAD_OPTION of a path, whose nodes are given as type, subtype and data.
func option(name string, nodes ...[]byte) []byte {
	var path []byte
	for _, n := range append(nodes, []byte{0x7f, 0xff}) {
		path = append(path, n[0], n[1], byte(len(n)+2), 0)
		path = append(path, n[2:]...)
	}
	o := binary.LittleEndian.AppendUint16([]byte{1, 0, 0, 0}, uint16(len(path)))
	for _, c := range append(utf16.Encode([]rune(name)), 0) {
		o = binary.LittleEndian.AppendUint16(o, c)
	}
	return append(o, path...)
}

// Nodes of device paths, without their length.
var (
	pciNode  = append([]byte{1, 1}, 0, 3)
	macNode  = append([]byte{3, 11}, make([]byte, 33)...)
	ipNode   = append([]byte{3, 12}, make([]byte, 23)...)
	uriNode  = []byte{3, 24}
	hdNode   = append([]byte{4, 1}, make([]byte, 38)...)
	fileNode = append([]byte{4, 4}, "\\\x00E\x00\x00\x00"...)
	fvNode   = append([]byte{4, 6}, make([]byte, 16)...)
)

// someOptions are those of a machine with a disk, a port and an installed system, which put itself first.
func someOptions(t testing.TB, n *nvram) {
	t.Helper()
	for name, o := range map[string][]byte{
		"Boot0000": option("UiApp", fvNode), "Boot0001": option("UEFI Misc Device", pciNode), "Boot0002": option("UEFI PXEv4", pciNode, macNode, ipNode),
		"Boot0003": option("UEFI HTTPv4", pciNode, macNode, ipNode, uriNode), "Boot00A4": option("debian", hdNode, fileNode), "BootOrder": {9, 0, 0, 0, 0xa4, 0, 1, 0, 2, 0, 3, 0},
	} {
		if err := n.set(name, o); err != nil {
			t.Fatal(err)
		}
	}
}

// TestBootNext has OVMF's variables name each kind of device for the next boot, in the file, and leaves the order alone.
func TestBootNext(t *testing.T) {
	path := filepath.Join(t.TempDir(), "vars")
	file := blankVariables(t)
	n, err := parseNVRAM(file)
	if err != nil {
		t.Fatal(err)
	}
	if len(n.boot) > 0 {
		t.Fatalf("the firmware begins with %v", n.boot)
	}
	write := func() {
		if err := os.WriteFile(path, file, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write()
	if found, err := bootNext(path, UefiHTTP); found || err != nil {
		t.Errorf("firmware that never ran: %t, %v", found, err)
	}
	someOptions(t, n)
	write()
	for _, tc := range []struct {
		target Target
		next   []byte
	}{{UefiHTTP, []byte{3, 0}}, {Pxe, []byte{2, 0}}, {Hdd, []byte{0xa4, 0}}} {
		if found, err := bootNext(path, tc.target); !found || err != nil {
			t.Fatalf("%s: %t, %v", tc.target, found, err)
		}
		now, err := os.ReadFile(path)
		if err != nil || len(now) != len(file) {
			t.Fatalf("%s: %d bytes, %v", tc.target, len(now), err)
		}
		got, err := parseNVRAM(now)
		if err != nil || !bytes.Equal(got.boot["BootNext"], tc.next) || !bytes.Equal(got.boot["BootOrder"], n.boot["BootOrder"]) || len(got.boot) != 7 {
			t.Errorf("%s: %v, %v", tc.target, got.boot, err)
		}
		if got.spare%4 != 0 || slices.ContainsFunc(got.raw[got.spare:], func(b byte) bool { return b != 0xff }) {
			t.Errorf("%s: what follows the variables is not empty", tc.target)
		}
	}
}

// TestBootNextHasRoom refuses to write past the store.
func TestBootNextHasRoom(t *testing.T) {
	n, err := parseNVRAM(blankVariables(t))
	if err != nil {
		t.Fatal(err)
	}
	full := 0
	for n.set("BootNext", []byte{1, 0}) == nil {
		full++
	}
	if full < 100 || n.spare > len(n.raw) || !bytes.Equal(n.boot["BootNext"], []byte{1, 0}) {
		t.Errorf("%d variables, up to %d of %d bytes, the last one %v", full, n.spare, len(n.raw), n.boot["BootNext"])
	}
}

// FuzzNVRAM: a guest writes its variables as it likes.
func FuzzNVRAM(f *testing.F) {
	const room = 2048 // of the store, here
	small := slices.Clone(blankVariables(f)[:72+room])
	binary.LittleEndian.PutUint32(small[72+16:], room)
	n, err := parseNVRAM(small)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(slices.Clone(small))
	someOptions(f, n)
	f.Add(small)
	f.Fuzz(func(t *testing.T, b []byte) {
		n, err := parseNVRAM(b)
		if err != nil {
			return
		}
		for _, target := range targets {
			if o, ok := n.first(target); ok && n.set("BootNext", o) == nil && !bytes.Equal(n.boot["BootNext"], o) {
				t.Errorf("BootNext is %v, not %v", n.boot["BootNext"], o)
			}
		}
	})
}

func FuzzLoadOption(f *testing.F) {
	f.Add(option("debian", hdNode, fileNode))
	f.Add(option("UEFI HTTPv4", pciNode, macNode, ipNode, uriNode))
	f.Fuzz(func(t *testing.T, b []byte) {
		switch target := targetOf(b); target {
		case NoTarget, Hdd, Pxe, UefiHTTP:
		default:
			t.Errorf("it starts %s", target)
		}
	})
}
