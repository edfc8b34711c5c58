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

// beside is the LAN with another server that gives the addresses.
func beside(mode string) app.Subnet {
	s := lan
	s.Mode, s.PoolStart, s.PoolEnd = mode, netip.Addr{}, netip.Addr{}
	return s
}

var (
	leaseCodes = []uint8{1, 3, 6, 15, 28, 42, 51, 58, 59, 121}
	ipxe       = raw(77, []byte("iPXE")...)
	httpBoot   = []dhcpv4.Modifier{raw(60, []byte("HTTPClient:Arch:00016:UNDI:003001")...), raw(93, 0, 16), raw(97, make([]byte, 17)...)}
)

// Case 5: the offer of a proxy holds no lease, and options 43 and 60 in the form that EDK2 takes at once.
func TestProxyOffer(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{beside(app.SubnetProxy)})
	for name, c := range map[string]struct {
		mods  []dhcpv4.Modifier
		class string
		file  string
	}{
		"x64 firmware": {[]dhcpv4.Modifier{pxeX64}, "PXEClient", "snponly.efi"},
		"BIOS ROM":     {[]dhcpv4.Modifier{raw(60, []byte("PXEClient:Arch:00000:UNDI:002001")...), raw(93, 0, 0)}, "PXEClient", "undionly.kpxe"},
		"iPXE":         {[]dhcpv4.Modifier{pxeX64, ipxe}, "PXEClient", "http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01"},
		"HTTP Boot":    {httpBoot, "HTTPClient", "http://192.0.2.1:8080/ipxe/snponly.efi"},
	} {
		t.Run(name, func(t *testing.T) {
			m := discover(mac(1), c.mods...)
			offer, rep := r.ask(m)
			if offer.MessageType() != dhcpv4.MessageTypeOffer || !offer.YourIPAddr.IsUnspecified() || !offer.ServerIPAddr.Equal(serverIP.AsSlice()) ||
				!offer.ServerIdentifier().Equal(serverIP.AsSlice()) || string(offer.Options[60]) != c.class || offer.BootFileName != c.file {
				t.Error(offer.Summary())
			}
			if found := hasAny(offer, append(slices.Clone(leaseCodes), 175)...); len(found) > 0 {
				t.Errorf("the offer holds options %v", found)
			}
			if want := map[bool]string{true: "\x06\x01\x08\xff"}[c.class == "PXEClient"]; string(offer.Options[43]) != want {
				t.Errorf("option 43 is %x", offer.Options[43])
			}
			if !bytes.Equal(offer.Options[97], m.Options[97]) {
				t.Errorf("option 97 is %x", offer.Options[97])
			}
			if rep.To != broadcast || rep.Source != serverIP || rep.IfIndex != 7 {
				t.Errorf("sent to %v from %v by %d", rep.To, rep.Source, rep.IfIndex)
			}
		})
	}
	if len(r.store.leases) != 0 {
		t.Error("a proxy stored leases")
	}
}

// Cases 5 and 17: port 4011 says the boot file, to ROMs without a GUID or boot item too.
func TestPort4011(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{beside(app.SubnetProxy)})
	conn, _ := r.pxe()
	rom := []dhcpv4.Modifier{raw(60, []byte("PXEClient:Arch:00000:UNDI:002001")...), raw(93, 0, 0)}
	from := netip.MustParseAddrPort("192.0.2.77:4011")
	for name, c := range map[string]struct {
		m      *dhcpv4.DHCPv4
		from   netip.AddrPort
		to     netip.AddrPort
		file   string
		vendor string
	}{
		"EDK2":           {message(dhcpv4.MessageTypeRequest, mac(1), pxeX64, raw(43, 6, 1, 8, 0xff), withCiaddr("192.0.2.77")), from, from, "snponly.efi", "\x06\x01\x08\xff"},
		"ROM without 97": {message(dhcpv4.MessageTypeRequest, mac(1), append(rom, withCiaddr("192.0.2.77"))...), from, from, "undionly.kpxe", "\x06\x01\x08\xff"},
		"without ciaddr": {message(dhcpv4.MessageTypeRequest, mac(1), rom...), netip.MustParseAddrPort("192.0.2.77:68"), netip.MustParseAddrPort("192.0.2.77:68"), "undionly.kpxe", "\x06\x01\x08\xff"},
		"another port":   {message(dhcpv4.MessageTypeInform, mac(1), append(rom, withCiaddr("192.0.2.78"))...), from, netip.MustParseAddrPort("192.0.2.78:68"), "undionly.kpxe", "\x06\x01\x08\xff"},
		"with boot item": {message(dhcpv4.MessageTypeRequest, mac(1), append(rom, raw(43, 71, 4, 0, 0, 0, 0, 0xff))...), from, from, "undionly.kpxe", "\x06\x01\x08\x47\x04\x00\x00\x00\x00\xff"},
		"bad vendor":     {message(dhcpv4.MessageTypeRequest, mac(1), append(rom, raw(43, 71, 9, 0))...), from, from, "undionly.kpxe", "\x06\x01\x08\xff"},
		"iPXE":           {message(dhcpv4.MessageTypeRequest, mac(1), pxeX64, ipxe), from, from, "http://192.0.2.1:8080/boot/script?mac=00-00-5e-00-53-01", "\x06\x01\x08\xff"},
	} {
		t.Run(name, func(t *testing.T) {
			conn.in <- datagram{c.m.ToBytes(), c.from, serverIP}
			rep := <-conn.out
			ack, err := dhcpv4.FromBytes(rep.Payload)
			if err != nil || ack.MessageType() != dhcpv4.MessageTypeAck || ack.BootFileName != c.file || string(ack.Options[43]) != c.vendor || !ack.YourIPAddr.IsUnspecified() {
				t.Errorf("%v, %v", ack, err)
			}
			if rep.To != c.to || len(hasAny(ack, leaseCodes...)) > 0 {
				t.Errorf("sent to %v with %v", rep.To, hasAny(ack, leaseCodes...))
			}
			if _, asked := c.m.Options[97]; !asked && len(hasAny(ack, 97)) > 0 {
				t.Error("a GUID was invented")
			}
		})
	}
	if got, ok := r.srv.ClientAt(netip.MustParseAddr("192.0.2.77")); !ok || got != mac(1) || r.srv.SubnetOf(mac(1)) != lan.ID {
		t.Errorf("192.0.2.77 is %q", got)
	}
}

func withCiaddr(a string) dhcpv4.Modifier {
	return func(d *dhcpv4.DHCPv4) { d.ClientIPAddr = net.ParseIP(a).To4() }
}

// A proxy says nothing to those who do not netboot, nothing about leases, and never NAK. Case 11: so with INFORM.
func TestProxyKeepsSilent(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{beside(app.SubnetProxy)})
	conn, ended := r.pxe()
	taken := selecting(mac(2), offerOf(netip.MustParseAddr("192.0.2.60"), netip.MustParseAddr("192.0.2.3")), pxeX64)
	for _, m := range []*dhcpv4.DHCPv4{
		discover(mac(1)), taken, initReboot(mac(3), "192.0.2.50"), initReboot(mac(3), "203.0.113.9"), renewing(mac(4), "192.0.2.60"),
		message(dhcpv4.MessageTypeInform, mac(5), withCiaddr("192.0.2.150"), raw(55, 1, 3, 6)),
		message(dhcpv4.MessageTypeDecline, mac(6), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.IPv4(192, 0, 2, 9)))),
		message(dhcpv4.MessageTypeRelease, mac(6), withCiaddr("192.0.2.9")),
		discover(mac(7), raw(60, []byte("PXEClient:Arch:00011:UNDI:003000")...), raw(93, 0, 11)), // arm64: there is no loader
	} {
		r.send(m.ToBytes(), serverIP)
		conn.in <- datagram{m.ToBytes(), netip.MustParseAddrPort("203.0.113.7:68"), serverIP}
	}
	conn.in <- datagram{message(dhcpv4.MessageTypeOffer, mac(1), pxeX64).ToBytes(), netip.MustParseAddrPort("192.0.2.7:68"), serverIP}
	_ = conn.Close()
	<-ended
	if n := r.drain() + len(conn.out); n != 0 {
		t.Errorf("%d answers left", n)
	}
	if got, ok := r.srv.ClientAt(netip.MustParseAddr("192.0.2.60")); !ok || got != mac(2) && got != mac(4) {
		t.Errorf("the address that the other server gave is %q's", got)
	}
	if heard := r.kinds(); !slices.Contains(heard, "dhcp.heard") || len(r.store.leases) > 0 {
		t.Errorf("recorded %v, stored %v", heard, r.store.leases)
	}
}

// Case 11, with a PXE client that has its address already.
func TestProxyExplainsItselfToPXEInform(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{beside(app.SubnetProxy)})
	ack, rep := r.ask(message(dhcpv4.MessageTypeInform, mac(1), pxeX64, withCiaddr("192.0.2.150")))
	if ack.MessageType() != dhcpv4.MessageTypeAck || ack.BootFileName != "snponly.efi" || len(hasAny(ack, leaseCodes...)) > 0 || rep.To.String() != "192.0.2.150:68" {
		t.Errorf("%v to %v", ack.Summary(), rep.To)
	}
}

func TestHTTPOnly(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{beside(app.SubnetHTTP)})
	conn, ended := r.pxe()
	for _, mods := range [][]dhcpv4.Modifier{httpBoot, {pxeX64, ipxe}, {pxeX64, ipxe, raw(175, 0x24, 1, 1)}} {
		if offer, _ := r.ask(discover(mac(1), mods...)); !strings.HasPrefix(offer.BootFileName, "http://") || len(hasAny(offer, leaseCodes...)) > 0 || !offer.YourIPAddr.IsUnspecified() {
			t.Error(offer.Summary())
		}
	}
	r.send(discover(mac(2), pxeX64).ToBytes(), netip.Addr{}) // wants TFTP
	r.send(discover(mac(3)).ToBytes(), netip.Addr{})
	conn.in <- datagram{message(dhcpv4.MessageTypeRequest, mac(2), pxeX64).ToBytes(), netip.MustParseAddrPort("192.0.2.7:4011"), serverIP}
	_ = conn.Close()
	<-ended
	if n := r.drain() + len(conn.out); n != 0 {
		t.Errorf("%d answers left", n)
	}
}

func TestProxyBehindARelay(t *testing.T) {
	far := remote
	far.Mode, far.PoolStart, far.PoolEnd = app.SubnetProxy, netip.Addr{}, netip.Addr{}
	r := start(t, newStore(), []app.Subnet{far})
	info := "\x01\x04port"
	offer, rep := r.ask(discover(mac(1), pxeX64, func(d *dhcpv4.DHCPv4) {
		d.GatewayIPAddr, d.HopCount = relayIP.AsSlice(), 1
		d.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, []byte(info)))
	}))
	if rep.To != netip.AddrPortFrom(relayIP, 67) || string(offer.Options[82]) != info || offer.BootFileName != "snponly.efi" {
		t.Errorf("%v to %v", offer.Summary(), rep.To)
	}
}
