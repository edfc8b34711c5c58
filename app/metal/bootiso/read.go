package bootiso

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
)

// Step kinds of this verb.
const (
	kindInsert = "iso.insert" // nothing
	kindRead   = "iso.read"   // nothing
)

// insertBudget bounds an insertion: a BMC may look at the image for minutes, and empties the drive first.
const insertBudget = 6 * time.Minute

// SignalRead is sent for a machine when more of its boot's image was noted as read. It has no data.
const SignalRead = "iso.read"

// Started is how much of an image must have left for it to count as started, in bytes: loaders and firmware read some ten
// KiB to find out what it is, before anything on it runs.
const Started = 64 << 10

// enough is what must have left of an image of this size.
func enough(size int64) int64 { return min(size, Started) }

// hasDrive reports whether a BMC's card shows a virtual drive for CDs. A card that nobody wrote hides none.
func hasDrive(raw json.RawMessage) bool {
	var c driver.Card
	if len(raw) == 0 || json.Unmarshal(raw, &c) != nil {
		return true
	}
	return slices.ContainsFunc(c.Media, func(s driver.MediaSlot) bool {
		return slices.Contains(s.Types, "CD") || slices.Contains(s.Types, "DVD")
	})
}

// boot is the permission that this workflow gave.
func (v *Verbs) boot(ctx context.Context, c workflow.Command) (*app.Boot, error) {
	b, err := v.p.Agents.LiveBoot(ctx, c.MachineID)
	if app.CodeOf(err) == app.NotFound || err == nil && b.WorkflowID != c.WorkflowID {
		return nil, app.Errorf(app.Conflict, "boot-over", "the permission to read the image was withdrawn").Do("retry, which gives another")
	}
	return b, err
}

// insert has the BMC take the image at the address of this boot.
func (v *Verbs) insert(ctx context.Context, s workflow.StepContext) (any, error) {
	c := s.Command()
	b, err := v.boot(ctx, c)
	if err != nil {
		return nil, err
	}
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	url, err := v.cfg.MediaURL(ctx, m, b.Key)
	if err != nil {
		return nil, err
	}
	s.Progress(workflow.Progress{Phase: "media", Message: "asking the BMC to take the image"})
	return nil, v.p.CD.Insert(ctx, m, metal.CallOf(c), url)
}

// read is what was seen of the image being read.
type read struct {
	Bytes int64      `json:"bytes"` // by the time that it counted as started
	Via   app.ISOVia `json:"via"`
}

// awaitRead waits until enough of the image left. It looks at the store first, so it can start over at any time.
func (v *Verbs) awaitRead(ctx context.Context, s workflow.StepContext) (any, error) {
	c, w := s.Command(), s.Workflow()
	pl, err := planOf(&w)
	if err != nil {
		return nil, err
	}
	more, stop := v.p.Flows.Await(ctx, c.MachineID, SignalRead)
	defer stop()
	waiting := "waiting for the machine to netboot and its loader to read the image"
	if pl.Via == app.ISOByMedia {
		waiting = "waiting for the machine to start and its BMC to read the image"
	}
	for {
		b, err := v.boot(ctx, c)
		if err != nil {
			return nil, err
		}
		if b.Read > 0 {
			waiting = "the image is being read"
		}
		s.Progress(workflow.Progress{Phase: "iso", Message: waiting, Done: b.Read, Unit: "bytes"})
		if b.Read >= enough(pl.Bytes) {
			return read{b.Read, pl.Via}, nil
		}
		select {
		case <-more:
		case <-ctx.Done():
			return nil, v.notRead(ctx, c.MachineID, &pl, b.Read)
		}
	}
}

// notRead is the error of an image that was not started in time. Where the flight recorder knows how far the boot came, it
// says so.
func (v *Verbs) notRead(ctx context.Context, machineID string, pl *plan, bytes int64) error {
	what := "the machine was powered on but never read the image"
	if bytes > 0 {
		what = fmt.Sprintf("only %d bytes of the image were read, too few for it to have started", bytes)
	}
	wayOut := "look at the machine's timeline for the last thing seen"
	if v.p.Verdict != nil {
		if sentence, out := v.p.Verdict(context.WithoutCancel(ctx), machineID); sentence != "" {
			what, wayOut = what+". "+sentence, out
		}
	}
	err := app.Errorf(app.Timeout, "iso-not-read", "%s", what)
	switch {
	case wayOut == "":
		return err.Do("retry")
	case pl.Via == app.ISOByMedia:
		return err.Do("%s; then retry, or start again by the network", wayOut)
	}
	return err.Do("%s; then retry", wayOut)
}
