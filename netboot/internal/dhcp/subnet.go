package dhcp

import (
	"encoding/binary"
	"net/netip"
	"slices"
	"time"

	"github.com/better-compute/bcd/app"
)

// defaultLease is the lease time of a subnet that names none.
const defaultLease = time.Hour

// subnet is a configured subnet with what is derived from it.
type subnet struct {
	app.Subnet
	pool    pool
	lease   time.Duration
	options map[uint8][]byte       // the operator's own, static routes among them
	byMAC   map[app.MAC]netip.Addr // reservations
	owner   map[netip.Addr]app.MAC // the same, by address
}

func newSubnet(s app.Subnet) *subnet {
	out := &subnet{
		Subnet: s, pool: newPool(s.PoolStart, s.PoolEnd), lease: time.Duration(s.LeaseTime),
		options: map[uint8][]byte{}, byMAC: map[app.MAC]netip.Addr{}, owner: map[netip.Addr]app.MAC{},
	}
	if out.lease <= 0 {
		out.lease = defaultLease
	}
	for _, o := range s.Options {
		if b, err := o.Encode(); err == nil { // checked when it was stored
			out.options[o.Code] = b
		}
	}
	if len(s.Routes) > 0 {
		out.options[optRoutes] = staticRoutes(s.Routes, s.Gateway)
	}
	for _, r := range s.Reservations {
		out.byMAC[r.MAC], out.owner[r.Addr] = r.Addr, r.MAC
	}
	return out
}

func (s *subnet) full() bool { return s.Mode == app.SubnetFull }

// holds reports whether a client may have an address: the one reserved for it, or one of the pool that is nobody's.
func (s *subnet) holds(a netip.Addr, mac app.MAC, ours []netip.Addr) bool {
	return !s.excluded(a, mac, ours) && (s.pool.contains(a) || s.owner[a] == mac)
}

// excluded reports addresses that are never given to a client: none of the subnet, its gateway's, network, broadcast,
// ours, and those reserved for others.
func (s *subnet) excluded(a netip.Addr, mac app.MAC, ours []netip.Addr) bool {
	if !s.CIDR.Contains(a) || a == s.Gateway || a == s.CIDR.Masked().Addr() || a == lastOf(s.CIDR) {
		return true
	}
	if owner, reserved := s.owner[a]; reserved && owner != mac {
		return true
	}
	return slices.Contains(ours, a)
}

// staticRoutes is option 121 (RFC 3442). Clients that take it ignore option 3, so the default route is in it too.
func staticRoutes(routes []app.StaticRoute, gateway netip.Addr) []byte {
	if gateway.Is4() {
		routes = append(slices.Clone(routes), app.StaticRoute{To: netip.PrefixFrom(netip.IPv4Unspecified(), 0), Via: gateway})
	}
	var b []byte
	for _, r := range routes {
		to := r.To.Addr().As4()
		b = append(append(b, byte(r.To.Bits())), to[:(r.To.Bits()+7)/8]...)
		b = append(b, r.Via.AsSlice()...)
	}
	return b
}

// lastOf is the broadcast address of a prefix.
func lastOf(p netip.Prefix) netip.Addr {
	b := p.Masked().Addr().As4()
	n := binary.BigEndian.Uint32(b[:]) | uint32(1<<(32-p.Bits())-1)
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// pool is a range of IPv4 addresses, both ends included. The zero pool is empty.
type pool struct {
	first uint32
	size  uint64
}

func newPool(start, end netip.Addr) pool {
	if !start.Is4() || !end.Is4() || end.Less(start) {
		return pool{}
	}
	a, b := start.As4(), end.As4()
	first, last := binary.BigEndian.Uint32(a[:]), binary.BigEndian.Uint32(b[:])
	return pool{first: first, size: uint64(last-first) + 1}
}

func (p pool) at(i uint64) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], p.first+uint32(i))
	return netip.AddrFrom4(b)
}

func (p pool) contains(a netip.Addr) bool {
	if !a.Is4() {
		return false
	}
	b := a.As4()
	n := binary.BigEndian.Uint32(b[:])
	return n >= p.first && uint64(n-p.first) < p.size
}
