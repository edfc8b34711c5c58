package redfish

import (
	"net/http"
	"testing"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/bcd/plugins/driver"
)

func FuzzDecode(f *testing.F) {
	for _, s := range []string{
		`{"SerialNumber":12345,"ProcessorSummary":{"Count":"2"},"@odata.etag":7,"Boot":null}`,
		`{"Actions":{"#ComputerSystem.Reset":{"target":7}},"Links":[{"Chassis":{}}],"Status":"OK"}`,
		`{"MACAddress":["00-00-5E-00-53-01"],"IPv4Addresses":{"Address":1},"Name":{},"Id":[[[[]]]]}`,
		`{"MemorySummary":{"TotalSystemMemoryGiB":1e400},"HostingRoles":{"a":{}},"PowerState":true}`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		d, err := parseDocument(&response{header: http.Header{}, body: body})
		if err != nil {
			return
		}
		decode[schemas.ComputerSystem](d)
		decode[schemas.EthernetInterface](d)
		decode[schemas.Manager](d)
		facts := bootFactsOf("", d, d)
		if w, err := wishFor(facts, "pxe", driver.BootOptions{}); err == nil && len(planBoot(facts, w)) == 0 {
			t.Fatal("no form to write")
		}
		addresses(d)
		powerOf(d.text("PowerState"))
		parseFault(&response{status: 400, body: body}).err("x")
	})
}

func FuzzResolveLink(f *testing.F) {
	c := newClient(target{host: "bmc", origin: "https://bmc:443"}, "", false, limitsOf(0))
	for _, s := range []string{"/redfish/v1", "https://bmc/x", "//evil/x", "http:bmc", "/a\x00b", "https://bmc:443@evil/"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, link string) {
		p, err := c.resolve(link)
		if err != nil {
			return
		}
		if p == "" || p[0] != '/' {
			t.Fatalf("%q became %q", link, p)
		}
		req, err := http.NewRequest(http.MethodGet, c.target.origin+p, nil)
		if err == nil && req.URL.Host != "bmc:443" {
			t.Fatalf("%q goes to %q", link, req.URL.Host)
		}
	})
}

func FuzzAddress(f *testing.F) {
	for _, s := range []string{"192.0.2.1", "[2001:db8::1]:443", "https://bmc/redfish/v1/Systems/1", "a:b:c", "[%1]:4"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		a, err := parseAddress(s)
		if err != nil {
			return
		}
		again, err := parseAddress(a.origin + a.system)
		if err != nil || again != a {
			t.Fatalf("%q became %+v, then %+v, %v", s, a, again, err)
		}
	})
}
