package dhcp

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

// rivalTime is how long answers to our own DISCOVERs are waited for. dnsmasq and ISC dhcpd first ping the address that
// they are about to offer, dnsmasq for up to three seconds.
const rivalTime = 4 * time.Second

// maxRivals bounds the answers that one look collects.
const maxRivals = 16

// question makes a DISCOVER as a client on an interface would broadcast it, framed for the wire. A PXE one is answered by
// proxies too, which ignore the plain one.
func question(mac net.HardwareAddr, pxe bool) (frameBytes []byte, xid dhcpv4.TransactionID, err error) {
	mods := []dhcpv4.Modifier{
		dhcpv4.WithHwAddr(mac), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), dhcpv4.WithBroadcast(true),
		dhcpv4.WithRequestedOptions(dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionBootfileName),
	}
	if pxe {
		mods = append(mods, dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003016")),
			dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(optClientArch), []byte{0, 7})))
	}
	m, err := dhcpv4.New(mods...)
	if err != nil {
		return nil, xid, fmt.Errorf("making a DISCOVER: %w", err)
	}
	all := net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	from := netip.AddrPortFrom(netip.IPv4Unspecified(), ClientPort)
	return frame(mac, all, from, netip.AddrPortFrom(broadcast.Addr(), ServerPort), m.ToBytes()), m.TransactionID, nil
}

// rivalOf reads an Ethernet frame that answers one of our questions. It reports false for any other.
func rivalOf(b []byte, asked func(dhcpv4.TransactionID) bool) (app.Rival, bool) {
	payload, ok := clientPayload(b)
	if !ok {
		return app.Rival{}, false
	}
	m, err := dhcpv4.FromBytes(payload)
	if err != nil || m.OpCode != dhcpv4.OpcodeBootReply || !asked(m.TransactionID) || m.MessageType() == dhcpv4.MessageTypeNak {
		return app.Rival{}, false
	}
	r := app.Rival{
		Server: firstValid(addrOf(m.ServerIdentifier()), sourceOf(b)), Offered: addrOf(m.YourIPAddr), Next: addrOf(m.ServerIPAddr),
		BootFile: text([]byte(m.BootFileName)),
	}
	if mac, err := app.MACFromBytes(b[6:12]); err == nil {
		r.MAC = mac
	}
	if routers := m.Router(); len(routers) > 0 {
		r.Gateway = addrOf(routers[0])
	}
	if r.BootFile == "" {
		r.BootFile = text(m.Options.Get(dhcpv4.OptionBootfileName))
	}
	return r, r.Server.IsValid()
}

// clientPayload takes the UDP payload out of an Ethernet frame that a server sent to the client port.
func clientPayload(b []byte) ([]byte, bool) {
	if len(b) < ethernetHeader+ipv4Header+udpHeader || binary.BigEndian.Uint16(b[12:]) != 0x0800 {
		return nil, false
	}
	ip := b[ethernetHeader:]
	head := int(ip[0]&15) * 4
	if ip[0]>>4 != 4 || head < ipv4Header || len(ip) < head+udpHeader || ip[9] != 17 || binary.BigEndian.Uint16(ip[6:])&0x3fff != 0 { // no fragments
		return nil, false
	}
	udp := ip[head:]
	n := int(binary.BigEndian.Uint16(udp[4:]))
	if binary.BigEndian.Uint16(udp[2:]) != ClientPort || n < udpHeader || n > len(udp) {
		return nil, false
	}
	return udp[udpHeader:n], true
}

func sourceOf(frame []byte) netip.Addr { return addrOf(frame[ethernetHeader+12 : ethernetHeader+16]) }

// mergeRival adds what a server answered. Its answers to the two questions make one rival.
func mergeRival(all []app.Rival, r app.Rival) []app.Rival {
	for i := range all {
		old := &all[i]
		if old.Server != r.Server {
			continue
		}
		if !old.Offered.IsValid() {
			old.Offered = r.Offered
		}
		if !old.Gateway.IsValid() {
			old.Gateway = r.Gateway
		}
		if old.BootFile == "" {
			old.BootFile, old.Next = r.BootFile, r.Next
		}
		return all
	}
	if len(all) >= maxRivals {
		return all
	}
	return append(all, r)
}
