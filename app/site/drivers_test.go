package site

import (
	"encoding/json"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/store"
)

// A picked version is still the active one after the appliance was started anew, though its plugin comes later.
func TestAPickedVersionOutlivesTheSite(t *testing.T) {
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), databaseName)})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	start := func() (*drivers.Registry, func(want string)) {
		s := &Site{db: db, log: slog.New(slog.DiscardHandler)}
		if err := s.wireDrivers(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, v := range []string{"1.0.0", "2.0.0"} {
			d, err := driver.Define(driver.Definition{ID: "acme", Version: v, RunsOn: driver.RunsOnSite, Foreign: true,
				Implements: map[string]driver.Factory{"acme-cooling": func(json.RawMessage) (any, error) { return nil, nil }}})
			if err == nil {
				err = s.registry.Register(d, "acme-bmc")
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		return s.registry, func(want string) {
			t.Helper()
			if d, err := s.registry.Driver("acme"); err != nil || d.Version() != want {
				t.Errorf("the active version is %v (%v), want %s", d, err, want)
			}
		}
	}
	r, active := start()
	active("2.0.0")
	var told []app.Event
	if err := (listing{r, func(e app.Event) { told = append(told, e) }}).PickDriver(t.Context(), "ann", "acme", "1.0.0"); err != nil {
		t.Fatal(err)
	}
	active("1.0.0")
	if len(told) != 1 || told[0].Kind != "driver.picked" || told[0].Actor != "ann" {
		t.Errorf("events %+v", told)
	}
	_, active = start()
	active("1.0.0")
}
