package agent

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/better-compute/bcd/images/agent/boot"
	"github.com/better-compute/bcd/images/agent/disk"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// configure prepares a disk for its first boot and then, where the order asks for it, looks for what will start. A disk that
// certainly starts nothing is refused, before anyone waits for it. That the looking itself failed is a note: the disk was read
// back before.
func configure(write Handler, look func(context.Context, agentv1.DiskTarget) (boot.Found, error)) Handler {
	return func(ctx context.Context, c agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		out, err := write(ctx, c, progress)
		r, ok := out.(*agentv1.ConfigureResult)
		var order agentv1.Configure
		if err != nil || !ok || json.Unmarshal(c.Payload, &order) != nil || !order.Look {
			return out, err
		}
		progress(agentv1.ProgressReport{Phase: "boot entry"})
		found, err := look(ctx, order.Disk)
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		refused := disk.OfImage(order.Image, "is not ready to start", found.Refused)
		switch {
		case err != nil:
			found.Notes = []string{fmt.Sprintf("what the disk with serial %q, WWN %q starts could not be looked for: %v", order.Disk.Serial, order.Disk.WWN, err)}
		case refused != nil && !order.SkipChecks:
			return nil, refused
		case refused != nil:
			found.Notes = append(found.Notes, refused.Error())
		}
		r.Entry, r.Kernel = found.Entry, found.Kernel
		for _, n := range found.Notes {
			r.Notes = append(r.Notes, named(order.Image, n))
		}
		return r, nil
	}
}

// named puts the name of the image before a note that lacks it.
func named(image, note string) string {
	if strings.Contains(note, "image "+image) {
		return note
	}
	return fmt.Sprintf("image %s: %s", image, note)
}
