// Package deb reads Debian binary packages (deb(5)): an ar archive that holds a control tar and a data tar.
//
// It reads a stream once, unpacks nothing by itself and trusts nothing: names that would leave the package's root, sizes
// and counts beyond any real package end the reading.
package deb

import (
	"archive/tar"
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/therootcompany/xz"
)

// Limits of a package. Debian's kernel has 4,200 files and 400 MB.
const (
	MaxFiles      = 100_000
	MaxUnpacked   = 4 << 30 // bytes, of the data tar
	maxControl    = 1 << 20
	maxDictionary = 64 << 20 // of the decompressors, bytes; xz -9 uses 64 MiB
)

// Control is what is needed of the package's control file.
type Control struct {
	Package      string
	Version      string
	Architecture string
	Source       string // source package and, in parentheses, its version when it differs; empty when it is Package
}

// File is one entry of the data tar. Body is valid until the callback returns.
type File struct {
	Name string // relative, cleaned, slash separated: "boot/vmlinuz-6.1.0-57-amd64"
	Type byte   // tar.TypeReg, tar.TypeSymlink, tar.TypeLink
	Link string // target as written, of a link
	Size int64  // bytes
	Body io.Reader
}

// Read walks a package. control is called once, before the first file; file for every regular file and link, in archive
// order. An error of either ends the walk and is returned as it is.
func Read(r io.Reader, control func(Control) error, file func(File) error) error {
	a, err := newAr(bufio.NewReaderSize(r, 1<<20))
	if err != nil {
		return err
	}
	var seenControl, seenData bool
	for !seenData {
		name, body, err := a.next()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("package ends before its data: %w", io.ErrUnexpectedEOF)
		}
		if err != nil {
			return err
		}
		switch base, ext, _ := strings.Cut(name, ".tar"); {
		case name == "debian-binary":
			err = checkFormat(body)
		case base == "control" && !seenControl:
			seenControl = true
			err = readControl(body, ext, control)
		case base == "data" && !seenControl:
			err = errors.New("data before control")
		case base == "data":
			seenData = true
			err = readData(body, ext, file)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func checkFormat(r io.Reader) error {
	b, err := io.ReadAll(io.LimitReader(r, 16))
	if err != nil {
		return fmt.Errorf("reading debian-binary: %w", err)
	}
	if !strings.HasPrefix(string(b), "2.") {
		return fmt.Errorf("package format %q is not 2.x", b)
	}
	return nil
}

// decompress opens a member by the end of its name.
func decompress(r io.Reader, ext string) (io.Reader, func(), error) {
	switch ext {
	case "":
		return r, func() {}, nil
	case ".gz":
		z, err := gzip.NewReader(r)
		return z, func() {}, err
	case ".xz":
		z, err := xz.NewReader(r, maxDictionary)
		return z, func() {}, err
	case ".zst":
		z, err := zstd.NewReader(r, zstd.WithDecoderMaxMemory(maxDictionary*2), zstd.WithDecoderConcurrency(1))
		if err != nil {
			return nil, nil, err
		}
		return z, z.Close, nil
	}
	return nil, nil, fmt.Errorf("member compressed as %q", ext)
}

func readControl(r io.Reader, ext string, control func(Control) error) error {
	z, done, err := decompress(r, ext)
	if err != nil {
		return fmt.Errorf("opening the control member: %w", err)
	}
	defer done()
	t := tar.NewReader(io.LimitReader(z, 64<<20))
	for {
		h, err := t.Next()
		if err != nil {
			return fmt.Errorf("looking for the control file: %w", noEOF(err))
		}
		if path.Clean(h.Name) != "control" {
			continue
		}
		b, err := io.ReadAll(io.LimitReader(t, maxControl))
		if err != nil {
			return fmt.Errorf("reading the control file: %w", err)
		}
		return control(parseControl(string(b)))
	}
}

// parseControl takes the fields of the first paragraph; continuation lines are of no interest here.
func parseControl(s string) Control {
	var c Control
	for line := range strings.Lines(s) {
		k, v, ok := strings.Cut(line, ":")
		if !ok || strings.HasPrefix(line, " ") {
			continue
		}
		v = strings.TrimSpace(v)
		switch strings.ToLower(k) {
		case "package":
			c.Package = v
		case "version":
			c.Version = v
		case "architecture":
			c.Architecture = v
		case "source":
			c.Source = v
		}
	}
	return c
}

func readData(r io.Reader, ext string, file func(File) error) error {
	z, done, err := decompress(r, ext)
	if err != nil {
		return fmt.Errorf("opening the data member: %w", err)
	}
	defer done()
	t := tar.NewReader(&capped{r: z, left: MaxUnpacked})
	for n := 0; ; n++ {
		h, err := t.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("reading the data tar: %w", err)
		}
		if n >= MaxFiles {
			return fmt.Errorf("package has more than %d files", MaxFiles)
		}
		if h.Typeflag != tar.TypeReg && h.Typeflag != tar.TypeSymlink && h.Typeflag != tar.TypeLink {
			continue
		}
		name, err := cleanName(h.Name)
		if err != nil {
			return err
		}
		if err := file(File{Name: name, Type: h.Typeflag, Link: h.Linkname, Size: h.Size, Body: t}); err != nil {
			return err
		}
	}
}

// cleanName makes a tar name relative to the package's root, or refuses it.
func cleanName(s string) (string, error) {
	n := path.Clean(strings.TrimPrefix(s, "/"))
	if n == ".." || strings.HasPrefix(n, "../") || strings.ContainsRune(n, 0) {
		return "", fmt.Errorf("package has a file named %q", s)
	}
	return n, nil
}

// capped fails, rather than ends, when too much has been read: a cut-off tar would look whole.
type capped struct {
	r    io.Reader
	left int64
}

func (c *capped) Read(p []byte) (int, error) {
	if c.left <= 0 {
		return 0, fmt.Errorf("package unpacks to more than %d bytes", int64(MaxUnpacked))
	}
	n, err := c.r.Read(p[:min(int64(len(p)), c.left)])
	c.left -= int64(n)
	return n, err
}
