package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/iana"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
)

// Option codes without a name in the codec.
const (
	optVendorOptions = 43
	optUserClass     = 77
	optClientArch    = 93
	optGUID          = 97
	optRoutes        = 121
	optEncapIPXE     = 175
)

var (
	optVendorClass = dhcpv4.OptionClassIdentifier
	errNotRequest  = errors.New("not a DHCP request of an Ethernet client")
)

// request is a datagram that passed every check of form.
type request struct {
	msg     *dhcpv4.DHCPv4
	kind    dhcpv4.MessageType
	mac     app.MAC
	iface   Interface
	meta    Meta
	ciaddr  netip.Addr // invalid when 0.0.0.0
	giaddr  netip.Addr // the relay that is to be answered; invalid when 0.0.0.0
	link    netip.Addr // an address of the relayed client's subnet; invalid when it came without a relay
	as      netip.Addr // the server that the relay wants us to be for the client; invalid: we are ourselves
	wanted  netip.Addr // option 50; invalid when absent
	server  netip.Addr // option 54; invalid when absent
	arrived time.Time
}

// parse decodes a datagram and refuses what no Ethernet client would send.
func parse(b []byte) (*request, error) {
	msg, err := dhcpv4.FromBytes(b)
	if err != nil {
		return nil, fmt.Errorf("decoding DHCP packet: %w", err)
	}
	if msg.OpCode != dhcpv4.OpcodeBootRequest || msg.HWType != iana.HWTypeEthernet || len(msg.ClientHWAddr) != 6 {
		return nil, errNotRequest
	}
	mac, err := app.MACFromBytes(msg.ClientHWAddr)
	if err != nil {
		return nil, fmt.Errorf("reading client address: %w", err)
	}
	r := &request{
		msg: msg, kind: msg.MessageType(), mac: mac,
		ciaddr: addrOf(msg.ClientIPAddr), giaddr: addrOf(msg.GatewayIPAddr),
		wanted: addrOf(msg.RequestedIPAddress()), server: addrOf(msg.ServerIdentifier()),
	}
	if r.kind == dhcpv4.MessageTypeNone {
		return nil, errNotRequest // plain BOOTP
	}
	if r.giaddr.IsValid() {
		info := msg.Options.Get(dhcpv4.OptionRelayAgentInformation)
		r.link, r.as = firstValid(relayAddress(info, subLinkSelection), r.giaddr), relayAddress(info, subServerOverride)
	}
	return r, nil
}

// addrOf turns a wire address into a netip one; 0.0.0.0 and malformed ones become the invalid address.
func addrOf(ip net.IP) netip.Addr {
	a, ok := netip.AddrFromSlice(ip)
	if !ok {
		return netip.Addr{}
	}
	if a = a.Unmap(); !a.Is4() || a.IsUnspecified() {
		return netip.Addr{}
	}
	return a
}

// facts gathers what the boot-file decision needs from the packet.
func (r *request) facts() bootfile.Facts {
	o := r.msg.Options
	return bootfile.Facts{
		MAC:         r.mac,
		Archs:       bootfile.ArchsFromOption(o.Get(dhcpv4.GenericOptionCode(optClientArch))),
		VendorClass: string(o.Get(optVendorClass)),
		UserClass:   o.Get(dhcpv4.GenericOptionCode(optUserClass)),
		Encap:       o.Get(dhcpv4.GenericOptionCode(optEncapIPXE)),
		GUID:        o.Get(dhcpv4.GenericOptionCode(optGUID)),
		Relayed:     r.giaddr.IsValid(),
	}
}

// hostname is option 12, bounded and valid UTF-8; still hostile text.
func (r *request) hostname() string { return text(r.msg.Options.Get(dhcpv4.OptionHostName)) }

// text makes text of wire octets: valid UTF-8 of at most 255 octets, ended at the first NUL.
func text(b []byte) string {
	s, _, _ := strings.Cut(string(b), "\x00")
	if len(s) > 255 {
		s = s[:255]
	}
	return strings.ToValidUTF8(s, "�")
}
