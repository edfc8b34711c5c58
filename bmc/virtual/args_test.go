package virtual

import (
	"errors"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// TestArguments checks what of a command line decides how the machine boots.
func TestArguments(t *testing.T) {
	cfg := config(t)
	cfg.Vendor = "A, Inc."
	cfg.Disks = []Disk{{Path: "/d/a,b.raw", Bus: NVMe, Serial: "S1"}, {Path: "/d/c.raw", Bus: AHCI}, {Path: "/d/d.raw", Bus: AHCI}, {Path: "/d/e.qcow2", Format: "qcow2", Bus: SCSI, Faults: "/d/faults"}}
	cfg.NICs = []NIC{{MAC: "00:00:5e:00:53:01", Tap: "tap0"}, {MAC: "00:00:5e:00:53:02", Netdev: "user", Model: "e1000e"}}
	cfg = cfg.withDefaults()
	for _, tc := range []struct {
		name string
		boot Boot
		want []string
		none []string
	}{
		{"disk first", Boot{Firmware: "bios", Target: Hdd}, []string{
			"nvme,drive=disk0,bootindex=1,serial=S1", "ide-hd,bus=ide.0,drive=disk1,bootindex=2", "ide-hd,bus=ide.1,drive=disk2,bootindex=3", "scsi-hd,bus=scsi0.0,drive=disk3,bootindex=4",
			"virtio-net-pci,netdev=net0,mac=00:00:5e:00:53:01,bootindex=5", "e1000e,netdev=net1,mac=00:00:5e:00:53:02,bootindex=6",
			"tap,id=net0,ifname=tap0,script=no,downscript=no", "user,id=net1", "file=/d/a,,b.raw", "format=qcow2,cache=writeback,discard=unmap,file=blkdebug:/d/faults:/d/e.qcow2",
			"manufacturer=A,, Inc.", "reboot=shutdown", "-cpu " + Processor,
		}, []string{"pflash", "romfile="}},
		{"network first, UEFI", Boot{Firmware: "uefi", Target: Pxe}, []string{
			"mac=00:00:5e:00:53:01,bootindex=1,romfile=", "mac=00:00:5e:00:53:02,bootindex=2", "nvme,drive=disk0,bootindex=3", "if=pflash,format=raw,unit=1,file=/vars,,1.fd",
		}, []string{"mac=00:00:5e:00:53:02,bootindex=2,romfile="}},
		{"network by HTTP", Boot{Firmware: "uefi", Target: UefiHTTP}, []string{
			"mac=00:00:5e:00:53:01,bootindex=1,romfile=", "nvme,drive=disk0,bootindex=3", "name=opt/org.tianocore/IPv4PXESupport,string=n", "name=opt/org.tianocore/IPv6PXESupport,string=n",
		}, nil},
	} {
		line := strings.Join(arguments(cfg, tc.boot, "/vars,1.fd"), " ") + " "
		for _, w := range tc.want {
			if !strings.Contains(line, w+" ") && !strings.Contains(line, w+",") {
				t.Errorf("%s: no %q in\n%s", tc.name, w, line)
			}
		}
		for _, w := range tc.none {
			if strings.Contains(line, w) {
				t.Errorf("%s: %q in\n%s", tc.name, w, line)
			}
		}
	}
}

func TestConfigIsChecked(t *testing.T) {
	for field, spoil := range map[string]func(*Config){
		"Name":           func(c *Config) { c.Name = "Node 1" },
		"Dir":            func(c *Config) { c.Dir = "/" + strings.Repeat("d", 100) },
		"UUID":           func(c *Config) { c.UUID = "ffffffff-ffff-ffff-ffff-ffffffffffff" },
		"Password":       func(c *Config) { c.Password = "" },
		"Listen":         func(c *Config) { c.Listen = "localhost" },
		"Firmware":       func(c *Config) { c.Firmware = "coreboot" },
		"DefaultBoot":    func(c *Config) { c.DefaultBoot = "Cd" },
		"Serial":         func(c *Config) { c.Serial = "a\nb" },
		"Disks[0].Bytes": func(c *Config) { c.Disks = []Disk{{Path: "d", Bytes: 1000}} },
		"Disks[0].Bus":   func(c *Config) { c.Disks = []Disk{{Path: "d", Bus: "ide"}} },
		"NICs[0]":        func(c *Config) { c.NICs[0].Tap = "tap0" },
		"NICs[0].MAC":    func(c *Config) { c.NICs[0].MAC = "01:00:5e:00:00:01" },
		"NICs[0].Model":  func(c *Config) { c.NICs[0].Model = "rtl8139" },
	} {
		cfg := config(t)
		spoil(&cfg)
		_, err := New(cfg)
		var e *app.Error
		if !errors.As(err, &e) || e.Field != field || e.Code != app.InvalidInput {
			t.Errorf("%s: %v", field, err)
		}
	}
}
