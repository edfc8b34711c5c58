package dhcp

import (
	"context"
	"net/netip"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

// verdict is what becomes of a REQUEST.
type verdict int

const (
	silent verdict = iota
	nak
	ack
)

// request answers a REQUEST. The ACK leaves once the lease is durable.
func (s *Server) request(ctx context.Context, r *request, sub *subnet, conn Conn) {
	_, known := s.cfg.Clients.Reservation(ctx, r.mac)
	a := firstValid(r.wanted, r.ciaddr)
	s.mu.Lock()
	v := s.judge(r, sub, a)
	if v != ack {
		s.mu.Unlock()
		switch {
		case v == nak:
			s.refuse(r, sub, a, conn)
		case r.server.IsValid():
			s.elsewhere(r, sub, a)
		}
		return
	}
	l := app.Lease{
		MAC: r.mac, Addr: a, SubnetID: sub.ID, Hostname: r.hostname(), State: "bound", Reserved: known,
		Expires: r.arrived.Add(sub.lease), Seen: r.arrived,
	}
	e := s.table.put(l, time.Time{})
	queued := s.commit.add(change{lease: l, lost: e.takeLost(), then: func(err error) {
		if err != nil {
			s.cfg.Log.Error("lease could not be stored", "mac", r.mac, "address", a, "error", err)
			x := s.exchange("dhcp.failed", r, sub, a, decisionOf(r))
			x.Level, x.Message = "error", "The lease could not be stored, so the client was not answered: it asks again."
			s.cfg.Record(x)
			return
		}
		s.answer(ctx, r, sub, dhcpv4.MessageTypeAck, a, conn)
	}})
	s.mu.Unlock()
	if !queued {
		s.cfg.Log.Warn("too many leases wait for the disk, a request goes unanswered", "mac", r.mac)
	}
}

// judge decides a REQUEST by the state its fields show (RFC 2131, 4.3.2). A NAK is only for an address of this subnet:
// other addresses may be another server's business. mu must be held.
func (s *Server) judge(r *request, sub *subnet, a netip.Addr) verdict {
	if !a.IsValid() {
		return silent
	}
	refused := silent
	if sub.CIDR.Contains(a) {
		refused = nak
	}
	e := s.table.byKey[leaseKey{sub.ID, r.mac}]
	mine := e != nil && e.lease.Addr == a && s.table.byAddr[a] == e
	switch {
	case r.server.IsValid() && r.server != serverID(r, sub): // SELECTING another server: our offer is void
		if e != nil && e.lease.State == "offered" {
			s.table.drop(e)
		}
		return silent
	case mine && s.keeps(sub, e, r):
		return ack
	case r.server.IsValid(): // SELECTING us, with an address that we did not offer
		return refused
	case e != nil: // we know the client at another address, or its pool moved away
		return refused
	case s.table.byAddr[a] != nil && !s.table.free(a, r.mac, r.arrived): // somebody else's
		return refused
	case r.ciaddr.IsValid() && r.meta.To == ours(r, sub): // renewing a lease that we no longer know
		return refused
	}
	return silent
}

// elsewhere reports a client that took another server's offer.
func (s *Server) elsewhere(r *request, sub *subnet, a netip.Addr) {
	x := s.exchange("dhcp.elsewhere", r, sub, a, decisionOf(r))
	x.Server, x.Message = r.server, "The client took the offer of another DHCP server, "+r.server.String()+"."
	s.cfg.Record(x)
}

// refuse sends a NAK.
func (s *Server) refuse(r *request, sub *subnet, a netip.Addr, conn Conn) {
	rep := s.nakReply(r, sub)
	x := s.exchange("dhcp.nak", r, sub, a, decisionOf(r))
	x.Level, x.Message = "warn", "The client asked for "+a.String()+", which is not its own any more: it was told to ask anew."
	s.send(conn, r, rep, x)
}

// decline quarantines an address that the client found in use.
func (s *Server) decline(r *request, sub *subnet) {
	s.mu.Lock()
	e := s.table.byKey[leaseKey{sub.ID, r.mac}]
	owner := e != nil && r.wanted.IsValid() && e.lease.Addr == r.wanted
	if owner {
		s.quarantine(sub, r.wanted, r)
	}
	s.mu.Unlock()
	if !owner {
		return // nobody may take another's address out of use
	}
	x := s.exchange("dhcp.decline", r, sub, r.wanted, decisionOf(r))
	x.Level, x.Message = "warn", "The client found "+r.wanted.String()+" in use and declined it."
	s.cfg.Record(x)
}

// release ends a lease. The client keeps the address in memory of the table, and gets it again when it is still free.
func (s *Server) release(r *request, sub *subnet) {
	s.mu.Lock()
	e := s.table.byKey[leaseKey{sub.ID, r.mac}]
	owner := e != nil && r.ciaddr.IsValid() && e.lease.Addr == r.ciaddr && e.lease.State == "bound"
	if owner {
		l := e.lease
		l.State, l.Expires, l.Seen = "released", r.arrived, r.arrived
		s.table.put(l, time.Time{})
		s.commit.add(change{lease: l, then: s.logged("storing a released lease")})
	}
	s.mu.Unlock()
	if owner {
		x := s.exchange("dhcp.release", r, sub, r.ciaddr, decisionOf(r))
		x.Message = "The client released " + r.ciaddr.String() + "."
		s.cfg.Record(x)
	}
}

// inform answers a host that has its address from elsewhere: options only, no lease.
func (s *Server) inform(ctx context.Context, r *request, sub *subnet, conn Conn) {
	if !r.ciaddr.IsValid() || !sub.CIDR.Contains(r.ciaddr) {
		return
	}
	s.answer(ctx, r, sub, dhcpv4.MessageTypeAck, netip.Addr{}, conn)
}
