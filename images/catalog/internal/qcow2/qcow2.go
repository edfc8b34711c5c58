// Package qcow2 reads QEMU's copy-on-write images, versions 2 and 3, with deflate and zstd clusters.
//
// It opens no file but the one it is given: an image that names another (a backing file, an external data file) is
// refused from its header, as are encrypted images, version 1, and features this reader does not know. Tables are read a
// cluster at a time, so that a hostile image cannot make it reserve memory.
package qcow2

import (
	"bytes"
	"compress/flate"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"

	"github.com/better-compute/bcd/app"
)

// Magic is how an image starts.
const Magic = "QFI\xfb"

// Incompatible feature bits of version 3.
const (
	featDirty    = 1 << 0 // refcounts may be wrong: reading does not need them
	featCorrupt  = 1 << 1
	featDataFile = 1 << 2
	featCompress = 1 << 3
	featSubcl    = 1 << 4
)

const (
	maxL1     = 32 << 20 / 8 // entries
	offMask   = 0x00fffffffffffe00
	bitZero   = 1
	bitPacked = 1 << 62
)

// Reader reads the disk of an image from start to end. It implements chunk.Sparse.
type Reader struct {
	file    io.ReaderAt
	length  int64 // of the file
	size    int64 // of the disk
	bits    uint
	zstd    bool
	l1At    int64
	l1Size  int64
	dec     *zstd.Decoder
	pos     int64
	l2      []byte // the L2 table in memory
	l2Index int64  // its index in L1, -1 for none
	l2None  bool   // it is not allocated: all zeros
	cluster []byte // the cluster in memory
	have    int64  // its number, -1 for none
	packed  []byte
}

func refuse(reason, wayOut, format string, args ...any) error {
	return app.Errorf(app.Unsupported, reason, format, args...).Do("%s", wayOut)
}

func damaged(format string, args ...any) error {
	return app.Errorf(app.InvalidInput, "qcow2-damaged", "the qcow2 image is damaged: %s", fmt.Sprintf(format, args...)).
		Do("check it with qemu-img check, and fetch it again")
}

// Check looks at a header of at least 104 bytes and gives the size of the disk, or an *app.Error with a way out.
func Check(h []byte) (int64, error) {
	be := binary.BigEndian
	if len(h) < 104 || string(h[:4]) != Magic {
		return 0, damaged("it does not start as one")
	}
	convert := "convert it with: qemu-img convert -O qcow2 IN OUT"
	version := be.Uint32(h[4:])
	if version != 2 && version != 3 {
		return 0, refuse("qcow2-version", convert, "this is a qcow image of version %d; versions 2 and 3 can be read", version)
	}
	if be.Uint64(h[8:]) != 0 {
		return 0, refuse("qcow2-backing-file", convert, "the qcow2 image is only a difference to a backing file, which is never opened")
	}
	if be.Uint32(h[32:]) != 0 {
		return 0, refuse("qcow2-encrypted", convert, "the qcow2 image is encrypted")
	}
	if version == 3 {
		if err := checkFeatures(be.Uint64(h[72:]), convert); err != nil {
			return 0, err
		}
	}
	size, bits := be.Uint64(h[24:]), be.Uint32(h[20:])
	if bits < 9 || bits > 21 {
		return 0, damaged("it has clusters of 2^%d bytes", bits)
	}
	if size == 0 || size > 1<<50 {
		return 0, damaged("it claims a disk of %d bytes", size)
	}
	return int64(size), nil
}

func checkFeatures(f uint64, convert string) error {
	switch {
	case f&featDataFile != 0:
		return refuse("qcow2-data-file", convert, "the qcow2 image keeps its data in another file, which is never opened")
	case f&featCorrupt != 0:
		return damaged("it is marked as corrupt")
	case f&featSubcl != 0:
		return refuse("qcow2-subclusters", convert, "the qcow2 image uses extended L2 entries, which this build cannot read")
	case f&^(featDirty|featCompress) != 0:
		return refuse("qcow2-feature", convert, "the qcow2 image uses features this build does not know (%#x)", f)
	}
	return nil
}

// New checks the header of a file of the given length.
func New(file io.ReaderAt, length int64) (*Reader, error) {
	h := make([]byte, 112)
	if n, err := file.ReadAt(h, 0); err != nil && n < 72 {
		return nil, damaged("its header is cut short")
	}
	size, err := Check(h)
	if err != nil {
		return nil, err
	}
	be := binary.BigEndian
	r := &Reader{file: file, length: length, size: size, bits: uint(be.Uint32(h[20:])),
		l1Size: int64(be.Uint32(h[36:])), l1At: int64(be.Uint64(h[40:])), l2Index: -1, have: -1}
	if be.Uint32(h[4:]) == 3 && be.Uint64(h[72:])&featCompress != 0 && be.Uint32(h[100:]) > 104 {
		switch h[104] {
		case 0:
		case 1:
			r.zstd = true
		default:
			return nil, refuse("qcow2-compression", "convert it with: qemu-img convert -O qcow2 IN OUT", "the qcow2 image is compressed by method %d", h[104])
		}
	}
	perL1 := r.span() * r.perL2()
	if need := (size + perL1 - 1) / perL1; r.l1Size < need || r.l1Size > maxL1 || r.l1At <= 0 || r.l1At+r.l1Size*8 > length {
		return nil, damaged("its first table of %d entries at %d does not fit", r.l1Size, r.l1At)
	}
	if r.zstd {
		r.dec, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderMaxMemory(uint64(r.span())), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Close frees the reader.
func (r *Reader) Close() {
	if r.dec != nil {
		r.dec.Close()
	}
}

// Size of the disk in bytes.
func (r *Reader) Size() int64 { return r.size }

func (r *Reader) span() int64  { return 1 << r.bits }
func (r *Reader) perL2() int64 { return 1 << (r.bits - 3) }

// Read gives the next bytes of the disk.
func (r *Reader) Read(b []byte) (int, error) {
	if r.pos >= r.size {
		return 0, io.EOF
	}
	n := r.pos >> r.bits
	if n != r.have {
		if err := r.load(n); err != nil {
			return 0, err
		}
	}
	at := r.pos & (r.span() - 1)
	m := copy(b[:min(int64(len(b)), r.size-r.pos)], r.cluster[at:])
	r.pos += int64(m)
	return m, nil
}

// SkipHole moves over what is not allocated, in multiples of 4 KiB, and gives the number of bytes.
func (r *Reader) SkipHole() (int64, error) {
	start := r.pos
	if r.pos&4095 != 0 {
		return 0, nil
	}
	for r.pos < r.size {
		n := r.pos >> r.bits
		if err := r.table(n / r.perL2()); err != nil {
			return 0, err
		}
		next := (n + 1) << r.bits
		switch {
		case r.l2None:
			next = (n/r.perL2() + 1) * r.perL2() << r.bits
		case !r.zero(r.entry(n)):
			return r.pos - start, nil
		}
		if r.bits < 12 && next&4095 != 0 {
			return r.pos - start, nil
		}
		if next > r.size {
			next = max(r.pos, r.size&^4095)
			r.pos = next
			return r.pos - start, nil
		}
		r.pos = next
	}
	return r.pos - start, nil
}

// table loads the L2 table i.
func (r *Reader) table(i int64) error {
	if r.l2Index == i {
		return nil
	}
	var b [8]byte
	if _, err := r.file.ReadAt(b[:], r.l1At+i*8); err != nil {
		return damaged("its first table cannot be read")
	}
	at := int64(binary.BigEndian.Uint64(b[:]) & offMask)
	r.l2Index, r.l2None = i, at == 0
	if at == 0 {
		return nil
	}
	if r.l2 == nil {
		r.l2 = make([]byte, r.span())
	}
	if at&(r.span()-1) != 0 {
		return damaged("a table at %d is not aligned", at)
	}
	if _, err := r.file.ReadAt(r.l2, at); err != nil {
		return damaged("a table at %d cannot be read", at)
	}
	return nil
}

func (r *Reader) entry(n int64) uint64 {
	return binary.BigEndian.Uint64(r.l2[n%r.perL2()*8:])
}

func (r *Reader) zero(e uint64) bool {
	return e&bitPacked == 0 && (e&bitZero != 0 || e&offMask == 0)
}

// load reads cluster n into memory.
func (r *Reader) load(n int64) error {
	if r.cluster == nil {
		r.cluster = make([]byte, r.span())
	}
	r.have = -1
	if err := r.table(n / r.perL2()); err != nil {
		return err
	}
	switch {
	case r.l2None || r.zero(r.entry(n)):
		clear(r.cluster)
	case r.entry(n)&bitPacked != 0:
		if err := r.unpack(r.entry(n)); err != nil {
			return err
		}
	default:
		at := int64(r.entry(n) & offMask)
		if at&(r.span()-1) != 0 {
			return damaged("cluster %d at %d is not aligned", n, at)
		}
		// The last cluster of a file may be cut where the disk ends.
		got, err := r.file.ReadAt(r.cluster, at)
		if err != nil && int64(got) < min(r.span(), r.size-n<<r.bits) {
			return damaged("cluster %d at %d lies outside the file", n, at)
		}
		clear(r.cluster[got:])
	}
	r.have = n
	return nil
}

// unpack decompresses a cluster. The entry holds its offset and the number of further 512-byte sectors it touches.
func (r *Reader) unpack(e uint64) error {
	shift := 62 - (r.bits - 8)
	at := int64(e & (1<<shift - 1))
	sectors := int64(e >> shift & (1<<(r.bits-8) - 1))
	n := (sectors+1)*512 - at&511
	if at >= r.length {
		return damaged("a compressed cluster at %d lies outside the file", at)
	}
	if int64(cap(r.packed)) < n {
		r.packed = make([]byte, n)
	}
	b := r.packed[:min(n, r.length-at)]
	if _, err := r.file.ReadAt(b, at); err != nil {
		return damaged("a compressed cluster at %d cannot be read", at)
	}
	var src io.Reader = flate.NewReader(bytes.NewReader(b))
	if r.zstd {
		if err := r.dec.Reset(bytes.NewReader(b)); err != nil {
			return damaged("a compressed cluster at %d: %v", at, err)
		}
		src = r.dec
	}
	if _, err := io.ReadFull(src, r.cluster); err != nil {
		return damaged("a compressed cluster at %d does not fill its cluster: %v", at, err)
	}
	return nil
}
