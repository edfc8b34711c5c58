package layout

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"regexp"
)

// Probe tells the file system (or volume) in size bytes at off of r, and its UUID as it spells it itself: "ext4" (also
// for ext2 and ext3), "xfs", "btrfs", "vfat", "lvm", "swap", "luks", "md", or "".
func Probe(r io.ReaderAt, off, size int64) (fs, uuid string) {
	at := func(pos int64, n int) []byte {
		b := make([]byte, n)
		if pos < 0 || pos+int64(n) > size {
			return b
		}
		if _, err := r.ReadAt(b, off+pos); err != nil {
			return make([]byte, n)
		}
		return b
	}
	head := at(0, 4096)
	switch {
	case string(head[:6]) == "LUKS\xba\xbe":
		return "luks", text(head[168:208])
	case string(head[:4]) == "XFSB":
		return "xfs", uuidOf(head[32:48])
	}
	if sb := at(1024, 1024); binary.LittleEndian.Uint16(sb[56:]) == 0xef53 {
		return "ext4", uuidOf(sb[104:120])
	}
	if sb := at(0x10000, 4096); string(sb[0x40:0x48]) == "_BHRfS_M" {
		return "btrfs", uuidOf(sb[0x20:0x30])
	}
	if vg, ok := lvm(at); ok {
		return "lvm", vg
	}
	if sb := at(4086, 10); string(sb) == "SWAPSPACE2" {
		return "swap", uuidOf(at(1024+12, 16))
	}
	if id, ok := raid(at, size); ok {
		return "md", id
	}
	if id, ok := fatID(head); ok {
		return "vfat", id
	}
	return "", ""
}

func uuidOf(b []byte) string {
	if len(bytes.Trim(b, "\x00")) == 0 {
		return ""
	}
	h := hex.EncodeToString(b)
	return h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:]
}

func text(b []byte) string {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return clean(string(b))
}

var vgRE = regexp.MustCompile(`(?m)^([a-zA-Z0-9+_.-]{1,127}) \{\n(?:id = |#)`)

// lvm finds the label of a physical volume in the first four sectors and the volume group's name in the metadata text.
func lvm(at func(int64, int) []byte) (string, bool) {
	for s := range int64(4) {
		label := at(s*512, 512)
		if string(label[:8]) != "LABELONE" || string(label[24:32]) != "LVM2 001" {
			continue
		}
		// The metadata area of every LVM2 volume that pvcreate makes starts at 4 KiB: header, then a ring of text.
		area := at(4096, 512)
		loc := int64(binary.LittleEndian.Uint64(area[40:]))
		length := int64(binary.LittleEndian.Uint64(area[48:]))
		if string(area[4:20]) != " LVM2 x[5A%r0N*>" || loc < 512 || loc > 16<<20 || length <= 0 || length > 16<<20 {
			return "", true
		}
		if m := vgRE.FindSubmatch(at(4096+loc, int(min(length, 4096)))); m != nil {
			return "vg:" + string(m[1]), true
		}
		return "", true
	}
	return "", false
}

// raid finds the superblock of a Linux software RAID member: metadata 1.1 at 0, 1.2 at 4 KiB, 1.0 and 0.90 near the end.
func raid(at func(int64, int) []byte, size int64) (string, bool) {
	const magic = 0xa92b4efc
	for _, pos := range []int64{0, 4096, (size - 8192) &^ 4095, (size &^ 65535) - 65536} {
		if pos < 0 {
			continue
		}
		if b := at(pos, 32); binary.LittleEndian.Uint32(b) == magic {
			return uuidOf(b[16:32]), true
		}
	}
	return "", false
}

// fatID recognises the boot sector of FAT12, 16 and 32 and spells the volume id as Linux does.
func fatID(b []byte) (string, bool) {
	if b[510] != 0x55 || b[511] != 0xaa || (b[0] != 0xeb && b[0] != 0xe9) {
		return "", false
	}
	var id uint32
	switch {
	case string(b[82:85]) == "FAT":
		id = binary.LittleEndian.Uint32(b[67:])
	case string(b[54:57]) == "FAT":
		id = binary.LittleEndian.Uint32(b[39:])
	default:
		return "", false
	}
	return fmt.Sprintf("%04X-%04X", id>>16, id&0xffff), true
}
