package site

import (
	"context"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal/deploy"
	"github.com/better-compute/bcd/store"
)

var noon = time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC)

func openStore(t *testing.T) *store.DB {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// house is a home with a store, a clock, and what it said.
type house struct {
	*home
	db      *store.DB
	at      time.Time
	signals []string
	events  []string
	revoked int
}

func newHouse(t *testing.T) *house {
	h := &house{db: openStore(t), at: noon}
	h.home = &home{
		key: []byte("a key of thirty-two bytes for it"), agents: h.db, db: h.db, now: func() time.Time { return h.at },
		signal: func(_, name string, _ any) { h.signals = append(h.signals, name) },
		record: func(e app.Event) { h.events = append(h.events, e.Kind) },
		revoke: func(ctx context.Context, id string) error { h.revoked++; return h.db.RevokeBoots(ctx, id) },
	}
	m := &app.Machine{ID: "m-1", Name: "node1", State: app.StateDeploying, StateReason: "old", Deployment: &app.Deployment{WorkflowID: "wf-1", Started: noon, Written: noon}}
	if err := h.db.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	return h
}

// call posts to a path and gives the status.
func (h *house) call(method, path, body string) int {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, strings.NewReader(body)))
	return w.Code
}

func (h *house) deployment(t *testing.T) app.Deployment {
	t.Helper()
	m, err := h.db.Machine(t.Context(), "m-1")
	if err != nil {
		t.Fatal(err)
	}
	return *m.Deployment
}

// address makes the address of a workflow and gives its path.
func (h *house) address(t *testing.T, workflow string) string {
	t.Helper()
	url, err := h.url(t.Context(), &app.Machine{ID: "m-1"}, workflow, "http://192.0.2.1:8080")
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(url, "http://192.0.2.1:8080")
}

func TestHomeTakesCallsOfTheSystemItInstalled(t *testing.T) {
	h := newHouse(t)
	other := h.address(t, "wf-0")
	path := h.address(t, "wf-1")
	if again := h.address(t, "wf-1"); again != path || other == path {
		t.Error("the address is not a function of the workflow")
	}
	if err := h.db.CreateBoot(t.Context(), &app.Boot{Key: "boot-1", MachineID: "m-1", WorkflowID: "wf-1", Created: noon}); err != nil {
		t.Fatal(err)
	}
	first, second := "01234567-89ab-cdef-0123-456789abcdef", "11234567-89ab-cdef-0123-456789abcdef"
	if got := h.call(http.MethodPost, path, first+"\n"); got != http.StatusNoContent {
		t.Fatalf("answered %d", got)
	}
	d := h.deployment(t)
	if !d.Confirmed || d.BootID != first || d.Alive != noon || d.PhonedHome != noon || d.Heartbeat != noon {
		t.Errorf("after the first call: %+v", d)
	}
	if h.revoked != 1 {
		t.Error("the ramdisk of a machine that left it was not ended")
	}
	h.at = noon.Add(time.Hour)
	if got := h.call(http.MethodPost, path, second); got != http.StatusNoContent {
		t.Fatalf("answered %d", got)
	}
	d = h.deployment(t)
	if d.BootID != second || d.PhonedHome != noon || !d.Heartbeat.Equal(h.at) {
		t.Errorf("after the second call: %+v", d)
	}
	if strings.Join(h.signals, " ") != deploy.SignalHome+" "+deploy.SignalHome || strings.Join(h.events, " ") != "os.home os.home" || h.revoked != 1 {
		t.Errorf("signals %v, events %v, revoked %d times", h.signals, h.events, h.revoked)
	}
}

func TestHomeKnowsNobodyElse(t *testing.T) {
	h := newHouse(t)
	before := h.address(t, "wf-0") // of the deploy before this one
	path := h.address(t, "wf-1")
	for _, c := range []struct{ method, path string }{
		{http.MethodGet, path}, {http.MethodPut, path}, {http.MethodPost, homePath}, {http.MethodPost, homePath + strings.Repeat("0", 32)},
		{http.MethodPost, path + "0"}, {http.MethodPost, path[:len(path)-1]}, {http.MethodPost, strings.ToUpper(path)}, {http.MethodPost, homePath + hashOf(strings.TrimPrefix(path, homePath))},
		{http.MethodPost, before},
	} {
		if got := h.call(c.method, c.path, ""); got != http.StatusNotFound {
			t.Errorf("%s %s answered %d", c.method, c.path, got)
		}
	}
	if d := h.deployment(t); d.Confirmed || len(h.signals) > 0 {
		t.Errorf("confirmed by a stranger: %+v", d)
	}
	// A machine that was released, and one that is gone.
	if _, err := h.db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.Deployment = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if got := h.call(http.MethodPost, path, ""); got != http.StatusNotFound {
		t.Errorf("a released machine was answered %d", got)
	}
	if err := h.db.DeleteMachine(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	if got := h.call(http.MethodPost, path, ""); got != http.StatusNotFound {
		t.Errorf("a deleted machine was answered %d", got)
	}
}

// endless is a body that never ends; a reader that does not stop would hang.
type endless struct{ read int }

func (e *endless) Read(b []byte) (int, error) { e.read += len(b); return len(b), nil }

func TestHomeBoundsBodies(t *testing.T) {
	h := newHouse(t)
	path := h.address(t, "wf-1")
	for _, body := range []string{"", "not a boot id", strings.Repeat("a", 1<<20), "<script>alert(1)</script>", "0123\x00"} {
		if got := h.call(http.MethodPost, path, body); got != http.StatusNoContent {
			t.Errorf("%.20q answered %d", body, got)
		}
		if d := h.deployment(t); d.BootID != "" {
			t.Errorf("%.20q was kept as %q", body, d.BootID)
		}
	}
	e := &endless{}
	h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, path, io.NopCloser(e)))
	if e.read > 64<<10 {
		t.Errorf("%d bytes of an endless body were read", e.read)
	}
}

func TestFramesAreASignOfLifeOnlyOfAnInstalledSystem(t *testing.T) {
	h := newHouse(t)
	look := func() *app.Machine {
		m, err := h.db.Machine(t.Context(), "m-1")
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	m := look()
	m.Deployment.Written = time.Time{}
	h.sawFrame(t.Context(), m) // the ramdisk of a deploy that has written nothing yet
	if err := h.db.CreateBoot(t.Context(), &app.Boot{Key: "boot-1", MachineID: "m-1", WorkflowID: "wf-1", Created: noon}); err != nil {
		t.Fatal(err)
	}
	h.sawFrame(t.Context(), look()) // it may still netboot: it is the ramdisk
	if !look().Deployment.Alive.IsZero() {
		t.Error("the ramdisk passed for the system")
	}
	if err := h.db.RevokeBoots(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	h.sawFrame(t.Context(), look())
	h.sawFrame(t.Context(), look())
	if d := look().Deployment; d.Alive != noon || d.Confirmed || strings.Join(h.signals, " ") != deploy.SignalAlive {
		t.Errorf("after a frame: %+v, %v", d, h.signals)
	}
}
