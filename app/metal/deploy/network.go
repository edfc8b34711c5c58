package deploy

import (
	"encoding/json"

	"github.com/better-compute/bcd/app"
)

// networkConfig renders a network as cloud-init's network-config version 2, which is netplan's
// (cloud-init's documentation, "Networking config Version 2"). Ports are found by MAC address and given their names.
func networkConfig(n *app.SystemNetwork) []byte {
	sections := map[app.LinkKind]map[string]any{}
	for _, l := range n.Links {
		d := device(n, l)
		switch l.Kind {
		case app.LinkPort:
			d["match"], d["set-name"] = map[string]any{"macaddress": l.MAC}, l.Name
		case app.LinkBond:
			d["interfaces"] = l.Members
			d["parameters"] = bondParameters(l.Mode)
		case app.LinkBridge:
			d["interfaces"] = l.Members
			d["parameters"] = map[string]any{"stp": false, "forward-delay": 0} // a server's bridge has no loops to look for
		case app.LinkVLAN:
			d["link"], d["id"] = l.Parent, l.VLAN
		}
		if sections[l.Kind] == nil {
			sections[l.Kind] = map[string]any{}
		}
		sections[l.Kind][l.Name] = d
	}
	doc := map[string]any{"version": 2}
	for kind, name := range map[app.LinkKind]string{
		app.LinkPort: "ethernets", app.LinkBond: "bonds", app.LinkBridge: "bridges", app.LinkVLAN: "vlans",
	} {
		if s := sections[kind]; s != nil {
			doc[name] = s
		}
	}
	b, _ := json.MarshalIndent(doc, "", "  ") // strings and numbers marshal; JSON is YAML
	return append(b, '\n')
}

// device is what all kinds of link have.
func device(n *app.SystemNetwork, l app.Link) map[string]any {
	d := map[string]any{"dhcp4": l.DHCP, "dhcp6": l.DHCP6}
	if len(l.Addresses) > 0 {
		d["addresses"] = l.Addresses
	}
	if len(l.Routes) > 0 {
		d["routes"] = routes(l.Routes)
	}
	if l.MTU > 0 {
		d["mtu"] = l.MTU
	}
	servers := l.DNS
	if len(servers) == 0 && (len(l.Addresses) > 0 || l.DHCP || l.DHCP6) {
		servers = n.DNS
	}
	if len(servers) > 0 {
		names := map[string]any{"addresses": servers}
		if len(n.Search) > 0 {
			names["search"] = n.Search
		}
		d["nameservers"] = names
	}
	return d
}

func routes(in []app.Route) []map[string]any {
	out := make([]map[string]any, len(in))
	for i, r := range in {
		out[i] = map[string]any{"to": r.To, "via": r.Via}
		if r.Metric > 0 {
			out[i]["metric"] = r.Metric
		}
		if r.Via.Is6() && r.Via.IsLinkLocalUnicast() {
			out[i]["on-link"] = true
		}
	}
	return out
}

// bondParameters watches the carrier every 100 ms; without it a dead cable would go unnoticed. LACP partners are asked to
// speak every second.
func bondParameters(mode string) map[string]any {
	p := map[string]any{"mode": mode, "mii-monitor-interval": 100}
	if mode == "802.3ad" {
		p["lacp-rate"], p["transmit-hash-policy"] = "fast", "layer3+4"
	}
	return p
}
