package catalog

import (
	"bufio"
	"encoding/binary"
	"errors"
	"io"
	"strings"

	"github.com/klauspost/compress/zstd"
	"github.com/klauspost/pgzip"
	"github.com/ulikunitz/xz"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/catalog/internal/qcow2"
)

// sniffBytes is how much of a stream is looked at to tell its format: enough for a FAT boot sector and an ISO.
const sniffBytes = 36 << 10

// maxWindow bounds what a zstd or xz stream may make the decoder reserve.
const maxWindow = 128 << 20

// Formats of a source. Compression is spelled after what it holds: "raw.zst", "qcow2.gz".
const (
	Raw   = "raw"
	QCOW2 = "qcow2"
	GZ    = "gz"
	XZ    = "xz"
	ZST   = "zst"

	// Tar is what decode finds a root file system or an OCI image in; which of them it is, tells its content.
	Tar = "tar"
)

// convert is the way out for a format that qemu-img reads.
const convert = "convert it with: qemu-img convert -O qcow2 IN OUT"

// refused says what a source is, when that cannot be imported.
func refused(what, wayOut string) error {
	return app.Errorf(app.Unsupported, "image-format", "this is %s, which cannot be imported", what).Do("%s", wayOut)
}

// magics are the starts of what may come, in the order they are tried. Those with a reason are refused.
var magics = []struct {
	at           int
	magic        string
	format       string
	what, wayOut string
}{
	{0, qcow2.Magic, QCOW2, "", ""},
	{0, "\x1f\x8b\x08", GZ, "", ""},
	{0, "\xfd7zXZ\x00", XZ, "", ""},
	{0, "\x28\xb5\x2f\xfd", ZST, "", ""},
	{32769, "CD001", ISO, "", ""},
	{0, "KDMV", "", "a VMware disk (VMDK)", convert},
	{0, "# Disk DescriptorFile", "", "the descriptor of a VMware disk (VMDK)", convert},
	{0, "COWD", "", "a VMware disk (VMDK)", convert},
	{0, "QED\x00", "", "a QED disk", convert},
	{0, "vhdxfile", "", "a Hyper-V disk (VHDX)", convert},
	{0, "conectix", "", "a Virtual PC disk (VHD)", convert},
	{64, "\x7f\x10\xda\xbe", "", "a VirtualBox disk (VDI)", convert},
	{0, "BZh", "", "compressed by bzip2", "decompress it and compress it with zstd"},
	{0, "\x04\x22\x4d\x18", "", "compressed by lz4", "decompress it and compress it with zstd"},
	{0, "PK\x03\x04", "", "a ZIP archive", "unpack it and import the disk image inside"},
	{0, "7z\xbc\xaf\x27\x1c", "", "a 7-Zip archive", "unpack it and import the disk image inside"},
	{257, "ustar", Tar, "", ""},
	{0, "hsqs", "", "a squashfs file system", "import a whole disk image"},
	{0, "MSWIM\x00\x00\x00", "", "a Windows image (WIM)", "import a whole disk image"},
	{0, "<!DOCTYPE", "", "a web page", "check the address of the image"},
	{0, "<html", "", "a web page", "check the address of the image"},
}

// sniff tells the format of what starts with head. What has no magic is raw.
func sniff(head []byte) (string, error) {
	for _, m := range magics {
		if len(head) < m.at+len(m.magic) || string(head[m.at:m.at+len(m.magic)]) != m.magic {
			continue
		}
		if m.format == "" {
			return "", refused(m.what, m.wayOut)
		}
		return m.format, nil
	}
	return Raw, nil
}

// plain reports whether a format is no compression.
func plain(format string) bool {
	return format == Raw || format == QCOW2 || format == ISO || format == Tar
}

// stream is a source on its way to raw bytes.
type stream struct {
	inner string // Raw, QCOW2, ISO or Tar
	outer string // GZ, XZ, ZST or ""
	r     *bufio.Reader
	close func()
}

// format spells what the stream is, as app.Image.Format.
func (s *stream) format() string {
	if s.outer == "" {
		return s.inner
	}
	return s.inner + "." + s.outer
}

// decode sniffs a source, undoes its compression, and compares what it found with what was declared.
func decode(src io.Reader, declared string) (*stream, error) {
	s := &stream{r: bufio.NewReaderSize(src, 256<<10), close: func() {}}
	var err error
	if s.inner, err = s.sniff(); err != nil {
		return nil, err
	}
	if !plain(s.inner) {
		s.outer = s.inner
		r, err := s.expand()
		if err != nil {
			return nil, streamError(s.outer, err)
		}
		s.r = bufio.NewReaderSize(&named{r, s.outer}, 1<<20)
		if s.inner, err = s.sniff(); err != nil {
			s.close()
			return nil, err
		}
	}
	kind := treeKind(declared)
	if kind != "" && s.inner == Raw { // an archive from before there was a magic number
		s.inner = Tar
	}
	switch {
	case kind != "" && s.inner == Tar && (declared == kind || declared == kind+strings.TrimPrefix(s.format(), Tar)):
	case !plain(s.inner):
		err = app.Errorf(app.Unsupported, "image-format", "the image is compressed twice, by %s and then %s", s.inner, s.outer).Do("decompress it once")
	case declared != "" && declared != s.format() && (s.outer == "" || declared != s.outer):
		err = app.Errorf(app.InvalidInput, "format-mismatch", "the image was declared as %s, its bytes are %s", declared, s.format()).
			At("format").Do("leave the format out, or fetch the right file")
	}
	if err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

func (s *stream) sniff() (string, error) {
	head, err := s.r.Peek(sniffBytes)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", err
	}
	if len(head) == 0 {
		return "", app.Errorf(app.InvalidInput, "image-empty", "the image is empty").Do("check the file or address it comes from")
	}
	return sniff(head)
}

func (s *stream) expand() (io.Reader, error) {
	switch s.outer {
	case GZ:
		z, err := pgzip.NewReaderN(s.r, 1<<20, 4)
		if err != nil {
			return nil, err
		}
		s.close = func() { z.Close() }
		return z, nil
	case XZ:
		head, _ := s.r.Peek(64)
		if n := xzDict(head); n > maxWindow {
			return nil, app.Errorf(app.Unsupported, "xz-dictionary", "the xz stream needs %d bytes of memory, the limit is %d", n, maxWindow).
				Do("compress the image with xz -9 or zstd")
		}
		return xz.ReaderConfig{DictCap: 1 << 20}.NewReader(s.r)
	default:
		z, err := zstd.NewReader(s.r, zstd.WithDecoderMaxWindow(maxWindow), zstd.WithDecoderMaxMemory(2*maxWindow), zstd.WithDecoderConcurrency(0))
		if err != nil {
			return nil, err
		}
		s.close = z.Close
		return z, nil
	}
}

// xzDict tells the dictionary size, in bytes, that the first block of an xz stream asks for; 0 when it cannot be told.
// The xz format: a stream header of 12 bytes, then a block header of size, flags, optional lengths, and filters.
func xzDict(head []byte) int64 {
	if len(head) < 32 || head[12] == 0 {
		return 0
	}
	at, flags := 14, head[13]
	for _, present := range []byte{0x40, 0x80} {
		if flags&present != 0 {
			_, n := binary.Uvarint(head[at:min(len(head), at+9)])
			at += max(n, 1)
		}
	}
	for range flags&3 + 1 {
		if at+3 > len(head) {
			return 0
		}
		id, size := head[at], head[at+1]
		if id == 0x21 { // LZMA2: one byte of dictionary size
			bits := head[at+2] & 0x3f
			return int64(2|bits&1) << (bits/2 + 11)
		}
		at += 2 + int(size)
	}
	return 0
}

// named gives a decompressor's errors a name and a way out.
type named struct {
	io.Reader
	format string
}

func (n *named) Read(b []byte) (int, error) {
	m, err := n.Reader.Read(b)
	if err != nil && !errors.Is(err, io.EOF) {
		err = streamError(n.format, err)
	}
	return m, err
}

func streamError(format string, err error) error {
	if _, ok := app.AsError(err); ok {
		return err
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || errors.Is(err, io.EOF) {
		return app.Errorf(app.InvalidInput, "image-truncated", "the %s stream ends before it is complete: %w", format, err).Do("fetch the image again")
	}
	return app.Errorf(app.InvalidInput, "image-damaged", "the %s stream is damaged or followed by other bytes: %w", format, err).Do("fetch the image again")
}

// bounded fails when more than left bytes are read: a small file may decompress to anything.
type bounded struct {
	r     io.Reader
	left  int64
	limit int64
	why   string
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.r.Read(p)
	if b.left -= int64(n); b.left < 0 {
		return n, tooLarge(b.limit, b.why)
	}
	return n, err
}

func tooLarge(limit int64, why string) error {
	return app.Errorf(app.TooLarge, "image-too-large", "the image decompresses to more than %d bytes, %s", limit, why).
		Do("check the file, or raise the limit")
}

var errNotDisk = app.Errorf(app.InvalidInput, "not-a-disk", "the image holds neither a partition table nor a file system, so no machine could boot it").
	Do("import a whole disk image")
