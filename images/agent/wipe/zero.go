package wipe

import (
	"context"
	"errors"
	"syscall"

	"github.com/better-compute/bcd/images/agent/disk"
)

// zero discards the disk where it can, and zeroes all of it.
func (t *target) zero(ctx context.Context) error {
	size, discards := t.dev.Size(), true
	for off := int64(0); off < size; off += step {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		n := min(step, size-off)
		if discards {
			if err := t.dev.Discard(off, n); err != nil { // only a help for the disk; what counts is the zeroing
				discards = false
				t.cfg.Log.Info("disk is not discarded", "disk", t.disk.Name, "err", err)
			}
		}
		if err := t.dev.Zero(off, n); err != nil {
			if errors.Is(err, syscall.EOPNOTSUPP) && off == 0 {
				return err
			}
			// Some part of this range cannot be zeroed: writing finds which, or succeeds.
			if err := t.overwrite(ctx, off, n); err != nil {
				return err
			}
			continue
		}
		t.done(n, "")
	}
	return nil
}

// overwrite writes zeros.
func (t *target) overwrite(ctx context.Context, off, n int64) error {
	b, err := disk.Buffer(writeStep)
	if err != nil {
		return err
	}
	defer disk.Free(b)
	for end := off + n; off < end; {
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		m := min(writeStep, end-off)
		if _, err := t.dev.WriteAt(b[:m], off); err != nil {
			return t.ioError("overwriting", off, err)
		}
		off += m
		t.done(m, "")
	}
	return nil
}
