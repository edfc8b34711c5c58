package deploy

import (
	"fmt"
	"sort"
	"strings"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// tail is what a deploy needs behind the image's last partition: the seed partition, its alignment and the backup
// partition table, in bytes. The agent checks it again.
const tail = 34 << 20

// room is the smallest disk an image and its seed fit on, in bytes.
func room(img *app.Image) int64 {
	var end int64
	for _, p := range img.Layout.Partitions {
		end = max(end, p.Start+p.Size)
	}
	if end == 0 {
		end = img.RawBytes
	}
	return max(img.RawBytes, end+tail)
}

// PickDisk chooses the one disk a rule names from an inventory, or refuses with what it saw. Disks that are removable,
// remote, multipath or a BMC's virtual medium are chosen only when named by serial or WWN.
func PickDisk(inv *agentv1.Inventory, rule app.DiskRule, img *app.Image) (agentv1.Disk, error) {
	var fit []agentv1.Disk
	for _, d := range inv.Disks {
		if matches(d, rule) {
			fit = append(fit, d)
		}
	}
	if len(fit) == 0 {
		return agentv1.Disk{}, app.Errorf(app.InvalidInput, "no-disk", "no disk of the machine matches the rule for image %s; it has %s", img.Name, names(inv.Disks)).
			At("disk").Do("name one of them by serial, or commission the machine again if its disks have changed")
	}
	named := rule.Serial != "" || rule.WWN != "" || rule.Name != ""
	if named && len(fit) > 1 {
		return agentv1.Disk{}, app.Errorf(app.InvalidInput, "ambiguous-disk", "the rule for image %s matches %d disks: %s", img.Name, len(fit), names(fit)).
			At("disk").Do("add the WWN, which differs between them")
	}
	big := fit[:0:0]
	for _, d := range fit {
		if d.Bytes >= room(img) {
			big = append(big, d)
		}
	}
	if len(big) == 0 {
		return agentv1.Disk{}, app.Errorf(app.InvalidInput, "disk-too-small", "image %s needs %d bytes with its seed; the machine has %s", img.Name, room(img), names(fit)).
			At("disk").Do("choose a larger disk or a smaller image")
	}
	sort.SliceStable(big, func(i, j int) bool { return big[i].Bytes < big[j].Bytes })
	if len(big) > 1 && big[0].Bytes == big[1].Bytes {
		return agentv1.Disk{}, app.Errorf(app.InvalidInput, "ambiguous-disk", "more than one disk of the same size would do for image %s: %s", img.Name, names(big)).
			At("disk").Do("name one by serial or WWN")
	}
	return big[0], suits(big[0], img)
}

// suits refuses a disk whose logical sector the image was not written for.
func suits(d agentv1.Disk, img *app.Image) error {
	if img.Layout.Table != "none" && img.Layout.SectorSize != 0 && img.Layout.SectorSize != d.SectorSize {
		return app.Errorf(app.InvalidInput, "sector-size", "image %s was made for %d-byte sectors and disk %s has %d-byte ones", img.Name, img.Layout.SectorSize, d.Name, d.SectorSize).
			At("disk").Do("use an image made for %d-byte sectors, or another disk", d.SectorSize)
	}
	if d.ReadOnly {
		return app.Errorf(app.InvalidInput, "disk-read-only", "disk %s, for image %s, is read-only", d.Name, img.Name).At("disk").Do("choose another disk")
	}
	return nil
}

func matches(d agentv1.Disk, r app.DiskRule) bool {
	byID := r.Serial != "" || r.WWN != ""
	special := d.Removable || d.Virtual || d.Multipath || d.Transport == "iscsi" || d.Transport == "fc" || d.Transport == "usb"
	switch {
	case special && !byID,
		r.Serial != "" && !app.SameSerial(d.Serial, r.Serial),
		r.WWN != "" && !app.SameWWN(d.WWN, r.WWN),
		r.Name != "" && d.Name != r.Name,
		r.MinBytes != 0 && d.Bytes < r.MinBytes,
		r.MaxBytes != 0 && d.Bytes > r.MaxBytes:
		return false
	}
	switch r.Kind {
	case "":
		return true
	case "nvme":
		return d.Transport == "nvme"
	case "ssd":
		return !d.Rotational
	case "hdd":
		return d.Rotational
	}
	return false
}

func names(disks []agentv1.Disk) string {
	if len(disks) == 0 {
		return "no disks"
	}
	var out []string
	for i, d := range disks {
		if i == 8 {
			out = append(out, fmt.Sprintf("and %d more", len(disks)-8))
			break
		}
		out = append(out, fmt.Sprintf("%s (%d bytes, serial %q, wwn %q)", d.Name, d.Bytes, d.Serial, d.WWN))
	}
	return strings.Join(out, ", ")
}
