package disk

import (
	"context"
	"fmt"
	"runtime/debug"
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
func (w *Writer) Write(ctx context.Context, order agentv1.Write, progress func(agentv1.ProgressReport)) (_ *agentv1.WriteResult, err error) {
	defer func() { err = OfImage(order.Image, "was not written", err) }()
	j, disks, err := w.begin(ctx, order, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = w.ifGone(ctx, j.disk, err) }()
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
func (w *Writer) Verify(ctx context.Context, order agentv1.Write, progress func(agentv1.ProgressReport)) (_ *agentv1.WriteResult, err error) {
	defer func() { err = OfImage(order.Image, "was not read back", err) }()
	j, _, err := w.begin(ctx, order, progress)
	if err != nil {
		return nil, err
	}
	defer func() { err = w.ifGone(ctx, j.disk, err) }()
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

// write is the part that changes the disk. The chunks of the first MiB come when everything else is on the medium. What is
// cleared counts for nothing in the progress of what is written: it takes no time on most disks, and long on some.
func (j *job) write(ctx context.Context, out *agentv1.WriteResult) error {
	held, err := j.seed(ctx, out)
	if err != nil {
		return err
	}
	if len(j.order.Seeds) > 0 {
		debug.FreeOSMemory() // the seeds' indexes are not needed any more, and the workers' buffers come on top
	}
	limits := chunk.DefaultLimits
	plan := j.index.PlanWithout(held, limits)
	early := 0
	for early < len(plan.Spans) && plan.Spans[early].Runs[0].Offset >= limits.Last {
		early++
	}
	var written, zeroed atomic.Int64
	if err := j.bulk(ctx, plan.Spans[:early], plan.Zeros, &written, &zeroed); err != nil {
		return err
	}
	last := newMeter(j.tell, "flush", written.Load()+rawBytes(plan.Spans[early:]), &written, nil)
	defer last.stop()
	for _, part := range [][]chunk.Span{nil, plan.Spans[early:]} {
		if err := j.spans(ctx, part, &written); err != nil {
			return err
		}
		if err := j.dev.Sync(); err != nil {
			return ioError(j.disk.Name, "flushing", err)
		}
	}
	out.BytesWritten, out.BytesZeroed = out.BytesMoved+written.Load(), zeroed.Load()
	return nil
}

// bulk fetches and writes spans, and clears zeros beside it.
func (j *job) bulk(ctx context.Context, spans []chunk.Span, zeros []chunk.Extent, written, zeroed *atomic.Int64) error {
	var toClear int64
	for _, z := range zeros {
		toClear += j.clip(z.Offset+z.Size) - z.Offset
	}
	note := func() string { return fmt.Sprintf("cleared %d of %d MB besides", zeroed.Load()/1e6, toClear/1e6) }
	cleared := make(chan struct{})
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error {
		defer close(cleared)
		return j.zero(ctx, zeros, zeroed)
	})
	g.Go(func() error {
		m := newMeter(j.tell, "write", rawBytes(spans), written, note)
		err := j.spans(ctx, spans, written)
		m.stop()
		if err != nil {
			return err
		}
		select {
		case <-cleared:
			return nil
		default:
		}
		defer newMeter(j.tell, "clear", toClear, zeroed, nil).stop()
		<-cleared // its goroutine watches ctx
		return nil
	})
	return g.Wait()
}

func rawBytes(spans []chunk.Span) (n int64) {
	for i := range spans {
		n += spans[i].Raw()
	}
	return n
}

// zero clears what the image leaves out.
func (j *job) zero(ctx context.Context, zeros []chunk.Extent, done *atomic.Int64) error {
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
		}
	}
	return nil
}

// clip shortens an end that lies beyond the image by the fill of its last block to a multiple of the sector size.
func (j *job) clip(end int64) int64 {
	s := int64(j.dev.SectorSize())
	return min(end, (j.order.RawBytes+s-1)/s*s)
}
