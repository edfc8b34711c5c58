package chunk

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// perform runs an order on a disk in memory, with the checks that an agent makes, and tells which chunks it could take.
func perform(x *Index, disk []byte, moves []Move, steps []Step) (took map[int32]bool, memory int) {
	took = map[int32]bool{}
	kept := map[int][]byte{}
	used := 0
	for _, s := range steps {
		m := moves[s.Move]
		b, ok := kept[s.Move]
		if !ok {
			b = bytes.Clone(disk[m.From : m.From+int64(m.Size)])
		}
		if s.Stage {
			kept[s.Move] = b
			used += len(b)
			memory = max(memory, used)
			continue
		}
		if ok {
			used -= len(b)
		}
		for _, i := range m.Chunks {
			c := &x.Chunks[i]
			if raw := b[c.Offset-m.To:][:c.Size]; Identify(raw) == c.ID {
				took[i] = true
				copy(disk[c.Offset:], raw)
			}
		}
	}
	return took, memory
}

// TestMovesInPlace: every way in which files move on a disk, with source and target the same. All that the disk held is
// taken, within the budget; without one, rings are left out, and still nothing wrong is taken.
func TestMovesInPlace(t *testing.T) {
	const piece, n = 24 << 10, 100
	old := testImage(21, n*piece)
	pieces := make([][]byte, n)
	for i := range pieces {
		pieces[i] = old[i*piece:][:piece]
	}
	join := func(p ...[][]byte) []byte { return bytes.Join(append([][]byte{}, flat(p)...), nil) }
	swapped := append([][]byte{}, pieces...)
	rand.New(rand.NewPCG(1, 1)).Shuffle(n, func(i, j int) { swapped[i], swapped[j] = swapped[j], swapped[i] })
	noise := [][]byte{testImage(22, 5*piece/2/Block*Block)}
	s := testStore(t)
	o := build(t, s, old)
	for name, img := range map[string][]byte{
		"the same":            old,
		"all later":           join(pieces[:40], noise, pieces[40:]),
		"all earlier":         join(pieces[:40], pieces[44:]),
		"earlier and later":   join(pieces[:30], pieces[40:90], noise, noise, noise, noise, noise, pieces[90:]),
		"halves exchanged":    join(pieces[n/2:], pieces[:n/2]),
		"shuffled":            join(swapped),
		"the same many times": bytes.Repeat(old[:40*piece], 4),
		"nothing of it":       testImage(23, n*piece),
	} {
		x, want := build(t, s, img), pad(img)
		for _, budget := range []int{64 << 20, 256 << 10, 0} {
			disk := make([]byte, max(len(old), len(img))+piece)
			copy(disk, old)
			l := DefaultLimits
			l.Raw, l.Last = MaxChunkBytes, 0
			held := x.Held(o)
			moves := x.Moves(held, l)
			steps := Order(moves, budget)
			took, memory := perform(x, disk, moves, steps)
			if memory > budget {
				t.Errorf("%s, %d bytes of memory: %d were used", name, budget, memory)
			}
			could := 0
			for i := range held {
				if held[i] >= 0 {
					could++
				}
			}
			if budget == 64<<20 && len(took) != could {
				t.Errorf("%s: %d chunks taken of %d that the disk held", name, len(took), could)
			}
			for i := range x.Chunks {
				c := &x.Chunks[i]
				if took[int32(i)] && !bytes.Equal(disk[c.Offset:c.End()], want[c.Offset:c.End()]) {
					t.Errorf("%s, %d bytes of memory: chunk %d was destroyed after it was moved", name, budget, i)
				}
			}
		}
	}
}

func flat(p [][][]byte) (out [][]byte) {
	for _, x := range p {
		out = append(out, x...)
	}
	return out
}

func pad(b []byte) []byte { return append(bytes.Clone(b), make([]byte, Block)...) }

// TestPlanWithout: what is held is neither fetched nor cleared.
func TestPlanWithout(t *testing.T) {
	x := build(t, testStore(t), testImage(31, 12<<20))
	held := make([]bool, len(x.Chunks))
	for i := range held {
		held[i] = i%3 == 1
	}
	seen := make([]int, 12<<20/Block)
	mark := func(off, n int64) {
		for b := off / Block; b < (off+n)/Block; b++ {
			seen[b]++
		}
	}
	p := x.PlanWithout(held, DefaultLimits)
	for _, s := range p.Spans {
		for _, r := range s.Runs {
			mark(r.Offset, int64(r.Size))
			for _, i := range r.Chunks {
				if held[i] {
					t.Errorf("chunk %d is fetched", i)
				}
			}
		}
	}
	for _, z := range p.Zeros {
		mark(z.Offset, z.Size)
	}
	for i := range x.Chunks {
		if held[i] {
			mark(x.Chunks[i].Offset, int64(x.Chunks[i].Size))
		}
	}
	for b, n := range seen {
		if n != 1 {
			t.Fatalf("block %d is covered %d times", b, n)
		}
	}
}
