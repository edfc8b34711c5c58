package store

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
)

func TestBMCOperationsKeepTheirRowOverDeliveries(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	begin := func(machine, repeat string) *app.BMCOperation {
		t.Helper()
		o := &app.BMCOperation{MachineID: machine, Command: "bmc.power", Operation: "power.setPower", Driver: "redfish", Args: json.RawMessage(`["off"]`), Started: time.Now().UTC().Truncate(time.Microsecond)}
		if err := db.BeginBMCOperation(ctx, o, repeat); err != nil {
			t.Fatal(err)
		}
		return o
	}
	first := begin("m-1", "wf:1:off#0 power.setPower x")
	if again := begin("m-1", "wf:1:off#0 power.setPower x"); again.ID != first.ID || first.ID == 0 {
		t.Errorf("the second delivery got row %d, the first %d", again.ID, first.ID)
	}
	if retry := begin("m-1", "wf:1:off#1 power.setPower x"); retry.ID == first.ID {
		t.Error("another attempt got the same row")
	}
	if free := begin("m-1", ""); free.ID == begin("m-1", "").ID {
		t.Error("two operations outside attempts share a row")
	}
	first.Ended, first.Error, first.Reason = first.Started.Add(time.Second), "refused", "bmc-error"
	if err := db.EndBMCOperation(ctx, first); err != nil {
		t.Fatal(err)
	}
	all, err := db.ListBMCOperations(ctx, "m-1", 0, 10)
	if err != nil || len(all) != 4 || cmp.Diff(*first, all[3]) != "" {
		t.Errorf("%d rows, %v, %s", len(all), err, cmp.Diff(*first, all[len(all)-1]))
	}
	if page, err := db.ListBMCOperations(ctx, "m-1", all[1].ID, 1); err != nil || len(page) != 1 || page[0].ID != all[2].ID {
		t.Errorf("%+v, %v", page, err)
	}
}

func TestBMCOperationsAreBounded(t *testing.T) {
	db := open(t, "")
	for range maxBMCOperations + 20 {
		if err := db.BeginBMCOperation(t.Context(), &app.BMCOperation{MachineID: "m-1"}, ""); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := db.ListBMCOperations(t.Context(), "m-1", 0, 10000); err != nil || len(all) != maxBMCOperations {
		t.Errorf("%d rows, %v", len(all), err)
	}
}

func TestApprovalsAreDecidedOnce(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	now := time.Now().UTC().Truncate(time.Microsecond)
	a := &app.Approval{ID: "ap-1", Verb: "release", Operation: "release", State: app.ApprovalPending, Created: now, Expires: now.Add(time.Hour),
		Machines: []app.ApprovalItem{{ID: "m-1", Name: "one"}}}
	if err := db.CreateApproval(ctx, a); err != nil {
		t.Fatal(err)
	}
	if got, err := db.Approval(ctx, "ap-1"); err != nil || cmp.Diff(a, got) != "" {
		t.Errorf("%v %s", err, cmp.Diff(a, got))
	}
	decide := func(a *app.Approval) error {
		if a.State != app.ApprovalPending {
			return app.Errorf(app.Conflict, "decided", "decided already")
		}
		a.State, a.DecidedBy = app.ApprovalApproved, "bob"
		return nil
	}
	if _, err := db.UpdateApproval(ctx, "ap-1", decide); err != nil {
		t.Fatal(err)
	}
	_, err := db.UpdateApproval(ctx, "ap-1", decide)
	wantCode(t, err, app.Conflict, "decided")
	_, err = db.Approval(ctx, "none")
	wantCode(t, err, app.NotFound, "approval-not-found")
	for i := range maxPending {
		p := &app.Approval{ID: app.NewID("ap"), State: app.ApprovalPending, Created: now.Add(time.Duration(i) * time.Second)}
		if err := db.CreateApproval(ctx, p); err != nil {
			t.Fatal(err)
		}
	}
	wantCode(t, db.CreateApproval(ctx, &app.Approval{ID: "ap-x", State: app.ApprovalPending}), app.Conflict, "too-many-approvals")
	if all, err := db.ListApprovals(ctx); err != nil || len(all) != maxPending+1 || all[len(all)-1].ID != "ap-1" && all[len(all)-2].ID != "ap-1" {
		t.Errorf("%d approvals, %v", len(all), err)
	}
}

// Pools that were written before policies had a member of their own keep their profile.
func TestPoolsOfTheFirstSchemaKeepTheirProfile(t *testing.T) {
	db := open(t, "")
	ctx := t.Context()
	if _, err := db.writer.ExecContext(ctx, `INSERT INTO pools (name, profile, doc) VALUES ('gpu', 'hgx', '{"name":"gpu","hardwareProfile":"hgx","updated":"2031-01-01T00:00:00Z"}')`); err != nil {
		t.Fatal(err)
	}
	raw, err := migrations.ReadFile("migrations/00003_drivers.sql")
	if err != nil {
		t.Fatal(err)
	}
	update, _, _ := strings.Cut(string(raw), ";") // its first statement
	if _, err := db.writer.ExecContext(ctx, update); err != nil {
		t.Fatal(err)
	}
	if p, err := db.Pool(ctx, "gpu"); err != nil || p.Policy.HardwareProfile != "hgx" {
		t.Errorf("%+v, %v", p, err)
	}
}
