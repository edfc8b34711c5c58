package webtest

import (
	"encoding/json"
	"log/slog"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/plugins/driver"
)

// nothing is a driver that serves no call.
type nothing struct{}

// Invoke refuses.
func (nothing) Invoke(*driver.Context, string, []json.RawMessage) (any, error) {
	return nil, driver.Errorf(driver.CodeUnsupported, "this driver only exists")
}

// keeper is the real keeper of bindings, over drivers that only exist.
func keeper(t testing.TB, x *Site, log *slog.Logger) *drivers.Keeper {
	r := drivers.New(drivers.Config{Secrets: x.Secrets, Profiles: x.Store})
	for id, kinds := range map[string][]string{"redfish": {"power", "management", "inspect"}, "ipxe": {"boot"}} {
		def := driver.Definition{ID: id, Version: "1.0.0", RunsOn: driver.RunsOnSite, Implements: map[string]driver.Factory{}}
		if id == "redfish" {
			def.Config = []byte(`{"type":"object","required":["address"],"additionalProperties":false,"properties":{"address":{"type":"string"},"tlsSpkiSha256":{"type":"string"}}}`)
		}
		for _, k := range kinds {
			def.Implements[k] = func(json.RawMessage) (any, error) { return nothing{}, nil }
		}
		d, err := driver.Define(def)
		if err == nil {
			err = r.Register(d, "")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return drivers.NewKeeper(drivers.KeeperConfig{Registry: r, Machines: x.Store, Record: func(e app.Event) { x.Bus.Emit(e) }, Log: log})
}
