package disk

import (
	"context"
	"fmt"
	"path"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/images/chunk"
)

// flushStep is how many bytes are written between two flushes of a disk's cache: its medium is at work while the next
// chunks are fetched, instead of all at the end.
const flushStep = 32 << 20

// spans fetches and writes over Workers connections.
func (j *job) spans(ctx context.Context, list []chunk.Span, written *atomic.Int64) error {
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
				if err := k.span(ctx, &list[n], written); err != nil {
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
		Free(k.wire)
		return nil, fmt.Errorf("reserving memory for a write: %w", err)
	}
	return k, nil
}

func (k *worker) close() {
	k.dec.Close()
	Free(k.wire)
	Free(k.raw)
}

// span fetches one span and writes its runs. Bytes that do not match the index are fetched again.
func (k *worker) span(ctx context.Context, s *chunk.Span, written *atomic.Int64) error {
	pack := path.Join(path.Dir(k.order.IndexURL), "../../packs", k.index.Packs[s.Pack].String())
	what := fmt.Sprintf("pack %s of image %s", k.index.Packs[s.Pack], k.order.ImageID)
	err := k.fetch.again(ctx, what, denials, func() error {
		wire := k.wire[:s.Len]
		if err := k.fetch.bytes(ctx, pack, s.Off, wire); err != nil {
			return err
		}
		for i := range s.Runs {
			if err := k.run(s, &s.Runs[i], wire); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return k.flush(written.Add(s.Raw()))
}

// run writes the chunks of one run.
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

// flush empties the disk's cache when flushStep bytes were written since that was last begun, unless another worker is at it.
func (k *worker) flush(written int64) error {
	if written-k.flushed.Load() < flushStep || !k.flushing.TryLock() {
		return nil
	}
	defer k.flushing.Unlock()
	k.flushed.Store(written)
	if err := k.dev.Sync(); err != nil {
		return ioError(k.disk.Name, "flushing", err)
	}
	return nil
}
