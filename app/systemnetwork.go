package app

import (
	"fmt"
	"net/netip"
	"regexp"
	"slices"
	"strings"
)

// SystemNetwork is the network of an installed system, which its first boot sets up. Without one every port asks DHCP.
type SystemNetwork struct {
	Links  []Link       `json:"links" doc:"ports, bonds, VLANs and bridges"`
	DNS    []netip.Addr `json:"dns,omitempty" doc:"name server asked by links that name none"`
	Search []string     `json:"search,omitempty" doc:"domain that short names are looked up in"`
}

// LinkKind is what a link is made of.
type LinkKind string

// The kinds of link.
const (
	LinkPort   LinkKind = "port"   // a NIC, found by its MAC address
	LinkBond   LinkKind = "bond"   // several ports as one
	LinkVLAN   LinkKind = "vlan"   // IEEE 802.1Q, on a port, bond or bridge
	LinkBridge LinkKind = "bridge" //
)

// Link is one network device of an installed system.
type Link struct {
	Name    string   `json:"name"` // in the system, at most 15 bytes
	Kind    LinkKind `json:"kind"`
	MAC     MAC      `json:"mac,omitempty"`     // of a port
	Members []string `json:"members,omitempty"` // of a bond or a bridge: names of other links
	Mode    string   `json:"mode,omitempty"`    // of a bond; default active-backup
	Parent  string   `json:"parent,omitempty"`  // of a VLAN
	VLAN    int      `json:"vlan,omitempty"`    // its id, 1 to 4094

	DHCP      bool           `json:"dhcp,omitempty"`      // IPv4
	DHCP6     bool           `json:"dhcp6,omitempty"`     //
	Addresses []netip.Prefix `json:"addresses,omitempty"` // static ones, each with its network's length
	Routes    []Route        `json:"routes,omitempty"`    //
	DNS       []netip.Addr   `json:"dns,omitempty"`       //
	MTU       int            `json:"mtu,omitempty"`       // bytes; 0 leaves the driver's
}

// Route is a static route. A default route is to 0.0.0.0/0 or ::/0.
type Route struct {
	To     netip.Prefix `json:"to"`
	Via    netip.Addr   `json:"via"`
	Metric int          `json:"metric,omitempty"`
}

const (
	maxLinks = 64
	minMTU   = 576  // RFC 791
	minMTU6  = 1280 // RFC 8200
	maxMTU   = 65535
)

var (
	linkNameRE = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9._-]{0,14}$`)
	domainRE   = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9.-]{0,251}[a-zA-Z0-9])?$`)

	// bondModes are the kernel's (Documentation/networking/bonding.rst).
	bondModes = []string{"802.3ad", "active-backup", "balance-alb", "balance-rr", "balance-tlb", "balance-xor", "broadcast"}
)

// Validate checks a network as far as it can be without knowing the machine. The fields in its errors start with at.
func (n *SystemNetwork) Validate(at string) error {
	if len(n.Links) == 0 || len(n.Links) > maxLinks {
		return Invalid(at+".links", "there are %d, a network has 1 to %d", len(n.Links), maxLinks)
	}
	byName := map[string]*Link{}
	for i := range n.Links {
		l := &n.Links[i]
		field := fmt.Sprintf("%s.links[%d]", at, i)
		if err := l.validate(field); err != nil {
			return err
		}
		if byName[l.Name] != nil {
			return Invalid(field+".name", "%q is taken by another link", l.Name).Do("give each link its own name")
		}
		byName[l.Name] = l
	}
	if err := n.checkShape(at, byName); err != nil {
		return err
	}
	if err := checkServers(at, n.DNS); err != nil {
		return err
	}
	for _, d := range n.Search {
		if !domainRE.MatchString(d) {
			return Invalid(at+".search", "%q is not a domain", clip(d, 80))
		}
	}
	return n.checkReach(at)
}

func (l *Link) validate(at string) error {
	if !linkNameRE.MatchString(l.Name) {
		return Invalid(at+".name", "%q cannot name a link", clip(l.Name, 40)).
			Do("use 1 to 15 letters, digits, dots, hyphens and underscores, a letter first")
	}
	if l.Name == "lo" {
		return Invalid(at+".name", "lo is the loopback").Do("choose another name")
	}
	if err := l.checkKind(at); err != nil {
		return err
	}
	for i, p := range l.Addresses {
		a := p.Addr()
		if !p.IsValid() || a.IsMulticast() || a.IsUnspecified() || a.IsLoopback() || a.Zone() != "" || p.Masked().Addr() == a && p.Bits() < a.BitLen()-1 {
			return Invalid(fmt.Sprintf("%s.addresses[%d]", at, i), "%s is not a host's address with its prefix length", p).Do("write it as 192.0.2.10/24")
		}
	}
	for i, r := range l.Routes {
		if err := l.checkRoute(fmt.Sprintf("%s.routes[%d]", at, i), r); err != nil {
			return err
		}
	}
	if least := l.leastMTU(); l.MTU != 0 && (l.MTU < least || l.MTU > maxMTU) {
		return Invalid(at+".mtu", "%d is no MTU: it is %d to %d bytes here", l.MTU, least, maxMTU)
	}
	return checkServers(at, l.DNS)
}

func (l *Link) leastMTU() int {
	if l.DHCP6 || slices.ContainsFunc(l.Addresses, func(p netip.Prefix) bool { return p.Addr().Is6() }) {
		return minMTU6
	}
	return minMTU
}

// checkKind checks that a link has what its kind needs and nothing of another.
func (l *Link) checkKind(at string) error {
	foreign := func(field string, given bool) error {
		if given {
			return Invalid(at+"."+field, "a %s has none", l.Kind).Do("leave it out")
		}
		return nil
	}
	switch l.Kind {
	case LinkPort:
		mac, err := ParseMAC(string(l.MAC))
		if err != nil {
			return Invalid(at+".mac", "a port needs the MAC address it is found by")
		}
		l.MAC = mac
	case LinkBond, LinkBridge:
		if len(l.Members) == 0 || len(l.Members) > maxLinks {
			return Invalid(at+".members", "a %s needs 1 to %d links", l.Kind, maxLinks).Do("list their names")
		}
	case LinkVLAN:
		if l.VLAN < 1 || l.VLAN > 4094 {
			return Invalid(at+".vlan", "%d is no VLAN id", l.VLAN).Do("use 1 to 4094")
		}
		if l.Parent == "" {
			return Invalid(at+".parent", "is empty").Do("name the link that carries the VLAN")
		}
	default:
		return Invalid(at+".kind", "%q is no kind of link", clip(string(l.Kind), 20)).Do("use port, bond, vlan or bridge")
	}
	if l.Kind == LinkBond {
		if l.Mode == "" {
			l.Mode = "active-backup"
		}
		if !slices.Contains(bondModes, l.Mode) {
			return Invalid(at+".mode", "%q is no bonding mode", clip(l.Mode, 40)).Do("use one of %s", strings.Join(bondModes, ", "))
		}
	}
	for _, e := range []error{
		foreign("mac", l.Kind != LinkPort && l.MAC != ""), foreign("mode", l.Kind != LinkBond && l.Mode != ""),
		foreign("members", l.Kind != LinkBond && l.Kind != LinkBridge && len(l.Members) > 0),
		foreign("parent", l.Kind != LinkVLAN && l.Parent != ""), foreign("vlan", l.Kind != LinkVLAN && l.VLAN != 0),
	} {
		if e != nil {
			return e
		}
	}
	return nil
}

// checkRoute checks that the next hop is a neighbour of the link.
func (l *Link) checkRoute(at string, r Route) error {
	if !r.To.IsValid() || r.To.Masked() != r.To {
		return Invalid(at+".to", "%s is not a network", r.To).Do("write it as 198.51.100.0/24, the default route as 0.0.0.0/0 or ::/0")
	}
	if !r.Via.IsValid() || r.Via.Is4() != r.To.Addr().Is4() {
		return Invalid(at+".via", "is not an address of the same family as %s", r.To)
	}
	if r.Metric < 0 {
		return Invalid(at+".metric", "is negative")
	}
	near := l.DHCP && r.Via.Is4() || r.Via.Is6() && (l.DHCP6 || r.Via.IsLinkLocalUnicast())
	for _, p := range l.Addresses {
		near = near || p.Contains(r.Via) && p.Addr() != r.Via
	}
	if !near {
		return Invalid(at+".via", "%s is no neighbour of %s: no address of the link is in its network", r.Via, l.Name).
			Do("add an address of that network, or correct the gateway")
	}
	return nil
}

func checkServers(at string, dns []netip.Addr) error {
	if len(dns) > 8 {
		return Invalid(at+".dns", "there are %d name servers, the limit is 8", len(dns))
	}
	for _, a := range dns {
		if !a.IsValid() || a.IsUnspecified() || a.IsMulticast() || a.Zone() != "" {
			return Invalid(at+".dns", "%s is not the address of a name server", a)
		}
	}
	return nil
}

// checkShape checks how links lie upon one another: each name exists, nothing is used twice, no circle.
func (n *SystemNetwork) checkShape(at string, byName map[string]*Link) error {
	owner, tags, macs := map[string]string{}, map[string]string{}, map[MAC]string{}
	for i := range n.Links {
		l, field := &n.Links[i], fmt.Sprintf("%s.links[%d]", at, i)
		if other := macs[l.MAC]; l.MAC != "" && other != "" {
			return Invalid(field+".mac", "%s is the port %s already", l.MAC, other)
		}
		macs[l.MAC] = l.Name
		for _, name := range l.Members {
			m := byName[name]
			switch {
			case m == nil:
				return Invalid(field+".members", "there is no link %q", clip(name, 40)).Do("add it, or correct the name")
			case l.Kind == LinkBond && m.Kind != LinkPort:
				return Invalid(field+".members", "%s is a %s: a bond is made of ports", name, m.Kind)
			case m.Kind == LinkBridge:
				return Invalid(field+".members", "%s is a bridge, which cannot be part of another", name)
			case owner[name] != "":
				return Invalid(field+".members", "%s belongs to %s already", name, owner[name])
			case m.DHCP || m.DHCP6 || len(m.Addresses) > 0 || len(m.Routes) > 0:
				return Invalid(field+".members", "%s has addresses of its own", name).Do("give them to %s", l.Name)
			}
			owner[name] = l.Name
		}
		if l.Kind != LinkVLAN {
			continue
		}
		p := byName[l.Parent]
		if p == nil || p.Kind == LinkVLAN {
			return Invalid(field+".parent", "there is no port, bond or bridge %q", clip(l.Parent, 40)).Do("add it, or correct the name")
		}
		if l.MTU > p.MTU && p.MTU != 0 || l.MTU > 1500 && p.MTU == 0 {
			return Invalid(field+".mtu", "%d is more than that of %s, which carries it", l.MTU, p.Name).Do("raise the MTU of %s too", p.Name)
		}
		tag := fmt.Sprintf("%s.%d", l.Parent, l.VLAN)
		if tags[tag] != "" {
			return Invalid(field+".vlan", "VLAN %d of %s is %s already", l.VLAN, l.Parent, tags[tag])
		}
		tags[tag] = l.Name
	}
	return checkCircles(at, n.Links, byName)
}

// checkCircles refuses a VLAN on a bridge that the VLAN is a member of.
func checkCircles(at string, links []Link, byName map[string]*Link) error {
	var under func(name string, depth int) bool
	under = func(name string, depth int) bool {
		l := byName[name]
		if depth > len(links) {
			return true
		}
		if l.Kind == LinkVLAN {
			return under(l.Parent, depth+1)
		}
		return slices.ContainsFunc(l.Members, func(m string) bool { return under(m, depth+1) })
	}
	for i, l := range links {
		if under(l.Name, 0) {
			return Invalid(fmt.Sprintf("%s.links[%d]", at, i), "%s lies upon itself", l.Name).Do("break the circle")
		}
	}
	return nil
}

// checkReach checks that the system can be reached at all, has one default route of a family and no address twice.
func (n *SystemNetwork) checkReach(at string) error {
	reached := false
	gateways, seen := map[string]string{}, map[netip.Addr]string{}
	for i, l := range n.Links {
		reached = reached || l.DHCP || l.DHCP6 || len(l.Addresses) > 0
		for _, p := range l.Addresses {
			if other, twice := seen[p.Addr()]; twice {
				return Invalid(fmt.Sprintf("%s.links[%d].addresses", at, i), "%s is an address of %s too", p.Addr(), other)
			}
			seen[p.Addr()] = l.Name
		}
		for _, r := range l.Routes {
			if r.To.Bits() != 0 {
				continue
			}
			key := fmt.Sprint(r.To, " ", r.Metric)
			if other := gateways[key]; other != "" {
				return Invalid(fmt.Sprintf("%s.links[%d].routes", at, i), "%s has a default route of the same metric", other).
					Do("give one of the two a metric")
			}
			gateways[key] = l.Name
		}
	}
	if !reached {
		return Invalid(at+".links", "no link has an address or asks DHCP: the system could not be reached").Do("give one of them addresses")
	}
	return nil
}

// CheckMachine checks that every port of the network is a NIC of the machine.
func (n *SystemNetwork) CheckMachine(at string, nics []NIC) error {
	var known []string
	for _, nic := range nics {
		known = append(known, string(nic.MAC))
	}
	for i, l := range n.Links {
		if l.Kind == LinkPort && !slices.Contains(known, string(l.MAC)) {
			return Invalid(fmt.Sprintf("%s.links[%d].mac", at, i), "the machine has no port %s", l.MAC).
				Do("its ports are: %s", strings.Join(known, ", "))
		}
	}
	return nil
}
