package metal

import agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"

// Target is how an order names a disk: by serial and WWN, and by kernel name only when it has neither.
func Target(d agentv1.Disk) agentv1.DiskTarget {
	t := agentv1.DiskTarget{Serial: d.Serial, WWN: d.WWN, Bytes: d.Bytes, SectorSize: d.SectorSize}
	if d.Serial == "" && d.WWN == "" {
		t.Name = d.Name
	}
	return t
}
