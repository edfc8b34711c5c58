package kmod

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// object is a minimal ELF64 relocatable file with a .modinfo section.
func object(modinfo string) []byte {
	const ehsize, shsize = 64, 64
	names := "\x00.modinfo\x00.shstrtab\x00"
	shoff := uint64(ehsize + len(modinfo) + len(names))
	var b bytes.Buffer
	h := elf.Header64{Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_X86_64), Version: 1, Shoff: shoff, Ehsize: ehsize, Shentsize: shsize, Shnum: 3, Shstrndx: 2}
	copy(h.Ident[:], "\x7fELF\x02\x01\x01")
	binary.Write(&b, binary.LittleEndian, h)
	b.WriteString(modinfo + names)
	for _, s := range []elf.Section64{{}, {Name: 1, Type: uint32(elf.SHT_PROGBITS), Off: ehsize, Size: uint64(len(modinfo))},
		{Name: 10, Type: uint32(elf.SHT_STRTAB), Off: ehsize + uint64(len(modinfo)), Size: uint64(len(names))}} {
		binary.Write(&b, binary.LittleEndian, s)
	}
	return b.Bytes()
}

func TestReadModule(t *testing.T) {
	o := object("license=GPL\x00alias=pci:v00001AF4d00001000sv*sd*bc*sc*i*\x00alias=fs-ext4\x00alias=two words\x00" +
		"depends=net-failover,failover\x00softdep=pre: crc32c_intel  aes post: other\x00firmware=tigon/tg3.bin\x00firmware=a\nb\x00broken\x00")
	got, err := ReadModule("kernel/drivers/net/virtio-net.ko", bytes.NewReader(o), int64(len(o)))
	want := Module{
		Name: "virtio_net", Path: "kernel/drivers/net/virtio-net.ko", Size: int64(len(o)),
		Depends: []string{"net_failover", "failover"}, Softdeps: []string{"crc32c_intel", "aes"},
		Aliases: []string{"pci:v00001AF4d00001000sv*sd*bc*sc*i*", "fs-ext4"}, Firmware: []string{"tigon/tg3.bin"},
	}
	if d := cmp.Diff(want, got); d != "" || err != nil {
		t.Errorf("%v\n%s", err, d)
	}
	if _, err := ReadModule("a.ko", strings.NewReader("not an object"), 13); err == nil {
		t.Error("accepted text as a module")
	}
}

func module(path string, depends, soft []string, aliases ...string) Module {
	return Module{Name: NameOf(path), Path: path, Depends: depends, Softdeps: soft, Aliases: aliases}
}

func sample(t *testing.T) *Index {
	t.Helper()
	x, err := NewIndex([]Module{
		module("k/virtio.ko", nil, nil),
		module("k/virtio_ring.ko", []string{"virtio"}, nil),
		module("k/virtio_net.ko", []string{"virtio", "virtio_ring", "scsi_common"}, []string{"absent", "crc32c_generic"}, "virtio:d00000001v*"),
		module("k/crc32c-generic.ko", nil, nil, "crypto-crc32c"),
		module("k/lonely.ko", []string{"gone"}, nil),
		module("k/a.ko", []string{"b"}, nil),
		module("k/b.ko", []string{"a"}, nil),
	}, "kernel/drivers/scsi/scsi_common.ko\n")
	if err != nil {
		t.Fatal(err)
	}
	return x
}

func TestTables(t *testing.T) {
	x := sample(t)
	mods, missing, err := x.Closure([]string{"virtio-net", "scsi_common", "ntfs3", "ntfs3"})
	if err != nil {
		t.Fatal(err)
	}
	dep, err := x.Dep(mods)
	want := "k/crc32c-generic.ko:\nk/virtio.ko:\nk/virtio_net.ko: k/crc32c-generic.ko k/virtio_ring.ko k/virtio.ko\nk/virtio_ring.ko: k/virtio.ko\n"
	if d := cmp.Diff(want, dep); d != "" || err != nil {
		t.Errorf("modules.dep: %v\n%s", err, d)
	}
	if d := cmp.Diff("alias crypto-crc32c crc32c_generic\nalias virtio:d00000001v* virtio_net\n", Alias(mods)); d != "" {
		t.Errorf("modules.alias\n%s", d)
	}
	if d := cmp.Diff([]string{"ntfs3"}, missing); d != "" {
		t.Errorf("missing\n%s", d)
	}
}

func TestClosureRefuses(t *testing.T) {
	for _, n := range []string{"lonely", "a"} {
		if _, _, err := sample(t).Closure([]string{n}); err == nil {
			t.Errorf("%s: accepted a dependency that cannot be met", n)
		}
	}
	if _, err := NewIndex([]Module{module("x/a-b.ko", nil, nil), module("y/a_b.ko", nil, nil)}, ""); err == nil {
		t.Error("accepted two modules of one name")
	}
}

func FuzzReadModule(f *testing.F) {
	f.Add(object("alias=pci:v*\x00depends=a,b\x00softdep=pre: x post: y\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := ReadModule("a.ko", bytes.NewReader(b), int64(len(b)))
		if err == nil && strings.Count(Alias([]*Module{&m}), "\n") != len(m.Aliases) {
			t.Errorf("an alias broke its line: %q", m.Aliases)
		}
	})
}
