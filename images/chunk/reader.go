package chunk

import (
	"errors"
	"fmt"
	"io"
	"os"
	"sort"
	"sync"
)

// Reader reads the raw image of an index from its packs, in any order. It keeps the chunk read last.
type Reader struct {
	index *Index
	open  func(PackID) (*os.File, error)

	mu   sync.Mutex
	dec  *Decoder
	have int // chunk in raw, or -1
	wire []byte
	raw  []byte
}

// NewReader reads x with packs from open, for instance Store.Open. The caller must close it.
func NewReader(x *Index, open func(PackID) (*os.File, error)) (*Reader, error) {
	dec, err := NewDecoder()
	if err != nil {
		return nil, err
	}
	return &Reader{index: x, open: open, dec: dec, have: -1}, nil
}

// Close frees the reader.
func (r *Reader) Close() { r.dec.Close() }

// ReadAt gives raw bytes, zeros where no chunk lies. It implements io.ReaderAt.
func (r *Reader) ReadAt(b []byte, off int64) (int, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if off < 0 {
		return 0, errors.New("negative offset")
	}
	if off >= r.index.RawBytes {
		return 0, io.EOF
	}
	n := int(min(int64(len(b)), r.index.RawBytes-off))
	clear(b[:n])
	list := r.index.Chunks
	for i := sort.Search(len(list), func(i int) bool { return list[i].End() > off }); i < len(list) && list[i].Offset < off+int64(n); i++ {
		if err := r.load(i); err != nil {
			return 0, err
		}
		c := &list[i]
		if c.Offset >= off {
			copy(b[c.Offset-off:n], r.raw)
		} else {
			copy(b[:n], r.raw[off-c.Offset:])
		}
	}
	if n < len(b) {
		return n, io.EOF
	}
	return n, nil
}

func (r *Reader) load(i int) error {
	if r.have == i {
		return nil
	}
	c := &r.index.Chunks[i]
	f, err := r.open(r.index.Packs[c.Pack])
	if err != nil {
		return fmt.Errorf("opening pack: %w", err)
	}
	defer f.Close()
	if cap(r.raw) == 0 {
		r.raw, r.wire = make([]byte, MaxChunkBytes), make([]byte, MaxChunkBytes)
	}
	r.have, r.raw, r.wire = -1, r.raw[:c.Size], r.wire[:c.Stored]
	if _, err := f.ReadAt(r.wire, int64(c.PackOff)); err != nil {
		return fmt.Errorf("reading pack: %w", err)
	}
	if err := r.dec.Open(c, r.wire, r.raw, 0); err != nil {
		return err
	}
	r.have = i
	return nil
}
