package web_test

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

// How a BMC is reached is changed by operators, through API and form alike; a typed password comes back nowhere.
func TestChangingABMC(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	x.Service.Card = &api.Card{OK: true, SPKI: strings.Repeat("cd", 32), PinStatus: "differs", Serial: "S77"}
	viewer, operator := x.As(app.RoleViewer), x.As(app.RoleOperator)
	const target = "/api/v1/machines/m-1/bmc"
	pin := strings.Repeat("CD:", 31) + "CD"
	for _, c := range []struct {
		method, target, cookie, body string
		status                       int
		says                         string
	}{
		{"PUT", target, viewer, `{"address":"192.0.2.50"}`, 403, ""},
		{"PUT", target, operator, `{}`, 422, "nothing is to be changed"},
		{"PUT", target, operator, `{"address":"192.0.2.50\nx"}`, 422, "address"},
		{"PUT", target, operator, `{"acceptPin":"abc"}`, 422, "SHA-256"},
		{"PUT", target, operator, `{"credentialsRef":"/etc/shadow"}`, 422, "credentialsRef"},
		{"PUT", target, operator, `{"credentials":{"username":"u","password":""}}`, 422, "credentials"},
		{"PUT", target, operator, `{"driverOptions":[]}`, 422, "driverOptions"},
		{"PUT", target, operator, `{"test":true}`, 200, `"serial":"S77"`},
		{"PUT", target, operator, `{"address":"192.0.2.50","acceptPin":"` + pin + `","credentials":{"username":"u","password":"tell-nobody"}}`, 200, `"machine":`},
		{"GET", "/machines/m-1/bmc", viewer, "", 403, ""},
		{"GET", "/machines/m-1/bmc", operator, "", 200, "Not asked yet"},
		{"POST", "/machines/m-1/bmc", viewer, "do=save&address=192.0.2.50", 403, ""},
		{"POST", "/machines/m-1/bmc", operator, "do=test&address=192.0.2.50&username=u&password=tell-nobody", 200, "S77"},
		{"POST", "/machines/m-1/bmc", operator, "do=save&address=192.0.2.50&acceptPin=zz", 422, "SHA-256"},
		{"POST", "/machines/m-1/bmc", operator, "do=save&address=192.0.2.50&anotherMachine=on", 303, ""},
	} {
		w := x.Do(c.method, c.target, c.cookie, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s %.60s: %d %.300s, want %d, %q", c.method, c.target, c.body, w.Code, w.Body, c.status, c.says)
		}
		if strings.Contains(w.Body.String(), "tell-nobody") {
			t.Errorf("%s %s: the password comes back", c.method, c.target)
		}
	}
	var asked []api.BMCChange
	for _, c := range x.Service.Calls() {
		if in, ok := c.In.(api.BMCChange); ok {
			asked = append(asked, in)
		}
	}
	if len(asked) != 4 || !asked[0].Test || asked[1].AcceptPin != strings.Repeat("cd", 32) || !asked[2].Test || !asked[3].Another || asked[3].Credentials != nil {
		t.Errorf("asked %+v", asked)
	}
}
