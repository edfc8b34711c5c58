package efi

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"unicode/utf16"

	"github.com/better-compute/bcd/app"
)

// Node is one node of a device path. Data comes without the header.
type Node struct {
	Type, Subtype byte
	Data          []byte
}

// Types of nodes.
const (
	typeHardware  = 1
	typeACPI      = 2
	typeMessaging = 3
	typeMedia     = 4
	typeBBS       = 5
	typeEnd       = 0x7f
)

// id is a node's type and subtype as one number.
func (n Node) id() uint16 { return uint16(n.Type)<<8 | uint16(n.Subtype) }

// Nodes of which something is read.
const (
	nodePCI     = typeHardware<<8 | 1
	nodeVenHW   = typeHardware<<8 | 4
	nodeACPI    = typeACPI<<8 | 1
	nodeATAPI   = typeMessaging<<8 | 1
	nodeSCSI    = typeMessaging<<8 | 2
	nodeFC      = typeMessaging<<8 | 3
	nodeUSB     = typeMessaging<<8 | 5
	nodeVenMsg  = typeMessaging<<8 | 10
	nodeMAC     = typeMessaging<<8 | 11
	nodeIPv4    = typeMessaging<<8 | 12
	nodeIPv6    = typeMessaging<<8 | 13
	nodeUSBKind = typeMessaging<<8 | 15
	nodeUSBID   = typeMessaging<<8 | 16
	nodeSATA    = typeMessaging<<8 | 18
	nodeISCSI   = typeMessaging<<8 | 19
	nodeSASEx   = typeMessaging<<8 | 22
	nodeNVMe    = typeMessaging<<8 | 23
	nodeURI     = typeMessaging<<8 | 24
	nodeUFS     = typeMessaging<<8 | 25
	nodeSD      = typeMessaging<<8 | 26
	nodeEMMC    = typeMessaging<<8 | 29
	nodeHD      = typeMedia<<8 | 1
	nodeCD      = typeMedia<<8 | 2
	nodeFile    = typeMedia<<8 | 4
	nodeFvFile  = typeMedia<<8 | 6
	nodeFv      = typeMedia<<8 | 7
	nodeBBS     = typeBBS<<8 | 1
)

// ParsePath reads the first device path of a load option, without its end node. What cannot be read ends it: ok is false.
func ParsePath(b []byte) (nodes []Node, ok bool) {
	for len(b) >= 4 {
		n := int(binary.LittleEndian.Uint16(b[2:]))
		if n < 4 || n > len(b) {
			return nodes, false
		}
		if b[0] == typeEnd {
			return nodes, true
		}
		nodes = append(nodes, Node{b[0], b[1], b[4:n]})
		b = b[n:]
	}
	return nodes, false
}

// describe fills in what a device path says of its entry.
func describe(e *app.BootEntry, o Option) {
	nodes, ok := ParsePath(o.Path)
	e.Kind, e.Path = kindOf(nodes, o), pathText(nodes, ok, o.Path)
	http := has(nodes, nodeURI)
	for _, n := range nodes {
		switch n.id() {
		case nodeMAC:
			e.MAC = macOf(n.Data)
		case nodeIPv4:
			e.Protocol = protocol(http) + " IPv4"
		case nodeIPv6:
			e.Protocol = protocol(http) + " IPv6"
		case nodeHD:
			e.Partition = partitionOf(n.Data)
		case nodeFile:
			e.File = clean(e.File+utf16Text(n.Data), maxText)
		}
	}
	if e.Kind == app.BootNetwork && e.Protocol == "" {
		e.Protocol = protocol(http)
	}
}

func protocol(http bool) string {
	if http {
		return "HTTP"
	}
	return "PXE"
}

func has(nodes []Node, ids ...uint16) bool {
	for _, n := range nodes {
		for _, id := range ids {
			if n.id() == id {
				return true
			}
		}
	}
	return false
}

// kindOf tells what a path starts.
func kindOf(nodes []Node, o Option) string {
	switch {
	case len(nodes) == 0:
		return app.BootOther
	case nodes[0].id() == nodeBBS:
		return bbsKind(nodes[0].Data)
	case has(nodes, nodeISCSI):
		return app.BootDisk
	case has(nodes, nodeMAC, nodeIPv4, nodeIPv6, nodeURI):
		return app.BootNetwork
	case has(nodes, nodeFile):
		return app.BootSystem
	case has(nodes, nodeHD): // firmware's own entry for a disk with an EFI system partition (Dell)
		return app.BootDisk
	case has(nodes, nodeFv, nodeFvFile), o.app():
		return app.BootFirmware
	case has(nodes, nodeCD, nodeUSB, nodeUSBKind, nodeUSBID):
		return app.BootMedium
	case has(nodes, nodeATAPI, nodeSCSI, nodeFC, nodeSATA, nodeSASEx, nodeNVMe, nodeUFS, nodeSD, nodeEMMC):
		return app.BootDisk
	case nodes[len(nodes)-1].id() == nodePCI: // virtio-blk has no node of its own
		return app.BootDisk
	}
	return app.BootKindByName(o.Name())
}

// bbsKind reads the device type of the BIOS Boot Specification.
func bbsKind(b []byte) string {
	if len(b) < 2 {
		return app.BootOther
	}
	switch binary.LittleEndian.Uint16(b) {
	case 0x02:
		return app.BootDisk
	case 0x01, 0x03, 0x05:
		return app.BootMedium
	case 0x06, 0x80:
		return app.BootNetwork
	}
	return app.BootOther
}

// macOf reads the address of a MAC node, whose field has room for 32 bytes; the type follows, 1 for Ethernet.
func macOf(b []byte) string {
	if len(b) < 33 || b[32] > 1 {
		return ""
	}
	return net.HardwareAddr(b[:6]).String()
}

// partitionOf names a partition as a hard drive node does.
func partitionOf(b []byte) string {
	if len(b) < 38 {
		return ""
	}
	switch b[37] {
	case 1:
		return mbrPartition(binary.LittleEndian.Uint32(b[20:]), int(binary.LittleEndian.Uint32(b)))
	case 2:
		return gptPartition(b[20:36])
	}
	return ""
}

// signature spells a hard drive node's table and signature.
func signature(b []byte) string {
	switch b[37] {
	case 1:
		return fmt.Sprintf("MBR,0x%08x", binary.LittleEndian.Uint32(b[20:]))
	case 2:
		return "GPT," + guidText(b[20:36])
	}
	return "0,0"
}

// pathText spells a path as UEFI 2.10 section 10.6.1 does, as far as its nodes are known. A text that is too long is cut, and
// told from others by a digest.
func pathText(nodes []Node, ok bool, raw []byte) string {
	var b strings.Builder
	for i, n := range nodes {
		if i > 0 {
			b.WriteByte('/')
		}
		b.WriteString(nodeText(n))
	}
	if !ok {
		b.WriteString("/?")
	}
	s := clean(b.String(), maxOption)
	if len(s) > maxPath {
		sum := sha256.Sum256(raw)
		s = clean(s, maxPath-20) + "…#" + hex.EncodeToString(sum[:6])
	}
	return s
}

func nodeText(n Node) string {
	le, d := binary.LittleEndian, n.Data
	switch id := n.id(); {
	case id == nodePCI && len(d) >= 2:
		return fmt.Sprintf("Pci(0x%x,0x%x)", d[1], d[0])
	case id == nodeACPI && len(d) >= 8:
		if hid := le.Uint32(d); hid == 0x0a0341d0 || hid == 0x0a0841d0 {
			return fmt.Sprintf("PciRoot(0x%x)", le.Uint32(d[4:]))
		}
		return fmt.Sprintf("Acpi(0x%08x,0x%x)", le.Uint32(d), le.Uint32(d[4:]))
	case id == nodeSCSI && len(d) >= 4:
		return fmt.Sprintf("Scsi(0x%x,0x%x)", le.Uint16(d), le.Uint16(d[2:]))
	case id == nodeUSB && len(d) >= 2:
		return fmt.Sprintf("USB(0x%x,0x%x)", d[0], d[1])
	case id == nodeMAC && len(d) >= 33:
		return fmt.Sprintf("MAC(%x,0x%x)", d[:6], d[32])
	case id == nodeIPv4 && len(d) >= 8:
		return fmt.Sprintf("IPv4(%s)", netip.AddrFrom4([4]byte(d[4:8])))
	case id == nodeIPv6 && len(d) >= 32:
		return fmt.Sprintf("IPv6(%s)", netip.AddrFrom16([16]byte(d[16:32])))
	case id == nodeSATA && len(d) >= 6:
		return fmt.Sprintf("Sata(0x%x,0x%x,0x%x)", le.Uint16(d), le.Uint16(d[2:]), le.Uint16(d[4:]))
	case id == nodeNVMe && len(d) >= 12:
		return fmt.Sprintf("NVMe(0x%x,%X)", le.Uint32(d), d[4:12])
	case id == nodeURI:
		return "Uri(" + string(d) + ")"
	case id == nodeHD && len(d) >= 38:
		return fmt.Sprintf("HD(%d,%s,0x%x,0x%x)", le.Uint32(d), signature(d), le.Uint64(d[4:]), le.Uint64(d[12:]))
	case id == nodeFile:
		return utf16Text(d)
	case id == nodeFvFile && len(d) >= 16:
		return "FvFile(" + guidText(d) + ")"
	case id == nodeFv && len(d) >= 16:
		return "Fv(" + guidText(d) + ")"
	case (id == nodeVenHW || id == nodeVenMsg) && len(d) >= 16:
		return fmt.Sprintf("%s(%s,%x)", vendorWord(id), guidText(d), d[16:])
	}
	return fmt.Sprintf("Path(%d,%d,%x)", n.Type, n.Subtype, d)
}

func vendorWord(id uint16) string {
	if id == nodeVenHW {
		return "VenHw"
	}
	return "VenMsg"
}

// utf16Text reads text up to its terminator.
func utf16Text(b []byte) string {
	var u []uint16
	for i := 0; i+1 < len(b); i += 2 {
		c := binary.LittleEndian.Uint16(b[i:])
		if c == 0 {
			break
		}
		u = append(u, c)
	}
	return string(utf16.Decode(u))
}

// clean makes hostile text printable, on one line and at most limit bytes.
func clean(s string, limit int) string {
	s = strings.Map(func(r rune) rune {
		if r < 0x20 || r == 0x7f || r >= 0x80 && r < 0xa0 || r == 0x2028 || r == 0x2029 || r >= 0x202a && r <= 0x202e || r >= 0x2066 && r <= 0x2069 {
			return '�'
		}
		return r
	}, strings.ToValidUTF8(s, "�"))
	if len(s) > limit {
		s = strings.ToValidUTF8(s[:limit], "")
	}
	return s
}
