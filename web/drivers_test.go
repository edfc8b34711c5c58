package web_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

func TestPickingADriversVersion(t *testing.T) {
	x := site(t)
	viewer, operator, admin := x.As(app.RoleViewer), x.As(app.RoleOperator), x.As(app.RoleAdmin)
	const target = "/api/v1/drivers/redfish/active"
	for _, c := range []struct {
		target, cookie, body string
		status               int
		says                 string
	}{
		{target, viewer, `{"version":"1.0.0"}`, 403, ""},
		{target, operator, `{"version":"1.0.0"}`, 403, ""},
		{target, admin, `{}`, 422, `"version"`},
		{target, admin, `{"version":"1.0.0","force":true}`, 400, "force"},
		{target, admin, `{"version":"` + strings.Repeat("1", 161) + `"}`, 422, "limit"},
		{target, admin, `{"version":"1.0.0\n"}`, 422, "line break"},
		{target, admin, `{"version":"3.0.0"}`, 404, "driver-not-found"},
		{"/api/v1/drivers/nobody/active", admin, `{"version":""}`, 404, "driver-not-found"},
		{target, admin, `{"version":"1.0.0"}`, 204, ""},
		{target, admin, `{"version":""}`, 204, ""},
	} {
		w := x.Do("PUT", c.target, c.cookie, c.body)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("PUT %s %.60s: %d %.300s, want %d, %q", c.target, c.body, w.Code, w.Body, c.status, c.says)
		}
	}
	for _, c := range []struct {
		cookie, form string
		status       int
		says         string
	}{
		{viewer, "version=1.0.0", 403, ""},
		{operator, "version=1.0.0", 403, ""},
		{admin, "version=3.0.0", 404, "redfish@3.0.0"},
		{admin, "version=1.0.0", 303, ""},
		{admin, "version=", 303, ""},
	} {
		w := x.Do("POST", "/drivers/redfish/pick", c.cookie, c.form)
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("the form %s: %d %.300s, want %d, %q", c.form, w.Code, w.Body, c.status, c.says)
		}
	}
	if page := x.Do("GET", "/drivers", admin, "").Body.String(); !strings.Contains(page, "Use this version") || !strings.Contains(page, "Use the highest version") {
		t.Error("an administrator is offered no pick")
	}
	var made []string
	for _, p := range x.Drivers.Picks() {
		_, what, _ := strings.Cut(p, " ")
		made = append(made, what)
	}
	if want := []string{"redfish@1.0.0", "redfish@", "redfish@1.0.0", "redfish@"}; !slices.Equal(made, want) {
		t.Errorf("picked %q, want %q", x.Drivers.Picks(), want)
	}
}

func TestDriversTellWhichIsActiveAndTheSitesLabels(t *testing.T) {
	x := site(t)
	viewer := x.As(app.RoleViewer)
	var l api.DriverList
	if err := json.Unmarshal(x.Do("GET", "/api/v1/drivers?kind=power", viewer, "").Body.Bytes(), &l); err != nil {
		t.Fatal(err)
	}
	if len(l.Items) != 2 || l.Items[0].Active || !l.Items[1].Active || l.Labels["bc.dev/driver.redfish"] != "1.0.0" {
		t.Errorf("the answer is %+v", l)
	}
	if w := x.Do("GET", "/api/v1/drivers?kind=9-a", viewer, ""); w.Code != 200 || !strings.Contains(w.Body.String(), `"items":[]`) { // letters, digits and hyphens
		t.Errorf("a kind that nobody serves: %d %s", w.Code, w.Body)
	}
	page := x.Do("GET", "/drivers", viewer, "").Body.String()
	for _, want := range []string{"another version is active", "<small>active</small>", "bc.dev/driver-kind.redfish.power=1"} {
		if !strings.Contains(page, want) {
			t.Errorf("the page does not say %q", want)
		}
	}
	if strings.Contains(page, "/pick") {
		t.Error("a viewer is offered the pick")
	}
}

// What a machine is bound to and the site does not have stands on its page, and in the API's answer.
func TestADriverThatTheSiteLacksStandsOnTheMachinesPage(t *testing.T) {
	x := site(t)
	viewer := x.As(app.RoleViewer)
	m := &app.Machine{ID: "m-lacks", Name: "lacks", State: app.StateEnrolled, StateSince: time.Unix(1e9, 0), Power: app.PowerUnknown,
		Drivers: map[string]app.Binding{"power": {Driver: "acme-bmc", Layer: "machine"}, "boot": {Driver: "ipxe", Layer: "profile"}}}
	if err := x.Store.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	l := answer[api.List[api.DriverProblem]](t, x.Do("GET", "/api/v1/machines/m-lacks/driver-problems", viewer, "").Body.Bytes())
	if len(l.Items) != 1 || l.Items[0].Driver != "acme-bmc" || l.Items[0].Kind != "power" || l.Items[0].Error.Reason != "bmc-driver-unsupported" {
		t.Errorf("the problems are %+v", l.Items)
	}
	if page := x.Do("GET", "/machines/m-lacks", viewer, "").Body.String(); !strings.Contains(page, "No driver &#34;acme-bmc&#34; runs on this site") {
		t.Error("the machine's page does not say it")
	}
}
