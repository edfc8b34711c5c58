package dhcp

import (
	"bytes"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

func TestOfferCarriesTheSubnet(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	offer, _ := r.ask(discover(mac(1)))
	if !lan.CIDR.Contains(addrOf(offer.YourIPAddr)) || offer.IPAddressLeaseTime(0).Hours() != 1 || offer.IPAddressRenewalTime(0).Minutes() != 30 ||
		offer.SubnetMask().String() != "ffffff00" || !offer.Router()[0].Equal(lan.Gateway.AsSlice()) || !offer.DNS()[0].Equal(lan.DNS[0].AsSlice()) ||
		offer.DomainName() != "example" || !offer.ServerIdentifier().Equal(serverIP.AsSlice()) {
		t.Error(offer.Summary())
	}
	if offer.BootFileName != "" || len(hasAny(offer, 60, 66, 67, 97, 175)) > 0 {
		t.Errorf("an operating system was given boot options: %v", offer.Summary())
	}
}

// Case 1: HTTP Boot gets an URL and its class back, PXE gets neither.
func TestHTTPBootAndPXE(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	offer, _ := r.ask(discover(mac(1), raw(60, []byte("HTTPClient:Arch:00016:UNDI:003001")...), raw(93, 0, 16), raw(97, make([]byte, 17)...)))
	if got := string(offer.Options[60]); got != "HTTPClient" {
		t.Errorf("class is %q", got)
	}
	if !strings.HasPrefix(offer.BootFileName, "http://192.0.2.1:8080/ipxe/") || !strings.HasSuffix(offer.BootFileName, ".efi") || len(hasAny(offer, 66)) > 0 {
		t.Errorf("boot file is %q, options %v", offer.BootFileName, offer.Options)
	}
	offer, _ = r.ask(discover(mac(2), pxeX64))
	if offer.BootFileName != "snponly.efi" || !bytes.Equal(offer.Options[67], []byte("snponly.efi")) || string(offer.Options[66]) != "192.0.2.1" ||
		!offer.ServerIPAddr.Equal(serverIP.AsSlice()) {
		t.Errorf("PXE was offered %v", offer.Summary())
	}
	if len(hasAny(offer, 60, 43)) > 0 { // case 5: with 60 and without 43, EDK2 would ask port 4011
		t.Error("the PXE offer carries option 60 or 43")
	}
}

// Case 3, through the wire, and the option that saves iPXE three seconds.
func TestIPXEGetsItsScript(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	for _, user := range []string{"iPXE", "\x04iPXE", "\x03foo\x04iPXE", "iPXE\x00"} {
		offer, _ := r.ask(discover(mac(1), pxeX64, raw(77, []byte(user)...)))
		if offer.BootFileName != "http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01" {
			t.Errorf("%q: %q", user, offer.BootFileName)
		}
		if !bytes.Equal(offer.Options[175], []byte{176, 1, 1}) {
			t.Errorf("%q: option 175 is %x", user, offer.Options[175])
		}
	}
	offer, _ := r.ask(discover(mac(1), pxeX64, raw(77, []byte("foo")...)))
	if offer.BootFileName != "snponly.efi" || len(hasAny(offer, 175)) > 0 {
		t.Errorf("user class foo: %v", offer.Summary())
	}
}

// Case 7.
func TestRelayedRequests(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan, remote})
	relayed := func(gi string) dhcpv4.Modifier {
		return func(d *dhcpv4.DHCPv4) {
			d.GatewayIPAddr, d.HopCount, d.Flags = net.ParseIP(gi).To4(), 1, 0x8000
			d.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte("\x01\x04port")))
		}
	}
	offer, rep := r.ask(discover(mac(1), relayed("198.51.100.1")))
	if rep.To != netip.AddrPortFrom(relayIP, 67) || rep.HW != nil {
		t.Errorf("sent to %v %v", rep.To, rep.HW)
	}
	if !offer.GatewayIPAddr.Equal(relayIP.AsSlice()) || offer.Flags != 0x8000 || !remote.CIDR.Contains(addrOf(offer.YourIPAddr)) ||
		string(offer.Options[82]) != "\x01\x04port" {
		t.Error(offer.Summary())
	}
	r.silent(discover(mac(2), relayed("203.0.113.1")))

	ack, _ := r.ask(selecting(mac(1), offer, relayed("198.51.100.1")))
	renew := renewing(mac(1), ack.YourIPAddr.String()) // straight to the server, without the relay
	r.send(renew.ToBytes(), serverIP)
	rep = <-r.conn.out
	if got, err := dhcpv4.FromBytes(rep.Payload); err != nil || got.MessageType() != dhcpv4.MessageTypeAck || rep.To != netip.AddrPortFrom(addrOf(ack.YourIPAddr), 68) {
		t.Errorf("renewal: %v to %v", got, rep.To)
	}
}

// Case 9.
func TestBroadcastFlag(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	offer, rep := r.ask(discover(mac(1), func(d *dhcpv4.DHCPv4) { d.Flags = 0x8000 }))
	if offer.Flags != 0x8000 || rep.To.String() != "255.255.255.255:68" || rep.HW != nil {
		t.Errorf("flag set: flags %x to %v %v", offer.Flags, rep.To, rep.HW)
	}
	offer, rep = r.ask(discover(mac(1)))
	if offer.Flags != 0 || rep.To != netip.AddrPortFrom(addrOf(offer.YourIPAddr), 68) || rep.HW.String() != string(mac(1)) {
		t.Errorf("flag clear: flags %x to %v %v", offer.Flags, rep.To, rep.HW)
	}
	if rep.Source != serverIP {
		t.Errorf("source is %v", rep.Source)
	}
}

// Case 11.
func TestInform(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	inform := func(a string) *dhcpv4.DHCPv4 {
		return message(dhcpv4.MessageTypeInform, mac(1), func(d *dhcpv4.DHCPv4) { d.ClientIPAddr = net.ParseIP(a).To4() }, raw(55, 1, 3, 6))
	}
	ack, rep := r.ask(inform("192.0.2.150"))
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.IsUnspecified() || len(hasAny(ack, 51, 58, 59)) > 0 || len(ack.Router()) != 1 {
		t.Error(ack.Summary())
	}
	if rep.To.String() != "192.0.2.150:68" || rep.HW != nil {
		t.Errorf("sent to %v %v", rep.To, rep.HW)
	}
	if len(r.store.of(mac(1))) > 0 {
		t.Error("an INFORM made a lease")
	}
	r.silent(inform("203.0.113.5"), inform("0.0.0.0"))
}

// Case 15.
func TestLongBootFile(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	r.clients.file = "http://192.0.2.1:8080/" + strings.Repeat("x", 278)
	offer, rep := r.ask(discover(mac(1), pxeX64, raw(57, 0x05, 0xdc)))
	if string(offer.Options[67]) != r.clients.file || offer.BootFileName != "" {
		t.Errorf("option 67 has %d octets", len(offer.Options[67]))
	}
	if !bytes.Contains(rep.Payload, append([]byte{67, 255}, r.clients.file[:255]...)) ||
		!bytes.Contains(rep.Payload, append([]byte{67, 45}, r.clients.file[255:]...)) {
		t.Error("not two instances of 255 and 45 octets")
	}
	if len(rep.Payload) > 1500-28 {
		t.Errorf("%d octets", len(rep.Payload))
	}
	r.silent(discover(mac(2), pxeX64, raw(57, 0x02, 0x40))) // 576: cannot fit
	r.recorded("dhcp.failed", 1)
	r.clients.file = "http://192.0.2.1:8080/" + strings.Repeat("x", 100)
	_, rep = r.ask(discover(mac(3), pxeX64, raw(57, 0x02, 0x40)))
	if len(rep.Payload) > 548 {
		t.Errorf("%d octets for a client that takes 548", len(rep.Payload))
	}
	_, rep = r.ask(discover(mac(4), pxeX64, raw(57, 0, 1))) // less than the minimum counts as the minimum
	if len(rep.Payload) < 300 || len(rep.Payload) > 548 {
		t.Errorf("%d octets", len(rep.Payload))
	}
}

// Case 17.
func TestROMWithoutGUID(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	rom := []dhcpv4.Modifier{raw(60, []byte("PXEClient:Arch:00000:UNDI:002001")...), raw(93, 0, 0)}
	offer, _ := r.ask(discover(mac(1), rom...))
	ack, _ := r.ask(selecting(mac(1), offer, rom...))
	for _, m := range []*dhcpv4.DHCPv4{offer, ack} {
		if m.BootFileName != "undionly.kpxe" || len(hasAny(m, 97)) > 0 {
			t.Error(m.Summary())
		}
	}
	with, _ := r.ask(discover(mac(2), pxeX64))
	if len(with.Options[97]) != 17 {
		t.Error("a GUID that was sent was not echoed")
	}
}

// Case 19: the client-id is echoed and means nothing.
func TestClientIDsComeAndGo(t *testing.T) {
	for _, reserved := range []string{"", "192.0.2.200"} {
		r := start(t, newStore(), []app.Subnet{lan})
		if reserved != "" {
			r.clients.reserved[mac(1)] = netip.MustParseAddr(reserved)
		}
		seen := map[netip.Addr]bool{}
		for _, id := range []string{"\x00" + strings.Repeat("g", 16), "\x01\x00\x00\x5e\x00\x53\x01", "\xffiaid" + strings.Repeat("d", 10), ""} {
			var mods []dhcpv4.Modifier
			if id != "" {
				mods = append(mods, raw(61, []byte(id)...))
			}
			offer, _ := r.ask(discover(mac(1), mods...))
			if string(offer.Options[61]) != id {
				t.Errorf("client-id %q came back as %q", id, offer.Options[61])
			}
			seen[r.dora(mac(1), mods...)] = true
		}
		if len(seen) != 1 || reserved != "" && !seen[netip.MustParseAddr(reserved)] {
			t.Errorf("reserved %q: addresses %v", reserved, seen)
		}
		if n := len(r.store.of(mac(1))); n != 1 {
			t.Errorf("%d leases stored", n)
		}
	}
}

func TestNothingIsAnsweredInListenMode(t *testing.T) {
	off := lan
	off.Mode = "off"
	r := start(t, newStore(), []app.Subnet{off})
	r.send(renewing(mac(9), "192.0.2.9").ToBytes(), serverIP)
	for i := range 3 {
		r.send(discover(mac(i+1), pxeX64).ToBytes(), netip.Addr{})
	}
	if n := r.drain(); n != 0 {
		t.Errorf("%d answers left in listen mode", n)
	}
	if heard := r.kinds(); !slices.Equal(heard, []string{"dhcp.heard", "dhcp.heard", "dhcp.heard"}) {
		t.Errorf("recorded %v", heard)
	}
}

func TestGarbageIsIgnored(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	good := discover(mac(1), pxeX64).ToBytes()
	for n := range good {
		if n < 243 { // from there on the packet is whole but for options
			r.send(good[:n], netip.Addr{})
		}
	}
	for _, change := range []func(*dhcpv4.DHCPv4){
		func(d *dhcpv4.DHCPv4) { d.OpCode = dhcpv4.OpcodeBootReply },
		func(d *dhcpv4.DHCPv4) { d.HWType = 32 },
		func(d *dhcpv4.DHCPv4) { d.ClientHWAddr = make([]byte, 6) },
		func(d *dhcpv4.DHCPv4) { d.ClientHWAddr = []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff} },
		func(d *dhcpv4.DHCPv4) { d.ClientHWAddr = make([]byte, 16) },
		func(d *dhcpv4.DHCPv4) { delete(d.Options, 53) },
		func(d *dhcpv4.DHCPv4) { d.Options[53] = []byte{99} },
	} {
		m := discover(mac(1))
		change(m)
		r.send(m.ToBytes(), netip.Addr{})
	}
	r.silent()
}
