package deploy

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

const gib = int64(1) << 30

func inventory(disks ...agentv1.Disk) *agentv1.Inventory { return &agentv1.Inventory{Disks: disks} }

func disk(name, serial, wwn string, size int64) agentv1.Disk {
	return agentv1.Disk{Name: name, Serial: serial, WWN: wwn, Bytes: size, SectorSize: 512, Transport: "sata"}
}

var image = &app.Image{Name: "debian", RawBytes: 2 * gib, Layout: app.Layout{Table: "gpt", SectorSize: 512}}

func TestPickDisk(t *testing.T) {
	usb := disk("sdc", "U", "", 4*gib)
	usb.Transport, usb.Removable = "usb", true
	native := disk("nvme0n1", "N", "eui.01", 8*gib)
	native.SectorSize = 4096
	emulates := disk("sde", "E", "", 8*gib)
	emulates.Physical = 4096
	ro := disk("sdr", "R", "", 8*gib)
	ro.ReadOnly = true
	for name, c := range map[string]struct {
		inv    *agentv1.Inventory
		rule   app.DiskRule
		want   string // disk name
		reason string // else the refusal
	}{
		"the smallest that is large enough":         {inventory(disk("sda", "A", "", 8*gib), disk("sdb", "B", "", 4*gib), disk("sdd", "D", "", gib)), app.DiskRule{}, "sdb", ""},
		"two of one size":                           {inventory(disk("sda", "A", "", 4*gib), disk("sdb", "B", "", 4*gib)), app.DiskRule{}, "", "ambiguous-disk"},
		"none is large enough":                      {inventory(disk("sda", "A", "", 2*gib)), app.DiskRule{}, "", "disk-too-small"},
		"by serial":                                 {inventory(disk("sda", "A", "", 4*gib), disk("sdb", "B", "", 4*gib)), app.DiskRule{Serial: "b"}, "sdb", ""},
		"one serial on two disks":                   {inventory(disk("sda", "X", "0x5000c500a1b2c3d4", 4*gib), disk("sdb", "X", "0x5000c500a1b2c3d5", 4*gib)), app.DiskRule{Serial: "X"}, "", "ambiguous-disk"},
		"one serial, told apart by WWN":             {inventory(disk("sda", "X", "0x5000c500a1b2c3d4", 4*gib), disk("sdb", "X", "0x5000c500a1b2c3d5", 4*gib)), app.DiskRule{Serial: "X", WWN: "5000C500A1B2C3D5"}, "sdb", ""},
		"a WWN with vendor extension":               {inventory(disk("sda", "X", "0x5000c500a1b2c3d40000000000000000", 4*gib)), app.DiskRule{WWN: "naa.5000c500a1b2c3d4"}, "sda", ""},
		"a removable disk is not chosen":            {inventory(usb), app.DiskRule{}, "", "no-disk"},
		"unless it is named":                        {inventory(usb), app.DiskRule{Serial: "U"}, "sdc", ""},
		"a kernel name does not name it":            {inventory(usb), app.DiskRule{Name: "sdc"}, "", "no-disk"},
		"another sector size":                       {inventory(native), app.DiskRule{}, "", "sector-size"},
		"512e, whose sectors are 4096 bytes inside": {inventory(emulates), app.DiskRule{}, "sde", ""},
		"a read-only disk":                          {inventory(ro), app.DiskRule{}, "", "disk-read-only"},
		"by kind":                                   {inventory(disk("sda", "A", "", 4*gib), agentv1.Disk{Name: "nvme1n1", Transport: "nvme", Bytes: 9 * gib, SectorSize: 512}), app.DiskRule{Kind: "nvme"}, "nvme1n1", ""},
		"no disks at all":                           {inventory(), app.DiskRule{}, "", "no-disk"},
		"nothing of that serial":                    {inventory(disk("sda", "A", "", 4*gib)), app.DiskRule{Serial: "Z"}, "", "no-disk"},
	} {
		t.Run(name, func(t *testing.T) {
			d, err := PickDisk(c.inv, c.rule, image)
			if c.reason == "" {
				if err != nil || d.Name != c.want {
					t.Errorf("picked %q, %v", d.Name, err)
				}
				return
			}
			e, _ := app.AsError(err)
			if e == nil || e.Reason != c.reason || e.WayOut == "" || e.Field != "disk" {
				t.Errorf("refused with %#v", err)
			}
			if !strings.Contains(e.Message, "image debian") {
				t.Errorf("the image is not named: %v", err)
			}
			for _, d := range c.inv.Disks {
				if !strings.Contains(e.Message, d.Name) && c.rule.Serial != "X" {
					t.Errorf("the disk %s is not named: %v", d.Name, err)
				}
			}
		})
	}
}
