package chunk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"
)

// Build is one raw image on its way into a store. Nothing of it can be seen in the store before Commit.
type Build struct {
	store   *Store
	dir     string // half-made packs
	known   *lookup
	workers int

	index  Index
	nums   map[PackID]uint32 // pack → number in index.Packs
	own    map[[32]byte]int  // id → chunk of this build that stored it
	pack   *packWriter
	open   []int // chunks in pack, whose id is not known before it is sealed
	sealed []PackID
	added  int64
	done   bool
}

// NewBuild starts a build. The caller must end it with Commit or Discard, exactly once; GC waits for that.
func (s *Store) NewBuild() (*Build, error) {
	s.mu.RLock()
	b := &Build{store: s, workers: max(1, runtime.GOMAXPROCS(0)), nums: map[PackID]uint32{}, own: map[[32]byte]int{}}
	var err error
	if b.known, err = s.newLookup(); err == nil {
		b.dir, err = os.MkdirTemp(s.tmp, "build-*")
	}
	if err != nil {
		s.mu.RUnlock()
		return nil, fmt.Errorf("starting build: %w", err)
	}
	return b, nil
}

// job is one chunk between the splitter and the pack.
type job struct {
	off    int64
	raw    []byte // and stored keep their arrays in the pool
	id     [32]byte
	sum    uint64
	stored []byte
	hash   [32]byte
	pack   PackID
	row    entry
	shared bool // the store holds it: pack and row say where
	ready  chan struct{}
}

// Add reads the whole raw image. It holds a few chunks per core in memory, whatever the size of the image. observe is
// told of every chunk, in image order, with its raw bytes, and may stop the build; it may be nil.
func (b *Build) Add(ctx context.Context, src io.Reader, observe func(off int64, raw []byte) error) error {
	g, ctx := errgroup.WithContext(ctx)
	depth := 8 * b.workers
	pool := make(chan *job, depth)
	for range depth {
		pool <- &job{}
	}
	work, order := make(chan *job), make(chan *job, depth)
	g.Go(func() error {
		defer close(work)
		defer close(order)
		return b.split(ctx, src, pool, work, order)
	})
	for range b.workers {
		g.Go(func() error { return b.press(work) })
	}
	g.Go(func() error { return b.collect(ctx, order, pool, observe) })
	if err := g.Wait(); err != nil {
		return err
	}
	return b.sealPack()
}

func (b *Build) split(ctx context.Context, src io.Reader, pool <-chan *job, work, order chan<- *job) error {
	s := NewSplitter(src, DefaultParams)
	for n := 0; ; n++ {
		if n == FineChunks {
			s.Coarsen(CoarseParams)
		}
		off, data, err := s.Next()
		if errors.Is(err, io.EOF) {
			b.index.RawBytes = s.Size()
			return ctx.Err()
		}
		if err != nil {
			return err
		}
		var j *job
		select {
		case j = <-pool:
		case <-ctx.Done():
			return ctx.Err()
		}
		*j = job{off: off, raw: append(j.raw[:0], data...), stored: j.stored, ready: make(chan struct{})}
		order <- j // never blocks: it is as deep as the pool
		select {
		case work <- j:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (b *Build) press(work <-chan *job) error {
	enc, err := newEncoder(zstd.SpeedBetterCompression)
	if err != nil {
		return err
	}
	for j := range work {
		j.id = blake3.Sum256(j.raw)
		if j.pack, j.row, j.shared = b.known.find(j.id); !j.shared {
			j.sum = Sum(j.raw)
			j.stored = enc.frame(j.raw, j.stored)
			j.hash = blake3.Sum256(j.stored)
		}
		close(j.ready)
	}
	return nil
}

func (b *Build) collect(ctx context.Context, order <-chan *job, pool chan<- *job, observe func(int64, []byte) error) error {
	for j := range order {
		select {
		case <-j.ready:
		case <-ctx.Done():
			return ctx.Err()
		}
		if observe != nil {
			if err := observe(j.off, j.raw); err != nil {
				return err
			}
		}
		if err := b.put(j); err != nil {
			return err
		}
		pool <- j
	}
	return ctx.Err()
}

// put adds a chunk to the index and, when neither the store nor this build holds it, to the pack.
func (b *Build) put(j *job) error {
	if len(b.index.Chunks) >= MaxChunks {
		return fmt.Errorf("the image has more than %d chunks", MaxChunks)
	}
	c := Chunk{Offset: j.off, Size: uint32(len(j.raw)), Sum: j.sum, Hash: j.hash, ID: ID(j.id[:])}
	i := len(b.index.Chunks)
	first, repeated := b.own[j.id]
	switch {
	case j.shared:
		c.Pack, c.PackOff, c.Stored, c.Sum, c.Hash = b.number(j.pack), j.row.Off, j.row.Stored, j.row.Sum, j.row.Hash
	case repeated:
		prev := &b.index.Chunks[first]
		c.Pack, c.PackOff, c.Stored = prev.Pack, prev.PackOff, prev.Stored
		if b.unsealed(first) {
			b.open = append(b.open, i)
		}
	default:
		if err := b.store1(&c, j, i); err != nil {
			return err
		}
	}
	b.index.Chunks = append(b.index.Chunks, c)
	return nil
}

func (b *Build) store1(c *Chunk, j *job, i int) error {
	if b.pack != nil && b.pack.size+int64(len(j.stored)) > PackBytes {
		if err := b.sealPack(); err != nil {
			return err
		}
	}
	if b.pack == nil {
		p, err := createPack(b.dir)
		if err != nil {
			return err
		}
		b.pack = p
	}
	off, err := b.pack.add(entry{ID: j.id, Hash: j.hash, Sum: j.sum, Size: c.Size}, j.stored)
	if err != nil {
		return err
	}
	c.PackOff, c.Stored = off, uint32(len(j.stored))
	b.own[j.id] = i
	b.open = append(b.open, i)
	b.added += int64(len(j.stored))
	return nil
}

// unsealed reports whether chunk i lies in the pack being filled.
func (b *Build) unsealed(i int) bool { return len(b.open) > 0 && b.pack != nil && i >= b.open[0] }

func (b *Build) number(id PackID) uint32 {
	n, ok := b.nums[id]
	if !ok {
		n = uint32(len(b.index.Packs))
		b.nums[id] = n
		b.index.Packs = append(b.index.Packs, id)
	}
	return n
}

// sealPack closes the pack being filled, when there is one, and gives its chunks their pack number.
func (b *Build) sealPack() error {
	if b.pack == nil {
		return nil
	}
	id, err := b.pack.seal()
	if err != nil {
		return err
	}
	n := b.number(id)
	for _, i := range b.open {
		b.index.Chunks[i].Pack = n
	}
	b.sealed = append(b.sealed, id)
	b.pack, b.open = nil, b.open[:0]
	return nil
}

// Open opens a pack that the index of this build names, before or after Commit.
func (b *Build) Open(id PackID) (*os.File, error) {
	if f, err := os.Open(filepath.Join(b.dir, id.String())); err == nil {
		return f, nil
	}
	return b.store.Open(id)
}

// Index is the finished index, after Add.
func (b *Build) Index() *Index { return &b.index }

// AddedBytes is the number of stored bytes that the store did not hold before.
func (b *Build) AddedBytes() int64 { return b.added }

// Commit moves the packs into the store, durably. publish then makes the index known, so that GC keeps the packs; it runs
// before GC can. After an error the build must not be used, and packs already moved fall to the next GC.
func (b *Build) Commit(publish func() error) error {
	if b.done {
		return errors.New("chunk build was already ended")
	}
	defer b.Discard()
	for _, id := range b.sealed {
		if err := os.Rename(filepath.Join(b.dir, id.String()), filepath.Join(b.store.dir, id.String())); err != nil {
			return fmt.Errorf("moving pack into the store: %w", err)
		}
	}
	if err := syncDir(b.store.dir); err != nil {
		return err
	}
	return publish()
}

// Discard drops what Commit did not move. It may be called after Commit.
func (b *Build) Discard() {
	if b.done {
		return
	}
	b.done = true
	if b.pack != nil {
		b.pack.f.Close()
	}
	b.known.close()
	if err := os.RemoveAll(b.dir); err != nil {
		b.store.log.Warn("half-made packs could not be removed", "dir", b.dir, "err", err)
	}
	b.store.mu.RUnlock()
}
