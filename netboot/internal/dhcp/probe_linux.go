package dhcp

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"time"

	"github.com/mdlayher/packet"

	"github.com/better-compute/bcd/netboot/internal/socket"
)

// wire is a socket that questions leave by.
type wire interface {
	socket.Conn
	WriteTo(b []byte, to net.Addr) (int, error)
	Close() error
}

// everyone is the Ethernet broadcast address.
var everyone = &packet.Addr{HardwareAddr: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}

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
	return probe(ctx, c, ifi.HardwareAddr, a, time.Now)
}

// probe asks on an Ethernet socket, which it closes.
func probe(ctx context.Context, c wire, mac net.HardwareAddr, a netip.Addr, now func() time.Time) bool {
	return asked(ctx, c, arpProbe(mac, a), everyone, func() time.Time { return now().Add(probeTime) }, func(b []byte) bool { return arpSender(b) == a })
}

// asked sends a question and reports whether an answer came until a time that is read once the question is on its way. It
// closes the socket, and so does the end of ctx.
func asked(ctx context.Context, c wire, question []byte, to net.Addr, until func() time.Time, answers func(b []byte) bool) bool {
	defer func() { _ = c.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	if _, err := c.WriteTo(question, to); err != nil {
		return false
	}
	found := false
	err := socket.Collect(c, until(), make([]byte, 128), func(b []byte) bool { found = answers(b); return found })
	return err == nil && found
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
	return ping(ctx, c.(*net.IPConn), a, rand.Uint32(), time.Now)
}

// ping asks on a raw ICMP socket, which it closes.
func ping(ctx context.Context, c wire, a netip.Addr, id uint32, now func() time.Time) bool {
	return asked(ctx, c, echo(id), &net.IPAddr{IP: a.AsSlice()}, func() time.Time { return now().Add(pingTime) }, func(b []byte) bool {
		from, payload, ok := ipPayload(b)
		return ok && from == a && echoes(payload, id)
	})
}

// ipPayload takes an IPv4 packet apart that says where it is from.
func ipPayload(b []byte) (from netip.Addr, payload []byte, ok bool) {
	if len(b) < ipv4Header || b[0]>>4 != 4 {
		return from, nil, false
	}
	head := int(b[0]&15) * 4
	if head < ipv4Header || head > len(b) {
		return from, nil, false
	}
	from = addrOf(b[12:16])
	return from, b[head:], from.IsValid()
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
