package console_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/webtest"
)

// The editor of a profile without script: what is wrong is shown beside what was typed, and nothing is kept.
func TestTheProfileEditor(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	admin, viewer := x.As(app.RoleAdmin), x.As(app.RoleViewer)
	w := x.Do("POST", "/profiles", admin, form("form", "profile:", "name", "gpu", "do", "check", "hardware", "drivers:\n  power: nothing\n  boot: redfish\nsteps: {commission: [{step: acme.x}]}"))
	body := w.Body.String()
	if w.Code != 200 || strings.Count(body, `class="note bad"`) != 3 || !strings.Contains(body, "power: nothing") || !strings.Contains(body, `id="check"`) {
		t.Errorf("%d %s", w.Code, body)
	}
	if _, err := x.Store.Profile(t.Context(), "gpu"); app.CodeOf(err) != app.NotFound {
		t.Errorf("a check kept the profile: %v", err)
	}
	w = x.Do("POST", "/profiles", admin, form("form", "profile:", "name", "gpu", "do", "check", "hardware", "drivers: {power: redfish}"))
	if !strings.Contains(w.Body.String(), "It can be saved.") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w = x.Do("POST", "/profiles", admin, form("form", "profile:", "name", "gpu", "description", "HGX", "hardware", "drivers: {power: redfish}\nbiosSettings: {Cores: 64}")); w.Code != 303 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	page := x.Do("GET", "/profiles/edit/gpu", admin, "").Body.String()
	if !strings.Contains(page, "power: redfish") || !strings.Contains(page, "Cores: 64") || !strings.Contains(page, `value="HGX"`) || !strings.Contains(page, "hx-trigger") {
		t.Errorf("the editor shows %s", page)
	}
	if page := x.Do("GET", "/profiles/edit/gpu", viewer, "").Body.String(); strings.Contains(page, ">Save<") {
		t.Error("a viewer may save")
	}
	if w := x.Do("GET", "/profiles/edit/none", admin, ""); w.Code != 404 {
		t.Errorf("a profile that is not there: %d", w.Code)
	}
	if list := x.Do("GET", "/profiles", admin, "").Body.String(); !strings.Contains(list, "/profiles/edit/gpu") || !strings.Contains(list, "power: redfish") {
		t.Errorf("the list shows %s", list)
	}
}

func TestTheLayerOfEachBindingIsShown(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	m := &app.Machine{ID: "m-1", Name: "node1", State: app.StateReady, Labels: map[string]string{"rack": "1"}}
	if err := x.Store.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	if w := x.Do("POST", "/machines/m-1/drivers", admin, form("drivers", "power: nothing", "form", "drivers")); w.Code != 422 || !strings.Contains(w.Body.String(), `role="alert"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := x.Do("POST", "/machines/m-1/drivers", admin, form("drivers", "power: {driver: redfish, config: {address: 192.0.2.9}}\r\nboot: ipxe\r\n")); w.Code != 303 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	page := x.Do("GET", "/machines/m-1", admin, "").Body.String()
	for _, want := range []string{"this machine", `{&#34;address&#34;:&#34;192.0.2.9&#34;}`, "driver.ipxe=1.0.0", "boot: ipxe"} {
		if !strings.Contains(page, want) {
			t.Errorf("no %q on the page", want)
		}
	}
	// The form of labels holds the operator's own only, so that saving it is never refused.
	if w := x.Do("POST", "/machines/m-1/edit", admin, form("name", "node1", "labels", "rack=2")); w.Code != 303 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	got, err := x.Store.Machine(t.Context(), "m-1")
	if err != nil || got.Labels["rack"] != "2" || got.Labels["bc.dev/driver.ipxe"] != "1.0.0" {
		t.Errorf("%+v %v", got.Labels, err)
	}
}

func TestApprovalsInTheConsole(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	var pairs []string
	for i := range 6 {
		m := &app.Machine{ID: fmt.Sprintf("m-%d", i), Name: fmt.Sprintf("node%d", i), State: app.StateReady}
		if err := x.Store.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		pairs = append(pairs, "id", m.ID)
	}
	// The only operator types the number.
	w := x.Do("POST", "/machines/batch", op, form(append(pairs, "verb", "power:off")...))
	if w.Code != 200 || !strings.Contains(w.Body.String(), "Type the number of machines (6)") || len(x.Service.Calls()) != 0 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if w = x.Do("POST", "/machines/batch", op, form(append(pairs, "verb", "power:off", "confirm", "5")...)); w.Code != 422 {
		t.Errorf("%d", w.Code)
	}
	if w = x.Do("POST", "/machines/batch", op, form(append(pairs, "verb", "power:off", "confirm", "6")...)); w.Code != 303 || len(x.Service.Calls()) != 1 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	admin := x.As(app.RoleAdmin)
	w = x.Do("POST", "/machines/batch", op, form(append(pairs, "verb", "power:off")...))
	if w.Code != 303 || w.Header().Get("Location") != "/approvals" || len(x.Service.Calls()) != 1 {
		t.Fatalf("%d to %s", w.Code, w.Header().Get("Location"))
	}
	if page := x.Do("GET", "/approvals", op, "").Body.String(); !strings.Contains(page, "another operator must approve") || strings.Contains(page, "Approve: power off") {
		t.Errorf("the one who asked sees %s", page)
	}
	if page := x.Do("GET", "/approvals", admin, "").Body.String(); !strings.Contains(page, "Approve: power off 6 machines") {
		t.Errorf("the other sees %s", page)
	}
	all, err := x.Store.ListApprovals(t.Context())
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if w = x.Do("POST", "/approvals/"+all[0].ID, admin, form("do", "")); w.Code != 422 {
		t.Errorf("nothing was decided, and %d", w.Code)
	}
	if w = x.Do("POST", "/approvals/"+all[0].ID, op, form("do", "approve")); w.Code != 403 {
		t.Errorf("the one who asked approved: %d", w.Code)
	}
	if w = x.Do("POST", "/approvals/"+all[0].ID, admin, form("do", "approve")); w.Code != 303 || len(x.Service.Calls()) != 2 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if page := x.Do("GET", "/approvals", op, "").Body.String(); !strings.Contains(page, "approved") || !strings.Contains(page, "/workflows/w-1") {
		t.Errorf("after it: %s", page)
	}
}
