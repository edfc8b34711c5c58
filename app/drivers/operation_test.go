package drivers

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/driver"
)

// journal is a BMCOperationStore in memory.
type journal struct {
	mu      sync.Mutex
	rows    []app.BMCOperation
	repeats map[string]int64
}

func (j *journal) BeginBMCOperation(_ context.Context, o *app.BMCOperation, repeat string) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if id := j.repeats[repeat]; repeat != "" && id != 0 {
		o.ID = id
		return nil
	}
	o.ID = int64(len(j.rows) + 100)
	j.rows = append(j.rows, *o)
	if repeat != "" {
		if j.repeats == nil {
			j.repeats = map[string]int64{}
		}
		j.repeats[repeat] = o.ID
	}
	return nil
}

func (j *journal) EndBMCOperation(_ context.Context, o *app.BMCOperation) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.rows[o.ID-100] = *o
	return nil
}

func (j *journal) ListBMCOperations(context.Context, string, int64, int) ([]app.BMCOperation, error) {
	return j.rows, nil
}

func TestTheJournalsRowIsTheIdempotencyKey(t *testing.T) {
	f, j := &fakeBMC{}, &journal{}
	var keys []string
	f.log = func(c *driver.Context) { keys = append(keys, c.IdempotencyKey) }
	r := newRegistry(t, f)
	r.cfg.Journal = j
	m := enrolled(t, r, Input{BMC: bmc()})
	set := func(attempt string, action driver.PowerAction) {
		t.Helper()
		if err := r.For(m, Options{Key: attempt}).Power().Set(t.Context(), action); err != nil {
			t.Fatal(err)
		}
	}
	set("wf:1:off#0", "off")
	set("wf:1:off#0", "off") // delivered again after a crash
	set("wf:1:off#0", "on")  // another operation of the same attempt
	set("wf:1:off#1", "off") // a person's retry
	if want := []string{"100", "100", "101", "102"}; !slices.Equal(keys, want) {
		t.Errorf("keys %q, want %q", keys, want)
	}
	for range 2 {
		if _, err := r.For(m, Options{Key: "wf:1:off#1"}).Power().Get(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if keys[4] == keys[5] {
		t.Error("two looks share a row")
	}
	row := j.rows[0]
	if row.Command != "bmc.power" || row.Operation != "power.setPower" || row.Driver != "redfish" || string(row.Args) != `["off"]` || row.Attempt != "wf:1:off#0" || row.Ended.IsZero() || row.Error != "" {
		t.Errorf("row %+v", row)
	}
}

// allowlists is what each command may ask of a BMC, written out: the code's own list is held against it.
var allowlists = map[string][]string{
	"bmc.query":    {"power.getPower", "inspect.inspect", "bios.getSettings", "firmware.components", "raid.getLayout", "management.getBootOrder"},
	"bmc.power":    {"power.setPower"},
	"bmc.boot":     {"management.setBootDevice", "management.setBootOrder", "virtual-media.insert", "virtual-media.eject"},
	"bmc.rotate":   {"management.rotateCredential"},
	"bmc.firmware": {"firmware.update"},
	"bmc.config":   {"bios.applySettings", "raid.applyLayout", "raid.clear"},
}

func TestCommandsAllowTheirOwnOperationsOnly(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	h := r.For(enrolled(t, r, Input{BMC: bmc()}), Options{})
	if !maps.EqualFunc(allowed, allowlists, slices.Equal) {
		t.Errorf("commands allow %v, want %v", allowed, allowlists)
	}
	var all []string
	for _, ops := range allowlists {
		all = append(all, ops...)
	}
	for command, ops := range allowlists {
		for _, op := range all {
			kind, name, _ := strings.Cut(op, ".")
			_, err := h.operate(t.Context(), command, kind, name, json.RawMessage(`[]`), nil)
			e, _ := app.AsError(err)
			if refused := e != nil && e.Reason == "operation-not-allowed"; refused == slices.Contains(ops, op) {
				t.Errorf("%s of %s: %v", op, command, err)
			}
		}
	}
	_, err := h.Query(t.Context(), "power.setPower")
	wantError(t, err, app.Unsupported, "operation-not-allowed", "")
	_, err = h.Query(t.Context(), "bios.getSettings")
	wantError(t, err, app.Unsupported, "bmc-driver-unsupported", "")
}

func TestFailuresOfOperationsAreJournaled(t *testing.T) {
	j := &journal{}
	r := newRegistry(t, &fakeBMC{})
	r.cfg.Journal = j
	var told []app.Event
	r.cfg.Record = func(e app.Event) { told = append(told, e) }
	m := enrolled(t, r, Input{BMC: bmc()})
	if err := r.For(m, Options{Key: "wf:9:off#0"}).Power().Set(t.Context(), "fail"); err == nil {
		t.Fatal("no error")
	}
	if row := j.rows[0]; row.Reason != "busy" || row.Error == "" || row.Ended.IsZero() {
		t.Errorf("row %+v", row)
	}
	if len(told) != 1 || told[0].Level != "warn" || told[0].Workflow != "9" {
		t.Errorf("events %+v", told)
	}
}

// A planted password is in nothing that is kept, said or written after an operation, whatever its end.
func TestNoPasswordIsLeftAnywhere(t *testing.T) {
	const planted = "Pl4nted-pw"
	j := &journal{}
	f := &fakeBMC{}
	r := newRegistry(t, f)
	r.cfg.Journal = j
	var log strings.Builder
	var said []string
	r.cfg.Record = func(e app.Event) { said = append(said, e.Message+string(e.Data)) }
	r.log = textLogger(&log)
	h := r.For(enrolled(t, r, Input{BMC: bmc()}), Options{Key: "wf:1:x#0"})
	note := func(err error) {
		if err != nil {
			said = append(said, err.Error())
		}
	}
	note(h.Management().Rotate(t.Context(), planted, ""))
	note(h.Power().Set(t.Context(), "fail"))
	_, err := h.Power().Get(t.Context())
	note(err)
	rows, err := json.Marshal(j.rows)
	if err != nil {
		t.Fatal(err)
	}
	for _, where := range append(said, string(rows), log.String()) {
		if strings.Contains(where, planted) || strings.Contains(where, `"pw"`) {
			t.Errorf("a password is in %s", where)
		}
	}
	if !slices.Contains(f.calls, "rotate "+planted+" ") {
		t.Errorf("the driver did not get it as a secret, and only so: %q", f.calls)
	}
}

func TestAnOperationOnADriverThatIsGone(t *testing.T) {
	r := newRegistry(t, &fakeBMC{})
	m := enrolled(t, r, Input{BMC: bmc()})
	for kind, id := range map[string]string{"power": "gone", "management": "acme"} { // nobody; one that lacks the kind
		m.Drivers[kind] = app.Binding{Driver: id, Config: json.RawMessage(`{"address":"192.0.2.10"}`)}
	}
	_, err := r.For(m, Options{}).Power().Get(t.Context())
	wantError(t, err, app.Unsupported, "unsupported-driver", "")
	_, err = r.For(m, Options{}).Management().SetBootDevice(t.Context(), "pxe", driver.BootOptions{})
	wantError(t, err, app.Unsupported, "unsupported-driver", "")
}
