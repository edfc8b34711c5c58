package disk

import (
	"context"
	"errors"
	"fmt"
	"path"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/images/chunk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// zeroStep is how much of a disk one BLKZEROOUT covers: some disks take a second for it, and ctx is looked at between.
const zeroStep = 256 << 20

// Write puts an image on a disk and reads it back. Before the first write it refuses with an *app.Error that names the
// way out; after one, every error leaves a disk that does not boot. It may be repeated at any time.
func (w *Writer) Write(ctx context.Context, order agentv1.Write, progress func(agentv1.ProgressReport)) (*agentv1.WriteResult, error) {
	j, disks, err := w.begin(ctx, order, progress)
	if err != nil {
		return nil, err
	}
	defer j.dev.Close()
	if err := w.noTwins(ctx, disks, j.disk.Name, order); err != nil {
		return nil, err
	}
	if err := clearEdges(j.dev, 0, j.dev.Size()); err != nil {
		return nil, ioError(j.disk.Name, "clearing", err)
	}
	out := &agentv1.WriteResult{Disk: agentv1.DiskTarget{Serial: j.disk.Serial, WWN: j.disk.WWN, Name: j.disk.Name,
		Bytes: j.dev.Size(), SectorSize: j.dev.SectorSize()}}
	if err := j.write(ctx, out); err != nil {
		return nil, err
	}
	if err := j.verify(ctx, out); err != nil {
		return nil, err
	}
	if err := j.dev.Reread(); err != nil {
		w.cfg.Log.Warn("partition table not read again", "disk", j.disk.Name, "err", err)
	}
	j.finish(out)
	return out, nil
}

// Verify reads an image back without writing. It answers for a disk that Write left, before Configure changed it.
func (w *Writer) Verify(ctx context.Context, order agentv1.Write, progress func(agentv1.ProgressReport)) (*agentv1.WriteResult, error) {
	j, _, err := w.begin(ctx, order, progress)
	if err != nil {
		return nil, err
	}
	defer j.dev.Close()
	out := &agentv1.WriteResult{Disk: order.Disk}
	if err := j.verify(ctx, out); err != nil {
		return nil, err
	}
	j.finish(out)
	return out, nil
}

func (j *job) finish(out *agentv1.WriteResult) {
	out.BytesFetched = j.fetch.fetched.Load()
	out.Seconds = time.Since(j.begin).Seconds()
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) == nil {
		out.PeakRSS = u.Maxrss << 10
	}
}

// write is the part that changes the disk. The chunks of the first MiB come when everything else is on the medium.
func (j *job) write(ctx context.Context, out *agentv1.WriteResult) error {
	limits := chunk.DefaultLimits
	plan := j.index.Plan(limits)
	early := 0
	for early < len(plan.Spans) && plan.Spans[early].Runs[0].Offset >= limits.Last {
		early++
	}
	meter := newMeter(j.tell, "write", j.order.RawBytes)
	defer meter.stop()
	var written, zeroed atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	g.Go(func() error { return j.zero(gctx, plan.Zeros, meter, &zeroed) })
	g.Go(func() error { return j.spans(gctx, plan.Spans[:early], meter, &written) })
	if err := g.Wait(); err != nil {
		return err
	}
	for _, part := range [][]chunk.Span{nil, plan.Spans[early:]} {
		if err := j.spans(ctx, part, meter, &written); err != nil {
			return err
		}
		if err := j.dev.Sync(); err != nil {
			return ioError(j.disk.Name, "flushing", err)
		}
	}
	out.BytesWritten, out.BytesZeroed = written.Load(), zeroed.Load()
	return nil
}

// zero clears what the image leaves out.
func (j *job) zero(ctx context.Context, zeros []chunk.Extent, m *meter, done *atomic.Int64) error {
	for _, z := range zeros {
		for off, end := z.Offset, j.clip(z.Offset+z.Size); off < end; {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			n := min(end-off, zeroStep)
			if err := j.dev.Zero(off, n); err != nil {
				return ioError(j.disk.Name, "clearing", atOffset{off, n, err})
			}
			off += n
			done.Add(n)
			m.add(n)
		}
	}
	return nil
}

// clip shortens an end that lies beyond the image by the fill of its last block to a multiple of the sector size.
func (j *job) clip(end int64) int64 {
	s := int64(j.dev.SectorSize())
	return min(end, (j.order.RawBytes+s-1)/s*s)
}

// spans fetches and writes over Workers connections.
func (j *job) spans(ctx context.Context, list []chunk.Span, m *meter, written *atomic.Int64) error {
	g, ctx := errgroup.WithContext(ctx)
	var next atomic.Int64
	for range min(j.w.cfg.Workers, len(list)) {
		g.Go(func() error {
			k, err := newWorker(j)
			if err != nil {
				return err
			}
			defer k.close()
			for n := next.Add(1) - 1; n < int64(len(list)); n = next.Add(1) - 1 {
				if err := k.span(ctx, &list[n], m, written); err != nil {
					return err
				}
			}
			return nil
		})
	}
	return g.Wait()
}

// worker owns the buffers of one connection.
type worker struct {
	*job
	dec  *chunk.Decoder
	wire []byte
	raw  []byte // a Buffer
}

func newWorker(j *job) (*worker, error) {
	dec, err := chunk.NewDecoder()
	if err != nil {
		return nil, err
	}
	dec.SumLater = true // verify compares every chunk's sum with what the disk gives back
	k := &worker{job: j, dec: dec}
	if k.wire, err = Buffer(max(chunk.DefaultLimits.Fetch, chunk.MaxChunkBytes)); err != nil {
		return nil, fmt.Errorf("reserving memory for a transfer: %w", err)
	}
	if k.raw, err = Buffer(chunk.DefaultLimits.Raw + chunk.Slack); err != nil {
		return nil, errors.Join(fmt.Errorf("reserving memory for a write: %w", err), syscall.Munmap(k.wire))
	}
	return k, nil
}

func (k *worker) close() {
	k.dec.Close()
	Free(k.wire)
	Free(k.raw)
}

// span fetches one span and writes its runs. Bytes that do not match the index are fetched again.
func (k *worker) span(ctx context.Context, s *chunk.Span, m *meter, written *atomic.Int64) error {
	pack := path.Join(path.Dir(k.order.IndexURL), "../../packs", k.index.Packs[s.Pack].String())
	return k.fetch.again(ctx, pack, func() error {
		wire := k.wire[:s.Len]
		if err := k.fetch.bytes(ctx, pack, s.Off, wire); err != nil {
			return err
		}
		for i := range s.Runs {
			if err := k.run(s, &s.Runs[i], wire); err != nil {
				return err
			}
		}
		written.Add(s.Raw())
		m.add(s.Raw())
		return nil
	})
}

func (k *worker) run(s *chunk.Span, r *chunk.Run, wire []byte) error {
	end := r.Offset
	for _, i := range r.Chunks {
		c := &k.index.Chunks[i]
		clear(k.raw[end-r.Offset : c.Offset-r.Offset])
		at := int64(c.PackOff) - s.Off
		if err := k.dec.Open(c, wire[at:at+int64(c.Stored)], k.raw[c.Offset-r.Offset:c.End()-r.Offset], chunk.Slack); err != nil {
			return denied{err}
		}
		end = c.End()
	}
	end = k.clip(end)
	if _, err := k.dev.WriteAt(k.raw[:end-r.Offset], r.Offset); err != nil {
		return ioError(k.disk.Name, "writing", atOffset{r.Offset, end - r.Offset, err})
	}
	return nil
}
