package web_test

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"gopkg.in/yaml.v3"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

const gpuProfile = `{"description":"HGX hosts","drivers":{"power":"redfish","boot":{"driver":"ipxe"}},"biosSettings":{"BootMode":"Uefi","Cores":64,"SMT":false},
	"raidLayout":{"volumes":[{"level":"1","drives":["0","1"],"sizeBytes":960197124096}]},"firmwareBaseline":[{"component":"BIOS","version":"2.1"}],
	"steps":{"commission":[{"step":"power.setPower","with":{"action":"off"},"timeout":"30s"}]},"kernelArgs":"iommu=pt","kexecProven":true}`

func TestProfilesAreChecked(t *testing.T) {
	x := site(t)
	admin, viewer := x.As(app.RoleAdmin), x.As(app.RoleViewer)
	if w := x.Do("PUT", "/api/v1/profiles/gpu", admin, gpuProfile); w.Code != http.StatusOK {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	p, err := x.Store.Profile(t.Context(), "gpu")
	if err != nil || p.Drivers["power"].Driver != "redfish" || string(p.BIOS["Cores"]) != "64" || p.RAID.Volumes[0].SizeBytes != 960197124096 || p.Steps.Commission[0].Step != "power.setPower" || !p.KexecOK {
		t.Fatalf("%+v %v", p, err)
	}
	for _, c := range []struct {
		name, body, field string
		status            int
	}{
		{"unknown driver", `{"drivers":{"power":"nothing"}}`, "drivers.power.driver", 422},
		{"driver of another kind", `{"drivers":{"boot":"redfish"}}`, "drivers.boot.driver", 422},
		{"wrong configuration", `{"drivers":{"power":{"driver":"redfish","config":{"address":7}}}}`, "drivers.power.config.address", 422},
		{"unknown member of a binding", `{"drivers":{"power":{"driver":"redfish","password":"x"}}}`, "drivers", 422},
		{"step of nobody", `{"steps":{"beforeWrite":[{"step":"acme-cooling.setFanCurve"}]}}`, "steps.beforeWrite.0", 422},
		{"step on a node", `{"steps":{"beforeWrite":[{"step":"inspect.inspect","on":"node"}]}}`, "steps.beforeWrite.0", 422},
		{"nested setting", `{"biosSettings":{"A":{"b":1}}}`, "biosSettings.A", 422},
		{"unknown member", `{"colour":"red"}`, "colour", 400},
	} {
		w := x.Do("PUT", "/api/v1/profiles/bad", admin, c.body)
		if e := refusal(t, w); e.Field != c.field || w.Code/100 != 4 {
			t.Errorf("%s: %d at %q: %s", c.name, w.Code, e.Field, w.Body)
		}
	}
	if _, err := x.Store.Profile(t.Context(), "bad"); app.CodeOf(err) != app.NotFound {
		t.Errorf("a refused profile was kept: %v", err)
	}
	// Checking tells all at once, for people who may only read too, and keeps nothing.
	w := x.Do("POST", "/api/v1/profiles/bad/check", viewer, `{"drivers":{"power":"nothing","boot":"redfish"},"steps":{"commission":[{"step":"acme.x"}]}}`)
	if check := answer[api.ProfileCheck](t, w.Body.Bytes()); w.Code != http.StatusOK || len(check.Problems) != 3 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestAProfileAsAFileCanBeAppliedAgain(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	x.Do("PUT", "/api/v1/profiles/gpu", admin, gpuProfile)
	p, err := x.Store.Profile(t.Context(), "gpu")
	if err != nil {
		t.Fatal(err)
	}
	b, err := yaml.Marshal(api.Portable(p))
	if err != nil {
		t.Fatal(err)
	}
	text := string(b)
	for _, want := range []string{"power: redfish\n", "sizeBytes: 960197124096\n", "Cores: 64\n", "name: gpu\n", "timeout: 30s\n"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
	for _, never := range []string{"layer", "updated", "e+"} {
		if strings.Contains(text, never) {
			t.Errorf("%q is in\n%s", never, text)
		}
	}
}

func TestAMachinesDriversAreEdited(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	if w := x.Do("POST", "/api/v1/machines", op, enrollJSON); w.Code != http.StatusCreated {
		t.Fatal(w.Body)
	}
	if _, err := x.Store.UpdateMachine(t.Context(), "node1", func(m *app.Machine) error {
		m.BMC.CredentialRef = "secret://root/none"
		m.Labels = map[string]string{"rack": "1", "bc.dev/cap.x": "1"}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	change := func(body string) (int, app.Machine) {
		w := x.Do("PATCH", "/api/v1/machines/node1", op, body)
		if w.Code >= 300 {
			refusal(t, w)
			return w.Code, app.Machine{}
		}
		return w.Code, answer[app.Machine](t, w.Body.Bytes())
	}
	// Its credential cannot be opened, so the driver's own check fails: that may be overridden.
	if code, _ := change(`{"drivers":{"boot":"ipxe"}}`); code/100 != 4 {
		t.Errorf("a failing live check was ignored: %d", code)
	}
	code, m := change(`{"drivers":{"boot":"ipxe"},"force":true,"labels":{"rack":"2"}}`)
	if code != 200 || m.Drivers["boot"].Layer != "machine" || m.Drivers["power"].Layer != "bmc" || m.Labels["rack"] != "2" || m.Labels["bc.dev/driver.ipxe"] != "1.0.0" || m.Labels["bc.dev/cap.x"] != "" {
		t.Errorf("%d %+v %v", code, m.Drivers, m.Labels)
	}
	if code, _ := change(`{"drivers":{"boot":"nothing"},"force":true}`); code != 422 {
		t.Errorf("a structural mistake was overridden: %d", code)
	}
	if code, _ := change(`{"labels":{"bc.dev/driver.x":"1"}}`); code != 422 {
		t.Errorf("a reserved label was set: %d", code)
	}
	if code, m = change(`{"labels":{}}`); code != 200 || m.Labels["rack"] != "" || m.Labels["bc.dev/driver.ipxe"] != "1.0.0" {
		t.Errorf("%d %v", code, m.Labels)
	}
	if _, err := x.Store.UpdateMachine(t.Context(), "node1", func(m *app.Machine) error { m.WorkflowID = "w-9"; return nil }); err != nil {
		t.Fatal(err)
	}
	if code, _ := change(`{"drivers":{},"force":true}`); code != 409 {
		t.Errorf("the drivers of a busy machine were changed: %d", code)
	}
	if code, _ := change(`{"note":"still editable"}`); code != 200 {
		t.Errorf("its note was not: %d", code)
	}
}

func TestABMCIsAskedByWhatOnlyLooks(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	x.Do("POST", "/api/v1/machines", op, enrollJSON)
	if w := x.Do("POST", "/api/v1/machines/node1/query", op, `{"operation":"bios.getSettings"}`); w.Code != 200 || !strings.Contains(w.Body.String(), "bios.getSettings") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, op2 := range []string{"power.setPower", "management.rotateCredential", "firmware.update", "x", ""} {
		if w := x.Do("POST", "/api/v1/machines/node1/query", op, `{"operation":"`+op2+`"}`); w.Code != 422 {
			t.Errorf("%q: %d %s", op2, w.Code, w.Body)
		}
	}
	m, err := x.Store.Machine(t.Context(), "node1")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := x.Store.BeginBMCOperation(t.Context(), &app.BMCOperation{MachineID: m.ID, Command: "bmc.query", Operation: "power.getPower"}, ""); err != nil {
			t.Fatal(err)
		}
	}
	w := x.Do("GET", "/api/v1/machines/node1/bmc-operations?limit=2", op, "")
	l := answer[api.List[app.BMCOperation]](t, w.Body.Bytes())
	if len(l.Items) != 2 || l.Next == "" || l.Items[0].ID < l.Items[1].ID {
		t.Fatalf("%s", w.Body)
	}
	w = x.Do("GET", "/api/v1/machines/node1/bmc-operations?before="+l.Next, op, "")
	if l := answer[api.List[app.BMCOperation]](t, w.Body.Bytes()); len(l.Items) != 1 || slices.Contains([]string{"", "x"}, l.Items[0].Command) {
		t.Errorf("%s", w.Body)
	}
}
