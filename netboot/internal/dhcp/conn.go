package dhcp

import (
	"net"
	"net/netip"
)

// Ports of RFC 2131.
const (
	ServerPort = 67
	ClientPort = 68
)

// maxDatagram bounds what is read: no client may send more than an Ethernet frame carries.
const maxDatagram = 1500

// Conn carries DHCP datagrams of one interface. Its methods may be called by several goroutines.
type Conn interface {
	// Read waits for the next datagram and says where it came from and to which address it was sent.
	Read(buf []byte) (n int, from netip.AddrPort, to netip.Addr, err error)
	// Write sends a reply from the server port.
	Write(Reply) error
	Close() error
}

// Reply is one datagram to send.
type Reply struct {
	Payload []byte
	Source  netip.Addr     // our address
	To      netip.AddrPort // destination; 255.255.255.255:68 for broadcast
	HW      net.HardwareAddr
	// HW, when set, is the Ethernet address of a client that has no address yet and cannot answer ARP for To: the
	// datagram is framed by hand.
}

// Interface is a local interface that requests arrive on.
type Interface struct {
	Name  string
	Addrs []netip.Addr // our IPv4 addresses on it
}

var broadcast = netip.AddrPortFrom(netip.AddrFrom4([4]byte{255, 255, 255, 255}), ClientPort)
