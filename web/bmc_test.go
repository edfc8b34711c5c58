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
	if err := x.Store.CreateMachine(t.Context(), &app.Machine{ID: "m-bare", Name: "bare", State: app.StateEnrolled}); err != nil {
		t.Fatal(err)
	}
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
		{"PUT", target, operator, `{"driver":"Not A Name"}`, 422, "driver"},
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
		{"GET", "/machines/m-bare", operator, "", 200, "Give it a BMC"},
		{"GET", "/machines/m-bare/bmc", operator, "", 200, "It has no BMC yet"},
		{"POST", "/machines/m-bare/bmc", operator, "do=save&driver=ipmi&address=192.0.2.51&driverOptions=%7B%22cipherSuite%22%3A3%7D&username=u&password=tell-nobody", 303, ""},
		{"PUT", "/api/v1/machines/m-bare/bmc", operator, `{"driver":" ipmi "}`, 200, ""},
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
	if len(asked) == 6 {
		if given := asked[4]; given.Driver != "ipmi" || given.Address != "192.0.2.51" || string(given.Options) != `{"cipherSuite":3}` || given.Credentials == nil || asked[5].Driver != "ipmi" {
			t.Errorf("given %+v, then %+v", given, asked[5])
		}
	}
	if len(asked) != 6 || !asked[0].Test || asked[1].AcceptPin != strings.Repeat("cd", 32) || !asked[2].Test || !asked[3].Another || asked[3].Credentials != nil {
		t.Errorf("asked %+v", asked)
	}
}
