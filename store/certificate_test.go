package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
)

// What was erased is told when workflow and machine are long gone.
func TestCertificatesOutliveTheirMachine(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	put := func(i int, machine string, erased bool) *app.Certificate {
		t.Helper()
		c := &app.Certificate{WorkflowID: fmt.Sprint("w-", i), MachineID: "m-" + machine, Machine: machine, Serial: "CN-" + machine, Operator: "ada", Issued: at.Add(time.Duration(i) * time.Hour),
			Disks: []app.ErasedDisk{{Disk: app.DiskID{Serial: "A", Bytes: 10}, Erased: erased, Method: "overwrite", Sentinels: 272, Started: at, Ended: at}}}
		if err := db.PutCertificate(ctx, c); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := db.CreateMachine(ctx, &app.Machine{ID: "m-node1", Name: "node1", State: app.StateReady}); err != nil {
		t.Fatal(err)
	}
	put(1, "node1", false)
	first := put(1, "node1", true) // told again after a crash
	put(2, "node2", true)
	last := put(3, "node1", false)
	if err := db.DeleteMachine(ctx, "m-node1"); err != nil {
		t.Fatal(err)
	}
	got, err := db.Certificate(ctx, "w-1")
	if err != nil || cmp.Diff(first, got) != "" {
		t.Errorf("%v\n%s", err, cmp.Diff(first, got))
	}
	_, err = db.Certificate(ctx, "w-9")
	wantCode(t, err, app.NotFound, "certificate-not-found")
	for _, name := range []string{"m-node1", "node1", "CN-node1"} {
		all, err := db.ListCertificates(ctx, name, time.Time{}, 10)
		if err != nil || cmp.Diff([]app.Certificate{*last, *first}, all) != "" {
			t.Errorf("of %s: %v, %+v", name, err, all)
		}
	}
	if all, err := db.ListCertificates(ctx, "", last.Issued, 1); err != nil || len(all) != 1 || all[0].WorkflowID != "w-2" {
		t.Errorf("the page after the last: %v, %+v", err, all)
	}
}
