package dhcp

import (
	"context"
	"net/netip"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

// maxTries is how many addresses found in use one DISCOVER may run into before it goes unanswered.
const maxTries = 3

// discover answers a DISCOVER with an offer. An address that this client does not hold already is probed first.
func (s *Server) discover(ctx context.Context, r *request, sub *subnet, conn Conn, wg *sync.WaitGroup) {
	reserved, known := s.cfg.Clients.Reservation(ctx, r.mac)
	a, fresh, ok := s.hold(r, sub, reserved, known)
	if !ok && !a.IsValid() && s.reclaim(ctx, sub) {
		a, fresh, ok = s.hold(r, sub, reserved, known)
	}
	if !ok {
		if !a.IsValid() {
			s.exhausted(r, sub)
		}
		return
	}
	if !fresh || !s.probes(sub) {
		s.offer(ctx, r, sub, a, conn)
		return
	}
	select {
	case s.probers <- struct{}{}:
	default:
		s.unhold(a)
		return // the client asks again
	}
	wg.Go(func() {
		defer func() { <-s.probers }()
		s.probeAndOffer(ctx, r, sub, a, reserved, known, conn)
	})
}

func (s *Server) probeAndOffer(ctx context.Context, r *request, sub *subnet, a, reserved netip.Addr, known bool, conn Conn) {
	for range maxTries {
		near := r.iface.Name
		if r.giaddr.IsValid() {
			near = ""
		}
		inUse := s.cfg.Probe(ctx, near, a)
		s.unhold(a)
		if ctx.Err() != nil {
			return
		}
		if !inUse {
			s.offer(ctx, r, sub, a, conn)
			return
		}
		s.inUse(r, sub, a)
		var fresh, ok bool
		if a, fresh, ok = s.hold(r, sub, reserved, known); !ok {
			return
		}
		if !fresh {
			s.offer(ctx, r, sub, a, conn)
			return
		}
	}
	s.unhold(a)
}

// hold chooses an address for the client and holds it. fresh says that it is not the client's yet and must be probed;
// then the caller must call unhold, and other requests of the client go unanswered until it did. An invalid address
// that is not ok means that the pool is exhausted.
func (s *Server) hold(r *request, sub *subnet, reserved netip.Addr, known bool) (a netip.Addr, fresh, ok bool) {
	now := r.arrived
	s.mu.Lock()
	defer s.mu.Unlock()
	if own, ok := sub.byMAC[r.mac]; ok {
		reserved = own
	}
	a, ok = s.choose(r, sub, reserved, now)
	if !ok {
		return a, false, false
	}
	if s.probing[a] {
		return a, false, false
	}
	key := leaseKey{sub.ID, r.mac}
	if e := s.table.byKey[key]; e != nil && e.lease.Addr == a {
		e.held = now.Add(holdTime)
		return a, false, true
	}
	s.table.put(app.Lease{
		MAC: r.mac, Addr: a, SubnetID: sub.ID, Hostname: r.hostname(), State: "offered", Reserved: known, Expires: now, Seen: now,
	}, now.Add(holdTime))
	if s.probes(sub) {
		s.probing[a] = true
	}
	return a, true, true
}

// probes reports whether addresses of a subnet are asked for before they are offered.
func (s *Server) probes(sub *subnet) bool { return s.cfg.Probe != nil && !sub.NoProbe }

func (s *Server) unhold(a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.probing, a)
}

// choose finds the client's address: the reserved one, the one it has or had, the one it asks for, any of the pool.
// mu must be held.
func (s *Server) choose(r *request, sub *subnet, reserved netip.Addr, now time.Time) (netip.Addr, bool) {
	mine := r.iface.Addrs
	if reserved.IsValid() && !sub.excluded(reserved, r.mac, mine) && s.table.free(reserved, r.mac, now) {
		return reserved, true
	}
	if e := s.table.byKey[leaseKey{sub.ID, r.mac}]; e != nil && s.keeps(sub, e, r) {
		return e.lease.Addr, true
	}
	if r.wanted.IsValid() && sub.holds(r.wanted, r.mac, mine) && s.table.free(r.wanted, r.mac, now) {
		return r.wanted, true
	}
	return s.table.pick(sub.pool, r.mac, now, func(a netip.Addr) bool { return sub.excluded(a, r.mac, mine) })
}

// keeps reports whether a client may go on with the address of its entry. A stranded one it may not, nor one beside the
// address that is reserved for it, once that is free. mu must be held.
func (s *Server) keeps(sub *subnet, e *entry, r *request) bool {
	if own, ok := sub.byMAC[r.mac]; ok && own != e.lease.Addr && s.table.free(own, r.mac, r.arrived) {
		return false
	}
	if e.lease.Reserved {
		return !sub.excluded(e.lease.Addr, r.mac, r.iface.Addrs)
	}
	return sub.holds(e.lease.Addr, r.mac, r.iface.Addrs)
}

// reclaim looks, when a pool is exhausted, for addresses kept for machines that are nobody's any more: from now on their
// leases end as any other. It reports whether there were any, and asks only once in a while.
func (s *Server) reclaim(ctx context.Context, sub *subnet) bool {
	now := s.cfg.Now()
	s.mu.Lock()
	if now.Sub(s.swept[sub.ID]) < holdTime {
		s.mu.Unlock()
		return false
	}
	s.swept[sub.ID] = now
	var kept []app.MAC
	for key, e := range s.table.byKey {
		if key.subnet == sub.ID && e.lease.Reserved {
			kept = append(kept, key.mac)
		}
	}
	s.mu.Unlock()
	freed := false
	for _, mac := range kept {
		if _, known := s.cfg.Clients.Reservation(ctx, mac); known {
			continue
		}
		s.mu.Lock()
		if e := s.table.byKey[leaseKey{sub.ID, mac}]; e != nil {
			e.lease.Reserved = false
			freed = freed || !e.live(now)
		}
		s.mu.Unlock()
	}
	return freed
}

// Free forgets the lease of an address when the client holds it. The store's is the caller's business.
func (s *Server) Free(mac app.MAC, a netip.Addr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.table.byAddr[a]; e != nil && e.lease.MAC == mac {
		s.table.drop(e)
	}
}

// exhausted reports a pool without a free address: to each client that wants one, once in a while, because the clients keep
// asking; as an error only for the first of them, because a rack of machines would say it all at once.
func (s *Server) exhausted(r *request, sub *subnet) {
	client, level := sub.ID+"\x00"+string(r.mac), "info"
	s.mu.Lock()
	again := r.arrived.Sub(s.told[client]) < holdTime
	if !again {
		if len(s.told) >= maxTold {
			clear(s.told)
		}
		s.told[client] = r.arrived
		if r.arrived.Sub(s.told[sub.ID]) >= holdTime {
			s.told[sub.ID], level = r.arrived, "error"
		}
	}
	s.mu.Unlock()
	if again {
		return
	}
	s.cfg.Record(Exchange{
		Kind: "dhcp.exhausted", Level: level, MAC: r.mac, Subnet: sub.ID, Interface: r.iface.Name,
		Message: "No address of the pool is free: widen the pool or shorten the lease time.",
	})
}

// maxTold bounds the clients that are remembered to have been told of an exhausted pool.
const maxTold = 4096

// inUse puts an address that somebody else answers for into quarantine.
func (s *Server) inUse(r *request, sub *subnet, a netip.Addr) {
	s.mu.Lock()
	s.quarantine(sub, a, r)
	s.mu.Unlock()
	s.cfg.Record(Exchange{
		Kind: "dhcp.conflict", Level: "warn", MAC: r.mac, Addr: a, Subnet: sub.ID, Interface: r.iface.Name,
		Message: "A machine that has no lease answers for " + a.String() + ": it is left alone and the client gets another address.",
	})
}

// quarantine takes an address out of use for a while and stores that. mu must be held.
func (s *Server) quarantine(sub *subnet, a netip.Addr, r *request) {
	l := app.Lease{MAC: r.mac, Addr: a, SubnetID: sub.ID, State: "declined", Expires: r.arrived.Add(quarantine), Seen: r.arrived}
	if e := s.table.byAddr[a]; e != nil {
		s.table.drop(e)
	}
	s.table.put(l, time.Time{})
	s.commit.add(change{lease: l, then: s.logged("storing a declined address")})
}

// logged makes a continuation that only logs a failure.
func (s *Server) logged(doing string) func(error) {
	return func(err error) {
		if err != nil {
			s.cfg.Log.Error(doing+" failed", "error", err)
		}
	}
}

func (s *Server) offer(ctx context.Context, r *request, sub *subnet, a netip.Addr, conn Conn) {
	s.answer(ctx, r, sub, dhcpv4.MessageTypeOffer, a, conn)
}
