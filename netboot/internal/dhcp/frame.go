package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
)

const (
	ethernetHeader = 14
	ipv4Header     = 20
	udpHeader      = 8
)

// frame wraps a UDP payload in an Ethernet frame for a client that cannot answer ARP yet.
func frame(src, dst net.HardwareAddr, from, to netip.AddrPort, payload []byte) []byte {
	b := make([]byte, ethernetHeader+ipv4Header+udpHeader+len(payload))
	copy(b[0:6], dst)
	copy(b[6:12], src)
	binary.BigEndian.PutUint16(b[12:], 0x0800)

	ip := b[ethernetHeader:]
	ip[0] = 0x45
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)))
	ip[6] = 0x40 // do not fragment
	ip[8] = 64
	ip[9] = 17 // UDP
	s, d := from.Addr().As4(), to.Addr().As4()
	copy(ip[12:16], s[:])
	copy(ip[16:20], d[:])
	binary.BigEndian.PutUint16(ip[10:], ^sum(0, ip[:ipv4Header]))

	udp := ip[ipv4Header:]
	binary.BigEndian.PutUint16(udp[0:], from.Port())
	binary.BigEndian.PutUint16(udp[2:], to.Port())
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	copy(udp[udpHeader:], payload)
	pseudo := sum(uint32(17)+uint32(len(udp)), ip[12:20])
	check := ^sum(uint32(pseudo), udp)
	if check == 0 {
		check = 0xffff
	}
	binary.BigEndian.PutUint16(udp[6:], check)
	return b
}

// sum is the Internet checksum's one's complement sum of b, added to start.
func sum(start uint32, b []byte) uint16 {
	n := start
	for ; len(b) >= 2; b = b[2:] {
		n += uint32(binary.BigEndian.Uint16(b))
	}
	if len(b) == 1 {
		n += uint32(b[0]) << 8
	}
	for n > 0xffff {
		n = n>>16 + n&0xffff
	}
	return uint16(n)
}
