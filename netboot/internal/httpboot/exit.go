package httpboot

import (
	"encoding/binary"
	"sync"
	"unicode/utf16"
)

// exitText is what the machine's screen shows.
const exitText = "bcd: nothing to load, this machine goes on to its disk\r\n\x00"

// exitCode is the whole program, for x86-64 in the UEFI calling convention: SystemTable->ConOut->OutputString(text), then
// the return value EFI_NOT_FOUND. After an error firmware tries what comes next in its boot order; after success some stop
// at their menu.
const exitCode = "\x48\x83\xec\x28" + // sub rsp, 40
	"\x48\x8b\x4a\x40" + // mov rcx, [rdx+64]: ConOut
	"\x48\x85\xc9" + "\x74\x0a" + // none: skip the call
	"\x48\x8d\x15\x14\x00\x00\x00" + // lea rdx, [rip+20]: the text
	"\xff\x51\x08" + // call [rcx+8]: OutputString
	"\x48\xb8\x0e\x00\x00\x00\x00\x00\x00\x80" + // mov rax, EFI_NOT_FOUND
	"\x48\x83\xc4\x28" + "\xc3" + "\x00\x00" // add rsp, 40; ret; the text follows at an even address

// Where the parts of the program are: in the file, and in memory.
const (
	exitPE, exitTable      = 0x40, 0x148
	exitBlock, exitPage    = 0x200, 0x1000
	exitRelocations        = "\x00\x10\x00\x00\x0c\x00\x00\x00\x00\x00\x00\x00" // none: there are no addresses in the code
	executable, readOnly   = 0x60000020, 0x42000040                             // section flags
	efiApplication, amd64  = 10, 0x8664
	executableLargeAddress = 0x22
)

// exitProgram is an EFI program that ends at once with an error. It is the same each time.
var exitProgram = sync.OnceValue(func() string {
	le := binary.LittleEndian
	b := make([]byte, 3*exitBlock)
	copy(b, "MZ")
	le.PutUint32(b[0x3c:], exitPE)
	copy(b[exitPE:], "PE\x00\x00")
	coff, opt := b[exitPE+4:], b[exitPE+24:]
	le.PutUint16(coff, amd64)
	le.PutUint16(coff[2:], 2)    // sections
	le.PutUint16(coff[16:], 240) // length of the optional header
	le.PutUint16(coff[18:], executableLargeAddress)
	le.PutUint16(opt, 0x20b) // 64-bit
	for at, v := range map[int]uint32{
		4: exitBlock, 8: exitBlock, 16: exitPage, 20: exitPage, // lengths of code and data, entry, start of the code
		32: exitPage, 36: exitBlock, 56: 3 * exitPage, 60: exitBlock, // alignments, lengths of the image and its headers
		108: 16, 112 + 5*8: 2 * exitPage, 112 + 5*8 + 4: uint32(len(exitRelocations)), // directories, and the one for relocations
	} {
		le.PutUint32(opt[at:], v)
	}
	le.PutUint16(opt[68:], efiApplication)
	code := []byte(exitCode)
	for _, c := range utf16.Encode([]rune(exitText)) {
		code = le.AppendUint16(code, c)
	}
	for n, s := range []struct {
		name    string
		content []byte
		flags   uint32
	}{{".text", code, executable}, {".reloc", []byte(exitRelocations), readOnly}} {
		h, at := b[exitTable+n*40:], (n+1)*exitBlock
		copy(h, s.name)
		le.PutUint32(h[8:], uint32(len(s.content)))
		le.PutUint32(h[12:], uint32((n+1)*exitPage))
		le.PutUint32(h[16:], exitBlock)
		le.PutUint32(h[20:], uint32(at))
		le.PutUint32(h[36:], s.flags)
		copy(b[at:], s.content)
	}
	return string(b)
})
