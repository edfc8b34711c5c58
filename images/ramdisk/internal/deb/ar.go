package deb

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
)

const (
	arMagic      = "!<arch>\n"
	arHeaderSize = 60
)

// arReader walks the members of a Unix ar archive as Debian writes it: short names only, each member padded to two bytes.
type arReader struct {
	r    io.Reader
	left int64 // of the current member, with its padding
}

func newAr(r io.Reader) (*arReader, error) {
	var magic [len(arMagic)]byte
	if _, err := io.ReadFull(r, magic[:]); err != nil {
		return nil, fmt.Errorf("reading the ar magic: %w", err)
	}
	if string(magic[:]) != arMagic {
		return nil, errors.New("not an ar archive")
	}
	return &arReader{r: r}, nil
}

// next skips to the next member and gives its name and content; io.EOF after the last.
func (a *arReader) next() (string, io.Reader, error) {
	if _, err := io.CopyN(io.Discard, a.r, a.left); err != nil {
		return "", nil, fmt.Errorf("skipping an ar member: %w", noEOF(err))
	}
	a.left = 0
	var h [arHeaderSize]byte
	if _, err := io.ReadFull(a.r, h[:]); err != nil {
		if errors.Is(err, io.EOF) {
			return "", nil, io.EOF
		}
		return "", nil, fmt.Errorf("reading an ar header: %w", err)
	}
	if h[58] != '`' || h[59] != '\n' {
		return "", nil, errors.New("ar header without its end mark")
	}
	size, err := strconv.ParseInt(strings.TrimRight(string(h[48:58]), " "), 10, 64)
	if err != nil || size < 0 {
		return "", nil, fmt.Errorf("ar member of size %q", h[48:58])
	}
	a.left = size + size%2
	name := strings.TrimRight(string(h[:16]), " ")
	return strings.TrimSuffix(name, "/"), &arMember{a: a, left: size}, nil
}

// arMember reads one member and keeps the archive's account of what is left.
type arMember struct {
	a    *arReader
	left int64
}

func (m *arMember) Read(p []byte) (int, error) {
	if m.left == 0 {
		return 0, io.EOF
	}
	n, err := m.a.r.Read(p[:min(int64(len(p)), m.left)])
	m.left -= int64(n)
	m.a.left -= int64(n)
	if err != nil {
		err = noEOF(err)
	}
	return n, err
}

// noEOF turns an end inside a structure into the error it is.
func noEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
