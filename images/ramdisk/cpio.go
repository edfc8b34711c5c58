package ramdisk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/klauspost/compress/zstd"
)

const (
	newcMagic   = "070701"
	newcHeader  = 110 // bytes: the magic and 13 fields of 8 hex digits
	maxCPIOName = 4096
)

// entry is one record of a newc archive held in memory. Body points into the archive.
type entry struct {
	Name string
	Mode uint32 // S_IFMT bits and permissions
	Body []byte
}

// readCPIO walks the archive that b starts with and gives how many bytes it takes, trailer included: what follows may be
// padding and another archive.
func readCPIO(b []byte, fn func(entry)) (int, error) {
	for pos := 0; ; {
		e, end, err := readEntry(b, pos)
		if err != nil {
			return 0, fmt.Errorf("reading a cpio at byte %d: %w", pos, err)
		}
		if e.Name == "TRAILER!!!" {
			return end, nil
		}
		fn(e)
		pos = end
	}
}

func readEntry(b []byte, pos int) (entry, int, error) {
	if len(b)-pos < newcHeader {
		return entry{}, 0, io.ErrUnexpectedEOF
	}
	h := b[pos : pos+newcHeader]
	if string(h[:len(newcMagic)]) != newcMagic {
		return entry{}, 0, fmt.Errorf("magic %q is not newc's", h[:len(newcMagic)])
	}
	mode, err1 := newcField(h, 1)
	size, err2 := newcField(h, 6)
	nameLen, err3 := newcField(h, 11)
	if err := errors.Join(err1, err2, err3); err != nil {
		return entry{}, 0, err
	}
	if nameLen == 0 || nameLen > maxCPIOName {
		return entry{}, 0, fmt.Errorf("name of %d bytes", nameLen)
	}
	nameEnd := pos + newcHeader + int(nameLen)
	start := nameEnd + -nameEnd&3
	end := start + int(size)
	if end > len(b) {
		return entry{}, 0, io.ErrUnexpectedEOF
	}
	name := bytes.TrimRight(b[pos+newcHeader:nameEnd], "\x00")
	return entry{Name: string(name), Mode: uint32(mode), Body: b[start:end]}, min(end+-end&3, len(b)), nil
}

// newcField decodes the i-th field after the magic, from 0.
func newcField(h []byte, i int) (uint64, error) {
	at := len(newcMagic) + 8*i
	v, err := strconv.ParseUint(string(h[at:at+8]), 16, 32)
	if err != nil {
		return 0, fmt.Errorf("header field %d: %w", i, err)
	}
	return v, nil
}

// readInitramfs walks all archives of an initramfs of zstd frames, in the order the kernel unpacks them.
func readInitramfs(r io.Reader, fn func(entry)) error {
	z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(maxInitramfs), zstd.WithDecoderConcurrency(1))
	if err != nil {
		return fmt.Errorf("opening the initramfs: %w", err)
	}
	defer z.Close()
	raw, err := readAll("the initramfs", z, maxInitramfs)
	if err != nil {
		return err
	}
	for len(raw) > 0 {
		n, err := readCPIO(raw, fn)
		if err != nil {
			return fmt.Errorf("reading the initramfs: %w", err)
		}
		raw = bytes.TrimLeft(raw[n:], "\x00")
	}
	return nil
}
