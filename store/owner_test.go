package store

import (
	"sync"
	"testing"

	"github.com/better-compute/bcd/app"
)

func TestOwnerOf(t *testing.T) {
	db := open(t, "")
	owner := func(n int, want string) {
		t.Helper()
		if got, err := db.OwnerOf(t.Context(), mac(n)); err != nil || got != want {
			t.Errorf("%s is %q's, %v; want %q", mac(n), got, err, want)
		}
	}
	owner(1, "")
	m := &app.Machine{ID: "m-1", Name: "node1", State: app.StateReady, NICs: []app.NIC{{MAC: mac(1)}, {MAC: mac(2)}}}
	if err := db.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	owner(1, "m-1")
	owner(2, "m-1")
	if _, err := db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.NICs = []app.NIC{{MAC: mac(2)}, {MAC: mac(3)}}; return nil }); err != nil {
		t.Fatal(err)
	}
	owner(1, "")
	owner(3, "m-1")
	if _, err := db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.NICs = nil; return app.Invalid("x", "no") }); err == nil {
		t.Fatal("accepted")
	}
	owner(3, "m-1")
	before := db.owners.changes
	if _, err := db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.Note = "x"; return nil }); err != nil {
		t.Fatal(err)
	}
	if db.owners.changes != before {
		t.Error("a change of something else made the owners be read anew")
	}
	if err := db.DeleteMachine(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	owner(3, "")
}

// Whoever has made a machine finds it, whatever others read meanwhile.
func TestOwnersAreNeverStale(t *testing.T) {
	db := open(t, "")
	var wg sync.WaitGroup
	for i := range 20 {
		wg.Go(func() {
			id := app.NewID("m")
			if err := db.CreateMachine(t.Context(), &app.Machine{ID: id, Name: id, State: app.StateReady, NICs: []app.NIC{{MAC: mac(i)}}}); err != nil {
				t.Error(err)
			}
			if got, err := db.OwnerOf(t.Context(), mac(i)); err != nil || got != id {
				t.Errorf("%q, %v", got, err)
			}
		})
	}
	wg.Wait()
}
