package dhcp

import (
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
)

// What is heard while an address is probed is anybody's: only an ARP packet for Ethernet and IPv4 names a holder, only our own
// echo comes back.
func FuzzProbeAnswers(f *testing.F) {
	asked := arpProbe(net.HardwareAddr{2, 0, 0, 0, 0, 1}, netip.MustParseAddr("192.0.2.10"))
	f.Add(asked, uint32(1))
	answer := append([]byte(nil), asked...)
	copy(answer[28:], []byte{192, 0, 2, 10})
	f.Add(answer, uint32(2))
	back := echo(7)
	back[0] = 0
	f.Add(back, uint32(7))
	from := func(a [4]byte) []byte { return append(append([]byte{0x45, 11: 0}, a[:]...), 192, 0, 2, 1) }
	f.Add(from([4]byte{192, 0, 2, 10}), uint32(7))
	f.Add(from([4]byte{}), uint32(7)) // from nowhere
	f.Fuzz(func(t *testing.T, b []byte, id uint32) {
		if a := arpSender(b); a.IsValid() && (len(b) < 42 || binary.BigEndian.Uint16(b[12:]) != etherARP || a != netip.AddrFrom4([4]byte(b[28:32]))) {
			t.Fatalf("%x names %v", b, a)
		}
		if from, payload, ok := ipPayload(b); ok && (!from.Is4() || len(payload) > len(b)-ipv4Header) {
			t.Fatalf("%x is from %v and carries %x", b, from, payload)
		}
		if echoes(b, id) && (len(b) < 8 || binary.BigEndian.Uint32(b[4:]) != id) {
			t.Fatalf("%x is taken for our echo %x", b, id)
		}
	})
}
