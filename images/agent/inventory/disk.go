package inventory

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// notDisks are block devices that hold no disk of the machine: made by the kernel, optical, or a path of a multipath disk.
var notDisks = regexp.MustCompile(`^(loop|ram|zram|dm-|md|nbd|sr|fd|mtdblock|nvme\d+c\d+n)`)

// Disks lists the whole disks of the machine. A disk without a medium is none.
func (c *Collector) Disks(ctx context.Context) ([]agentv1.Disk, error) {
	dir := filepath.Join(c.cfg.Sys, "block")
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("listing block devices: %w", err)
	}
	var out []agentv1.Disk
	for _, e := range entries {
		name := e.Name()
		at := filepath.Join(dir, name)
		if notDisks.MatchString(name) || read(at, "hidden") == "1" || strings.Contains(name, "boot") && strings.HasPrefix(name, "mmcblk") {
			continue
		}
		if ctx.Err() != nil {
			return out, ctx.Err()
		}
		if d := readDisk(at, name); d.Bytes > 0 {
			if len(out) == maxDisks {
				return out, fmt.Errorf("there are more than %d disks", maxDisks)
			}
			out = append(out, d)
		}
	}
	markMultipath(out)
	return out, nil
}

func readDisk(at, name string) agentv1.Disk {
	path, err := filepath.EvalSymlinks(at)
	if err != nil {
		path = at
	}
	dev := filepath.Join(at, "device")
	sectors, _ := strconv.ParseInt(read(at, "size"), 10, 64)
	d := agentv1.Disk{
		Name: name, Bytes: max(sectors, 0) * 512, // the kernel counts in 512 bytes whatever the sector size
		SectorSize: number(read(at, "queue/logical_block_size")), Physical: number(read(at, "queue/physical_block_size")),
		Rotational: read(at, "queue/rotational") == "1", Removable: read(at, "removable") == "1", ReadOnly: read(at, "ro") == "1",
		Model: text(read(dev, "model")), Vendor: text(read(dev, "vendor")),
		Transport: transport(path, name, dev), Controller: controller(path),
		Serial: diskSerial(at, dev), WWN: diskWWN(at, dev),
		Multipath: heldByMultipath(at),
	}
	if d.Transport == "virtio" {
		d.Vendor = "" // the PCI vendor id
	}
	if d.Transport == "mmc" && d.Model == "" {
		d.Model = text(read(dev, "name"))
	}
	d.Virtual = bmcMedium(d)
	d.ByID = byID(d)
	return d
}

var (
	ataPort    = regexp.MustCompile(`/ata\d+/`)
	sasPort    = regexp.MustCompile(`/(end_device|expander)-\d`)
	iscsiPort  = regexp.MustCompile(`/session\d+/`)
	fcPort     = regexp.MustCompile(`/rport-\d`)
	virtioDisk = regexp.MustCompile(`/virtio\d+/block/`)
	pciAddress = regexp.MustCompile(`[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]`)
)

// transport tells from a disk's place in the device tree how it is attached. USB comes first: a bridge shows what is behind it.
func transport(path, name, dev string) string {
	switch {
	case strings.HasPrefix(name, "nvme"):
		if t := read(dev, "transport"); t != "" && t != "pcie" {
			return "nvme-" + text(t)
		}
		return "nvme"
	case strings.HasPrefix(name, "mmcblk"):
		return "mmc"
	case strings.Contains(path, "/usb"):
		return "usb"
	case virtioDisk.MatchString(path):
		return "virtio"
	case iscsiPort.MatchString(path):
		return "iscsi"
	case fcPort.MatchString(path):
		return "fc"
	case sasPort.MatchString(path):
		return "sas"
	case ataPort.MatchString(path):
		return "sata"
	}
	return "scsi"
}

// controller is the PCI address nearest to the disk.
func controller(path string) string {
	all := pciAddress.FindAllString(path, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// diskSerial reads the serial number where the kind of disk keeps it: virtio, NVMe and MMC in "serial", SCSI and ATA in the
// unit serial number page of their vital product data.
func diskSerial(at, dev string) string {
	for _, s := range []string{read(at, "serial"), read(dev, "serial"), unitSerial(readBytes(filepath.Join(dev, "vpd_pg80"), maxFile))} {
		if s = app.CleanSerial(text(s)); s != "" {
			return s
		}
	}
	return ""
}

// unitSerial decodes VPD page 0x80: four bytes of header, then text.
func unitSerial(b []byte) string {
	if len(b) < 4 || b[1] != 0x80 {
		return ""
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	return string(b[4 : 4+min(n, len(b)-4)])
}

// diskWWN gives the world-wide name: "eui.…", "uuid.…" or "nvme.…" of NVMe, else "0x…" of the NAA designator.
func diskWWN(at, dev string) string {
	for _, w := range []string{read(at, "wwid"), designator(readBytes(filepath.Join(dev, "vpd_pg83"), maxFile)), read(dev, "wwid")} {
		w = strings.ToLower(text(w))
		if hexed, ok := strings.CutPrefix(w, "naa."); ok && isHex(hexed) {
			return "0x" + hexed
		}
		for _, p := range []string{"eui.", "uuid.", "nvme."} {
			if rest, ok := strings.CutPrefix(w, p); ok && strings.Trim(rest, "0-") != "" {
				return w
			}
		}
	}
	return ""
}

func isHex(s string) bool {
	b, err := hex.DecodeString(s)
	return err == nil && len(b) >= 8 && strings.Trim(s, "0") != ""
}

// designator finds the logical unit's NAA name in VPD page 0x83, else its EUI-64, in the form of the kernel's wwid.
func designator(b []byte) string {
	if len(b) < 4 || b[1] != 0x83 {
		return ""
	}
	n := int(binary.BigEndian.Uint16(b[2:]))
	b = b[4 : 4+min(n, len(b)-4)]
	eui := ""
	for len(b) >= 4 {
		size := int(b[3])
		if 4+size > len(b) {
			break
		}
		id, unit := b[4:4+size], b[1]>>4&3 == 0 // of the logical unit, not of a port
		switch b[1] & 0xf {
		case 3:
			if unit && (size == 8 || size == 16) {
				return "naa." + hex.EncodeToString(id)
			}
		case 2:
			if unit && size >= 8 {
				eui = "eui." + hex.EncodeToString(id)
			}
		}
		b = b[4+size:]
	}
	return eui
}

// byID spells the disk as udev would under /dev/disk/by-id.
func byID(d agentv1.Disk) []string {
	var out []string
	switch {
	case strings.HasPrefix(d.WWN, "0x"):
		out = append(out, "wwn-"+d.WWN)
	case d.WWN != "":
		out = append(out, "nvme-"+d.WWN)
	}
	if d.Serial != "" && d.Transport == "virtio" {
		out = append(out, "virtio-"+d.Serial)
	}
	return out
}

// heldByMultipath reports whether device-mapper multipath holds the disk.
func heldByMultipath(at string) bool {
	held, _ := filepath.Glob(filepath.Join(at, "holders/dm-*/dm/uuid"))
	for _, h := range held {
		if strings.HasPrefix(string(readBytes(h, maxFile)), "mpath-") {
			return true
		}
	}
	return false
}

// markMultipath marks disks that are several paths to one: same name, same serial, same size.
func markMultipath(disks []agentv1.Disk) {
	first := map[string]int{}
	for i, d := range disks {
		if d.WWN == "" {
			continue
		}
		key := fmt.Sprintf("%s/%s/%d", d.WWN, d.Serial, d.Bytes)
		if j, ok := first[key]; ok {
			disks[i].Multipath, disks[j].Multipath = true, true
			continue
		}
		first[key] = i
	}
}

// bmcMedia are the names under which BMCs show the medium an operator inserted, with the makers known for each.
var bmcMedia = []string{
	"virtual hdisk", "virtual cdrom", "virtual floppy", "virtual media", // AMI MegaRAC: Supermicro, ASRock Rack, Gigabyte, Quanta
	"virtual disk0", "idrac", "lcdrive", "vflash", // Dell iDRAC
	"ilo ", "ilo-", "virtual dvd-rom", // HPE iLO
	"xclarity", "imm2", // Lenovo
	"file-stor gadget", "file-cd gadget", "file-backed", // OpenBMC and other Linux gadgets
	"hermon", "cisco vkvm", "kvm-mapped", "kvm vmedia", "openbmc", // Lenovo TSM, Cisco IMC, OpenBMC
}

// bmcMedium reports whether a disk is a BMC's virtual medium: on USB, under a name BMCs use.
func bmcMedium(d agentv1.Disk) bool {
	if d.Transport != "usb" {
		return false
	}
	name := strings.ToLower(d.Vendor + " " + d.Model)
	for _, m := range bmcMedia {
		if strings.Contains(name, m) {
			return true
		}
	}
	return false
}
