package dhcp

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
)

// Sizes of RFC 2131: every client takes a message of 576 octets, IP and UDP headers included.
const (
	minMessage = 576
	maxMessage = 1500
	headers    = 28
)

func decisionOf(r *request) bootfile.Decision { return bootfile.Decide(r.facts()) }

// answer builds and sends an OFFER or ACK; an invalid address makes the ACK one to an INFORM.
func (s *Server) answer(ctx context.Context, r *request, sub *subnet, kind dhcpv4.MessageType, a netip.Addr, conn Conn) {
	me := ours(r, sub)
	d := s.cfg.Clients.Decide(ctx, r.facts(), sub.Subnet, me)
	what, message := "dhcp.ack", "Address "+a.String()+" is the client's."
	switch {
	case kind == dhcpv4.MessageTypeOffer:
		what, message = "dhcp.offer", "Address "+a.String()+" was offered."
	case !a.IsValid():
		what, message = "dhcp.inform", "The client asked for options only."
	}
	x := s.exchange(what, r, sub, a, d)
	x.Message = message
	rep, left, err := buildReply(r, sub, kind, a, me, d)
	if len(left) > 0 {
		x.LeftOut, x.Level = left, "warn"
		x.Message += " Some options had no room in the largest message that the client takes."
	}
	if err != nil {
		x.Kind, x.Level, x.Message = "dhcp.failed", "error", "No answer was sent: "+err.Error()
		s.cfg.Record(x)
		return
	}
	s.send(conn, r, rep, x)
}

// send sends a reply and records it as x, or records why not.
func (s *Server) send(conn Conn, r *request, rep Reply, x Exchange) {
	if err := conn.Write(rep); err != nil {
		x.Kind, x.Level, x.Message = "dhcp.failed", "error", "The answer could not be sent: "+err.Error()
	}
	s.cfg.Record(x)
}

// buildReply makes an OFFER or ACK that fits the client's largest message, and tells which of the operator's options had
// no room in it.
func buildReply(r *request, sub *subnet, kind dhcpv4.MessageType, a, me netip.Addr, d bootfile.Decision) (Reply, []int, error) {
	m := skeleton(r, kind, serverID(r, sub))
	if a.IsValid() {
		m.YourIPAddr = a.AsSlice()
		leaseOptions(m, sub.lease)
	}
	subnetOptions(m, sub)
	ownOptions(m, r, sub)
	bootOptions(m, r, me, d)
	payload, left, err := fit(m, r.messageLimit())
	if err != nil {
		return Reply{}, nil, err
	}
	rep := Reply{Payload: payload, Source: me, IfIndex: r.meta.IfIndex}
	rep.To, rep.HW = r.destination(a)
	return rep, left, nil
}

// skeleton copies what every reply owes its request: ids, flags, relay, client-id (RFC 6842), relay information.
func skeleton(r *request, kind dhcpv4.MessageType, id netip.Addr) *dhcpv4.DHCPv4 {
	m := &dhcpv4.DHCPv4{
		OpCode: dhcpv4.OpcodeBootReply, HWType: r.msg.HWType, ClientHWAddr: r.msg.ClientHWAddr,
		TransactionID: r.msg.TransactionID, Flags: r.msg.Flags, GatewayIPAddr: r.msg.GatewayIPAddr,
		Options: dhcpv4.Options{},
	}
	if kind == dhcpv4.MessageTypeAck {
		m.ClientIPAddr = r.msg.ClientIPAddr
	}
	m.UpdateOption(dhcpv4.OptMessageType(kind))
	m.UpdateOption(dhcpv4.OptServerIdentifier(id.AsSlice()))
	for _, code := range []uint8{dhcpv4.OptionClientIdentifier.Code(), dhcpv4.OptionRelayAgentInformation.Code()} {
		if v, ok := r.msg.Options[code]; ok {
			m.Options[code] = v
		}
	}
	return m
}

func leaseOptions(m *dhcpv4.DHCPv4, lease time.Duration) {
	for code, d := range map[uint8]time.Duration{51: lease, 58: lease / 2, 59: lease / 8 * 7} {
		m.Options[code] = binary.BigEndian.AppendUint32(nil, uint32(min(d/time.Second, 1<<32-1)))
	}
}

// subnetOptions writes what the operator configured.
func subnetOptions(m *dhcpv4.DHCPv4, sub *subnet) {
	m.UpdateOption(dhcpv4.OptSubnetMask(net.CIDRMask(sub.CIDR.Bits(), 32)))
	m.UpdateOption(dhcpv4.OptBroadcastAddress(lastOf(sub.CIDR).AsSlice()))
	if sub.Gateway.Is4() {
		m.UpdateOption(dhcpv4.OptRouter(sub.Gateway.AsSlice()))
	}
	if b := packAddrs(sub.DNS); len(b) > 0 {
		m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionDomainNameServer, b))
	}
	if b := packAddrs(sub.NTP); len(b) > 0 {
		m.UpdateOption(dhcpv4.OptGeneric(dhcpv4.OptionNTPServers, b))
	}
	if sub.Domain != "" {
		m.UpdateOption(dhcpv4.OptDomainName(sub.Domain))
	}
}

// ownOptions writes the options that the operator added, to clients that ask for them or that ask for nothing by name.
func ownOptions(m *dhcpv4.DHCPv4, r *request, sub *subnet) {
	asked := r.msg.Options.Get(dhcpv4.OptionParameterRequestList)
	for code, v := range sub.options {
		if len(asked) == 0 || slices.Contains(asked, code) {
			m.Options[code] = v
		}
	}
}

func packAddrs(addrs []netip.Addr) []byte {
	var b []byte
	for _, a := range addrs {
		if a.Is4() {
			b = append(b, a.AsSlice()...)
		}
	}
	return b
}

// bootOptions tells a netboot client what to load and from whom.
func bootOptions(m *dhcpv4.DHCPv4, r *request, me netip.Addr, d bootfile.Decision) {
	if d.Stage == bootfile.StageOS {
		return
	}
	if v, ok := r.msg.Options[optGUID]; ok { // never invented: ROMs without a GUID exist
		m.Options[optGUID] = v
	}
	if d.VendorClass != "" {
		m.UpdateOption(dhcpv4.OptClassIdentifier(d.VendorClass))
	}
	if d.Stage == bootfile.StageIPXE {
		m.Options[optEncapIPXE] = []byte{176, 1, 1} // no-pxedhcp: do not wait 3 s for proxy offers
	}
	if d.File == "" {
		return
	}
	m.ServerIPAddr = me.AsSlice()
	inHeader := len(d.File) < 128
	if inHeader {
		m.BootFileName = d.File
	}
	if !inHeader || r.msg.IsOptionRequested(dhcpv4.OptionBootfileName) {
		m.UpdateOption(dhcpv4.OptBootFileName(d.File))
	}
	if !strings.Contains(d.File, "://") && r.msg.IsOptionRequested(dhcpv4.OptionTFTPServerName) {
		m.UpdateOption(dhcpv4.OptTFTPServerName(me.String()))
	}
}

// messageLimit is the largest payload the client takes: option 57, at least 576, less the headers.
func (r *request) messageLimit() int {
	n := minMessage
	if v, err := r.msg.MaxMessageSize(); err == nil {
		n = min(max(int(v), minMessage), maxMessage)
	}
	return n - headers
}

// fit encodes m in at most limit octets. If it must, it leaves out what a client can do without: the operator's own
// options first, the largest of them, then others that it knows. It tells which of the operator's it left out.
func fit(m *dhcpv4.DHCPv4, limit int) (b []byte, left []int, err error) {
	for b = m.ToBytes(); len(b) > limit; b = m.ToBytes() {
		code, own := spare(m)
		if code == 0 {
			return nil, nil, app.Errorf(app.InvalidConfig, "dhcp-reply-too-long",
				"the answer needs %d bytes and the client takes %d", len(b), limit).Do("shorten the boot file's address or the subnet's options")
		}
		if own {
			left = append(left, int(code))
		}
		delete(m.Options, code)
	}
	slices.Sort(left)
	return b, left, nil
}

// essential are the options that every reply of ours is made of; what else stands in one is the operator's.
var essential = []uint8{1, 3, 6, 15, 28, 42, 43, 51, 53, 54, 56, 58, 59, 60, 61, 66, 67, 82, optGUID, optEncapIPXE}

// spare chooses the option of a reply that is easiest to miss, 0 when there is none.
func spare(m *dhcpv4.DHCPv4) (code uint8, own bool) {
	for c, v := range m.Options {
		if !slices.Contains(essential, c) && (code == 0 || len(v) > len(m.Options[code]) || len(v) == len(m.Options[code]) && c > code) {
			code = c
		}
	}
	if code != 0 {
		return code, true
	}
	for _, c := range []uint8{42, 28, 15, 6, optGUID} {
		if _, ok := m.Options[c]; ok {
			return c, false
		}
	}
	return 0, false
}

// destination says where a reply with address a goes (RFC 2131, 4.1): to the relay; to a client that has its address;
// to all when the client asks for it or is told no; else to the client's Ethernet address.
func (r *request) destination(a netip.Addr) (netip.AddrPort, net.HardwareAddr) {
	switch {
	case r.giaddr.IsValid():
		return netip.AddrPortFrom(r.giaddr, ServerPort), nil
	case r.ciaddr.IsValid():
		return netip.AddrPortFrom(r.ciaddr, ClientPort), nil
	case r.msg.IsBroadcast() || !a.IsValid():
		return broadcast, nil
	}
	return netip.AddrPortFrom(a, ClientPort), r.msg.ClientHWAddr
}

// nakReply makes a NAK. It is broadcast, because the client's address is wrong; over a relay the relay broadcasts it.
func (s *Server) nakReply(r *request, sub *subnet) Reply {
	me := ours(r, sub)
	m := skeleton(r, dhcpv4.MessageTypeNak, serverID(r, sub))
	m.UpdateOption(dhcpv4.OptMessage(fmt.Sprintf("not an address of this client on %v", sub.CIDR)))
	rep := Reply{Source: me, To: broadcast, IfIndex: r.meta.IfIndex}
	if r.giaddr.IsValid() {
		m.SetBroadcast()
		rep.To = netip.AddrPortFrom(r.giaddr, ServerPort)
	}
	rep.Payload = m.ToBytes()
	return rep
}
