package metal

import (
	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Target is how an order names a disk: by serial and WWN, and by kernel name only when it has neither.
func Target(d agentv1.Disk) agentv1.DiskTarget {
	t := agentv1.DiskTarget{Serial: d.Serial, WWN: d.WWN, Bytes: d.Bytes, SectorSize: d.SectorSize}
	if d.Serial == "" && d.WWN == "" {
		t.Name = d.Name
	}
	return t
}

// Identity is how a machine remembers a disk.
func Identity(d agentv1.Disk) app.DiskID {
	return app.DiskID{Serial: d.Serial, WWN: d.WWN, Model: d.Model, Name: d.Name, Bytes: d.Bytes}
}

// Find gives the disks of an inventory that id names: one, unless the inventory lacks it or id is too vague.
func Find(inv *agentv1.Inventory, id app.DiskID) (out []agentv1.Disk) {
	for _, d := range inv.Disks {
		if id.Is(d.Serial, d.WWN, d.Name) {
			out = append(out, d)
		}
	}
	return out
}
