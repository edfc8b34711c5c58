package console_test

import (
	"net/netip"
	"net/url"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

func form(pairs ...string) string {
	v := url.Values{}
	for i := 0; i+1 < len(pairs); i += 2 {
		v.Add(pairs[i], pairs[i+1])
	}
	return v.Encode()
}

// Every action of the console as the form post it is: where it leads, what it asked of the use case.
func TestForms(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	admin := x.As(app.RoleAdmin)
	for _, c := range []struct {
		name, target, body string
		status             int
		leads, asked       string
	}{
		{"enroll", "/machines/enroll", form("name", "n1", "bmc.driver", "redfish", "bmc.address", "192.0.2.40", "username", "u", "password", "p", "macs", "00-00-5E-00-53-40, 0000.5e00.5341", "labels", "a=b", "firmware", "uefi", "do", "enroll"), 303, "/machines/", "enroll"},
		{"enroll without a login", "/machines/enroll", form("name", "n2", "bmc.driver", "redfish", "bmc.address", "192.0.2.40"), 422, "", ""},
		{"enroll with a firmware of another kind", "/machines/enroll", form("name", "n3", "bmc.driver", "redfish", "macs", "00:00:5e:00:53:42", "bmc.address", "192.0.2.40", "username", "u", "password", "p", "firmware", "coreboot"), 422, "", ""},
		{"test", "/machines/enroll", form("bmc.driver", "redfish", "bmc.address", "192.0.2.40", "username", "u", "password", "p", "do", "test"), 200, "", "test-bmc"},
		{"commission", "/machines/m-5/commission", "", 303, "/machines/m-5", "commission"},
		{"deploy", "/machines/m-3/deploy", form("image", "img-1", "disk", "serial:S4EWNX0M", "boot", "reboot", "userData", "#cloud-config\r\na: b\r\n"), 303, "/machines/m-3", "deploy"},
		{"deploy of nothing", "/machines/m-3/deploy", form("disk", "serial:S4EWNX0M"), 422, "", ""},
		{"deploy with a line break", "/machines/m-3/deploy", form("image", "img-1", "kernelArgs", "a\nb"), 422, "", ""},
		{"redeploy without the name", "/machines/m-1/deploy", form("image", "img-1", "redeploy", "true"), 422, "", ""},
		{"redeploy", "/machines/m-1/deploy", form("image", "img-1", "redeploy", "true", "confirm", "rack1-node1"), 303, "/machines/m-1", "deploy"},
		{"release without the name", "/machines/m-1/release", form("confirm", "rack1"), 422, "", ""},
		{"release", "/machines/m-1/release", form("confirm", "rack1-node1", "serial", "ZA1"), 303, "/machines/m-1", "release"},
		{"delete without the name", "/machines/m-1/delete", "", 422, "", ""},
		{"delete", "/machines/m-1/delete", form("confirm", "rack1-node1"), 303, "/machines", "delete"},
		{"power", "/machines/m-1/power", form("action", "soft"), 303, "/machines/m-1", "power"},
		{"power of another kind", "/machines/m-1/power", form("action", "explode"), 422, "", ""},
		{"override without a reason", "/machines/m-4/override", form("state", "ready"), 422, "", ""},
		{"override", "/machines/m-4/override", form("state", "ready", "reason", "I looked"), 303, "/machines/m-4", "override"},
		{"lock", "/machines/m-1/lock", form("reason", "mine"), 303, "/machines/m-1", "lock"},
		{"rescue with no key", "/machines/m-1/rescue", form("authorizedKeys", "not a key"), 422, "", ""},
		{"boot an ISO", "/machines/m-3/boot-iso", form("form", "iso", "image", "img-4", "via", "network"), 303, "/machines/m-3", "boot-iso"},
		{"boot an ISO by another way", "/machines/m-3/boot-iso", form("form", "iso", "image", "img-4", "via", "floppy"), 422, "", ""},
		{"boot no ISO", "/machines/m-3/boot-iso", form("form", "iso"), 422, "", ""},
		{"boot an ISO on a deployed machine without the name", "/machines/m-1/boot-iso", form("form", "iso", "image", "img-4"), 422, "", ""},
		{"boot an ISO on a deployed machine", "/machines/m-1/boot-iso", form("form", "iso", "image", "img-4", "confirm", "rack1-node1"), 303, "/machines/m-1", "boot-iso"},
		{"leave an ISO", "/machines/m-1/exit-iso", form("installed", "1"), 303, "/machines/m-1", "exit-iso"},
		{"batch of nothing", "/machines/batch", form("verb", "commission"), 422, "", ""},
		{"batch without a verb", "/machines/batch", form("id", "m-1"), 422, "", ""},
		{"batch", "/machines/batch", form("verb", "power:on", "id", "m-1", "id", "m-3"), 303, "/machines", "power"},
		{"batch release asks", "/machines/batch", form("verb", "release", "id", "m-1", "id", "m-3"), 200, "", ""},
		{"batch release with another number", "/machines/batch", form("verb", "release", "id", "m-1", "id", "m-3", "confirm", "3"), 422, "", ""},
		{"batch release", "/machines/batch", form("verb", "release", "id", "m-1", "id", "m-3", "confirm", "2"), 303, "/machines", "release"},
		{"batch deploy without an image", "/machines/batch", form("verb", "deploy", "id", "m-1"), 422, "", ""},
		{"network", "/machines/m-3/network", form("network", "links:\r\n- {name: lan0, kind: port, mac: \"00:00:5e:00:53:13\", dhcp: true}\r\n"), 303, "/machines/m-3", ""},
		{"network that is no YAML", "/machines/m-3/network", form("network", "links: ["), 422, "", ""},
		{"network with an unknown key", "/machines/m-3/network", form("network", "links: []\ncolour: red"), 422, "", ""},
		{"network of another machine's port", "/machines/m-3/network", form("network", "links: [{name: lan0, kind: port, mac: \"00:00:5e:00:53:99\", dhcp: true}]"), 422, "", ""},
		{"network cleared", "/machines/m-3/network/delete", "", 303, "/machines/m-3", ""},
		{"accept", "/discovered/00:00:5e:00:53:77/accept", form("name", "found", "bmc.driver", "redfish"), 303, "/machines/", "enroll"},
		{"confirm a port", "/machines/m-3/confirm-mac", form("mac", "00:00:5e:00:53:13"), 303, "/machines/m-3", "confirm-mac"},
	} {
		before := len(x.Service.Calls())
		w := x.Do("POST", c.target, admin, c.body)
		calls := x.Service.Calls()[before:]
		asked := ""
		if len(calls) > 0 {
			asked = calls[0].What
		}
		if w.Code != c.status || !strings.HasPrefix(w.Header().Get("Location"), c.leads) || asked != c.asked {
			t.Errorf("%s: %d to %q, asked %q", c.name, w.Code, w.Header().Get("Location"), asked)
		}
		if c.status == 422 && !strings.Contains(w.Body.String(), `role="alert"`) {
			t.Errorf("%s: the refusal is not shown", c.name)
		}
	}
	if m, err := x.Store.Machine(t.Context(), "n1"); err != nil || m.Firmware != app.FirmwareUEFI {
		t.Errorf("enrolled %+v, %v", m, err)
	}
	for _, call := range x.Service.Calls() {
		if o, ok := call.In.(api.VerbOptions); ok && o.Deploy != nil && !o.Deploy.Redeploy && (o.Deploy.UserData != "#cloud-config\na: b\n" || o.Deploy.Disk.Serial != "S4EWNX0M" || o.Deploy.Boot != app.BootReboot) {
			t.Errorf("deploy %+v", o.Deploy)
		}
	}
}

// The forms of what is kept here: each leaves its trace in the store.
func TestSiteForms(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	ctx := t.Context()
	ok := func(target, body string) {
		t.Helper()
		if w := x.Do("POST", target, admin, body); w.Code != 303 {
			t.Fatalf("%s: %d %s", target, w.Code, w.Body)
		}
	}
	no := func(target, body, says string) {
		t.Helper()
		w := x.Do("POST", target, admin, body)
		if w.Code < 400 || w.Code >= 500 || !strings.Contains(w.Body.String(), says) {
			t.Errorf("%s: %d, no %q in %s", target, w.Code, says, w.Body)
		}
	}
	ok("/network/subnets", form("cidr", "192.0.2.0/24", "interface", "eno1", "leaseTime", "1h", "dns", "192.0.2.53 192.0.2.54"))
	subnets, err := x.Store.ListSubnets(ctx)
	if err != nil || len(subnets) != 1 || subnets[0].Mode != "off" || len(subnets[0].DNS) != 2 {
		t.Fatalf("%+v %v", subnets, err)
	}
	id := "/network/subnets/" + subnets[0].ID
	no(id+"/mode", form("mode", "full"), "range of addresses")
	ok(id, form("cidr", "192.0.2.0/24", "poolStart", "192.0.2.10", "poolEnd", "192.0.2.20", "leaseTime", "1h"))
	ok(id+"/mode", form("mode", "full"))
	no(id+"/delete", "", "turn it off first")
	no(id, form("form", "subnet:"+subnets[0].ID, "cidr", "192.0.2.0/24", "poolStart", "192.0.2.10", "poolEnd", "192.0.2.20", "leaseTime", "1h", "options", "26=uint8:1"), "2 bytes")
	no(id, form("cidr", "192.0.2.0/24", "leaseTime", "1h", "routes", "198.51.100.0"), "198.51.100.0/24=192.0.2.254")
	ok(id+"/reservations", form("mac", "00-00-5e-00-53-01", "address", "192.0.2.9", "note", "printer"))
	no(id+"/reservations", form("mac", "00-00-5e-00-53-01", "address", "192.0.2.8"), "has a reservation already")
	no(id+"/reservations", form("mac", "x", "address", "192.0.2.8"), "MAC address")
	ok(id+"/reservations/00:00:5e:00:53:01/delete", "")
	x.Wire.Find([]app.Rival{{Interface: "eno1", Server: netip.MustParseAddr("192.0.2.3"), Offered: netip.MustParseAddr("192.0.2.77")}}, nil)
	no(id+"/rivals", "", "reached through a relay") // the change above took the interface away
	ok(id+"/mode", form("mode", "off"))
	ok(id, form("cidr", "192.0.2.0/24", "interface", "eno1", "poolStart", "192.0.2.10", "poolEnd", "192.0.2.20", "leaseTime", "1h", "options", "26=uint16:9000\n224=text:rack 1", "tftpSinglePort", "1", "tftpBlockSize", "512"))
	ok(id+"/rivals", "")
	no(id+"/mode", form("form", "mode:"+subnets[0].ID, "mode", "full"), "despiteRival") // names the rival, and offers the box
	ok(id+"/mode", form("mode", "proxy"))
	ok(id+"/mode", form("mode", "full", "despiteRival", "1"))
	shown := x.Do("GET", "/network", admin, "").Body.String()
	for _, want := range []string{"Another DHCP server answered: 192.0.2.3", "offers 192.0.2.77", "26=uint16:9000", "dhcp-boot=x\ndhcp-boot=y", "from port 69 alone", "512 bytes at most", "has no link"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the network page has no %q", want)
		}
	}
	no("/network/subnets", form("cidr", "not a network", "leaseTime", "1h"), "192.0.2.0/24")
	ok(id+"/mode", form("mode", "off"))
	ok(id+"/delete", "")

	ok("/profiles", form("form", "profile:", "name", "r640", "hardware", "drivers:\r\n  power: redfish\r\nsteps:\r\n  commission:\r\n  - {step: power.setPower, with: {action: off}}\r\n"))
	no("/profiles", form("form", "profile:", "name", "bad", "hardware", "drivers: {power"), "is no YAML")
	no("/profiles", form("form", "profile:", "name", "bad", "hardware", "colour: red"), "is not a field")
	no("/profiles", form("form", "profile:", "name", "bad", "hardware", "drivers: {power: nothing}"), "there is no driver")
	ok("/pools", form("name", "compute", "policy.hardwareProfile", "r640"))
	no("/profiles/r640/delete", "", "compute")
	ok("/pools/compute/delete", "")
	ok("/profiles/r640/delete", "")

	ok("/access/users", form("name", "bob", "password", webtest.Password, "role", "viewer"))
	no("/access/users", form("name", "bob", "password", webtest.Password, "role", "viewer"), "bob")
	ok("/access/users/bob", form("role", "operator"))
	ok("/access/users/bob/delete", "")
	no("/access/users/admin/delete", "", "only administrator")
	w := x.Do("POST", "/access/tokens", admin, form("name", "ci", "permission", "compute:machines:read", "expiresIn", "24h"))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "bcd_") {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	ok("/settings", form("siteName", "Row B", "sshKeys", ""))
	ok("/secrets", form("secret", "rack1", "username", "root", "password", "hunter2hunter2"))
	page := x.Do("GET", "/settings", admin, "").Body.String()
	if strings.Contains(page, "hunter2") || !strings.Contains(page, "secret://root/rack1") || !strings.Contains(page, "Row B") {
		t.Error("the settings page shows too much or too little")
	}
	ok("/secrets/rack1/delete", "")
	ok("/access/password", form("old", webtest.Password, "new", "another good password"))
	if w := x.Do("GET", "/", admin, ""); w.Code != 303 {
		t.Errorf("the old session lives on: %d", w.Code)
	}
}

// Every page for every role: readers read, nobody is sent to the login and back, and no button shows that is refused.
func TestPagesByRole(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	for _, role := range []app.Role{app.RoleViewer, app.RoleOperator, app.RoleAdmin} {
		cookie := x.As(role)
		for _, path := range everyPage {
			write := strings.HasSuffix(path, "/deploy") || strings.HasSuffix(path, "/release") || strings.HasSuffix(path, "/enroll") || strings.HasPrefix(path, "/discovered/")
			want := 200
			if write && role == app.RoleViewer {
				want = 403
			}
			if w := x.Do("GET", path, cookie, ""); w.Code != want {
				t.Errorf("%s as %s: %d, want %d", path, role, w.Code, want)
			}
		}
	}
	for _, path := range everyPage {
		w := x.Do("GET", path, "", "")
		if w.Code != 303 || !strings.HasPrefix(w.Header().Get("Location"), "/login") {
			t.Errorf("%s as nobody: %d %s", path, w.Code, w.Header().Get("Location"))
		}
	}
	viewer := x.As(app.RoleViewer)
	for _, path := range []string{"/machines", "/machines/m-1", "/machines/m-4", "/images", "/network", "/workflows/w-3", "/discovered"} {
		for _, n := range parse(t, x.Do("GET", path, viewer, "").Body.String()) {
			if m, _ := attr(n, "method"); n.Data == "form" && m == "post" {
				if a, _ := attr(n, "action"); a != "/logout" && a != "/machines/batch" {
					t.Errorf("%s shows a viewer the form %s", path, a)
				}
			}
		}
	}
	for _, p := range []string{"/machines/m-1/commission", "/images/import", "/network/subnets", "/workflows/w-1/abort", "/settings", "/access/users"} {
		if w := x.Do("POST", p, viewer, "cidr=192.0.2.0/24&leaseTime=1h&name=a"); w.Code != 403 {
			t.Errorf("POST %s as a viewer: %d", p, w.Code)
		}
		if w := x.Do("POST", p, "", ""); w.Code != 303 {
			t.Errorf("POST %s as nobody: %d", p, w.Code)
		}
	}
	if len(x.Service.Calls())+len(x.Flows.Asked) != 0 {
		t.Errorf("a viewer reached %v %v", x.Service.Calls(), x.Flows.Asked)
	}
}

func TestLoginLeadsOnlyToThisConsole(t *testing.T) {
	x := site(t)
	x.As(app.RoleAdmin)
	for next, leads := range map[string]string{"/machines?state=ready": "/machines?state=ready", "https://evil.example/": "/", "//evil.example": "/", "/\\evil.example": "/",
		"javascript:alert(1)": "/", "": "/", "/machines\r\nX: y": "/"} {
		w := x.Do("POST", "/login", "", form("name", "admin", "password", webtest.Password, "next", next))
		if w.Code != 303 || w.Header().Get("Location") != leads {
			t.Errorf("%q leads to %d %q, want %q", next, w.Code, w.Header().Get("Location"), leads)
		}
	}
	w := x.Do("POST", "/login", "", form("name", "admin", "password", "wrong password"))
	if w.Code != 401 || strings.Contains(w.Body.String(), "wrong password") || !strings.Contains(w.Body.String(), `value="admin"`) {
		t.Errorf("%d", w.Code)
	}
}
