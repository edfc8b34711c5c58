package app

import (
	"regexp"
	"strings"
)

var (
	networkNameRE  = regexp.MustCompile(`(?i)\b(pxe|network|nic|http|https|ipv[46]|ip[46])(v[46])?\b`)
	diskNameRE     = regexp.MustCompile(`(?i)\b(hard ?(disk|drive)|hdd|nvme|sata|ssd|raid)\b`)
	mediumNameRE   = regexp.MustCompile(`(?i)\b(cd|dvd|cdrom|cd/dvd|usb|floppy|virtual media)\b`)
	firmwareNameRE = regexp.MustCompile(`(?i)\b(shell|setup|diagnostics?|menu)\b`)
)

// BootKindByName guesses what an entry starts from its name. Makers hide devices behind paths of their own (Dell, Lenovo:
// VenHw), and some BMCs give no path at all (Supermicro).
func BootKindByName(name string) string {
	switch {
	case networkNameRE.MatchString(name):
		return BootNetwork
	case firmwareNameRE.MatchString(name):
		return BootFirmware
	case mediumNameRE.MatchString(name):
		return BootMedium
	case diskNameRE.MatchString(name):
		return BootDisk
	}
	return BootOther
}

var (
	hdRE  = regexp.MustCompile(`(?i)\bHD\((\d{1,3}),(GPT|MBR),(?:0x)?([0-9a-f-]{8,36})[,)]`)
	macRE = regexp.MustCompile(`(?i)\bMAC\(([0-9a-f]{12})[,)]`)
)

// BootEntryOfPath reads what a UEFI device path, spelt as text, says of an entry. What it does not say its name may.
func BootEntryOfPath(id, name, path string) BootEntry {
	e := BootEntry{ID: id, Name: name, Path: path, Kind: textKind(path)}
	if m := hdRE.FindStringSubmatch(path); m != nil {
		e.Partition = "gpt:" + strings.ToLower(m[3])
		if strings.EqualFold(m[2], "MBR") {
			e.Partition = "mbr:" + strings.ToLower(m[3]) + "-" + m[1]
		}
	}
	if i := strings.IndexByte(path, '\\'); i >= 0 && e.Kind == BootSystem {
		e.File = path[i:]
	}
	if m := macRE.FindStringSubmatch(path); m != nil {
		if mac, err := ParseMAC(m[1]); err == nil {
			e.MAC = string(mac)
		}
	}
	if e.Kind == BootOther {
		e.Kind = BootKindByName(name)
	}
	if e.Kind == BootNetwork {
		e.Protocol = protocolOf(path + " " + name)
	}
	return e
}

// textKind is the kind that a path's nodes tell.
func textKind(path string) string {
	has := func(nodes ...string) bool {
		for _, n := range nodes {
			if strings.Contains(path, n+"(") {
				return true
			}
		}
		return false
	}
	switch {
	case has("iSCSI"):
		return BootDisk
	case has("MAC", "Uri", "IPv4", "IPv6"):
		return BootNetwork
	case strings.Contains(path, `\`):
		return BootSystem
	case has("HD"):
		return BootDisk
	case has("Fv", "FvFile", "VenMedia"):
		return BootFirmware
	case has("UsbClass", "USB", "UsbWwid", "CDROM"):
		return BootMedium
	case has("NVMe", "Sata", "Scsi", "SAS", "Ata", "Fibre", "UFS", "SD", "eMMC"):
		return BootDisk
	}
	return BootOther
}

func protocolOf(text string) string {
	text = strings.ToLower(text)
	p := "PXE"
	if strings.Contains(text, "uri(") || strings.Contains(text, "http") {
		p = "HTTP"
	}
	switch {
	case strings.Contains(text, "ipv6"), strings.Contains(text, "ip6"), strings.Contains(text, "pxev6"):
		return p + " IPv6"
	case strings.Contains(text, "ipv4"), strings.Contains(text, "ip4"), strings.Contains(text, "pxev4"):
		return p + " IPv4"
	}
	return p
}
