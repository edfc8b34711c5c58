package ext4

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
)

const (
	attrMagic   = 0xea020000
	attrInline  = inodeSize - 128 - extraSize - 4 // what an inode has room for, behind the magic number
	attrHeader  = 32                              // of a block of attributes
	maxAttrSize = BlockSize - attrHeader - 4
)

// attrPrefixes are the prefixes that are spelled by a number. The longest come first.
var attrPrefixes = []struct {
	prefix string
	index  byte
}{
	{"system.posix_acl_access", 2}, {"system.posix_acl_default", 3}, {"security.", 6}, {"trusted.", 4}, {"system.", 7}, {"user.", 1},
}

// Representable reports whether an extended attribute of this name has a place in the format, and a use in a root file
// system.
func Representable(name string) bool {
	a, ok := splitAttr(name, nil)
	return ok && a.index != 7
}

// CheckAttributes reports whether an inode's extended attributes can be kept.
func CheckAttributes(i *Inode) error {
	_, err := i.inlineAttrs()
	return err
}

// attr is an extended attribute as it is stored.
type attr struct {
	index byte
	name  string
	value []byte
}

// attrs gives the attributes in the order a block must have them.
func (i *Inode) attrs() ([]attr, error) {
	var out []attr
	for name, value := range i.XAttrs {
		a, ok := splitAttr(name, value)
		if !ok {
			return nil, fmt.Errorf("the extended attribute %.300q has no place in an ext4 file system", name)
		}
		if a.index == 2 || a.index == 3 {
			var err error
			if a.value, err = diskACL(value); err != nil {
				return nil, err
			}
		}
		out = append(out, a)
	}
	slices.SortFunc(out, func(a, b attr) int {
		return cmp.Or(cmp.Compare(a.index, b.index), cmp.Compare(len(a.name), len(b.name)), strings.Compare(a.name, b.name))
	})
	return out, nil
}

func splitAttr(name string, value []byte) (attr, bool) {
	for _, p := range attrPrefixes {
		rest, ok := strings.CutPrefix(name, p.prefix)
		if !ok {
			continue
		}
		whole := !strings.HasSuffix(p.prefix, ".")
		return attr{p.index, rest, value}, whole == (rest == "") && len(rest) <= 255
	}
	return attr{}, false
}

// diskACL turns a POSIX ACL from the form of the system call into that of the disk, which leaves out ids that say nothing.
func diskACL(b []byte) ([]byte, error) {
	le := binary.LittleEndian
	if len(b) < 4 || len(b)%8 != 4 || le.Uint32(b) != 2 {
		return nil, fmt.Errorf("an access control list of %d bytes is damaged", len(b))
	}
	out := []byte{1, 0, 0, 0}
	for at := 4; at < len(b); at += 8 {
		out = append(out, b[at:at+4]...)
		if tag := le.Uint16(b[at:]); tag == 2 || tag == 8 { // a named user or group
			out = append(out, b[at+4:at+8]...)
		}
	}
	return out, nil
}

func pad4(n int) int { return (n + 3) &^ 3 }

// attrSize is what attributes take, with the end mark.
func attrSize(list []attr) int {
	n := 4
	for _, a := range list {
		n += 16 + pad4(len(a.name)) + pad4(len(a.value))
	}
	return n
}

// inlineAttrs reports whether the attributes have room in the inode.
func (i *Inode) inlineAttrs() (bool, error) {
	if len(i.XAttrs) == 0 {
		return true, nil
	}
	list, err := i.attrs()
	if err != nil {
		return false, err
	}
	n := attrSize(list)
	if n > maxAttrSize {
		return false, fmt.Errorf("extended attributes of %d bytes are more than a file can have", n)
	}
	return n <= attrInline, nil
}

// putAttrs writes entries from start on and values from the end down; offsets count from the start of b.
func putAttrs(b []byte, start int, list []attr) (hash uint32) {
	le := binary.LittleEndian
	at, end := start, len(b)
	for _, a := range list {
		end -= pad4(len(a.value))
		copy(b[end:], a.value)
		e := b[at:]
		e[0], e[1] = byte(len(a.name)), a.index
		if len(a.value) > 0 {
			le.PutUint16(e[2:], uint16(end))
		}
		le.PutUint32(e[8:], uint32(len(a.value)))
		h := a.hash()
		le.PutUint32(e[12:], h)
		copy(e[16:], a.name)
		at += 16 + pad4(len(a.name))
		hash = hash<<16 ^ hash>>16 ^ h
	}
	return hash
}

// hash is what the kernel finds equal attributes by.
func (a attr) hash() (h uint32) {
	for _, c := range []byte(a.name) {
		h = h<<5 ^ h>>27 ^ uint32(c)
	}
	v := append(bytes.Clone(a.value), make([]byte, pad4(len(a.value))-len(a.value))...)
	for ; len(v) > 0; v = v[4:] {
		h = h<<16 ^ h>>16 ^ binary.LittleEndian.Uint32(v)
	}
	return h
}

func (i *Inode) putInlineAttrs(inode []byte) {
	if len(i.XAttrs) == 0 || i.xattr != 0 {
		return
	}
	list, _ := i.attrs() // Plan saw that they are good
	b := inode[128+extraSize:]
	binary.LittleEndian.PutUint32(b, attrMagic)
	putAttrs(b[4:], 0, list)
}

// attrBlock encodes the attributes that have a block of their own.
func (f *FS) attrBlock(i *Inode) []byte {
	list, _ := i.attrs() // Plan saw that they are good
	b := make([]byte, BlockSize)
	le := binary.LittleEndian
	le.PutUint32(b, attrMagic)
	le.PutUint32(b[4:], 1)
	le.PutUint32(b[8:], 1)
	le.PutUint32(b[12:], putAttrs(b, attrHeader, list))
	sum := crc(f.seed, le.AppendUint64(nil, uint64(i.xattr)))
	le.PutUint32(b[16:], crc(sum, b))
	return b
}
