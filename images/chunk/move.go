package chunk

import (
	"cmp"
	"slices"
	"sort"
)

// Held tells, for each chunk of x, at which offset of a disk that holds the images olds, or parts of them, its bytes may
// lie, or -1. Its own offset comes first. What lies there must be verified by its ID before it is used.
func (x *Index) Held(olds ...*Index) []int64 {
	out := make([]int64, len(x.Chunks))
	for i := range out {
		out[i] = -1
	}
	where := map[ID]int64{}
	for _, old := range olds {
		n := 0
		for i := range old.Chunks {
			o := &old.Chunks[i]
			if _, ok := where[o.ID]; !ok {
				where[o.ID] = o.Offset
			}
			for n < len(x.Chunks) && x.Chunks[n].Offset < o.Offset {
				n++
			}
			if n < len(x.Chunks) && x.Chunks[n].Offset == o.Offset && x.Chunks[n].ID == o.ID {
				out[n] = o.Offset
			}
		}
	}
	for i := range x.Chunks {
		if at, ok := where[x.Chunks[i].ID]; ok && out[i] < 0 {
			out[i] = at
		}
	}
	return out
}

// Move is one read and one write: chunks that are neighbours where they may lie and where they belong.
type Move struct {
	From, To int64 // offsets on the disk, bytes; equal for chunks that may be in place
	Size     int
	Chunks   []int32 // indexes into Index.Chunks
}

// Moves gathers chunks by what Held says, in image order. What lies below l.Last stays out, for it is written last.
func (x *Index) Moves(held []int64, l Limits) (out []Move) {
	for i := range x.Chunks {
		c := &x.Chunks[i]
		if held[i] < 0 || c.Offset < l.Last {
			continue
		}
		if n := len(out) - 1; n >= 0 {
			m := &out[n]
			last := m.Chunks[len(m.Chunks)-1]
			hole := c.Offset - x.Chunks[last].End()
			if last == int32(i-1) && held[i]-m.From == c.Offset-m.To && hole <= int64(l.Hole) && c.End()-m.To <= int64(l.Raw) {
				m.Size, m.Chunks = int(c.End()-m.To), append(m.Chunks, int32(i))
				continue
			}
		}
		out = append(out, Move{From: held[i], To: c.Offset, Size: int(c.Size), Chunks: []int32{int32(i)}})
	}
	return out
}

// Step of an order: reads a move's bytes into memory (Stage), or writes them, from memory when they were staged, and else
// from where they lie.
type Step struct {
	Move  int // index into the moves
	Stage bool
}

// Order arranges moves so that no write destroys what a later step reads. Where moves wait for each other in a ring it
// stages some of them, up to budget bytes at a time; beyond that it leaves moves out.
func Order(moves []Move, budget int) []Step {
	o := &order{moves: moves, waits: make([]int, len(moves)), state: make([]uint8, len(moves)), budget: budget}
	for i, m := range moves {
		o.bySource, o.byTarget = append(o.bySource, i), append(o.byTarget, i)
		o.longest = max(o.longest, int64(m.Size))
	}
	slices.SortFunc(o.bySource, func(a, b int) int { return cmp.Compare(moves[a].From, moves[b].From) })
	slices.SortFunc(o.byTarget, func(a, b int) int { return cmp.Compare(moves[a].To, moves[b].To) })
	for a := range moves {
		o.destroyers(a, func(b int) { o.waits[b]++ })
	}
	for a := range moves {
		o.settle(a)
	}
	for a := range moves {
		for o.state[a] == unread {
			o.breakRing(a)
		}
	}
	return o.steps
}

// The states of a move.
const (
	unread = iota // its source is still needed
	staged        // its bytes are in memory
	done          // written, or left out
)

type order struct {
	moves              []Move
	bySource, byTarget []int
	longest            int64
	waits              []int // unread moves whose source the write would destroy
	state              []uint8
	budget             int
	steps              []Step
}

// destroyers calls f for each other move whose write would destroy the source of a.
func (o *order) destroyers(a int, f func(b int)) {
	m := &o.moves[a]
	at := sort.Search(len(o.byTarget), func(i int) bool {
		t := &o.moves[o.byTarget[i]]
		return t.To+int64(t.Size) > m.From
	})
	for _, b := range o.byTarget[at:] {
		if o.moves[b].To >= m.From+int64(m.Size) {
			return
		}
		if b != a {
			f(b)
		}
	}
}

// blocker gives an unread move whose source the write of b would destroy.
func (o *order) blocker(b int) int {
	m := &o.moves[b]
	at := sort.Search(len(o.bySource), func(i int) bool { return o.moves[o.bySource[i]].From > m.To-o.longest })
	for _, a := range o.bySource[at:] {
		s := &o.moves[a]
		if s.From >= m.To+int64(m.Size) {
			break
		}
		if a != b && o.state[a] == unread && s.From+int64(s.Size) > m.To {
			return a
		}
	}
	return b // none: cannot be while b waits
}

// settle writes a move that waits for nothing, and then those that waited for it alone.
func (o *order) settle(a int) {
	for next := []int{a}; len(next) > 0; {
		a, next = next[len(next)-1], next[:len(next)-1]
		if o.state[a] == done || o.waits[a] > 0 {
			continue
		}
		o.steps = append(o.steps, Step{Move: a})
		was := o.state[a]
		o.state[a] = done
		if was == staged {
			o.budget += o.moves[a].Size
			continue
		}
		o.destroyers(a, func(b int) {
			if o.waits[b]--; o.waits[b] == 0 {
				next = append(next, b)
			}
		})
	}
}

// breakRing takes one move out of the ring that a waits for: to memory, or altogether.
func (o *order) breakRing(a int) {
	seen := map[int]bool{}
	for !seen[a] {
		seen[a] = true
		a = o.blocker(a)
	}
	if m := &o.moves[a]; m.Size <= o.budget {
		o.budget -= m.Size
		o.state[a] = staged
		o.steps = append(o.steps, Step{Move: a, Stage: true})
	} else {
		o.state[a] = done
	}
	var free []int
	o.destroyers(a, func(b int) {
		if o.waits[b]--; o.waits[b] == 0 {
			free = append(free, b)
		}
	})
	for _, b := range free {
		o.settle(b)
	}
}
