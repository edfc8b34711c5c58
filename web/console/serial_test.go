package console_test

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/web/webtest"
)

// A machine's page says how its serial console is opened, who has it, and why it has none.
func TestSerialConsoleOnTheMachinesPage(t *testing.T) {
	x := site(t)
	node := &app.Machine{ID: "m-1", Name: "node-1", State: app.StateReady, Drivers: map[string]app.Binding{"console": {Driver: "ipmi"}}}
	for _, m := range []*app.Machine{node, {ID: "m-2", Name: "node-2", State: app.StateReady}} {
		if err := x.Store.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	shows := func(role app.Role, machine string, want ...string) {
		t.Helper()
		page := panel(x, role, machine)
		for _, text := range want {
			if !strings.Contains(page, text) {
				t.Errorf("%s does not see %q in %s", role, text, page)
			}
		}
	}
	shows(app.RoleOperator, "m-1", "Nobody has it open", "<code>bcd machine console node-1</code>")
	shows(app.RoleViewer, "m-1", "Operators may open it")
	shows(app.RoleOperator, "m-2", "node-2 has no serial console", "Bind a driver of the kind console")
	s, err := x.Serials.Open(t.Context(), serial.Person{Name: "<alice>"}, node, false)
	if err != nil {
		t.Fatal(err)
	}
	shows(app.RoleOperator, "m-1", "<b>&lt;alice&gt;</b> has it open since <time datetime=", "<code>bcd machine console node-1 --take</code>")
	_ = s.Close()
	shows(app.RoleOperator, "m-1", "Nobody has it open")
}

// panel is the part of a machine's page about its console.
func panel(x *webtest.Site, role app.Role, machine string) string {
	_, rest, _ := strings.Cut(x.Do("GET", "/machines/"+machine, x.As(role), "").Body.String(), `id="serial"`)
	out, _, _ := strings.Cut(rest, "</section>")
	return out
}
