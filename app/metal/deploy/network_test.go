package deploy

import (
	"encoding/json"
	"net/netip"
	"reflect"
	"testing"

	"github.com/better-compute/bcd/app"
)

func TestNetworkConfig(t *testing.T) {
	n := &app.SystemNetwork{
		Links: []app.Link{
			{Name: "lan0", Kind: app.LinkPort, MAC: "00:00:5e:00:53:01"}, {Name: "lan1", Kind: app.LinkPort, MAC: "00:00:5e:00:53:02", MTU: 9000},
			{Name: "bond0", Kind: app.LinkBond, Members: []string{"lan0", "lan1"}, Mode: "802.3ad"},
			{Name: "v20", Kind: app.LinkVLAN, Parent: "bond0", VLAN: 20, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")},
				Routes: []app.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1"), Metric: 5}, {To: netip.MustParsePrefix("::/0"), Via: netip.MustParseAddr("fe80::1")}}},
			{Name: "br0", Kind: app.LinkBridge, Members: []string{"v30"}, DHCP: true, DNS: []netip.Addr{netip.MustParseAddr("192.0.2.54")}},
			{Name: "v30", Kind: app.LinkVLAN, Parent: "bond0", VLAN: 30},
		},
		DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Search: []string{"example.com"},
	}
	if err := n.Validate("network"); err != nil {
		t.Fatal(err)
	}
	files := Seed(SeedInput{InstanceID: "i", Hostname: "h", Network: n})
	const want = `{"version":2,
"ethernets":{"lan0":{"match":{"macaddress":"00:00:5e:00:53:01"},"set-name":"lan0","dhcp4":false,"dhcp6":false},
 "lan1":{"match":{"macaddress":"00:00:5e:00:53:02"},"set-name":"lan1","dhcp4":false,"dhcp6":false,"mtu":9000}},
"bonds":{"bond0":{"interfaces":["lan0","lan1"],"dhcp4":false,"dhcp6":false,
 "parameters":{"mode":"802.3ad","mii-monitor-interval":100,"lacp-rate":"fast","transmit-hash-policy":"layer3+4"}}},
"vlans":{"v20":{"id":20,"link":"bond0","dhcp4":false,"dhcp6":false,"addresses":["192.0.2.10/24"],
 "routes":[{"to":"0.0.0.0/0","via":"192.0.2.1","metric":5},{"to":"::/0","via":"fe80::1","on-link":true}],
 "nameservers":{"addresses":["192.0.2.53"],"search":["example.com"]}},
 "v30":{"id":30,"link":"bond0","dhcp4":false,"dhcp6":false}},
"bridges":{"br0":{"interfaces":["v30"],"dhcp4":true,"dhcp6":false,"parameters":{"stp":false,"forward-delay":0},
 "nameservers":{"addresses":["192.0.2.54"],"search":["example.com"]}}}}`
	var a, b any
	if err := json.Unmarshal([]byte(want), &a); err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(files["network-config"], &b); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(a, b) {
		t.Errorf("rendered\n%s", files["network-config"])
	}
	if _, there := Seed(SeedInput{})["network-config"]; there {
		t.Error("a machine without a network of its own got one")
	}
}
