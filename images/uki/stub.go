package uki

import (
	"encoding/binary"
	"fmt"
	"os"

	"github.com/better-compute/bcd/app"
)

// Limits of a stub, bytes, and of a whole image: firmware loads it into memory below 4 GiB.
const (
	maxStub  = 4 << 20
	maxImage = 2 << 30
)

// Offsets in PE headers, from the Microsoft PE/COFF specification.
const (
	coffMachine, coffSections, coffOptSize = 0, 2, 16 // in the COFF header
	coffLen                                = 20
	optData, optSectionAlign, optFileAlign = 8, 32, 36 // in the optional header
	optImage, optHeaders, optChecksum      = 56, 60, 64
	optDirs                                = 112 // directories, 8 bytes each
	dirCertificates                        = 4
	sectionLen                             = 40
	machineAMD64                           = 0x8664
	magicPE32Plus                          = 0x20b
	dataReadable                           = 0x40000040 // initialized data, readable
)

var le = binary.LittleEndian

// stub is systemd's EFI stub, to which sections are added.
type stub struct {
	raw                     []byte
	coff, opt, table        int // where the headers are in raw
	sections                int
	fileAlign, sectionAlign int64
	end                     int64 // of its sections in memory
}

func openStub(path string) (*stub, error) {
	st, err := os.Stat(path)
	if err != nil {
		return nil, app.Errorf(app.InvalidConfig, "stub-missing", "the UEFI stub cannot be read: %w", err).
			Do("install Debian's systemd-boot-efi package and build the ramdisk again")
	}
	if st.Size() > maxStub {
		return nil, badStub("is larger than %d bytes", maxStub)
	}
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the UEFI stub: %w", err)
	}
	return parseStub(raw)
}

func badStub(format string, args ...any) error {
	return app.Errorf(app.InvalidConfig, "stub-unusable", "the UEFI stub "+format, args...).Do("use linuxx64.efi.stub of Debian's systemd-boot-efi package")
}

// parseStub finds the headers and what of them matters here.
func parseStub(raw []byte) (*stub, error) {
	if len(raw) < 64 || string(raw[:2]) != "MZ" {
		return nil, badStub("is no PE file")
	}
	pe := int64(le.Uint32(raw[0x3c:]))
	if pe+4+coffLen+optDirs > int64(len(raw)) || string(raw[pe:pe+4]) != "PE\x00\x00" {
		return nil, badStub("is no PE file")
	}
	s := &stub{raw: raw, coff: int(pe) + 4, opt: int(pe) + 4 + coffLen}
	if m := le.Uint16(raw[s.coff+coffMachine:]); m != machineAMD64 || le.Uint16(raw[s.opt:]) != magicPE32Plus {
		return nil, badStub("is for machine 0x%04x, not for x86-64", m)
	}
	s.sections = int(le.Uint16(raw[s.coff+coffSections:]))
	s.table = s.opt + int(le.Uint16(raw[s.coff+coffOptSize:]))
	s.fileAlign, s.sectionAlign = int64(le.Uint32(raw[s.opt+optFileAlign:])), max(4096, int64(le.Uint32(raw[s.opt+optSectionAlign:])))
	if !powerOfTwo(s.fileAlign, 64<<10) || !powerOfTwo(s.sectionAlign, 2<<20) {
		return nil, badStub("aligns its sections to %d and %d bytes", s.fileAlign, s.sectionAlign)
	}
	return s, s.room()
}

func powerOfTwo(n, most int64) bool { return n > 0 && n <= most && n&(n-1) == 0 }

// room reads the sections and makes sure that the headers of ours fit before the first one's data.
func (s *stub) room() error {
	first := int64(len(s.raw))
	need := int64(s.table + (s.sections+added)*sectionLen)
	if s.sections == 0 || need > first {
		return badStub("has %d sections and no room for more", s.sections)
	}
	for n := range s.sections {
		h := s.raw[s.table+n*sectionLen:]
		s.end = max(s.end, int64(le.Uint32(h[12:]))+int64(le.Uint32(h[8:])))
		if at := int64(le.Uint32(h[20:])); at != 0 {
			first = min(first, at)
		}
	}
	if need > first {
		return badStub("has no room for the headers of %d more sections", added)
	}
	if s.end > maxImage {
		return badStub("claims %d bytes of memory", s.end)
	}
	return nil
}

// added is the number of sections that an image has beside the stub's own.
const added = 4

// section is one that is added to the stub.
type section struct {
	name     string
	size, at int64 // in the file
}

// head gives the stub with the headers of more sections, which follow it in the file in their order, and the length of the
// file. The sections' places are filled in.
func (s *stub) head(sections *[added]section) (head []byte, size int64, err error) {
	at, addr := up(int64(len(s.raw)), s.fileAlign), up(s.end, s.sectionAlign)
	head = make([]byte, at)
	copy(head, s.raw)
	start := at
	for n := range sections {
		x := &sections[n]
		x.at = at
		h := head[s.table+(s.sections+n)*sectionLen:][:sectionLen]
		clear(h)
		copy(h[:8], x.name)
		raw := up(x.size, s.fileAlign)
		if addr+raw > maxImage || at+raw > maxImage {
			return nil, 0, app.Errorf(app.TooLarge, "boot-image-too-large", "kernel and initramfs take more than %d bytes together", maxImage).
				Do("build a ramdisk with fewer drivers and firmware files")
		}
		le.PutUint32(h[8:], uint32(x.size))
		le.PutUint32(h[12:], uint32(addr))
		le.PutUint32(h[16:], uint32(raw))
		le.PutUint32(h[20:], uint32(at))
		le.PutUint32(h[36:], dataReadable)
		at, addr = at+raw, up(addr+x.size, s.sectionAlign)
	}
	le.PutUint16(head[s.coff+coffSections:], uint16(s.sections+added))
	opt := head[s.opt:]
	le.PutUint32(opt[optData:], le.Uint32(opt[optData:])+uint32(at-start))
	le.PutUint32(opt[optImage:], uint32(addr))
	le.PutUint32(opt[optHeaders:], max(le.Uint32(opt[optHeaders:]), uint32(up(int64(s.table+(s.sections+added)*sectionLen), s.fileAlign))))
	le.PutUint32(opt[optChecksum:], 0)
	s.unsign(opt)
	return head, at, nil
}

// unsign takes the signature out, which is another file's.
func (s *stub) unsign(opt []byte) {
	if dir := optDirs + dirCertificates*8; s.opt+dir+8 <= s.table {
		clear(opt[dir : dir+8])
	}
}
