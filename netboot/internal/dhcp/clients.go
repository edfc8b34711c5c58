package dhcp

import (
	"net/netip"

	"github.com/better-compute/bcd/app"
)

// maxSeen bounds the clients of other servers that are remembered; beyond it all are forgotten and learned again.
const maxSeen = 16384

// learn remembers the address that another server gave a client, so that its transfers can be told apart: the address it
// has, or the one it takes.
func (s *Server) learn(r *request, sub *subnet) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.seen) >= maxSeen || len(s.at) >= maxSeen {
		clear(s.seen)
		clear(s.at)
	}
	s.at[r.mac] = sub.ID
	if a := firstValid(r.ciaddr, r.wanted); a.IsValid() && sub.CIDR.Contains(a) {
		s.seen[a] = r.mac
	}
}

// ClientAt says which client has, or last had, an address.
func (s *Server) ClientAt(a netip.Addr) (app.MAC, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.table.byAddr[a]; e != nil && e.lease.State != "declined" {
		return e.lease.MAC, true
	}
	mac, ok := s.seen[a]
	return mac, ok
}

// SubnetOf is the id of the subnet where a client was last seen, "" when it never was.
func (s *Server) SubnetOf(mac app.MAC) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var found *entry
	for _, sub := range s.subnets {
		if e := s.table.byKey[leaseKey{sub.ID, mac}]; e != nil && (found == nil || e.lease.Seen.After(found.lease.Seen)) {
			found = e
		}
	}
	if found == nil {
		return s.at[mac]
	}
	return found.lease.SubnetID
}
