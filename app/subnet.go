package app

import (
	"net/netip"
	"strings"
	"time"
)

// Lease times a subnet may have.
const (
	MinLease = 2 * time.Minute
	MaxLease = 7 * 24 * time.Hour
)

// Subnet modes.
const (
	SubnetOff  = "off"
	SubnetFull = "full"
)

// Validate checks that the subnet can be answered as it says.
func (s *Subnet) Validate() error {
	switch {
	case !s.CIDR.IsValid() || !s.CIDR.Addr().Is4():
		return Invalid("cidr", "is not an IPv4 network").Do("write it as 192.0.2.0/24")
	case special(s.CIDR):
		return Invalid("cidr", "is no network that machines can have addresses of").Do("use the network that the machines' ports are in")
	case s.CIDR != s.CIDR.Masked():
		return Invalid("cidr", "has bits set beyond its prefix").Do("write %s", s.CIDR.Masked())
	case s.CIDR.Bits() < 8 || s.CIDR.Bits() > 30:
		return Invalid("cidr", "has a prefix of %d bits", s.CIDR.Bits()).Do("use 8 to 30")
	case s.Mode != SubnetOff && s.Mode != SubnetFull:
		return Invalid("mode", "is no mode").Do("use off or full")
	case time.Duration(s.LeaseTime) < MinLease || time.Duration(s.LeaseTime) > MaxLease:
		return Invalid("leaseTime", "is out of range").Do("use %s to %s", MinLease, MaxLease)
	case len(s.Interface) > 15 || strings.ContainsAny(s.Interface, "/ \t\r\n\x00"):
		return Invalid("interface", "is no name of a network interface").Do("use a name that \"ip link\" shows")
	case len(s.DNS) > 8 || len(s.NTP) > 8:
		return Invalid("dns", "lists more than 8 servers")
	}
	if s.Domain != "" {
		for _, label := range strings.Split(s.Domain, ".") {
			if len(s.Domain) > 253 || ValidName("domain", label) != nil {
				return Invalid("domain", "is not a domain name")
			}
		}
	}
	return s.validateAddresses()
}

// special reports a network that hosts have no addresses of: 0/8, loopback, link-local, multicast and what is reserved above.
func special(p netip.Prefix) bool {
	a := p.Addr().As4()
	return a[0] == 0 || a[0] == 127 || a[0] == 169 && a[1] == 254 || a[0] >= 224
}

func (s *Subnet) validateAddresses() error {
	host := func(field string, a netip.Addr) error {
		if !s.CIDR.Contains(a) || a == s.CIDR.Addr() || a == broadcast(s.CIDR) {
			return Invalid(field, "%s is no host address of %s", a, s.CIDR)
		}
		return nil
	}
	for _, a := range append(append([]netip.Addr{}, s.DNS...), s.NTP...) {
		if !a.Is4() || a.IsUnspecified() || a.IsMulticast() {
			return Invalid("dns", "%s is no address of a server", a).Do("list IPv4 addresses")
		}
	}
	if s.Gateway.IsValid() {
		if err := host("gateway", s.Gateway); err != nil {
			return err
		}
	}
	if !s.PoolStart.IsValid() && !s.PoolEnd.IsValid() {
		if s.Mode == SubnetFull {
			return Invalid("poolStart", "is missing").Do("give the range of addresses that machines may get")
		}
		return nil
	}
	if err := host("poolStart", s.PoolStart); err != nil {
		return err
	}
	if err := host("poolEnd", s.PoolEnd); err != nil {
		return err
	}
	if s.PoolEnd.Less(s.PoolStart) {
		return Invalid("poolEnd", "is before poolStart")
	}
	return nil
}

func broadcast(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := range 32 - p.Bits() {
		b[3-i/8] |= 1 << (i % 8)
	}
	return netip.AddrFrom4(b)
}
