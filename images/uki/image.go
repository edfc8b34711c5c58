package uki

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
)

// Image is a file that is put together while it is read: a UKI, or the CD around one. It is valid until the Maker that it
// comes from is closed, and safe for concurrent use.
type Image struct {
	pieces []piece // sorted, without overlap; what lies between them is zero
	size   int64
	tag    string
}

var _ io.ReaderAt = (*Image)(nil)

// piece is a run of bytes of an Image.
type piece struct {
	at, size int64
	r        io.ReaderAt // its own byte 0 is the Image's byte at
}

// Size is the length in bytes.
func (i *Image) Size() int64 { return i.size }

// Tag names the content, in 32 hex digits: images of equal bytes have equal tags while the files they are made of stay, and
// images that differ have different ones.
func (i *Image) Tag() string { return i.tag }

// ReadAt reads as io.ReaderAt has it.
func (i *Image) ReadAt(p []byte, off int64) (int, error) {
	if off < 0 {
		return 0, errors.New("uki: reading at a negative offset")
	}
	if off >= i.size {
		return 0, io.EOF
	}
	end := error(nil)
	if int64(len(p)) > i.size-off {
		p, end = p[:i.size-off], io.EOF
	}
	clear(p)
	to := off + int64(len(p))
	for n := sort.Search(len(i.pieces), func(n int) bool { return i.pieces[n].at+i.pieces[n].size > off }); n < len(i.pieces) && i.pieces[n].at < to; n++ {
		x := i.pieces[n]
		from, until := max(off, x.at), min(to, x.at+x.size)
		if got, err := x.r.ReadAt(p[from-off:until-off], from-x.at); int64(got) < until-from {
			if err == nil || err == io.EOF {
				err = io.ErrUnexpectedEOF // a file of the ramdisk became shorter
			}
			return int(from-off) + got, fmt.Errorf("reading a boot image at byte %d: %w", from+int64(got), err)
		}
	}
	return len(p), end
}

// source is a file on disk that stands in images as it is.
type source struct {
	*os.File
	size int64
	id   string // changes when the file does
}

func openSource(path string) (source, error) {
	f, err := os.Open(path)
	if err != nil {
		return source{}, fmt.Errorf("opening a part of the boot image: %w", err)
	}
	st, err := f.Stat()
	if err == nil && (!st.Mode().IsRegular() || st.Size() == 0) {
		err = errors.New("it is not a file with content")
	}
	if err != nil {
		return source{}, errors.Join(fmt.Errorf("opening a part of the boot image: %q: %w", path, err), f.Close())
	}
	return source{f, st.Size(), fmt.Sprintf("%d %d", st.Size(), st.ModTime().UnixNano())}, nil
}

// tagOf hashes what tells an image from all others.
func tagOf(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d ", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

func up(n, to int64) int64 { return (n + to - 1) / to * to }
