package agent

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// configure prepares a disk for its first boot and then, where the order asks for it, looks for the entry that will start. An
// entry that this agent cannot read is a note and no failure: boot loaders of other kinds than it knows start systems, too.
func configure(write Handler, look func(context.Context, agentv1.DiskTarget) (title, kernel string, err error)) Handler {
	return func(ctx context.Context, c agentv1.Command, progress func(agentv1.ProgressReport)) (any, error) {
		out, err := write(ctx, c, progress)
		r, ok := out.(*agentv1.ConfigureResult)
		var order agentv1.Configure
		if err != nil || !ok || json.Unmarshal(c.Payload, &order) != nil || !order.Look {
			return out, err
		}
		progress(agentv1.ProgressReport{Phase: "boot entry"})
		if r.Entry, r.Kernel, err = look(ctx, order.Disk); err == nil {
			return r, nil
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		why := err.Error()
		if e, ok := app.AsError(err); ok {
			why = e.Message
		}
		r.Entry, r.Kernel = "", ""
		r.Notes = append(r.Notes, fmt.Sprintf("no boot entry of image %s was found on the disk with serial %q, WWN %q: %s "+
			"(if its system does not start, look at its console, and at the boot configuration in the image)", order.Image, order.Disk.Serial, order.Disk.WWN, why))
		return r, nil
	}
}
