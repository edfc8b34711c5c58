package dhcp

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/better-compute/bcd/app"
)

// defaultLease is the lease time of a subnet that names none.
const defaultLease = time.Hour

// subnet is a configured subnet with what is derived from it.
type subnet struct {
	app.Subnet
	pool  pool
	lease time.Duration
}

func newSubnet(s app.Subnet) *subnet {
	out := &subnet{Subnet: s, pool: newPool(s.PoolStart, s.PoolEnd), lease: time.Duration(s.LeaseTime)}
	if out.lease <= 0 {
		out.lease = defaultLease
	}
	return out
}

func (s *subnet) full() bool { return s.Mode == "full" }

// holds reports whether a dynamic client may have the address.
func (s *subnet) holds(a netip.Addr, ours []netip.Addr) bool {
	return s.pool.contains(a) && !s.excluded(a, ours)
}

// excluded reports addresses of the subnet that are never given out: its own, its gateway's, network, broadcast, ours.
func (s *subnet) excluded(a netip.Addr, ours []netip.Addr) bool {
	if !s.CIDR.Contains(a) || a == s.Gateway || a == s.CIDR.Masked().Addr() || a == lastOf(s.CIDR) {
		return true
	}
	for _, o := range ours {
		if a == o {
			return true
		}
	}
	return false
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
