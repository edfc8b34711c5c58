package dhcp

import (
	"net"
	"net/netip"
)

// Ports of RFC 2131 and of the PXE specification.
const (
	ServerPort = 67
	ClientPort = 68
	PXEPort    = 4011 // where clients of a proxy ask for their boot file
)

// maxDatagram bounds what is read: no client may send more than an Ethernet frame carries.
const maxDatagram = 1500

// Meta says how a datagram came.
type Meta struct {
	From    netip.AddrPort
	To      netip.Addr // the address it was sent to
	IfIndex int        // of the interface it came in on
}

// Conn carries DHCP datagrams of one interface, or of all. Its methods may be called by several goroutines.
type Conn interface {
	// Read waits for the next datagram.
	Read(buf []byte) (n int, m Meta, err error)
	// Write sends a reply from the connection's port.
	Write(Reply) error
	Close() error
}

// Reply is one datagram to send.
type Reply struct {
	Payload []byte
	Source  netip.Addr     // our address
	To      netip.AddrPort // destination; 255.255.255.255:68 for broadcast
	IfIndex int            // interface to leave by: the one the request came in on
	HW      net.HardwareAddr
	// HW, when set, is the Ethernet address of a client that has no address yet and cannot answer ARP for To: the
	// datagram is framed by hand.
}

// Interface is a local interface that requests arrive on. Without a name it stands for all of them, where only requests
// that came through a relay are answered.
type Interface struct {
	Name  string
	Addrs []netip.Addr // our IPv4 addresses on it
}

var broadcast = netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), ClientPort)
