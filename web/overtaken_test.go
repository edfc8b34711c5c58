package web_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/webtest"
)

// overtaker is a store in which somebody else changes a machine just before each of the next updates.
type overtaker struct {
	*store.DB
	others []func(*app.Machine)
}

func (o *overtaker) UpdateMachine(ctx context.Context, id string, change func(*app.Machine) error) (*app.Machine, error) {
	if len(o.others) > 0 {
		first := o.others[0]
		o.others = o.others[1:]
		if _, err := o.DB.UpdateMachine(ctx, id, func(m *app.Machine) error { first(m); return nil }); err != nil {
			return nil, err
		}
	}
	return o.DB.UpdateMachine(ctx, id, change)
}

// A machine changes while its new bindings are made: they are made anew for what it has become, and a workflow that has
// started keeps the drivers it started with.
func TestNewBindingsAreNotStoredOnAChangedMachine(t *testing.T) {
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	o := &overtaker{DB: db}
	x := webtest.New(t, o)
	op := x.As(app.RoleOperator)
	if w := x.Do("POST", "/api/v1/machines", op, enrollJSON); w.Code != 201 {
		t.Fatal(w.Body)
	}
	label := func(key string) func(*app.Machine) {
		return func(m *app.Machine) { m.Labels = map[string]string{key: "1"} }
	}
	const bind = `{"drivers":{"boot":"ipxe"},"force":true}`
	o.others = []func(*app.Machine){label("theirs")}
	w := x.Do("PATCH", "/api/v1/machines/node1", op, bind)
	m, err := db.Machine(t.Context(), "node1")
	if w.Code != 200 || err != nil || m.Drivers["boot"].Driver != "ipxe" || m.Labels["theirs"] != "1" {
		t.Errorf("%d: bound %v with labels %v, %v", w.Code, m.Drivers, m.Labels, err)
	}
	for name, others := range map[string][]func(*app.Machine){
		"changed again and again": {label("a"), label("b"), label("c")},
		"a workflow started":      {func(m *app.Machine) { m.WorkflowID = "w-1" }},
	} {
		o.others = others
		w := x.Do("PATCH", "/api/v1/machines/node1", op, `{"drivers":{},"force":true}`)
		if e := refusal(t, w); w.Code != 409 || e.Reason != "machine-busy" || len(o.others) != 0 {
			t.Errorf("%s: %d %+v", name, w.Code, e)
		}
		if m, err := db.Machine(t.Context(), "node1"); err != nil || m.Drivers["boot"].Driver != "ipxe" {
			t.Errorf("%s: bound %v, %v", name, m.Drivers, err)
		}
		if _, err := db.UpdateMachine(t.Context(), "node1", func(m *app.Machine) error { m.WorkflowID = ""; return nil }); err != nil {
			t.Fatal(err)
		}
	}
	o.others = []func(*app.Machine){label("late")}
	if w := x.Do("PATCH", "/api/v1/machines/node1", op, `{"note":"binds nothing"}`); w.Code != 200 || len(o.others) != 0 {
		t.Errorf("a change that binds nothing: %d %s", w.Code, w.Body)
	}
}
