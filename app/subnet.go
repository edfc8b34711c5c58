package app

import (
	"cmp"
	"net/netip"
	"slices"
	"strings"
	"time"
)

// Lease times a subnet may have.
const (
	MinLease = 2 * time.Minute
	MaxLease = 7 * 24 * time.Hour
)

// Subnet modes. In all but off, machines that netboot are told what to boot.
const (
	SubnetOff   = "off"   // listen, answer nothing
	SubnetFull  = "full"  // give addresses too: the network's one DHCP server
	SubnetProxy = "proxy" // give no addresses: beside another DHCP server (PXE 2.1, proxyDHCP on ports 67 and 4011)
	SubnetHTTP  = "http"  // as proxy, but for UEFI HTTP Boot and iPXE only: no TFTP
)

// TFTP block sizes that a subnet may be bound to, in bytes: what every client takes, and what fits an Ethernet frame.
const (
	MinTFTPBlock = 512
	MaxTFTPBlock = 1468
)

// Limits of one subnet.
const (
	MaxRoutes       = 32
	MaxReservations = 1024
)

// Answers reports whether anything is answered on the subnet.
func (s *Subnet) Answers() bool { return s.Mode != SubnetOff }

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
	case !slices.Contains([]string{SubnetOff, SubnetFull, SubnetProxy, SubnetHTTP}, s.Mode):
		return Invalid("mode", "%q is no mode", clip(s.Mode, 20)).Do("use off, full, proxy or http")
	case time.Duration(s.LeaseTime) < MinLease || time.Duration(s.LeaseTime) > MaxLease:
		return Invalid("leaseTime", "is out of range").Do("use %s to %s", MinLease, MaxLease)
	case len(s.Interface) > 15 || strings.ContainsAny(s.Interface, "/ \t\r\n\x00"):
		return Invalid("interface", "is no name of a network interface").Do("use a name that \"ip link\" shows")
	case s.TFTPBlockSize != 0 && (s.TFTPBlockSize < MinTFTPBlock || s.TFTPBlockSize > MaxTFTPBlock):
		return Invalid("tftpBlockSize", "%d is out of range", s.TFTPBlockSize).Do("use %d to %d, or 0 for no bound", MinTFTPBlock, MaxTFTPBlock)
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
	return cmp.Or(s.validateAddresses(), s.validateRoutes(), s.validateOptions(), s.validateReservations())
}

// special reports a network that hosts have no addresses of: 0/8, loopback, link-local, multicast and what is reserved above.
func special(p netip.Prefix) bool {
	a := p.Addr().As4()
	return a[0] == 0 || a[0] == 127 || a[0] == 169 && a[1] == 254 || a[0] >= 224
}

// host checks that a machine of the subnet can have an address.
func (s *Subnet) host(field string, a netip.Addr) error {
	if !s.CIDR.Contains(a) || a == s.CIDR.Addr() || a == broadcast(s.CIDR) {
		return Invalid(field, "%s is no host address of %s", a, s.CIDR)
	}
	return nil
}

func (s *Subnet) validateAddresses() error {
	for _, a := range append(append([]netip.Addr{}, s.DNS...), s.NTP...) {
		if !a.Is4() || a.IsUnspecified() || a.IsMulticast() {
			return Invalid("dns", "%s is no address of a server", a).Do("list IPv4 addresses")
		}
	}
	if s.Gateway.IsValid() {
		if err := s.host("gateway", s.Gateway); err != nil {
			return err
		}
	}
	if !s.PoolStart.IsValid() && !s.PoolEnd.IsValid() {
		if s.Mode == SubnetFull {
			return Invalid("poolStart", "is missing").Do("give the range of addresses that machines may get")
		}
		return nil
	}
	if err := s.host("poolStart", s.PoolStart); err != nil {
		return err
	}
	if err := s.host("poolEnd", s.PoolEnd); err != nil {
		return err
	}
	if s.PoolEnd.Less(s.PoolStart) {
		return Invalid("poolEnd", "is before poolStart")
	}
	return nil
}

func (s *Subnet) validateRoutes() error {
	if len(s.Routes) > MaxRoutes {
		return Invalid("routes", "lists %d routes", len(s.Routes)).Do("keep to %d", MaxRoutes)
	}
	seen := map[netip.Prefix]bool{}
	for _, r := range s.Routes {
		switch {
		case !r.To.IsValid() || !r.To.Addr().Is4() || r.To != r.To.Masked():
			return Invalid("routes", "%s is no IPv4 network", r.To).Do("write a route as 198.51.100.0/24=192.0.2.254")
		case r.To.Bits() == 0 && s.Gateway.IsValid():
			return Invalid("routes", "there is a default route beside the gateway").Do("keep one of them")
		case seen[r.To]:
			return Invalid("routes", "there are two routes to %s", r.To).Do("keep one of them")
		}
		if err := s.host("routes", r.Via); err != nil {
			return err
		}
		seen[r.To] = true
	}
	return nil
}

func (s *Subnet) validateOptions() error {
	if len(s.Options) > MaxDHCPOptions {
		return badOption("there are %d options", len(s.Options)).Do("keep to %d", MaxDHCPOptions)
	}
	seen := map[uint8]bool{}
	for _, o := range s.Options {
		if err := o.Validate(); err != nil {
			return err
		}
		if seen[o.Code] {
			return badOption("option %d is there twice", o.Code).Do("give all its values in one")
		}
		seen[o.Code] = true
	}
	return nil
}

func (s *Subnet) validateReservations() error {
	if len(s.Reservations) > MaxReservations {
		return Errorf(Conflict, "too-many-reservations", "the subnet has %d reservations already", MaxReservations).Do("delete some, or use a pool")
	}
	macs, addrs := map[MAC]bool{}, map[netip.Addr]bool{}
	for _, r := range s.Reservations {
		mac, err := ParseMAC(string(r.MAC))
		if err != nil || mac != r.MAC {
			return Invalid("mac", "%q is not a MAC address in its stored form", clip(string(r.MAC), 40))
		}
		if err := cmp.Or(s.host("address", r.Addr), ValidLine("note", r.Note, 200)); err != nil {
			return err
		}
		switch {
		case r.Addr == s.Gateway:
			return Invalid("address", "%s is the gateway's", r.Addr).Do("reserve another address")
		case macs[r.MAC]:
			return Errorf(Conflict, "mac-reserved", "%s has a reservation already", r.MAC).At("mac").Do("delete that one first")
		case addrs[r.Addr]:
			return Errorf(Conflict, "address-reserved", "%s is reserved for another port", r.Addr).At("address").Do("reserve another address")
		}
		macs[r.MAC], addrs[r.Addr] = true, true
	}
	return nil
}

// String is the text form.
func (r StaticRoute) String() string { return r.To.String() + "=" + r.Via.String() }

// MarshalText gives the text form.
func (r StaticRoute) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads the text form.
func (r *StaticRoute) UnmarshalText(b []byte) error {
	to, via, _ := strings.Cut(string(b), "=")
	p, perr := netip.ParsePrefix(strings.TrimSpace(to))
	a, aerr := netip.ParseAddr(strings.TrimSpace(via))
	if perr != nil || aerr != nil {
		return Invalid("routes", "%q is not NETWORK=GATEWAY", clip(string(b), 60)).Do("write it as 198.51.100.0/24=192.0.2.254")
	}
	*r = StaticRoute{p, a}
	return nil
}

func broadcast(p netip.Prefix) netip.Addr {
	b := p.Addr().As4()
	for i := range 32 - p.Bits() {
		b[3-i/8] |= 1 << (i % 8)
	}
	return netip.AddrFrom4(b)
}
