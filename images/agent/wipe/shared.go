package wipe

import (
	"context"
	"path/filepath"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// device is what an order names of one device: mostly one disk, or namespaces of one NVMe drive.
type device []*target

// drives puts the namespaces of each NVMe drive together: some of its methods erase them all at once.
func drives(targets []*target, method string) (out []device) {
	at := map[string]int{}
	for _, t := range targets {
		key := t.disk.Controller + " " + t.disk.Serial
		i, known := at[key]
		switch {
		case known && method != overwrite && method != "discard":
			out[i] = append(out[i], t)
			continue
		case t.disk.Transport == "nvme" && t.disk.Controller != "" && t.disk.Serial != "":
			at[key] = len(out)
		}
		out = append(out, device{t})
	}
	return out
}

// wipe erases the disks of a device together where it can, and else one by one. Each is told of once.
func (g device) wipe(ctx context.Context, tell func(*target, agentv1.WipedDisk)) {
	if len(g) > 1 && g.together(ctx, tell) {
		return
	}
	for _, t := range g {
		if ctx.Err() != nil {
			return
		}
		tell(t, t.wipe(ctx))
	}
}

// together tries what erases all namespaces of the drive, when the order names them all, until a method is proven on each of
// them. false: they are to be wiped one by one.
func (g device) together(ctx context.Context, tell func(*target, agentv1.WipedDisk)) bool {
	first := g[0]
	drive, err := first.cfg.Drive(filepath.Join(first.cfg.DevDir, first.disk.Name), first.disk)
	if err != nil || drive == nil {
		return false // which is told where they are wiped
	}
	defer drive.Close()
	ladder := drive.Ladder()
	if ladder.Among != len(g) || len(ladder.Shared) == 0 {
		return false
	}
	began := first.cfg.Now()
	planted := make([][]sentinel, len(g))
	for i, t := range g {
		if planted[i], err = t.plant(); err != nil {
			return false
		}
	}
	for _, m := range ladder.Shared {
		err := m.Run(ctx, first.fraction(m.Name))
		for i := 0; i < len(g) && err == nil; i++ {
			err = g[i].settle(planted[i])
		}
		if ctx.Err() != nil {
			return true // the order is over, and nothing is said of its disks
		}
		if err == nil {
			for i, t := range g {
				tell(t, t.ended(began, len(planted[i]), m.Name, nil))
			}
			return true
		}
		for _, t := range g {
			t.failed(m.Name, err)
		}
	}
	return false
}
