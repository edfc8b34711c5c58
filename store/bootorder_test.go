package store

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

func TestBootOrders(t *testing.T) {
	db, ctx := open(t, filepath.Join(t.TempDir(), "bcd.db")), t.Context()
	if _, err := db.BootOrder(ctx, "m-1"); app.CodeOf(err) != app.NotFound {
		t.Errorf("never read: %v", err)
	}
	b := &app.BootOrder{MachineID: "m-1", Writer: app.BootByAgent, Own: []app.BootEntry{{ID: "Boot0001", Name: "PXE"}}}
	if err := db.PutBootOrder(ctx, b, &app.BootReading{}); app.CodeOf(err) != app.NotFound {
		t.Errorf("of no machine: %v", err)
	}
	if err := db.CreateMachine(ctx, &app.Machine{ID: "m-1", Name: "node1", State: app.StateReady}); err != nil {
		t.Fatal(err)
	}
	var last int64
	for range maxBootReadings + 5 {
		r := &app.BootReading{Time: time.Unix(1, 0), During: "commission", Order: []string{"PXE"}}
		if err := db.PutBootOrder(ctx, b, r); err != nil || r.ID <= last || r.MachineID != "m-1" {
			t.Fatal(r, err)
		}
		last = r.ID
	}
	got, err := db.BootOrder(ctx, "m-1")
	if err != nil || got.Writer != app.BootByAgent || len(got.Own) != 1 || got.Updated.IsZero() {
		t.Errorf("%+v, %v", got, err)
	}
	all, err := db.BootReadings(ctx, "m-1", 1000)
	if err != nil || len(all) != maxBootReadings || all[0].ID != last {
		t.Errorf("%d readings, %v", len(all), err)
	}
	if p, err := db.BootOrderProblems(ctx); err != nil || len(p) != 0 {
		t.Errorf("%+v, %v", p, err)
	}
	b.Problem = app.Errorf(app.Conflict, app.ReasonNVRAMFull, "no room").Do("reset it")
	if err := db.PutBootOrder(ctx, b, &app.BootReading{}); err != nil {
		t.Fatal(err)
	}
	if p, err := db.BootOrderProblems(ctx); err != nil || len(p) != 1 || p[0].Problem.Reason != app.ReasonNVRAMFull || p[0].Problem.WayOut != "reset it" {
		t.Errorf("%+v, %v", p, err)
	}
	if err := db.DeleteMachine(ctx, "m-1"); err != nil {
		t.Fatal(err)
	}
	if all, err := db.BootReadings(ctx, "m-1", 10); err != nil || len(all) != 0 {
		t.Errorf("%d readings of a deleted machine, %v", len(all), err)
	}
	if _, err := db.BootOrder(ctx, "m-1"); app.CodeOf(err) != app.NotFound {
		t.Errorf("of a deleted machine: %v", err)
	}
}
