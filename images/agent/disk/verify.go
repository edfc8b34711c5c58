package disk

import (
	"bytes"
	"context"
	"runtime"
	"sort"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// readBytes is how much one read of the read-back takes: more than the largest chunk.
const readBytes = 4 << 20

// verify reads the whole image back from the disk and compares every chunk with its checksum and every gap with zeros.
func (j *job) verify(ctx context.Context, out *agentv1.WriteResult) error {
	pieces := j.pieces()
	var next, done atomic.Int64
	meter := newMeter(j.tell, "verify", j.order.RawBytes, &done, nil)
	defer meter.stop()
	g, ctx := errgroup.WithContext(ctx)
	for range min(len(pieces), max(2, runtime.GOMAXPROCS(0))) {
		g.Go(func() error {
			buf, err := Buffer(readBytes)
			if err != nil {
				return err
			}
			defer Free(buf)
			for n := next.Add(1) - 1; n < int64(len(pieces)); n = next.Add(1) - 1 {
				if ctx.Err() != nil {
					return context.Cause(ctx)
				}
				p := pieces[n]
				if err := j.check(p, buf); err != nil {
					return err
				}
				done.Add(p.Size)
			}
			return nil
		})
	}
	err := g.Wait()
	out.BytesVerified = done.Load()
	return err
}

// pieces cuts the image into reads that split no chunk.
func (j *job) pieces() (out []chunk.Extent) {
	end := j.clip((j.order.RawBytes + chunk.Block - 1) / chunk.Block * chunk.Block)
	n := 0
	for at := int64(0); at < end; {
		stop := min(at+readBytes, end)
		for n < len(j.index.Chunks) && j.index.Chunks[n].End() <= stop {
			n++
		}
		if n < len(j.index.Chunks) && j.index.Chunks[n].Offset < stop && j.clip(j.index.Chunks[n].End()) > stop {
			stop = j.index.Chunks[n].Offset
		}
		out = append(out, chunk.Extent{Offset: at, Size: stop - at})
		at = stop
	}
	return out
}

// check reads one piece and compares it.
func (j *job) check(p chunk.Extent, buf []byte) error {
	b := buf[:(p.Size+chunk.Block-1)/chunk.Block*chunk.Block]
	clear(b[p.Size:])
	if _, err := j.dev.ReadAt(b[:p.Size], p.Offset); err != nil {
		return ioError(j.disk.Name, "reading back", atOffset{p.Offset, p.Size, err})
	}
	at, end := p.Offset, p.Offset+p.Size
	list := j.index.Chunks
	for i := sort.Search(len(list), func(i int) bool { return list[i].Offset >= p.Offset }); i < len(list) && list[i].Offset < end; i++ {
		c := &list[i]
		if !allZero(b[at-p.Offset : c.Offset-p.Offset]) {
			return j.differs(at, c.Offset)
		}
		if chunk.Sum(b[c.Offset-p.Offset:c.End()-p.Offset]) != c.Sum {
			return j.differs(c.Offset, c.End())
		}
		at = c.End()
	}
	if at < end && !allZero(b[at-p.Offset:p.Size]) {
		return j.differs(at, end)
	}
	return nil
}

func (j *job) differs(from, to int64) error {
	return app.Errorf(app.Unavailable, "read-back-mismatch", "%s gives back other bytes than were written, between offsets %d and %d", j.disk.Name, from, to).
		Do("replace the disk or choose another, and deploy again")
}

var zeros [64 << 10]byte

func allZero(b []byte) bool {
	for len(b) > len(zeros) {
		if !bytes.Equal(b[:len(zeros)], zeros[:]) {
			return false
		}
		b = b[len(zeros):]
	}
	return bytes.Equal(b, zeros[:len(b)])
}
