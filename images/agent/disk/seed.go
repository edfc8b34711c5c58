package disk

import (
	"context"
	"slices"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

const (
	// seedMemory bounds the bytes that wait in memory because their place on the disk is needed, see chunk.Order.
	seedMemory = 48 << 20
	// seedChunks bounds the index of a seed, which is held in memory beside the image's.
	seedChunks = 512 << 10
	// hopeless is how many bytes in a row may be no part of the image before a disk without seeds is taken for a foreign one.
	hopeless = 32 << 20
)

// seeding finds out which chunks the disk holds already, and moves those that lie elsewhere.
type seeding struct {
	*job
	held   []bool       // by chunk: on the disk, where it belongs, and verified
	looked atomic.Int64 // bytes
	missed atomic.Int64 // bytes looked at since something was found
	kept   atomic.Int64 // bytes found in place
}

// seed gives the chunks that need not be fetched: what the seeds of the order say may lie on the disk, and what an earlier
// write of this image left there. Every one of them was read from the disk and matched its hash.
func (j *job) seed(ctx context.Context, out *agentv1.WriteResult) ([]bool, error) {
	var olds []*chunk.Index
	for _, s := range j.order.Seeds[:min(2, len(j.order.Seeds))] {
		x, err := j.seedIndex(ctx, s)
		if err != nil {
			return nil, err
		}
		if x != nil {
			olds = append(olds, x)
		}
	}
	s := &seeding{job: j, held: make([]bool, len(j.index.Chunks))}
	from := j.index.Held(olds...)
	own := make([]int64, len(from))
	var inPlace []chunk.Move
	for i := range own {
		if own[i] = j.index.Chunks[i].Offset; own[i] == from[i] {
			own[i] = -1
		}
	}
	for _, m := range s.moves(from) {
		if m.From == m.To {
			inPlace = append(inPlace, m)
		}
	}
	if err := s.look(ctx, inPlace, false); err != nil {
		return nil, err
	}
	if list := s.moves(own); s.promises(list) {
		if err := s.look(ctx, list, true); err != nil {
			return nil, err
		}
	}
	for i := range from {
		if s.held[i] || from[i] == j.index.Chunks[i].Offset {
			from[i] = -1
		}
	}
	out.BytesKept = s.kept.Load()
	return s.held, s.move(ctx, s.moves(from), out)
}

// moves gathers what lies, and belongs, inside the disk and the image.
func (s *seeding) moves(from []int64) []chunk.Move {
	return slices.DeleteFunc(s.index.Moves(from, chunk.DefaultLimits), func(m chunk.Move) bool {
		return m.From+int64(m.Size) > s.dev.Size() || s.clip(m.To+int64(m.Size)) != m.To+int64(m.Size)
	})
}

// seedIndex fetches the index of a seed; nil when it cannot be had or used, for a seed is only a help.
func (j *job) seedIndex(ctx context.Context, s agentv1.Seed) (*chunk.Index, error) {
	if s.IndexSHA256 == j.order.IndexSHA256 {
		return nil, nil
	}
	x, err := j.fetch.index(ctx, s.IndexURL, s.IndexSHA256, 1)
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx)
	case err != nil:
		j.w.cfg.Log.Info("doing without a seed", "index", s.IndexURL, "err", err)
		return nil, nil
	case len(x.Chunks) > seedChunks:
		j.w.cfg.Log.Info("doing without a seed", "index", s.IndexURL, "chunks", len(x.Chunks))
		return nil, nil
	}
	return x, nil
}

// promises tries a few chunks, four at the start and four further on, so that a fresh disk costs no time.
func (s *seeding) promises(list []chunk.Move) bool {
	buf, err := Buffer(chunk.MaxChunkBytes)
	if err != nil {
		return false
	}
	defer Free(buf)
	for n := range min(8, len(list)) {
		v := &list[n]
		if n >= 4 {
			v = &list[len(list)*(n-3)/5]
		}
		one := chunk.Move{From: v.From, To: v.To, Size: int(s.index.Chunks[v.Chunks[0]].Size), Chunks: v.Chunks[:1]}
		if len(s.read(&one, buf)) > 0 {
			return true
		}
	}
	return false
}

// look verifies chunks that may be in place. With doubt it gives up when a stretch of the disk holds nothing of the image.
func (s *seeding) look(ctx context.Context, list []chunk.Move, doubt bool) error {
	if len(list) == 0 {
		return nil
	}
	var total int64
	for i := range list {
		total += int64(list[i].Size)
	}
	s.looked.Store(0)
	s.missed.Store(0)
	defer newMeter(s.tell, "look", total, &s.looked, nil).stop()
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(s.w.cfg.Workers, len(list)) {
		g.Go(func() error {
			buf, err := Buffer(chunk.DefaultLimits.Raw)
			if err != nil {
				return err
			}
			defer Free(buf)
			for n := next.Add(1) - 1; n < int64(len(list)); n = next.Add(1) - 1 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				if doubt && s.missed.Load() > hopeless {
					return nil
				}
				v := &list[n]
				good := s.read(v, buf)
				for _, i := range good {
					s.held[i] = true // of this goroutine alone: no chunk is in two moves
					s.kept.Add(int64(s.index.Chunks[i].Size))
				}
				if len(good) > 0 {
					s.missed.Store(0)
				} else {
					s.missed.Add(int64(v.Size))
				}
				s.looked.Add(int64(v.Size))
			}
			return nil
		})
	}
	return g.Wait()
}

// read reads a move's bytes into buf and gives the chunks that are what they should be. A disk that cannot be read there
// holds none.
func (s *seeding) read(v *chunk.Move, buf []byte) (good []int32) {
	if _, err := s.dev.ReadAt(buf[:v.Size], v.From); err != nil {
		s.w.cfg.Log.Info("a part of the disk cannot be read, so it is fetched", "disk", s.disk.Name, "offset", v.From, "err", err)
		return nil
	}
	for _, i := range v.Chunks {
		c := &s.index.Chunks[i]
		if at := c.Offset - v.To; chunk.Identify(buf[at:at+int64(c.Size)]) == c.ID {
			good = append(good, i)
		}
	}
	return good
}

// taken is what was read of a move.
type taken struct {
	buf  []byte
	good []int32
}

// move brings chunks to their places, one move at a time: the next may need what this one leaves alone.
func (s *seeding) move(ctx context.Context, moves []chunk.Move, out *agentv1.WriteResult) error {
	steps := chunk.Order(moves, seedMemory)
	if len(steps) == 0 {
		return nil
	}
	var total int64
	var moved atomic.Int64
	for _, step := range steps {
		if !step.Stage {
			total += int64(moves[step.Move].Size)
		}
	}
	defer newMeter(s.tell, "move", total, &moved, nil).stop()
	buf, err := Buffer(chunk.DefaultLimits.Raw)
	if err != nil {
		return err
	}
	defer Free(buf)
	staged := map[int]taken{}
	defer func() {
		for _, t := range staged {
			Free(t.buf)
		}
	}()
	for _, step := range steps {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		v := &moves[step.Move]
		if step.Stage {
			own, err := Buffer(v.Size)
			if err != nil {
				return err
			}
			staged[step.Move] = taken{own, s.read(v, own)}
			continue
		}
		t, ok := staged[step.Move]
		if !ok {
			t = taken{buf, s.read(v, buf)}
		}
		if err := s.put(v, t, out); err != nil {
			return err
		}
		if ok {
			Free(t.buf)
			delete(staged, step.Move)
		}
		moved.Add(int64(v.Size))
	}
	return nil
}

// put writes the good chunks of a move, neighbours together.
func (s *seeding) put(v *chunk.Move, t taken, out *agentv1.WriteResult) error {
	for n := 0; n < len(t.good); {
		first := &s.index.Chunks[t.good[n]]
		last := first
		for n++; n < len(t.good) && t.good[n] == t.good[n-1]+1; n++ {
			next := &s.index.Chunks[t.good[n]]
			clear(t.buf[last.End()-v.To : next.Offset-v.To])
			last = next
		}
		b := t.buf[first.Offset-v.To : last.End()-v.To]
		if _, err := s.dev.WriteAt(b, first.Offset); err != nil {
			return ioError(s.disk.Name, "writing", atOffset{first.Offset, int64(len(b)), err})
		}
		out.BytesMoved += int64(len(b))
	}
	for _, i := range t.good {
		s.held[i] = true
	}
	return nil
}
