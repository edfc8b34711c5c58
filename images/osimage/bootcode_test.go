package osimage

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"
)

// memory is a disk in memory.
type memory []byte

func (m memory) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > int64(len(m)) {
		return 0, errors.New("past the end")
	}
	return copy(p, m[off:]), nil
}

func (m memory) WriteAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > int64(len(m)) {
		return 0, errors.New("past the end")
	}
	return copy(m[off:], p), nil
}

func bootImg() []byte {
	b := bytes.Repeat([]byte{0xb0}, sector)
	b[510], b[511] = 0x55, 0xaa
	return b
}

func TestEmbed(t *testing.T) {
	const first, room = 2048, 2048
	disk := memory(bytes.Repeat([]byte{0xa5}, (first+room+1)*sector))
	core := bytes.Repeat([]byte{0xc0}, 5*sector+100) // six sectors, the last one in part
	if err := embed(disk, bootImg(), core, first, room); err != nil {
		t.Fatal(err)
	}
	mbr := disk[:sector]
	if got := binary.LittleEndian.Uint64(mbr[0x5c:]); got != first {
		t.Errorf("boot.img loads sector %d, want %d", got, first)
	}
	if mbr[0x66] != 0x90 || mbr[0x67] != 0x90 {
		t.Errorf("drive check % x, want no-operations", mbr[0x66:0x68])
	}
	if !bytes.Equal(mbr[0x1b8:], bytes.Repeat([]byte{0xa5}, sector-0x1b8)) {
		t.Error("the disk signature or the partition table changed")
	}
	list := disk[first*sector+0x1f4:]
	if at, n, seg := binary.LittleEndian.Uint64(list), binary.LittleEndian.Uint16(list[8:]), binary.LittleEndian.Uint16(list[10:]); at != first+1 || n != 5 || seg != 0x820 {
		t.Errorf("block list: %d sectors from %d to segment %#x", n, at, seg)
	}
	if !bytes.Equal(disk[(first+1)*sector:(first+5)*sector+100], core[sector:]) {
		t.Error("core.img is not whole")
	}
	if tail := disk[(first+5)*sector+100 : (first+6)*sector]; !bytes.Equal(tail, make([]byte, len(tail))) {
		t.Error("the last sector is not padded with zeros")
	}
	if disk[(first+6)*sector] != 0xa5 || disk[first*sector-1] != 0xa5 {
		t.Error("a sector outside core.img changed")
	}
}

func TestEmbedRefuses(t *testing.T) {
	noSignature := bootImg()
	noSignature[511] = 0
	for name, tc := range map[string]struct {
		boot, core []byte
		room       int64
	}{
		"boot.img without signature": {noSignature, make([]byte, 4*sector), 2048},
		"short boot.img":             {bootImg()[:400], make([]byte, 4*sector), 2048},
		"core.img too large":         {bootImg(), make([]byte, 5*sector), 4},
		"core.img of one sector":     {bootImg(), make([]byte, sector), 2048},
	} {
		disk := memory(bytes.Repeat([]byte{0xa5}, 4096*sector))
		if err := embed(disk, tc.boot, tc.core, 2048, tc.room); err == nil {
			t.Errorf("%s was taken", name)
		}
		if !bytes.Equal(disk, bytes.Repeat([]byte{0xa5}, 4096*sector)) {
			t.Errorf("%s changed the disk", name)
		}
	}
}
