package dhcp

import (
	"context"
	"net/netip"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
)

// Sub-options of the PXE vendor options (option 43).
const (
	subDiscoveryControl = 6
	subBootItem         = 71
)

// useBootFile is bit 3 of the discovery control: load the file that this packet names, look for no boot server. Without
// it EDK2 takes a proxy's offer for one that port 4011 must explain.
const useBootFile = 8

// ServePXE answers, on port 4011, the clients of subnets in proxy mode that want their boot file explained. It ends as
// Serve does.
func (s *Server) ServePXE(ctx context.Context, iface Interface, conn Conn) error {
	return s.serve(ctx, conn, func(r *request) {
		r.iface = iface
		s.bootServer(ctx, r, conn)
	})
}

// proxy answers on a subnet where another server gives the addresses: netbooting machines are told what to boot, and
// nothing else is said to anyone.
func (s *Server) proxy(ctx context.Context, r *request, sub *subnet, conn Conn) {
	s.learn(r, sub)
	switch r.kind {
	case dhcpv4.MessageTypeDiscover:
		s.bootOnly(ctx, r, sub, dhcpv4.MessageTypeOffer, conn)
	case dhcpv4.MessageTypeInform:
		if r.ciaddr.IsValid() && sub.CIDR.Contains(r.ciaddr) {
			s.bootOnly(ctx, r, sub, dhcpv4.MessageTypeAck, conn)
		}
	}
}

// bootServer answers one request on port 4011.
func (s *Server) bootServer(ctx context.Context, r *request, conn Conn) {
	switch r.kind {
	case dhcpv4.MessageTypeDiscover, dhcpv4.MessageTypeRequest, dhcpv4.MessageTypeInform:
	default:
		return
	}
	if !r.ciaddr.IsValid() {
		r.ciaddr = addrOf(r.meta.From.Addr().AsSlice())
	}
	sub := s.subnetFor(r)
	if sub == nil || sub.Mode != app.SubnetProxy || !ours(r, sub).IsValid() || r.ciaddr.IsValid() && !sub.CIDR.Contains(r.ciaddr) {
		return
	}
	s.learn(r, sub)
	s.bootOnly(ctx, r, sub, dhcpv4.MessageTypeAck, conn)
}

// bootOnly tells a netbooting machine what to boot, without an address.
func (s *Server) bootOnly(ctx context.Context, r *request, sub *subnet, kind dhcpv4.MessageType, conn Conn) {
	me := ours(r, sub)
	f := r.facts()
	f.NoTFTP = sub.Mode == app.SubnetHTTP
	d := s.cfg.Clients.Decide(ctx, f, sub.Subnet, me)
	if d.Stage == bootfile.StageOS {
		return
	}
	x := s.exchange("dhcp.proxy", r, sub, netip.Addr{}, d)
	x.Message = "The machine was told what to boot; its address is another server's business."
	if d.File == "" {
		x.Kind, x.Message = "dhcp.heard", "A machine tried to netboot and was not answered: "+d.Reason+"."
		s.cfg.Record(x)
		return
	}
	rep, err := proxyReply(r, sub, kind, me, d)
	if err != nil {
		x.Kind, x.Level, x.Message = "dhcp.failed", "error", "No answer was sent: "+err.Error()
		s.cfg.Record(x)
		return
	}
	s.send(conn, r, rep, x)
}

// proxyReply makes an OFFER or ACK that holds a boot file and no lease.
func proxyReply(r *request, sub *subnet, kind dhcpv4.MessageType, me netip.Addr, d bootfile.Decision) (Reply, error) {
	m := skeleton(r, kind, me)
	bootOptions(m, r, me, d)
	delete(m.Options, optEncapIPXE) // no-pxedhcp: the proxy is us
	if d.Stage != bootfile.StageHTTP {
		m.UpdateOption(dhcpv4.OptClassIdentifier("PXEClient"))
		m.Options[optVendorOptions] = pxeOptions(r)
	}
	payload, _, err := fit(m, r.messageLimit())
	if err != nil {
		return Reply{}, err
	}
	rep := Reply{Payload: payload, Source: me, IfIndex: r.meta.IfIndex}
	rep.To, rep.HW = r.destination(netip.Addr{})
	if from := r.meta.From; r.ciaddr.IsValid() && !r.giaddr.IsValid() && from.Addr() == r.ciaddr {
		rep.To = from // some ROMs ask port 4011 from that port
	}
	return rep, nil
}

// pxeOptions are the vendor options of a boot file that is to be loaded at once. A boot item that the client chose is
// repeated, as it expects.
func pxeOptions(r *request) []byte {
	out := []byte{subDiscoveryControl, 1, useBootFile}
	if item := suboption(r.msg.Options.Get(dhcpv4.GenericOptionCode(optVendorOptions)), subBootItem); len(item) == 4 {
		out = append(append(out, subBootItem, 4), item...)
	}
	return append(out, 0xff)
}
