package disk

import (
	"context"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// lookTime bounds the look for a disk that fails.
const lookTime = 10 * time.Second

// ifGone tells a disk that fails from one that is no longer there: pulled, or dropped by its controller. It stays an error
// of the disk's when that cannot be seen.
func (w *Writer) ifGone(ctx context.Context, d agentv1.Disk, err error) error {
	e, ok := app.AsError(err)
	if !ok || e.Reason != "disk-io" {
		return err
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookTime)
	defer cancel()
	disks, lerr := w.cfg.Disks(ctx)
	if lerr != nil {
		return err
	}
	now, lerr := Match(disks, agentv1.DiskTarget{Serial: d.Serial, WWN: d.WWN, Name: nameOf(d), Bytes: d.Bytes})
	switch {
	case lerr == nil && now.Name == d.Name:
		return err
	case lerr == nil:
		return app.Errorf(app.Unavailable, "disk-gone", "%s (serial %q) went away and came back as %s: %s", d.Name, d.Serial, now.Name, e.Message).
			Do("look at its cabling, its bay and its power, and retry: what it holds now does not boot")
	}
	return app.Errorf(app.Unavailable, "disk-gone", "%s (serial %q) is gone: it was pulled, or its controller dropped it: %s", d.Name, d.Serial, e.Message).
		Do("put it back or choose another disk, and retry: what it holds now does not boot")
}

// nameOf is what a disk without serial number and WWN is known by.
func nameOf(d agentv1.Disk) string {
	if d.Serial == "" && d.WWN == "" {
		return d.Name
	}
	return ""
}
