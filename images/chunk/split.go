package chunk

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/cespare/xxhash/v2"
)

// Block is the grain of the format in bytes: every chunk starts at a multiple of it and is a multiple of it long, so that
// an agent can write chunks with O_DIRECT on disks of 512 and of 4096-byte sectors, and file-system blocks that moved
// between two builds of an image are found again.
const Block = 4096

// Params says where chunks end. All are bytes and multiples of Block.
type Params struct {
	Min  int // no chunk ends by content before this
	Avg  int // a power of two times Block: the distance of content cuts
	Max  int // every chunk ends here
	Hole int // a run of zero blocks this long ends a chunk; zero blocks at either end of a chunk are never stored
}

// DefaultParams cut the first FineChunks chunks of an image; see the package documentation for what was measured.
var DefaultParams = Params{Min: 16 << 10, Avg: 64 << 10, Max: 256 << 10, Hole: 16 << 10}

// FineChunks is how many chunks of an image are cut by DefaultParams, some 6 to 20 GB of it. What follows is cut by
// CoarseParams, so that an index, which an agent holds in memory, stays small for images of any size.
const FineChunks = 256 << 10

// CoarseParams cut what follows the first FineChunks chunks.
var CoarseParams = Params{Min: 128 << 10, Avg: 512 << 10, Max: MaxChunkBytes, Hole: 16 << 10}

// Sparse is a source that knows where it holds nothing, so that zeros need not be read.
type Sparse interface {
	io.Reader
	// SkipHole moves over zeros at the current position and gives their number, a multiple of Block.
	SkipHole() (int64, error)
}

// Splitter cuts a raw image into chunks. A block whose hash has log2(Avg/Block) zero bits is the last of its chunk, and so
// is one that ends with zeros, as the last block of a file does: then most chunks hold whole files, and files that moved
// stay the same chunks.
type Splitter struct {
	p     Params
	mask  uint64
	src   io.Reader
	buf   []byte
	start int   // of the unread part of buf
	have  int   // end of the valid part of buf
	off   int64 // image offset of buf[start]
	size  int64 // image bytes read
	eof   bool
}

// NewSplitter reads a raw image from src.
func NewSplitter(src io.Reader, p Params) *Splitter {
	return &Splitter{p: p, mask: uint64(p.Avg/Block - 1), src: src, buf: make([]byte, 4*MaxChunkBytes+Block)}
}

// Coarsen cuts all further chunks by p.
func (s *Splitter) Coarsen(p Params) { s.p, s.mask = p, uint64(p.Avg/Block-1) }

// Size is the number of image bytes read so far; after io.EOF, the size of the image.
func (s *Splitter) Size() int64 { return s.size }

// Next gives the next chunk that is not all zeros and its offset in the image, or io.EOF after the last one. The slice is
// valid until the next call. The last block of an image whose length is no multiple of Block is filled up with zeros.
func (s *Splitter) Next() (off int64, data []byte, err error) {
	if err := s.skipZeros(); err != nil {
		return 0, nil, err
	}
	if err := s.need(s.p.Max); err != nil {
		return 0, nil, err
	}
	in := s.buf[s.start:min(s.have, s.start+s.p.Max)]
	end, zeros := 0, 0 // of the chunk, and the zero bytes at its end
	for end < len(in) && zeros < s.p.Hole {
		b := in[end : end+Block]
		end += Block
		if isZero(b) {
			zeros += Block
			continue
		}
		zeros = 0
		if end >= s.p.Min && (fileEnds(b) || xxhash.Sum64(b)&s.mask == 0) {
			break
		}
	}
	off, data = s.off, in[:end-zeros]
	s.advance(end)
	return off, data, nil
}

// fileEnds tells whether a file may end in block b. One in a thousand does so too near to the block's end to be told.
func fileEnds(b []byte) bool { return binary.LittleEndian.Uint32(b[len(b)-4:]) == 0 }

// skipZeros leaves the first block that is not zero at the start.
func (s *Splitter) skipZeros() error {
	for {
		if err := s.skipHole(); err != nil {
			return err
		}
		if err := s.need(Block); err != nil {
			return err
		}
		if s.start == s.have {
			return io.EOF
		}
		if !isZero(s.buf[s.start : s.start+Block]) {
			return nil
		}
		s.advance(Block)
	}
}

// skipHole asks a Sparse source, when everything read so far has been given.
func (s *Splitter) skipHole() error {
	sparse, ok := s.src.(Sparse)
	if !ok || s.eof || s.start != s.have {
		return nil
	}
	n, err := sparse.SkipHole()
	s.off += n
	s.size += n
	return err
}

func (s *Splitter) advance(n int) {
	s.start += n
	s.off += int64(n)
}

// need reads until n bytes are there or the image ends. What is there is always a multiple of Block.
func (s *Splitter) need(n int) error {
	if s.eof || s.have-s.start >= n {
		return nil
	}
	s.have = copy(s.buf, s.buf[s.start:s.have])
	s.start = 0
	room := (len(s.buf) - s.have) / Block * Block
	got, err := readFull(s.src, s.buf[s.have:s.have+room])
	s.size += int64(got)
	s.have += got
	if err == nil {
		return nil
	}
	if !errors.Is(err, io.EOF) {
		return err
	}
	s.eof = true
	if rest := got % Block; rest != 0 {
		clear(s.buf[s.have : s.have+Block-rest])
		s.have += Block - rest
	}
	return nil
}

// readFull fills b and gives io.EOF only when src ended with it: unlike io.ReadFull it never mistakes the
// io.ErrUnexpectedEOF of a truncated gzip, xz or zstd stream for the end of the image.
func readFull(src io.Reader, b []byte) (n int, err error) {
	for n < len(b) && err == nil {
		var got int
		got, err = src.Read(b[n:])
		n += got
	}
	return n, err
}

var zeroBlock [Block]byte

func isZero(b []byte) bool { return bytes.Equal(b, zeroBlock[:len(b)]) }
