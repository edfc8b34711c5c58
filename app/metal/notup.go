package metal

import (
	"context"

	"github.com/better-compute/bcd/app"
)

// notUp is the error of a ramdisk that did not call in time. Where the flight recorder knows how far the boot came, it says so.
func (p *Ports) notUp(ctx context.Context, machineID string) error {
	const again = "; then retry"
	if p.Verdict != nil {
		if sentence, wayOut := p.Verdict(context.WithoutCancel(ctx), machineID); sentence != "" {
			return app.Errorf(app.Timeout, "agent-not-up", "the ramdisk did not call in time. %s", sentence).Do("%s%s", wayOut, again)
		}
	}
	return app.Errorf(app.Timeout, "agent-not-up", "the machine was powered on but its ramdisk did not call").
		Do("look at the machine's timeline for the last thing seen: DHCP, boot files, console%s", again)
}
