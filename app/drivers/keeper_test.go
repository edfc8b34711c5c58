package drivers

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/store"
)

// office is a keeper over a real store, with a driver whose own check says what the test wants.
type office struct {
	*Keeper
	r      *Registry
	def    driver.Definition // of redfish
	db     *store.DB
	check  error
	checks int
	events []app.Event
}

func newOffice(t *testing.T) *office {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	o := &office{db: db}
	o.r = New(Config{Secrets: vault{"secret://root/bmc": secret.Login("admin", "pw")}, Profiles: db, Changed: func() {
		if o.Keeper != nil {
			o.Changed()
		}
	}})
	def := driver.Definition{ID: "redfish", Version: "1.0.0", RunsOn: "site", Config: []byte(bmcSchema), Implements: map[string]driver.Factory{},
		Validate: func(*driver.Context, json.RawMessage) error { o.checks++; return o.check }}
	for _, k := range []string{"power", "management"} {
		def.Implements[k] = func(json.RawMessage) (any, error) { return &fakeBMC{}, nil }
	}
	o.def = def
	for _, d := range []*driver.Driver{mustDefine(t, def), define(t, "acme", "1.0.0", &fakeBMC{}, "power")} {
		if err := o.r.Register(d, ""); err != nil {
			t.Fatal(err)
		}
	}
	o.Keeper = NewKeeper(KeeperConfig{Registry: o.r, Machines: db, Record: func(e app.Event) { o.events = append(o.events, e) }, Log: slog.New(slog.DiscardHandler)})
	return o
}

// machine binds and stores a machine.
func (o *office) machine(t *testing.T, name string, change func(*app.Machine)) *app.Machine {
	t.Helper()
	b := bmc()
	b.SPKI = ""
	m := &app.Machine{ID: "m-" + name, Name: name, State: app.StateEnrolled, BMC: b}
	if change != nil {
		change(m)
	}
	if _, err := o.Bind(t.Context(), m, map[string]app.Binding{}, false); err != nil {
		t.Fatal(err)
	}
	if err := o.db.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return m
}

func (o *office) profile(t *testing.T, drivers map[string]app.Binding) {
	t.Helper()
	if err := o.db.PutProfile(t.Context(), &app.Profile{Name: "gpu", Drivers: drivers}); err != nil {
		t.Fatal(err)
	}
}

func (o *office) look(t *testing.T) (busy bool) {
	t.Helper()
	busy, err := o.Look(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return busy
}

func (o *office) read(t *testing.T, id string) *app.Machine {
	t.Helper()
	m, err := o.db.Machine(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

const acmeConfig = `{"address":"192.0.2.20"}`

func TestAChangedProfileBindsItsMachinesAnew(t *testing.T) {
	o := newOffice(t)
	o.profile(t, nil)
	if err := o.db.PutPool(t.Context(), &app.Pool{Name: "rack1", Policy: app.PoolPolicy{HardwareProfile: "gpu"}}); err != nil {
		t.Fatal(err)
	}
	direct := o.machine(t, "direct", func(m *app.Machine) { m.Profile = "gpu" })
	pooled := o.machine(t, "pooled", func(m *app.Machine) { m.Pool = "rack1"; m.Labels = map[string]string{"rack": "1"} })
	other := o.machine(t, "other", nil)
	o.profile(t, map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(acmeConfig)}})
	o.checks = 0
	o.look(t)
	for _, id := range []string{direct.ID, pooled.ID} {
		m := o.read(t, id)
		if b := m.Drivers["power"]; b.Driver != "acme" || b.Layer != LayerProfile || m.Drivers["management"].Layer != LayerBMC {
			t.Errorf("%s is bound %+v", m.Name, m.Drivers)
		}
		if m.Labels["bc.dev/driver.acme"] != "1.0.0" || m.Labels["bc.dev/driver-kind.acme.power"] != "1" {
			t.Errorf("%s has labels %v", m.Name, m.Labels)
		}
	}
	if m := o.read(t, pooled.ID); m.Labels["rack"] != "1" {
		t.Errorf("its operator's labels are gone: %v", m.Labels)
	}
	if m := o.read(t, other.ID); m.Drivers["power"].Driver != "redfish" || m.Version != 1 {
		t.Errorf("another machine was touched: %+v", m)
	}
	if len(o.events) != 2 || o.checks == 0 || len(o.Problems()) != 0 {
		t.Errorf("%d events, %d live checks, problems %+v", len(o.events), o.checks, o.Problems())
	}
	o.profile(t, nil)
	o.look(t)
	if m := o.read(t, direct.ID); m.Labels["bc.dev/driver.acme"] != "" || m.Drivers["power"].Driver != "redfish" {
		t.Errorf("what is no longer advertised stays: %v", m.Labels)
	}
}

func TestBindingsThatNoLongerResolveAreListed(t *testing.T) {
	o := newOffice(t)
	o.profile(t, map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(acmeConfig)}})
	m := o.machine(t, "one", func(m *app.Machine) { m.Profile = "gpu" })
	o.r.Unregister("acme", "1.0.0")
	o.look(t)
	p := o.Problems()
	if len(p) != 1 || p[0].Machine != "one" || p[0].Live || p[0].Error.Field != "drivers.power.driver" {
		t.Fatalf("problems %+v", p)
	}
	if b := o.read(t, m.ID).Drivers["power"]; b.Driver != "acme" {
		t.Errorf("it lost its binding: %+v", b)
	}
	if err := o.r.Register(define(t, "acme", "1.1.0", &fakeBMC{}, "power"), "acme-plugin"); err != nil {
		t.Fatal(err)
	}
	o.look(t)
	if p := o.Problems(); len(p) != 0 {
		t.Errorf("the plugin is back, and there is %+v", p)
	}
	if m := o.read(t, m.ID); m.Labels["bc.dev/driver.acme"] != "1.1.0" {
		t.Errorf("labels %v", m.Labels)
	}
	if err := o.db.DeleteMachine(t.Context(), m.ID); err != nil {
		t.Fatal(err)
	}
	o.look(t)
}

func TestLiveChecksMayBeOverriddenStructuralOnesNever(t *testing.T) {
	o := newOffice(t)
	o.check = driver.Errorf(driver.CodeAuthFailed, "the BMC refused the login")
	m := &app.Machine{ID: "m-1", Name: "one", BMC: bmc()}
	_, err := o.Bind(t.Context(), m, nil, false)
	wantError(t, err, app.InvalidConfig, "auth-failed", "")
	if !strings.Contains(err.Error(), "force") {
		t.Errorf("the way out is not told: %v", err)
	}
	w, err := o.Bind(t.Context(), m, nil, true)
	if err != nil || len(w) == 0 || m.Drivers["power"].Driver != "redfish" {
		t.Errorf("with force: %v, %v, %+v", w, err, m.Drivers)
	}
	_, err = o.Bind(t.Context(), m, map[string]app.Binding{"power": {Driver: "nothing"}}, true)
	wantError(t, err, app.InvalidInput, "", "drivers.power.config")
	_, err = o.Bind(t.Context(), m, map[string]app.Binding{"boot": {Driver: "nothing"}}, true)
	wantError(t, err, app.InvalidInput, "", "drivers.boot.driver")
	o.check = nil
	o.r.SetUp("redfish", "1.0.0", false, "it is being started again")
	w, err = o.Bind(t.Context(), m, nil, false)
	if err != nil || len(w) != 1 || !strings.Contains(w[0], "unavailable") {
		t.Errorf("with a driver that is down: %v, %v", w, err)
	}
}

func TestADriverThatChangedIsCheckedLiveAgain(t *testing.T) {
	o := newOffice(t)
	o.machine(t, "one", nil)
	o.look(t)
	o.checks = 0
	o.look(t)
	if o.checks != 0 {
		t.Errorf("%d checks though nothing changed", o.checks)
	}
	o.check = driver.Errorf(driver.CodeUnreachable, "no answer")
	o.r.SetUp("redfish", "1.0.0", false, "it crashed")
	o.r.SetUp("redfish", "1.0.0", true, "")
	o.look(t)
	if o.checks != 0 {
		t.Errorf("%d checks because the driver started again", o.checks)
	}
	newer := o.def
	newer.Version = "1.1.0"
	if err := o.r.Register(mustDefine(t, newer), ""); err != nil {
		t.Fatal(err)
	}
	o.look(t)
	p := o.Problems()
	if len(p) != 2 || !p[0].Live || p[0].Error.Reason != driver.CodeUnreachable {
		t.Fatalf("problems %+v", p)
	}
	o.check = nil
	o.look(t) // what failed is checked again
	if p := o.Problems(); len(p) != 0 {
		t.Errorf("it answers again, and there is %+v", p)
	}
}

func TestABusyMachineKeepsItsDriversUntilItIsFree(t *testing.T) {
	o := newOffice(t)
	o.profile(t, nil)
	m := o.machine(t, "one", func(m *app.Machine) { m.Profile, m.WorkflowID = "gpu", "wf-1" })
	o.profile(t, map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(acmeConfig)}})
	if !o.look(t) || o.read(t, m.ID).Drivers["power"].Driver != "redfish" {
		t.Error("a busy machine was bound anew")
	}
	if _, err := o.db.UpdateMachine(t.Context(), m.ID, func(m *app.Machine) error { m.WorkflowID = ""; return nil }); err != nil {
		t.Fatal(err)
	}
	if o.look(t) || o.read(t, m.ID).Drivers["power"].Driver != "acme" {
		t.Error("a free machine was not")
	}
}

func TestAProfileTellsWhichMachinesItBreaks(t *testing.T) {
	o := newOffice(t)
	o.profile(t, nil)
	o.machine(t, "one", func(m *app.Machine) { m.Profile = "gpu" })
	o.machine(t, "two", nil)
	// The bare id needs the BMC's own driver, which neither machine has.
	p := &app.Profile{Name: "gpu", Drivers: map[string]app.Binding{"power": {Driver: "acme"}}}
	_, broken, err := o.CheckProfile(t.Context(), p)
	if err != nil || len(broken) != 1 || broken[0].Machine != "one" {
		t.Errorf("%+v, %v", broken, err)
	}
}

func TestOverridesAreShownAsTheyWereGiven(t *testing.T) {
	o := newOffice(t)
	m := o.machine(t, "one", nil)
	given := map[string]app.Binding{"power": {Driver: "redfish"}, "boot": {Driver: "acme", Config: json.RawMessage(acmeConfig)}}
	delete(given, "boot")
	if _, err := o.Bind(t.Context(), m, given, false); err != nil {
		t.Fatal(err)
	}
	if b := m.Drivers["power"]; b.Layer != LayerMachine || addressOf(b.Config) != "192.0.2.10" {
		t.Errorf("bound %+v", b)
	}
	if own := Overrides(m); len(own) != 1 || own["power"].Driver != "redfish" || len(own["power"].Config) != 0 {
		t.Errorf("shown %+v", own)
	}
}
