package chunk

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/app"
)

// testImage is a raw image of blocks that are random, compressible or zero, with a ragged end.
func testImage(seed uint64, size int) []byte {
	r := rand.New(rand.NewPCG(seed, 7))
	noise := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	img := make([]byte, size)
	for at := 0; at < size; {
		n := min(size-at, Block*(1+r.IntN(60)))
		switch b := img[at : at+n]; r.IntN(3) {
		case 0:
			_, _ = noise.Read(b)
		case 1: // compressible, and never the same twice
			text := make([]byte, 64)
			_, _ = noise.Read(text)
			for len(b) > 0 {
				b = b[copy(b, text):]
			}
		}
		at += n
	}
	return img
}

func testStore(t *testing.T) *Store {
	t.Helper()
	dir := t.TempDir()
	s, err := OpenStore(filepath.Join(dir, "packs"), filepath.Join(dir, "tmp"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func build(t *testing.T, s *Store, img []byte) *Index {
	t.Helper()
	b, err := s.NewBuild()
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Add(context.Background(), bytes.NewReader(img), nil); err != nil {
		t.Fatal(err)
	}
	if err := b.Commit(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	enc, err := b.Index().Encode()
	if err != nil {
		t.Fatal(err)
	}
	x, err := ParseIndex(enc)
	if err != nil {
		t.Fatal(err)
	}
	return x
}

// restore puts an image together the way an agent does: by plan, span by span.
func restore(t *testing.T, s *Store, x *Index, l Limits) []byte {
	t.Helper()
	out := bytes.Repeat([]byte{0xA5}, int((x.RawBytes+Block-1)/Block*Block))
	p := x.Plan(l)
	d, err := NewDecoder()
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, z := range p.Zeros {
		clear(out[z.Offset : z.Offset+z.Size])
	}
	for _, sp := range p.Spans {
		f, err := s.Open(x.Packs[sp.Pack])
		if err != nil {
			t.Fatal(err)
		}
		wire := make([]byte, sp.Len)
		if _, err := f.ReadAt(wire, sp.Off); err != nil {
			t.Fatal(err)
		}
		f.Close()
		for _, r := range sp.Runs {
			if r.Size > l.Raw || sp.Len > max(l.Fetch, MaxChunkBytes) {
				t.Errorf("a run of %d bytes in a span of %d fetched is over the limits", r.Size, sp.Len)
			}
			clear(out[r.Offset : r.Offset+int64(r.Size)])
			for _, i := range r.Chunks {
				c := &x.Chunks[i]
				at := int64(c.PackOff) - sp.Off
				if err := d.Open(c, wire[at:at+int64(c.Stored)], out[c.Offset:c.End()], 0); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	return out
}

func TestRoundTrip(t *testing.T) {
	for _, size := range []int{0, 1, 511, Block, Block + 1, 1_048_577, 2_034_652, 9 << 20} {
		s := testStore(t)
		img := testImage(uint64(size), size)
		x := build(t, s, img)
		if x.RawBytes != int64(size) {
			t.Errorf("size %d: the index says %d", size, x.RawBytes)
		}
		got := restore(t, s, x, DefaultLimits)
		if !bytes.Equal(got[:size], img) {
			t.Errorf("size %d: the restored image differs", size)
		}
		if !isZeroAll(got[size:]) {
			t.Errorf("size %d: the rest of the last block is not zero", size)
		}
	}
}

func isZeroAll(b []byte) bool { return len(bytes.Trim(b, "\x00")) == 0 }

// TestSharesAfterShift moves everything by one block: only the chunks around the insertion are new.
func TestSharesAfterShift(t *testing.T) {
	s := testStore(t)
	img := testImage(3, 8<<20)
	build(t, s, img)
	moved := append(append(bytes.Clone(img[:3<<20]), bytes.Repeat([]byte{7}, Block)...), img[3<<20:]...)
	b, err := s.NewBuild()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	if err := b.Add(context.Background(), bytes.NewReader(moved), nil); err != nil {
		t.Fatal(err)
	}
	if b.AddedBytes() > 2*MaxChunkBytes {
		t.Errorf("a shift by one block added %d bytes", b.AddedBytes())
	}
	if err := b.Commit(func() error { return nil }); err != nil {
		t.Fatal(err)
	}
	if got := restore(t, s, b.Index(), DefaultLimits); !bytes.Equal(got, moved) {
		t.Error("the image that shares chunks differs")
	}
}

// TestFilesThatMoved: files of a new build lie in another order and among others; most of their chunks are shared.
func TestFilesThatMoved(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	noise := rand.NewChaCha8([32]byte{1})
	var files [][]byte
	for range 200 {
		f := make([]byte, (16+r.IntN(200))*1000)
		_, _ = noise.Read(f)
		files = append(files, append(f, make([]byte, Block-len(f)%Block)...))
	}
	s := testStore(t)
	build(t, s, bytes.Join(files, nil))
	first, size := files[:3], 0
	for _, f := range first {
		size += len(f)
	}
	files = files[3:]
	r.Shuffle(len(files), func(i, j int) { files[i], files[j] = files[j], files[i] })
	b, err := s.NewBuild()
	if err != nil {
		t.Fatal(err)
	}
	defer b.Discard()
	if err := b.Add(context.Background(), io.MultiReader(bytes.NewReader(bytes.Repeat([]byte{9}, size)), bytes.NewReader(bytes.Join(files, nil))), nil); err != nil {
		t.Fatal(err)
	}
	if all := b.Index().UsedBytes(); b.AddedBytes() > all/5 {
		t.Errorf("files that moved added %d bytes of %d", b.AddedBytes(), all)
	}
}

// TestRepeatedChunks stores equal chunks of one image once, also when they lie in a pack not yet sealed.
func TestRepeatedChunks(t *testing.T) {
	s := testStore(t)
	part := testImage(9, 2<<20)
	img := bytes.Repeat(part, 3)
	x := build(t, s, img)
	if x.StoredBytes() < 2*int64(len(part))/4 || len(x.Packs) != 1 {
		t.Errorf("%d packs, %d stored bytes", len(x.Packs), x.StoredBytes())
	}
	if got := restore(t, s, x, DefaultLimits); !bytes.Equal(got, img) {
		t.Error("the image differs")
	}
}

func TestSameImageGivesSameIndex(t *testing.T) {
	img := testImage(5, 3<<20)
	a, _ := build(t, testStore(t), img).Encode()
	b, _ := build(t, testStore(t), img).Encode()
	if !bytes.Equal(a, b) {
		t.Error("two builds of one image give different indexes")
	}
}

// TestPlanCoversOnce checks runs and zero extents against the image size, and that the first MiB comes last.
func TestPlanCoversOnce(t *testing.T) {
	x := build(t, testStore(t), testImage(11, 12<<20))
	p := x.Plan(DefaultLimits)
	seen := make([]byte, 12<<20/Block)
	mark := func(e Extent) {
		for b := e.Offset / Block; b < (e.Offset+e.Size)/Block; b++ {
			seen[b]++
		}
	}
	late := false
	for _, s := range p.Spans {
		for _, r := range s.Runs {
			mark(Extent{r.Offset, int64(r.Size)})
			if r.Offset < 1<<20 {
				late = true
			} else if late {
				t.Errorf("run at %d comes after the first MiB", r.Offset)
			}
		}
	}
	for _, z := range p.Zeros {
		mark(z)
	}
	if i := bytes.IndexFunc(seen, func(r rune) bool { return r != 1 }); i >= 0 {
		t.Errorf("block %d is covered %d times", i, seen[i])
	}
}

// TestTruncatedSourceFails: a decompressor's unexpected EOF is never taken for the end of the image.
func TestTruncatedSourceFails(t *testing.T) {
	s := testStore(t)
	for _, fault := range []error{io.ErrUnexpectedEOF, errors.New("connection reset")} {
		b, err := s.NewBuild()
		if err != nil {
			t.Fatal(err)
		}
		src := io.MultiReader(bytes.NewReader(testImage(1, 3<<20)), errReader{fault})
		if err := b.Add(context.Background(), src, nil); !errors.Is(err, fault) {
			t.Errorf("Add gives %v, want %v", err, fault)
		}
		b.Discard()
	}
	for _, dir := range []string{s.dir, s.tmp} {
		if list, _ := os.ReadDir(dir); len(list) != 0 {
			t.Errorf("%d files are left in %s", len(list), dir)
		}
	}
}

type errReader struct{ err error }

func (e errReader) Read([]byte) (int, error) { return 0, e.err }

func TestGC(t *testing.T) {
	s := testStore(t)
	img := testImage(2, 3<<20)
	x := build(t, s, img)
	build(t, s, testImage(4, 3<<20))
	b, err := s.NewBuild()
	if err != nil {
		t.Fatal(err)
	}
	keep := func() (map[PackID]bool, error) { return map[PackID]bool{x.Packs[0]: true}, nil }
	if _, _, err := s.GC(keep); !errors.Is(err, ErrBusy) {
		t.Errorf("GC beside a build gives %v", err)
	}
	b.Discard()
	if n, _, err := s.GC(keep); n != 1 || err != nil {
		t.Errorf("GC removed %d packs, %v", n, err)
	}
	if got := restore(t, s, x, DefaultLimits); !bytes.Equal(got, img) {
		t.Error("the kept image differs")
	}
}

func TestTamperedFrameIsRefused(t *testing.T) {
	s := testStore(t)
	x := build(t, s, testImage(6, 1<<20))
	c := x.Chunks[0]
	f, err := s.Open(x.Packs[c.Pack])
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	stored := make([]byte, c.Stored)
	if _, err := f.ReadAt(stored, int64(c.PackOff)); err != nil {
		t.Fatal(err)
	}
	d, _ := NewDecoder()
	defer d.Close()
	dst := make([]byte, c.Size)
	if err := d.Open(&c, stored, dst, 0); err != nil {
		t.Fatal(err)
	}
	stored[len(stored)/2] ^= 1
	if err := d.Open(&c, stored, dst, 0); err == nil {
		t.Error("a changed frame was accepted")
	}
}

func TestUnknownVersionIsNamed(t *testing.T) {
	enc, _ := build(t, testStore(t), testImage(6, 1<<20)).Encode()
	enc[8] = 1
	_, err := ParseIndex(enc)
	if e, ok := app.AsError(err); !ok || e.Code != app.Unsupported || e.Reason != "chunk-index-version" || e.WayOut == "" {
		t.Errorf("version 1 gives %v", err)
	}
}

// FuzzParseIndex: no input panics, and what is accepted encodes to something equal.
func FuzzParseIndex(f *testing.F) {
	x := &Index{RawBytes: 3*Block + 5, Packs: []PackID{{1}}, Chunks: []Chunk{
		{Offset: 0, Size: Block, Stored: 100}, {Offset: 2 * Block, Size: 2 * Block, PackOff: 100, Stored: 2 * Block}}}
	enc, err := x.Encode()
	if err != nil {
		f.Fatal(err)
	}
	f.Add(enc)
	f.Add(enc[:40])
	f.Fuzz(func(t *testing.T, b []byte) {
		x, err := ParseIndex(b)
		if err != nil {
			return
		}
		again, err := x.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if y, err := ParseIndex(again); err != nil || len(y.Chunks) != len(x.Chunks) {
			t.Fatalf("an accepted index does not survive: %v", err)
		}
		x.Plan(DefaultLimits)
	})
}

func TestReader(t *testing.T) {
	s := testStore(t)
	img := testImage(8, 3<<20+77)
	r, err := NewReader(build(t, s, img), s.Open)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(io.NewSectionReader(r, 0, int64(len(img))))
	if err != nil || !bytes.Equal(got, img) {
		t.Errorf("reading in order: %v", err)
	}
	b := make([]byte, 300_001)
	for off := int64(len(img)) - 300_001; off > 0; off -= 777_777 {
		if _, err := r.ReadAt(b, off); err != nil || !bytes.Equal(b, img[off:off+300_001]) {
			t.Errorf("reading at %d: %v", off, err)
		}
	}
}
