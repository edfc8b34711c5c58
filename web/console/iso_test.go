package console_test

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/webtest"
)

// A machine's page offers the CD images that boot on it, says how to get one where there is none, and the ways out of one.
func TestBootAnISOInTheConsole(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	admin := x.As(app.RoleAdmin)
	page := func(id string) string { return x.Do("GET", "/machines/"+id, admin, "").Body.String() }
	if s := page("m-3"); !strings.Contains(s, `action="/machines/m-3/boot-iso"`) || !strings.Contains(s, `<option value="img-4"`) {
		t.Error("a ready machine is offered no ISO")
	}
	if s := page("m-1"); !strings.Contains(s, "its system may be overwritten") {
		t.Error("a deployed machine does not ask for its name")
	}
	if s := x.Do("GET", "/machines/m-3/deploy", admin, "").Body.String(); strings.Contains(s, "img-4") {
		t.Error("an ISO is offered for a deploy")
	}
	_, err := x.Store.UpdateMachine(t.Context(), "m-3", func(m *app.Machine) error {
		m.State, m.ISO = app.StateISO, &app.ISORun{ImageID: "img-4", ImageName: "netinst", Via: app.ISOByNetwork, Before: app.StateReady}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	s := page("m-3")
	for _, want := range []string{"started from the ISO netinst", `action="/machines/m-3/exit-iso"`, `name="installed"`} {
		if !strings.Contains(s, want) {
			t.Errorf("a machine in an image shows no %q", want)
		}
	}
	if strings.Contains(s, `action="/machines/m-3/boot-iso"`) || strings.Contains(s, `action="/machines/m-3/rescue"`) {
		t.Error("a machine in an image is offered another boot")
	}
	if err := x.Store.DeleteImage(t.Context(), "img-4"); err != nil {
		t.Fatal(err)
	}
	if s := page("m-1"); !strings.Contains(s, "There is no ISO that boots here") || strings.Contains(s, `action="/machines/m-1/boot-iso"`) {
		t.Error("without an ISO the page does not say how to get one")
	}
}
