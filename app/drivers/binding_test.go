package drivers

import (
	"encoding/json"
	"net/netip"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

func TestResolveLayers(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	in := Input{BMC: bmc(), Pool: "gpu", Overrides: map[string]app.Binding{
		"inspect": {Driver: "ramdisk"},
		"power":   {Driver: "acme", Config: json.RawMessage(`{"address":"192.0.2.11"}`)},
	}}
	res, err := r.Resolve(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if res.Profile != "rack" {
		t.Errorf("profile %q, want the pool's", res.Profile)
	}
	for kind, want := range map[string][2]string{
		"power": {"acme", LayerMachine}, "management": {"redfish", LayerBMC}, "boot": {"ipxe", LayerProfile}, "inspect": {"ramdisk", LayerMachine},
	} {
		if b := res.Bindings[kind]; b.Driver != want[0] || b.Layer != want[1] {
			t.Errorf("%s is bound to %q by %q, want %v", kind, b.Driver, b.Layer, want)
		}
	}
	if _, bound := res.Bindings["virtual-media"]; bound {
		t.Error("virtual-media is bound though the driver does not list it")
	}
	if c := string(res.Bindings["management"].Config); !strings.Contains(c, "tlsSpkiSha256") || strings.Contains(c, "secret://") {
		t.Errorf("the BMC layer's configuration is %s", c)
	}
}

func TestBareIDKeepsConnection(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	res, err := r.Resolve(t.Context(), Input{BMC: bmc(), Profile: "rack"})
	if err != nil {
		t.Fatal(err)
	}
	if b := res.Bindings["power"]; b.Layer != LayerProfile || addressOf(b.Config) != "192.0.2.10" {
		t.Errorf("power is bound by %q with %s", b.Layer, b.Config)
	}
}

func TestResolveRefuses(t *testing.T) {
	options := func(o string) *app.BMC { b := bmc(); b.Options = json.RawMessage(o); return b }
	at := func(address string) *app.BMC { b := bmc(); b.Address = address; return b }
	other := func(d string) *app.BMC { b := bmc(); b.Driver = d; return b }
	for name, c := range map[string]struct {
		in            Input
		code          app.Code
		reason, field string
	}{
		"unknown profile":         {Input{BMC: bmc(), Profile: "none"}, app.InvalidInput, "", "hardwareProfile"},
		"unknown pool":            {Input{BMC: bmc(), Pool: "none"}, app.InvalidInput, "", "pool"},
		"unknown BMC driver":      {Input{BMC: other("none")}, app.InvalidInput, "", "bmc.driver"},
		"driver without BMC kind": {Input{BMC: other("ipxe")}, app.InvalidInput, "", "bmc.driver"},
		"profile names nothing":   {Input{BMC: bmc(), Profile: "broken"}, app.InvalidInput, "", "drivers.boot.driver"},
		"other driver, no address": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"power": {Driver: "acme"}}},
			app.InvalidInput, "", "drivers.power.config"},
		"wrong kind": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"deploy": {Driver: "ipxe"}}},
			app.InvalidInput, "", "drivers.deploy.driver"},
		"options no object": {Input{BMC: options(`[1]`)}, app.InvalidInput, "invalid-payload", "bmc.driverOptions"},
		"unknown option":    {Input{BMC: options(`{"cypher":3}`)}, app.InvalidConfig, "invalid-config", "drivers.management.config.options.cypher"},
		"wrong type": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(`{"address":"192.0.2.1","token":7}`)}}},
			app.InvalidConfig, "invalid-config", "drivers.power.config.token"},
		"reference in an undeclared field": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(`{"address":"secret://root/bmc"}`)}}},
			app.InvalidInput, "", "drivers.power.config.address"},
		"a login in the address": {Input{BMC: at("https://root:Pl4nted@192.0.2.10")}, app.InvalidInput, "", "bmc.address"},
		"a login in its own address": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(`{"address":"root:Pl4nted@192.0.2.1"}`)}}},
			app.InvalidInput, "", "drivers.power.config.address"},
		"a secret itself": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(`{"address":"192.0.2.1","token":"Pl4nted"}`)}}},
			app.InvalidInput, "", "drivers.power.config.token"},
		"a reference of no form": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"power": {Driver: "acme", Config: json.RawMessage(`{"address":"192.0.2.1","token":"secret://Pl4nted"}`)}}},
			app.InvalidInput, "", "drivers.power.config.token"},
		"configuration where none is taken": {Input{BMC: bmc(), Overrides: map[string]app.Binding{"boot": {Driver: "ipxe", Config: json.RawMessage(`{"x":1}`)}}},
			app.InvalidConfig, "invalid-config", "drivers.boot.config.x"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := newRegistry(t, &fakeBMC{}).Resolve(t.Context(), c.in)
			wantError(t, err, c.code, c.reason, c.field)
			if e, _ := app.AsError(err); e.WayOut == "" && c.reason != "invalid-payload" {
				t.Errorf("%v names no way out", e)
			}
			if strings.Contains(err.Error(), "Pl4nted") {
				t.Errorf("the error repeats what may be a password: %v", err)
			}
		})
	}
}

func TestDownDriverWarns(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	r.SetUp("redfish", "1.0.0", false, "it exited with 1")
	res, err := r.Resolve(t.Context(), Input{BMC: bmc()})
	if err != nil || len(res.Warnings) != 1 || !strings.Contains(res.Warnings[0], "unavailable") {
		t.Fatalf("warnings %v, error %v", res.Warnings, err)
	}
	m := &app.Machine{Name: "m", BMC: bmc(), Drivers: res.Bindings}
	_, err = r.For(m, Options{}).Power().Get(t.Context())
	wantError(t, err, app.Unavailable, "unavailable", "")
}

func TestCheckUpFront(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	r.cfg.BMCDrivers = map[string][]string{"acme": {"power.getPower"}}
	m := enrolled(t, r, Input{BMC: bmc()})
	if err := r.Check(m, "power.getPower", "power.setPower", "management.setBootDevice", "inspect.inspect"); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Check(m, "virtual-media.insert"), app.Unsupported, "bmc-driver-unsupported", "virtual-media.insert")
	wantError(t, r.Check(&app.Machine{Name: "bare"}, "power.setPower"), app.Unsupported, "bmc-driver-unsupported", "")
	acme := bmc()
	acme.Driver = "acme"
	m = enrolled(t, r, Input{BMC: acme})
	wantError(t, r.Check(m, "power.setPower"), app.Unsupported, "bmc-driver-unsupported", "power.setPower")

	ipmi := &app.Machine{Name: "old", BMC: &app.BMC{Driver: "ipmi"}, Drivers: map[string]app.Binding{"management": {Driver: "ipmi"}, "console": {Driver: "ipmi"}}}
	wantError(t, r.Check(ipmi, "management.setBootDevice"), app.Unsupported, "bmc-driver-unsupported", "management.setBootDevice") // the site lacks it
	if err := r.Register(foreign(t, "ipmi", []string{"power", "management", "inspect", "console"}, nil, nil), "bcx-ipmi"); err != nil {
		t.Fatal(err)
	}
	if err := r.Check(ipmi, "management.setBootDevice", "console.open", "inspect.inspect"); err != nil {
		t.Fatal(err)
	}
	wantError(t, r.Check(ipmi, "management.rotateCredential"), app.Unsupported, "bmc-driver-unsupported", "")
}

func TestBMCAddressesAreRemembered(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	for _, a := range []string{"192.0.2.10", "https://[2001:db8::5]:8443/redfish/v1/Systems/1", "BMC7.example."} {
		r.Remember(t.Context(), a)
	}
	for _, a := range []string{"192.0.2.10", "::ffff:192.0.2.10", "2001:db8::5", "192.0.2.77"} {
		if !r.IsBMC(netip.MustParseAddr(a)) {
			t.Errorf("%s is not known as a BMC", a)
		}
	}
	for _, h := range []string{"bmc7.example", "BMC7.EXAMPLE.", "[2001:db8::5]", "192.0.2.10"} {
		if !r.IsBMCHost(h) {
			t.Errorf("%s is not known as a BMC", h)
		}
	}
	if r.IsBMC(netip.MustParseAddr("192.0.2.11")) || r.IsBMCHost("mirror.example") {
		t.Error("others are known as BMCs")
	}
}

func FuzzResolve(f *testing.F) {
	f.Add("redfish", "192.0.2.10", `{"cipherSuite":3}`, `{"address":"[::1]:1"}`, "power")
	f.Add("acme", "https://[2001:db8::1]:443/x", `null`, `{"token":"secret://root/token"}`, "boot")
	f.Add("ipxe", ":::", `{"a":{"b":["vault://x"]}}`, `[`, "")
	f.Fuzz(func(t *testing.T, id, address, options, config, kind string) {
		r := newRegistry(t, &fakeBMC{})
		res, err := r.Resolve(t.Context(), Input{
			BMC:       &app.BMC{Driver: id, Address: address, Options: json.RawMessage(options)},
			Overrides: map[string]app.Binding{kind: {Driver: "acme", Config: json.RawMessage(config)}},
		})
		if err != nil {
			if app.CodeOf(err) == app.Internal {
				t.Fatalf("an error without a code: %v", err)
			}
			return
		}
		for k, b := range res.Bindings {
			if b.Layer == "" || b.Driver == "" || (len(b.Config) > 0 && !json.Valid(b.Config)) {
				t.Fatalf("%s is bound to %+v", k, b)
			}
		}
	})
}
