package app

import (
	"net/netip"
	"strings"
	"testing"
)

func portLink(name string, last string) Link {
	return Link{Name: name, Kind: LinkPort, MAC: MAC("00:00:5e:00:53:" + last)}
}

// rackNetwork is a network with everything: a bond of two ports, a bridge on it, a VLAN with an address.
func rackNetwork() *SystemNetwork {
	return &SystemNetwork{
		Links: []Link{
			{Name: "lan0", Kind: LinkPort, MAC: "00-00-5E-00-53-01"}, portLink("lan1", "02"), portLink("lan2", "03"),
			{Name: "bond0", Kind: LinkBond, Members: []string{"lan0", "lan1"}, MTU: 9000},
			{Name: "storage", Kind: LinkVLAN, Parent: "bond0", VLAN: 20, MTU: 9000,
				Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24"), netip.MustParsePrefix("2001:db8::10/64")},
				Routes: []Route{
					{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1")},
					{To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fe80::1")},
				}},
			{Name: "br0", Kind: LinkBridge, Members: []string{"lan2"}, DHCP: true},
		},
		DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Search: []string{"example.com"},
	}
}

func TestSystemNetworkIsTakenWhole(t *testing.T) {
	n := rackNetwork()
	if err := n.Validate("network"); err != nil {
		t.Fatal(err)
	}
	if n.Links[0].MAC != "00:00:5e:00:53:01" || n.Links[3].Mode != "active-backup" {
		t.Errorf("not normalized: %+v", n.Links)
	}
	nics := []NIC{{MAC: "00:00:5e:00:53:01"}, {MAC: "00:00:5e:00:53:02"}}
	if err := n.CheckMachine("network", nics); err == nil || !strings.Contains(err.Error(), "00:00:5e:00:53:03") {
		t.Errorf("a port that the machine lacks: %v", err)
	}
	if err := n.CheckMachine("network", append(nics, NIC{MAC: "00:00:5e:00:53:03"})); err != nil {
		t.Error(err)
	}
}

func TestSystemNetworkRefusals(t *testing.T) {
	link := func(i int, change func(*Link)) func(*SystemNetwork) {
		return func(n *SystemNetwork) { change(&n.Links[i]) }
	}
	for field, changes := range map[string][]func(*SystemNetwork){
		"network.links": {
			func(n *SystemNetwork) { n.Links = nil },
			func(n *SystemNetwork) { n.Links = make([]Link, maxLinks+1) },
			func(n *SystemNetwork) { n.Links = []Link{portLink("lan0", "01")} }, // nobody could reach it
		},
		"network.links[0].name": {
			link(0, func(l *Link) { l.Name = "" }), link(0, func(l *Link) { l.Name = "sixteen-byte-nam" }), link(0, func(l *Link) { l.Name = "a b" }),
			link(0, func(l *Link) { l.Name = "lo" }), link(0, func(l *Link) { l.Name = "../x" }), link(0, func(l *Link) { l.Name = "a\nb" }),
		},
		"network.links[1].name":    {link(1, func(l *Link) { l.Name = "lan0" })},
		"network.links[0].kind":    {link(0, func(l *Link) { l.Kind = "team" })},
		"network.links[0].mac":     {link(0, func(l *Link) { l.MAC = "" }), link(0, func(l *Link) { l.MAC = "ff:ff:ff:ff:ff:ff" })},
		"network.links[1].mac":     {link(1, func(l *Link) { l.MAC = "00:00:5e:00:53:01" })},
		"network.links[3].mac":     {link(3, func(l *Link) { l.MAC = "00:00:5e:00:53:07" })},
		"network.links[0].members": {link(0, func(l *Link) { l.Members = []string{"lan1"} })},
		"network.links[3].mode":    {link(3, func(l *Link) { l.Mode = "lacp" })},
		"network.links[5].mode":    {link(5, func(l *Link) { l.Mode = "802.3ad" })},
		"network.links[3].vlan":    {link(3, func(l *Link) { l.VLAN = 7 })},
		"network.links[4].vlan":    {link(4, func(l *Link) { l.VLAN = 0 }), link(4, func(l *Link) { l.VLAN = 4095 }), link(4, func(l *Link) { l.VLAN = -1 })},
		"network.links[4].parent":  {link(4, func(l *Link) { l.Parent = "" }), link(4, func(l *Link) { l.Parent = "bond9" }), link(4, func(l *Link) { l.Parent = "storage" })},
		"network.links[4].mtu":     {link(4, func(l *Link) { l.MTU = 9001 }), link(4, func(l *Link) { l.MTU = 1279 })},
		"network.links[3].mtu":     {link(3, func(l *Link) { l.MTU = 575 }), link(3, func(l *Link) { l.MTU = 65536 })},
		"network.links[4].dns":     {link(4, func(l *Link) { l.DNS = []netip.Addr{netip.MustParseAddr("0.0.0.0")} })},
		"network.dns":              {func(n *SystemNetwork) { n.DNS = make([]netip.Addr, 9) }, func(n *SystemNetwork) { n.DNS = []netip.Addr{{}} }},
		"network.search":           {func(n *SystemNetwork) { n.Search = []string{"a b"} }, func(n *SystemNetwork) { n.Search = []string{"x\n"} }},
		"network.links[5].routes": {link(5, func(l *Link) {
			l.Routes = []Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("198.51.100.1")}}
		})},
		"network.links[4].routes[0].via": {
			link(4, func(l *Link) { l.Routes[0].Via = netip.MustParseAddr("198.51.100.1") }), link(4, func(l *Link) { l.Routes[0].Via = netip.MustParseAddr("192.0.2.10") }),
			link(4, func(l *Link) { l.Routes[0].Via = netip.MustParseAddr("2001:db8::1") }), link(4, func(l *Link) { l.Routes[0].Via = netip.Addr{} }),
		},
		"network.links[4].routes[0].to":     {link(4, func(l *Link) { l.Routes[0].To = netip.MustParsePrefix("198.51.100.1/24") })},
		"network.links[4].routes[0].metric": {link(4, func(l *Link) { l.Routes[0].Metric = -1 })},
		"network.links[4].addresses[0]": {
			link(4, func(l *Link) { l.Addresses[0] = netip.MustParsePrefix("192.0.2.0/24") }), link(4, func(l *Link) { l.Addresses[0] = netip.Prefix{} }),
			link(4, func(l *Link) { l.Addresses[0] = netip.MustParsePrefix("224.0.0.1/24") }), link(4, func(l *Link) { l.Addresses[0] = netip.MustParsePrefix("127.0.0.1/8") }),
		},
		"network.links[4].addresses": {link(4, func(l *Link) { l.Addresses = append(l.Addresses, l.Addresses[0]) })},
	} {
		for i, change := range changes {
			n := rackNetwork()
			change(n)
			if got := fieldOf(n.Validate("network")); got != field {
				t.Errorf("%s, change %d: refused at %q: %v", field, i, got, n.Validate("network"))
			}
		}
	}
}

func TestSystemNetworkShapes(t *testing.T) {
	for name, c := range map[string]struct {
		field  string
		change func(n *SystemNetwork)
	}{
		"a bond of nothing":           {"network.links[3].members", func(n *SystemNetwork) { n.Links[3].Members = nil }},
		"a bond of what is not there": {"network.links[3].members", func(n *SystemNetwork) { n.Links[3].Members = []string{"lan9"} }},
		"a bond of a bridge":          {"network.links[3].members", func(n *SystemNetwork) { n.Links[3].Members = []string{"br0"} }},
		"a bridge of a bridge":        {"network.links[5].members", func(n *SystemNetwork) { n.Links[5].Members = []string{"br0"} }},
		"a port in two":               {"network.links[5].members", func(n *SystemNetwork) { n.Links[5].Members = []string{"lan1"} }},
		"a member with an address":    {"network.links[3].members", func(n *SystemNetwork) { n.Links[0].DHCP = true }},
		"the same VLAN twice": {"network.links[6].vlan", func(n *SystemNetwork) {
			n.Links = append(n.Links, Link{Name: "again", Kind: LinkVLAN, Parent: "bond0", VLAN: 20})
		}},
		"a bridge on a VLAN on itself": {"network.links[5]", func(n *SystemNetwork) {
			n.Links[5].Members = []string{"loop"}
			n.Links = append(n.Links, Link{Name: "loop", Kind: LinkVLAN, Parent: "br0", VLAN: 9})
		}},
	} {
		n := rackNetwork()
		c.change(n)
		if err := n.Validate("network"); fieldOf(err) != c.field {
			t.Errorf("%s: %v at %q", name, err, fieldOf(err))
		}
	}
}

func fieldOf(err error) string {
	if e, ok := AsError(err); ok {
		return e.Field
	}
	return ""
}
