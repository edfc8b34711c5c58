package drivers

import (
	"context"
	"encoding/json"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
)

// vault is Secrets in memory.
type vault map[string]secret.Value

func (v vault) Resolve(_ context.Context, ref string) (secret.Value, error) {
	if s, ok := v[ref]; ok {
		return s, nil
	}
	return secret.Value{}, app.Missing("secret", ref)
}

// shelf is Profiles in memory.
type shelf struct {
	profiles map[string]app.Profile
	pools    map[string]app.Pool
}

func (s shelf) Profile(_ context.Context, name string) (*app.Profile, error) {
	if p, ok := s.profiles[name]; ok {
		return &p, nil
	}
	return nil, app.Missing("profile", name)
}

func (s shelf) Pool(_ context.Context, name string) (*app.Pool, error) {
	if p, ok := s.pools[name]; ok {
		return &p, nil
	}
	return nil, app.Missing("pool", name)
}

// fakeBMC implements power, management and inspect and notes what it was called with.
type fakeBMC struct {
	mu    sync.Mutex
	calls []string
	block chan struct{} // when not nil, SetPower waits for it or for the context
	enter chan struct{} // told when SetPower has begun
	log   func(*driver.Context)
}

func (f *fakeBMC) note(c *driver.Context, s string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, s)
	if f.log != nil {
		f.log(c)
	}
}

func (f *fakeBMC) GetPower(c *driver.Context) (driver.PowerReading, error) {
	f.note(c, "getPower")
	return driver.PowerReading{Power: "on"}, nil
}

func (f *fakeBMC) SetPower(c *driver.Context, a driver.PowerAction) error {
	f.note(c, "setPower "+string(a))
	if f.enter != nil {
		f.enter <- struct{}{}
	}
	if f.block != nil {
		select {
		case <-f.block:
		case <-c.Done():
			return c.Err()
		}
	}
	if a == "fail" {
		return driver.Errorf(driver.CodeBusy, "come back later").Again()
	}
	return nil
}

func (f *fakeBMC) SetBootDevice(c *driver.Context, d driver.BootDevice, _ driver.BootOptions) (driver.BootResult, error) {
	f.note(c, "setBootDevice "+string(d))
	return driver.BootResult{Target: "Pxe"}, nil
}

func (f *fakeBMC) RotateCredential(c *driver.Context, newPassword string, _ driver.RotateOptions) error {
	s, err := c.Secret("newPassword")
	f.note(c, "rotate "+s+" "+newPassword)
	return err
}

func (f *fakeBMC) Inspect(c *driver.Context) (driver.Inventory, error) {
	f.note(c, "inspect")
	return driver.Inventory{Model: "M1", Power: "on", MACs: []string{"00:00:5e:00:53:01"}}, nil
}

const bmcSchema = `{"type":"object","required":["address"],"additionalProperties":false,"properties":{
	"address":{"type":"string"},"tlsSpkiSha256":{"type":"string"},
	"options":{"type":"object","additionalProperties":false,"properties":{"cipherSuite":{"type":"integer","default":17}}},
	"token":{"type":"string","x-bc":{"kind":"secret"}}}}`

// define makes a BMC driver over f.
func define(t testing.TB, id, version string, f any, kinds ...string) *driver.Driver {
	t.Helper()
	def := driver.Definition{ID: id, Version: version, RunsOn: "site", Config: []byte(bmcSchema),
		Implements: map[string]driver.Factory{}, RetrySafe: map[string][]string{}}
	for _, k := range kinds {
		def.Implements[k] = func(json.RawMessage) (any, error) { return f, nil }
	}
	if len(kinds) > 0 && kinds[0] == "power" {
		def.RetrySafe["power"] = []string{"getPower"}
	}
	d, err := driver.Define(def)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// newRegistry makes a registry with the drivers redfish (all of f), acme (power only) and ramdisk (inspect).
func newRegistry(t testing.TB, f *fakeBMC) *Registry {
	t.Helper()
	r := New(Config{
		Secrets: vault{"secret://root/bmc": secret.Login("admin", "pw"), "secret://root/token": secret.Text("t0ken")},
		Profiles: shelf{
			profiles: map[string]app.Profile{
				"rack":   {Name: "rack", Drivers: map[string]app.Binding{"boot": {Driver: "ipxe"}, "power": {Driver: "redfish"}}},
				"broken": {Name: "broken", Drivers: map[string]app.Binding{"boot": {Driver: "nothing"}}},
			},
			pools: map[string]app.Pool{"gpu": {Name: "gpu", Policy: app.PoolPolicy{HardwareProfile: "rack"}}, "plain": {Name: "plain"}},
		},
		LookupIP: func(context.Context, string) ([]netip.Addr, error) {
			return []netip.Addr{netip.MustParseAddr("192.0.2.77")}, nil
		},
	})
	for _, d := range []*driver.Driver{
		define(t, "redfish", "1.0.0", f, "power", "management", "inspect"),
		define(t, "acme", "1.0.0", f, "power"),
		mustDefine(t, Ramdisk(f)), mustDefine(t, IPXE(noBoot{})),
	} {
		if err := r.Register(d, ""); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func mustDefine(t testing.TB, def driver.Definition) *driver.Driver {
	t.Helper()
	d, err := driver.Define(def)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

type noBoot struct{}

func (noBoot) PrepareRamdisk(*driver.Context, driver.RamdiskSpec) error   { return nil }
func (noBoot) PrepareInstance(*driver.Context, driver.InstanceBoot) error { return nil }
func (noBoot) CleanUp(*driver.Context) error                              { return nil }

func bmc() *app.BMC {
	return &app.BMC{Driver: "redfish", Address: "192.0.2.10", CredentialRef: "secret://root/bmc", SPKI: strings.Repeat("ab", 32)}
}

// enrolled is a machine with resolved bindings.
func enrolled(t *testing.T, r *Registry, in Input) *app.Machine {
	t.Helper()
	res, err := r.Resolve(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	return &app.Machine{Name: "m1", BMC: in.BMC, Drivers: res.Bindings}
}

// wantError checks code, reason and field of an error; empty wants are not checked.
func wantError(t *testing.T, err error, code app.Code, reason, field string) {
	t.Helper()
	e, ok := app.AsError(err)
	if !ok {
		t.Fatalf("got %v, want %s", err, code)
	}
	if e.Code != code || (reason != "" && e.Reason != reason) || (field != "" && e.Field != field) {
		t.Fatalf("got %s/%s at %q (%s), want %s/%s at %q", e.Code, e.Reason, e.Field, e.Message, code, reason, field)
	}
}
