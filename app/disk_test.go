package app_test

import (
	"testing"

	"github.com/better-compute/bcd/app"
)

func TestDiskIs(t *testing.T) {
	for name, c := range map[string]struct {
		id                app.DiskID
		serial, wwn, name string
		want              bool
	}{
		"serial in other case, padded":     {app.DiskID{Serial: "s1"}, " S1 ", "", "sda", true},
		"another serial":                   {app.DiskID{Serial: "S1"}, "S2", "", "sda", false},
		"a placeholder is no serial":       {app.DiskID{Serial: "To be filled by O.E.M."}, "To be filled by O.E.M.", "", "sda", false},
		"WWN spelled otherwise":            {app.DiskID{WWN: "wwn-0x5000C500A1B2C3D4"}, "X", "naa.5000c500a1b2c3d4", "sda", true},
		"WWN with its extension":           {app.DiskID{WWN: "600508b1001cffff"}, "X", "0x600508b1001cffff0123456789abcdef", "sda", true},
		"two extensions":                   {app.DiskID{WWN: "600508b1001cffff0123456789abcd00"}, "X", "0x600508b1001cffff0123456789abcdef", "sda", false},
		"an EUI is whole":                  {app.DiskID{WWN: "eui.0025385b21404321"}, "X", "eui.0025385b2140432100000000000000ff", "sda", false},
		"one serial, told apart by WWN":    {app.DiskID{Serial: "X", WWN: "0x5000c500a1b2c3d4"}, "X", "0x5000c500a1b2c3d5", "sda", false},
		"the kernel's name has changed":    {app.DiskID{Serial: "S1", Name: "sda"}, "S1", "", "sdb", true},
		"a name does not make up for it":   {app.DiskID{Serial: "S1", Name: "sda"}, "S2", "", "sda", false},
		"a name, when there is no other":   {app.DiskID{Name: "vda"}, "", "", "vda", true},
		"nothing":                          {app.DiskID{}, "", "", "", false},
		"the disk lost its serial":         {app.DiskID{Serial: "S1"}, "", "", "sda", false},
		"a disk without WWN is not it":     {app.DiskID{WWN: "0x5000c500a1b2c3d4"}, "S1", "", "sda", false},
		"a model alone names nothing":      {app.DiskID{Model: "Example"}, "S1", "", "sda", false},
		"a size alone names nothing":       {app.DiskID{Bytes: 1 << 40}, "S1", "", "sda", false},
		"NVMe namespace, prefix of either": {app.DiskID{WWN: "nvme-eui.0025385b21404321"}, "S1", "eui.0025385B21404321", "nvme0n1", true},
	} {
		if got := c.id.Is(c.serial, c.wwn, c.name); got != c.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
