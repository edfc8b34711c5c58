package inventory

import (
	"context"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

const (
	naa8  = "\x50\x00\xc5\x00\xa1\xb2\xc3\xd4"
	naa16 = "\x60\x05\x08\xb1\x00\x1c\x00\x00\x11\x22\x33\x44\x55\x66\x77\x88"
)

func disks(t *testing.T, files map[string]string) map[string]agentv1.Disk {
	t.Helper()
	got, err := New(Config{Sys: tree(t, t.TempDir(), files), Log: quiet}).Disks(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]agentv1.Disk{}
	for _, d := range got {
		out[d.Name] = d
	}
	return out
}

// Case 83: with native multipath the tree shows nvme0c0n1 and nvme0n1, and only the latter is a disk.
func TestNVMeNaming(t *testing.T) {
	files := map[string]string{}
	ctrl := map[string]string{"device/serial": "S3Z9NX0M    \n", "device/model": "Example NVMe   \n", "device/transport": "pcie\n"}
	with := func(extra map[string]string) map[string]string {
		out := map[string]string{}
		for k, v := range ctrl {
			out[k] = v
		}
		for k, v := range extra {
			out[k] = v
		}
		return out
	}
	disk(files, "nvme0n1", "pci0000:00/0000:01:00.0/nvme/nvme0", with(map[string]string{"wwid": "eui.0025385a91b00001\n"}))
	disk(files, "nvme0c0n1", "pci0000:00/0000:01:00.0/nvme/nvme0", with(map[string]string{"hidden": "1\n"}))
	disk(files, "nvme0n2", "pci0000:00/0000:01:00.0/nvme/nvme0", with(map[string]string{"wwid": "uuid.11111111-2222-3333-4444-555555555555\n"}))
	disk(files, "nvme1n1", "virtual/nvme-subsystem/nvme-subsys1", with(map[string]string{"hidden": "1\n"}))
	disk(files, "sda", "pci0000:00/0000:00:1f.2/ata1/host0/target0:0:0/0:0:0:0", nil)
	got := disks(t, files)
	if len(got) != 3 {
		t.Fatalf("disks %+v", got)
	}
	want := agentv1.Disk{
		Name: "nvme0n1", ByID: []string{"nvme-eui.0025385a91b00001"}, Serial: "S3Z9NX0M", WWN: "eui.0025385a91b00001", Model: "Example NVMe",
		Bytes: 1 << 30, SectorSize: 512, Physical: 4096, Transport: "nvme", Controller: "0000:01:00.0",
	}
	if d := cmp.Diff(want, got["nvme0n1"]); d != "" {
		t.Error(d)
	}
	if w := got["nvme0n2"].WWN; w != "uuid.11111111-2222-3333-4444-555555555555" {
		t.Errorf("WWN %q", w)
	}
}

func TestDiskKinds(t *testing.T) {
	const pci = "pci0000:00/0000:00:05.0/"
	files := map[string]string{}
	disk(files, "vda", pci+"virtio2", map[string]string{"serial": "VIRT1", "device/vendor": "0x1af4", "queue/rotational": "1"})
	disk(files, "sda", pci+"ata3/host2/target2:0:0/2:0:0:0", map[string]string{
		"device/vendor": "ATA     ", "device/model": "HDD  ", "device/vpd_pg80": page(0x80, "   WD-ABC  "), "queue/rotational": "1",
		"device/vpd_pg83": page(0x83, name(2, 0, "ATA HDD")+name(1, 0x13, "PORTNAME")+name(1, 3, naa8)),
	})
	disk(files, "sdb", pci+"host3/port-3:0/end_device-3:0/target3:0:0/3:0:0:0", map[string]string{"device/wwid": "naa." + "600508b1001c00001122334455667788"})
	disk(files, "sdc", pci+"usb1/1-1/1-1:1.0/host4/target4:0:0/4:0:0:0", map[string]string{"device/vendor": "AMI", "device/model": "Virtual HDisk0", "removable": "1"})
	disk(files, "sdd", pci+"usb1/1-2/1-2:1.0/host5/target5:0:0/5:0:0:0", map[string]string{"device/vendor": "Example", "device/model": "Stick", "removable": "1"})
	disk(files, "sde", "platform/host6/session1/target6:0:0/6:0:0:0", nil)
	disk(files, "sdf", pci+"host7/rport-7:0-1/target7:0:0/7:0:0:0", map[string]string{"device/vpd_pg83": page(0x83, name(1, 3, naa16)), "device/vpd_pg80": page(0x80, "LUN1")})
	disk(files, "sdg", pci+"host8/rport-8:0-1/target8:0:0/8:0:0:0", map[string]string{"device/vpd_pg83": page(0x83, name(1, 3, naa16)), "device/vpd_pg80": page(0x80, "LUN1")})
	disk(files, "sdh", pci+"virtio3/host9/target9:0:0/9:0:0:0", map[string]string{"queue/logical_block_size": "4096", "ro": "1"})
	disk(files, "sdi", pci+"host9/target9:0:1/9:0:1:0", map[string]string{"size": "0"})
	disk(files, "mmcblk0", "platform/mmc0/mmc0:0001", map[string]string{"device/serial": "0xdeadbeef", "device/name": "EMMC"})
	disk(files, "mmcblk0boot0", "platform/mmc0/mmc0:0001", nil)
	for _, n := range []string{"loop0", "ram0", "zram0", "dm-0", "md127", "nbd0", "sr0", "fd0"} {
		disk(files, n, "virtual", nil)
	}
	got := disks(t, files)
	transports := map[string]string{
		"vda": "virtio", "sda": "sata", "sdb": "sas", "sdc": "usb", "sdd": "usb", "sde": "iscsi", "sdf": "fc", "sdg": "fc", "sdh": "scsi", "mmcblk0": "mmc",
	}
	if len(got) != len(transports) {
		t.Fatalf("%d disks: %+v", len(got), got)
	}
	for n, want := range transports {
		if got[n].Transport != want {
			t.Errorf("%s by %q, want %q", n, got[n].Transport, want)
		}
	}
	if d := got["sda"]; d.Serial != "WD-ABC" || d.WWN != "0x5000c500a1b2c3d4" || !d.Rotational || d.ByID[0] != "wwn-0x5000c500a1b2c3d4" {
		t.Errorf("sda %+v", d)
	}
	if d := got["vda"]; d.Serial != "VIRT1" || d.Vendor != "" || d.ByID[0] != "virtio-VIRT1" {
		t.Errorf("vda %+v", d)
	}
	if got["sdb"].WWN != "0x600508b1001c00001122334455667788" {
		t.Errorf("sdb %+v", got["sdb"])
	}
	if !got["sdc"].Virtual || got["sdd"].Virtual {
		t.Error("BMC media are told from sticks by their names")
	}
	if !got["sdf"].Multipath || !got["sdg"].Multipath || got["sda"].Multipath {
		t.Error("two paths to one disk")
	}
	if d := got["sdh"]; d.SectorSize != 4096 || !d.ReadOnly {
		t.Errorf("sdh %+v", d)
	}
}

// Two volumes of one controller share its serial and differ by WWN (case 93): they are two disks, not two paths.
func TestSameSerialIsNotMultipath(t *testing.T) {
	files := map[string]string{}
	disk(files, "sda", "pci0000:00/0000:00:05.0/host0/a", map[string]string{"device/vpd_pg80": page(0x80, "X"), "device/wwid": "naa.600508b1001c0000aaaaaaaaaaaaaaaa"})
	disk(files, "sdb", "pci0000:00/0000:00:05.0/host0/b", map[string]string{"device/vpd_pg80": page(0x80, "X"), "device/wwid": "naa.600508b1001c0000bbbbbbbbbbbbbbbb"})
	got := disks(t, files)
	if got["sda"].Multipath || got["sdb"].Multipath || got["sda"].Serial != "X" {
		t.Errorf("%+v", got)
	}
}

func TestHostileVPD(t *testing.T) {
	for _, b := range []string{"", "\x00", "\x00\x80\xff\xff", "\x00\x80\x00\x09AB", "\x00\x83\x00\x04\x01\x03\x00\xff", "\x00\x83\x00\x01\x01"} {
		_ = unitSerial([]byte(b))
		if w := designator([]byte(b)); w != "" {
			t.Errorf("%q named %q", b, w)
		}
	}
	files := map[string]string{}
	disk(files, "sda", "pci0000:00/0000:00:05.0/host0/a", map[string]string{
		"size": "99999999999999999999", "queue/logical_block_size": "many", "device/model": "\x1b[31m<script>\u202e", "device/vpd_pg80": page(0x80, "To be filled by O.E.M."),
	})
	disk(files, "sdb", "pci0000:00/0000:00:05.0/host0/b", map[string]string{"device/model": "\x1b[31m" + strings.Repeat("x", 999), "device/vpd_pg80": page(0x80, "None")})
	got := disks(t, files)
	if d := got["sdb"]; strings.ContainsRune(d.Model, 0x1b) || len(d.Model) > maxText || d.Serial != "" {
		t.Errorf("%+v", d)
	}
}
