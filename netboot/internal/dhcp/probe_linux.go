package dhcp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/packet"
)

// probeTime is how long an ARP probe waits: firmware asks again after a second at the earliest, and a host on the same
// wire answers in a few milliseconds.
const probeTime = 200 * time.Millisecond

const etherARP = 0x0806

// Probe asks by ARP whether anyone on the interface has the address (RFC 5227). The socket belongs to the network
// namespace of the calling thread. What cannot be asked counts as not in use.
func Probe(ctx context.Context, ifi *net.Interface, a netip.Addr) bool {
	c, err := packet.Listen(ifi, packet.Raw, etherARP, nil)
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(probeTime))
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	if _, err := c.WriteTo(arpProbe(ifi.HardwareAddr, a), &packet.Addr{HardwareAddr: all}); err != nil {
		return false
	}
	buf := make([]byte, 128)
	for {
		n, _, err := c.ReadFrom(buf)
		if err != nil {
			return false
		}
		if arpSender(buf[:n]) == a {
			return true
		}
	}
}

// arpProbe is an Ethernet broadcast that asks who has a, with no sender address so that no cache is touched.
func arpProbe(src net.HardwareAddr, a netip.Addr) []byte {
	b := make([]byte, 42)
	for i := range 6 {
		b[i] = 0xff
	}
	copy(b[6:12], src)
	binary.BigEndian.PutUint16(b[12:], etherARP)
	copy(b[14:], []byte{0, 1, 8, 0, 6, 4, 0, 1})
	copy(b[22:28], src)
	ip := a.As4()
	copy(b[38:42], ip[:])
	return b
}

// arpSender is the protocol address of an ARP packet's sender, invalid for anything else.
func arpSender(b []byte) netip.Addr {
	if len(b) < 42 || binary.BigEndian.Uint16(b[12:]) != etherARP || b[16] != 8 || b[17] != 0 || b[19] != 4 {
		return netip.Addr{}
	}
	return netip.AddrFrom4([4]byte(b[28:32]))
}

// pingTime is how long an echo is waited for: the client's subnet is some routers away, and the last of them may have to
// ask for the host's Ethernet address first.
const pingTime = 500 * time.Millisecond

// Ping asks by ICMP echo whether anyone has an address that is out of ARP's reach. The socket belongs to the network
// namespace of the calling thread. What cannot be asked counts as not in use.
func Ping(ctx context.Context, a netip.Addr) bool {
	c, err := new(net.ListenConfig).ListenPacket(ctx, "ip4:icmp", "0.0.0.0")
	if err != nil {
		return false
	}
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	_ = c.SetReadDeadline(time.Now().Add(pingTime))
	id := rand.Uint32()
	if _, err := c.WriteTo(echo(id), &net.IPAddr{IP: a.AsSlice()}); err != nil {
		return false
	}
	buf := make([]byte, 128)
	for {
		n, from, err := c.ReadFrom(buf)
		if err != nil {
			return false
		}
		if ip, ok := from.(*net.IPAddr); ok && addrOf(ip.IP) == a && echoes(buf[:n], id) {
			return true
		}
	}
}

// echo is an ICMP echo request whose identifier and sequence number are id.
func echo(id uint32) []byte {
	b := make([]byte, 16)
	b[0] = 8
	binary.BigEndian.PutUint32(b[4:], id)
	binary.BigEndian.PutUint16(b[2:], ^sum(0, b))
	return b
}

// echoes reports the reply to echo(id).
func echoes(b []byte, id uint32) bool {
	return len(b) >= 8 && b[0] == 0 && b[1] == 0 && binary.BigEndian.Uint32(b[4:]) == id
}
