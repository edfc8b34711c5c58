package views

import (
	"net/netip"
	"testing"

	"github.com/better-compute/bcd/app"
)

func TestNetworkText(t *testing.T) {
	n := &app.SystemNetwork{
		Links: []app.Link{
			{Name: "lan0", Kind: app.LinkPort, MAC: "00:00:5e:00:53:01"},
			{Name: "v20", Kind: app.LinkVLAN, Parent: "lan0", VLAN: 20, Addresses: []netip.Prefix{netip.MustParsePrefix("192.0.2.10/24")},
				Routes: []app.Route{{To: netip.MustParsePrefix("0.0.0.0/0"), Via: netip.MustParseAddr("192.0.2.1")}}},
		},
		DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")},
	}
	const want = `links:
    - {name: lan0, kind: port, mac: '00:00:5e:00:53:01'}
    - {name: v20, kind: vlan, parent: lan0, vlan: 20, addresses: [192.0.2.10/24], routes: [{to: 0.0.0.0/0, via: 192.0.2.1}]}
dns:
    - 192.0.2.53
`
	if got := networkText(n); got != want {
		t.Errorf("got\n%s", got)
	}
}
