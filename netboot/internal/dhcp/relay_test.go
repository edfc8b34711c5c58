package dhcp

import (
	"bytes"
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

// viaRelay marks a packet as a relay does.
func viaRelay(giaddr string, info ...byte) dhcpv4.Modifier {
	return func(d *dhcpv4.DHCPv4) {
		d.GatewayIPAddr, d.HopCount = net.ParseIP(giaddr).To4(), 1
		if info != nil {
			d.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionRelayAgentInformation, info))
		}
	}
}

// Case 7, for relays whose own address is not of the client's subnet (RFC 3527) or that want to stay in between (RFC 5107).
func TestRelayInformation(t *testing.T) {
	other := remote
	other.ID, other.CIDR = "net-other", netip.MustParsePrefix("203.0.113.0/25")
	other.PoolStart, other.PoolEnd = netip.MustParseAddr("203.0.113.10"), netip.MustParseAddr("203.0.113.20")
	r := start(t, newStore(), []app.Subnet{lan, remote, other})
	link := []byte{1, 3, 'a', 0, 0xff, 5, 4, 203, 0, 113, 1, 2, 0}
	for name, c := range map[string]struct {
		giaddr string
		info   []byte
		in     netip.Prefix
		server string
	}{
		"no option 82":           {"198.51.100.1", nil, remote.CIDR, "192.0.2.1"},
		"circuit only":           {"198.51.100.1", []byte("\x01\x04port\x02\x00"), remote.CIDR, "192.0.2.1"},
		"link selection":         {"198.51.100.1", link, other.CIDR, "192.0.2.1"},
		"link, foreign relay":    {"203.0.113.129", link, other.CIDR, "192.0.2.1"},
		"server override":        {"198.51.100.1", []byte{11, 4, 198, 51, 100, 1}, remote.CIDR, "198.51.100.1"},
		"malformed suboption":    {"198.51.100.1", []byte{5, 9, 203, 0}, remote.CIDR, "192.0.2.1"},
		"link of odd length":     {"198.51.100.1", []byte{5, 3, 203, 0, 113}, remote.CIDR, "192.0.2.1"},
		"link to 0.0.0.0":        {"198.51.100.1", []byte{5, 4, 0, 0, 0, 0}, remote.CIDR, "192.0.2.1"},
		"more than one instance": {"198.51.100.1", bytes.Repeat([]byte{0x97, 1, 0}, 90), remote.CIDR, "192.0.2.1"}, // 270 octets
	} {
		t.Run(name, func(t *testing.T) {
			offer, rep := r.ask(discover(mac(1), viaRelay(c.giaddr, c.info...)))
			if rep.To != netip.AddrPortFrom(netip.MustParseAddr(c.giaddr), 67) || offer.GatewayIPAddr.String() != c.giaddr || rep.HW != nil {
				t.Errorf("sent to %v for %v", rep.To, offer.GatewayIPAddr)
			}
			if !bytes.Equal(offer.Options[82], c.info) || !c.in.Contains(addrOf(offer.YourIPAddr)) || offer.ServerIdentifier().String() != c.server {
				t.Errorf("%v, option 82 %x", offer.Summary(), offer.Options[82])
			}
			if c.info != nil && len(c.info) < 255 && !bytes.HasSuffix(bytes.TrimRight(rep.Payload, "\x00"), append(c.info, 0xff)) {
				t.Error("option 82 is not the last")
			}
			ack, _ := r.ask(selecting(mac(1), offer, viaRelay(c.giaddr, c.info...)))
			if ack.MessageType() != dhcpv4.MessageTypeAck || !bytes.Equal(ack.Options[82], c.info) {
				t.Error(ack.Summary())
			}
		})
	}
	// Nothing is ours behind this relay, whatever giaddr says.
	r.silent(discover(mac(2), viaRelay("198.51.100.1", 5, 4, 203, 0, 113, 254)), discover(mac(2), viaRelay("203.0.113.254")))
	// Option 82 counts for nothing when no relay is to be answered.
	if offer, _ := r.ask(discover(mac(3), viaRelay("0.0.0.0", link...))); !lan.CIDR.Contains(addrOf(offer.YourIPAddr)) {
		t.Error(offer.Summary())
	}
}

// Where requests of all interfaces arrive, only relays are answered.
func TestAllInterfacesServeRelaysOnly(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan, remote})
	conn, ended := newPipe(), make(chan struct{})
	go func() {
		defer close(ended)
		_ = r.srv.Serve(t.Context(), Interface{Addrs: []netip.Addr{serverIP}}, conn)
	}()
	all := netip.MustParseAddr("255.255.255.255")
	conn.in <- datagram{discover(mac(1)).ToBytes(), netip.MustParseAddrPort("0.0.0.0:68"), all}
	conn.in <- datagram{discover(mac(2), viaRelay("198.51.100.1")).ToBytes(), netip.MustParseAddrPort("198.51.100.1:67"), serverIP}
	conn.in <- datagram{discover(mac(3), pxeX64).ToBytes(), netip.MustParseAddrPort("0.0.0.0:68"), all}
	_ = conn.Close()
	<-ended
	rep := <-conn.out
	if offer, err := dhcpv4.FromBytes(rep.Payload); err != nil || offer.ClientHWAddr.String() != string(mac(2)) || rep.To.String() != "198.51.100.1:67" || rep.Source != serverIP || len(conn.out) > 0 {
		t.Errorf("%v to %v, and %d more", offer, rep.To, len(conn.out))
	}
}
