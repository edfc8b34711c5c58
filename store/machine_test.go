package store

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
)

func itoa(n int) string { return strconv.Itoa(n) }

// mac gives the i-th documentation address, repeating from 256 in a range of local ones.
func mac(i int) app.MAC {
	if i < 256 {
		return app.MAC(fmt.Sprintf("00:00:5e:00:53:%02x", i))
	}
	return app.MAC(fmt.Sprintf("02:00:5e:%02x:%02x:%02x", i>>16&0xff, i>>8&0xff, i&0xff))
}

func sample(i int) *app.Machine {
	states := []app.State{app.StateReady, app.StateDeployed, app.StateFailed, app.StateEnrolled}
	return &app.Machine{
		ID: fmt.Sprintf("m-%05d", i), Name: fmt.Sprintf("node-%05d", i), State: states[i%len(states)], Pool: "rack" + itoa(i%20),
		UUID: app.UUID(fmt.Sprintf("01234567-89ab-cdef-0123-%012x", i)), Serial: fmt.Sprintf("SN%06d", i), Vendor: "Example", Model: "R1",
		Labels: map[string]string{"rack": itoa(i % 40), "row": itoa(i % 8)},
		NICs:   []app.NIC{{MAC: mac(2 * i), Confirmed: true}, {MAC: mac(2*i + 1)}},
		BMC:    &app.BMC{Driver: "redfish", Address: fmt.Sprintf("192.0.2.%d", i%250), CredentialRef: "secret://root/bmc"},
		Power:  app.PowerOn, Summary: app.HardwareSummary{CPUs: 64, MemoryBytes: 1 << 38, Disks: 8},
		OwnDisks: []app.DiskID{{Serial: "D" + itoa(i), Model: "disk", Bytes: 1 << 40}},
	}
}

func create(t testing.TB, db *DB, ms ...*app.Machine) {
	t.Helper()
	for _, m := range ms {
		if err := db.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
}

func TestMachineRoundTrip(t *testing.T) {
	db := open(t, "")
	m := sample(1)
	create(t, db, m)
	for _, key := range []string{m.ID, m.Name} {
		got, err := db.Machine(t.Context(), key)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(m, got); d != "" {
			t.Errorf("by %s: %s", key, d)
		}
	}
	_, err := db.Machine(t.Context(), "nobody")
	wantCode(t, err, app.NotFound, "machine-not-found")
}

// Field case 67, for the part of the store: any NIC, any spelling, and never another machine.
func TestMachineByMACInAnySpelling(t *testing.T) {
	db := open(t, "")
	a, b := sample(1), sample(2)
	b.NICs[1].MAC = "00-00-5E-00-53-AA"
	create(t, db, a, b)
	for _, s := range []string{"00:00:5e:00:53:aa", "00:00:5E:00:53:AA", "00-00-5e-00-53-aa", "0000.5e00.53aa", string(b.NICs[0].MAC)} {
		got, err := db.MachineByMAC(t.Context(), app.MAC(s))
		if err != nil || got.ID != b.ID {
			t.Errorf("%s finds %v, %v", s, got, err)
		}
	}
	_, err := db.MachineByMAC(t.Context(), "00:00:5e:00:53:ff")
	wantCode(t, err, app.NotFound, "machine-not-found")
	var plan string
	var a1, a2, a3 int
	rows, err := db.reader.Query("EXPLAIN QUERY PLAN SELECT m.doc FROM machine_macs a JOIN machines m ON m.id = a.machine_id WHERE a.mac = 'x'")
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		if err := rows.Scan(&a1, &a2, &a3, &plan); err != nil || strings.Contains(plan, "SCAN") {
			t.Errorf("lookup scans: %s %v", plan, err)
		}
	}
}

func TestMachinesByUUIDInEitherOrder(t *testing.T) {
	db := open(t, "")
	m := sample(1)
	create(t, db, m, &app.Machine{ID: "m-none", Name: "none"})
	for _, u := range append(m.UUID.Spellings(), app.UUID(strings.ToUpper(string(m.UUID)))) {
		got, err := db.MachinesByUUID(t.Context(), u)
		if err != nil || len(got) != 1 || got[0].ID != m.ID {
			t.Errorf("%s finds %v, %v", u, got, err)
		}
	}
	for _, u := range []app.UUID{"", "00000000-0000-0000-0000-000000000000"} {
		if got, err := db.MachinesByUUID(t.Context(), u); err != nil || len(got) != 0 {
			t.Errorf("the empty UUID finds %v, %v", got, err)
		}
	}
}

func TestMachineClashNamesTheOther(t *testing.T) {
	db := open(t, "")
	create(t, db, sample(1), sample(2))
	twin := sample(3)
	twin.NICs[0].MAC = sample(1).NICs[1].MAC
	if e := wantCode(t, db.CreateMachine(t.Context(), twin), app.Conflict, "mac-taken"); !strings.Contains(e.Message, "node-00001") {
		t.Errorf("does not name the other machine: %s", e.Message)
	}
	twin = sample(3)
	twin.Name = "node-00001"
	wantCode(t, db.CreateMachine(t.Context(), twin), app.Conflict, "name-taken")
	twin = sample(3)
	twin.Name = "m-00001" // the id of another machine: it would shadow it
	wantCode(t, db.CreateMachine(t.Context(), twin), app.Conflict, "name-taken")
	wantCode(t, db.CreateMachine(t.Context(), &app.Machine{ID: "m-00001", Name: "new"}), app.Conflict, "machine-exists")
	_, err := db.UpdateMachine(t.Context(), "m-00002", func(m *app.Machine) error { m.Name = "node-00001"; return nil })
	wantCode(t, err, app.Conflict, "name-taken")
	for _, bad := range []string{"", "UPPER", "a.b", "-x", strings.Repeat("a", 64)} {
		wantCode(t, db.CreateMachine(t.Context(), &app.Machine{ID: "m-9", Name: bad}), app.InvalidInput, "invalid-field")
	}
	if page, err := db.ListMachines(t.Context(), app.MachineFilter{}); err != nil || page.Total != 2 {
		t.Errorf("%d machines (%v), want 2", page.Total, err)
	}
}

func TestUpdateMachine(t *testing.T) {
	db := open(t, "")
	create(t, db, sample(1))
	m, err := db.UpdateMachine(t.Context(), "node-00001", func(m *app.Machine) error {
		m.ID, m.Version, m.Name = "other", 77, "renamed"
		m.NICs = m.NICs[1:]
		m.Labels = map[string]string{"rack": "9"}
		m.State = app.StateRetired
		return nil
	})
	if err != nil || m.ID != "m-00001" || m.Version != 2 || m.Name != "renamed" {
		t.Fatalf("%+v, %v", m, err)
	}
	if _, err := db.MachineByMAC(t.Context(), mac(2)); app.CodeOf(err) != app.NotFound {
		t.Errorf("a MAC that was taken off still finds the machine: %v", err)
	}
	for filter, want := range map[string]int{"1": 0, "9": 1, "*": 1} {
		page, err := db.ListMachines(t.Context(), app.MachineFilter{Labels: map[string]string{"rack": filter}})
		if err != nil || page.Total != want || len(page.Items) != want || page.Count[app.StateRetired] != 1 || len(page.Count) != 1 {
			t.Errorf("label %s: %d, %v, counts %v", filter, page.Total, err, page.Count)
		}
	}
	refusal := app.Errorf(app.Conflict, "no", "no")
	if _, err := db.UpdateMachine(t.Context(), "renamed", func(m *app.Machine) error { m.Note = "x"; return refusal }); err != refusal {
		t.Errorf("refusal came back as %v", err)
	}
	if m, _ := db.Machine(t.Context(), "renamed"); m.Note != "" || m.Version != 2 {
		t.Errorf("a refused change was kept: %+v", m)
	}
}

// Field case 57, its second half: what hangs on a machine goes with it.
func TestDeleteMachineTakesItsChildren(t *testing.T) {
	db := open(t, "")
	create(t, db, sample(1))
	if err := db.SetInventory(t.Context(), "node-00001", json.RawMessage(`{"cpus":[]}`)); err != nil {
		t.Fatal(err)
	}
	if err := db.DeleteMachine(t.Context(), "m-00001"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []string{"machines", "machine_macs", "machine_labels", "inventories"} {
		var n int
		if err := db.reader.QueryRow("SELECT count(*) FROM " + table).Scan(&n); err != nil || n != 0 {
			t.Errorf("%s has %d rows left (%v)", table, n, err)
		}
	}
	wantCode(t, db.DeleteMachine(t.Context(), "m-00001"), app.NotFound, "machine-not-found")
	create(t, db, sample(1)) // its MACs are free again
}

func TestInventory(t *testing.T) {
	db := open(t, "")
	create(t, db, sample(1))
	_, _, err := db.Inventory(t.Context(), "m-00001")
	wantCode(t, err, app.NotFound, "inventory-not-found")
	wantCode(t, db.SetInventory(t.Context(), "m-9", json.RawMessage(`{}`)), app.NotFound, "machine-not-found")
	wantCode(t, db.SetInventory(t.Context(), "m-00001", json.RawMessage(`{`)), app.InvalidInput, "invalid-field")
	huge := json.RawMessage(`"` + strings.Repeat("x", MaxInventory) + `"`)
	wantCode(t, db.SetInventory(t.Context(), "m-00001", huge), app.TooLarge, "inventory-too-large")
	for _, want := range []string{`{"a":1}`, `{"a":2}`} {
		if err := db.SetInventory(t.Context(), "m-00001", json.RawMessage(want)); err != nil {
			t.Fatal(err)
		}
		got, taken, err := db.Inventory(t.Context(), "m-00001")
		if err != nil || string(got) != want || taken.IsZero() {
			t.Errorf("%s, %v, %v", got, taken, err)
		}
	}
}

func TestListMachines(t *testing.T) {
	db := open(t, "")
	for i := range 25 {
		create(t, db, sample(i))
	}
	for name, c := range map[string]struct {
		f    app.MachineFilter
		want int
	}{
		"all":                 {app.MachineFilter{}, 25},
		"state":               {app.MachineFilter{States: []app.State{app.StateReady}}, 7},
		"two states":          {app.MachineFilter{States: []app.State{app.StateReady, app.StateFailed}}, 13},
		"pool":                {app.MachineFilter{Pool: "rack3"}, 2},
		"label":               {app.MachineFilter{Labels: map[string]string{"row": "1"}}, 3},
		"two labels":          {app.MachineFilter{Labels: map[string]string{"row": "1", "rack": "9"}}, 1},
		"ids":                 {app.MachineFilter{IDs: []string{"m-00001", "m-00024", "m-7"}}, 2},
		"text in name":        {app.MachineFilter{Text: "ODE-0001"}, 10},
		"text in serial":      {app.MachineFilter{Text: "sn000007"}, 1},
		"text in BMC address": {app.MachineFilter{Text: "192.0.2.24"}, 1},
		"MAC":                 {app.MachineFilter{Text: "00:00:5e:00:53:05"}, 1},
		"MAC in dots":         {app.MachineFilter{Text: "0000.5E00.5305"}, 1},
		"wildcards are text":  {app.MachineFilter{Text: "node%"}, 0},
		"text and state":      {app.MachineFilter{Text: "node-0000", States: []app.State{app.StateReady}}, 3},
		"SQL is text":         {app.MachineFilter{Text: "' OR 1=1 --"}, 0},
	} {
		c.f.Limit = 4
		var names []string
		for {
			page, err := db.ListMachines(t.Context(), c.f)
			if err != nil || page.Total != c.want || len(page.Items) > 4 || page.Count[app.StateReady] != 7 {
				t.Fatalf("%s: total %d of %d, %d rows, counts %v, %v", name, page.Total, c.want, len(page.Items), page.Count, err)
			}
			for _, m := range page.Items {
				names = append(names, m.Name)
			}
			if page.Next == "" {
				break
			}
			c.f.After = page.Next
		}
		if len(names) != c.want {
			t.Errorf("%s: pages hold %d, want %d: %v", name, len(names), c.want, names)
		}
		for i := 1; i < len(names); i++ {
			if names[i-1] >= names[i] {
				t.Errorf("%s: out of order: %v", name, names)
			}
		}
	}
	_, err := db.ListMachines(t.Context(), app.MachineFilter{Text: strings.Repeat("x", maxText+1)})
	wantCode(t, err, app.InvalidInput, "invalid-field")
}

// BenchmarkListMachines measures one page of 100 over 10,000 machines; the bound is 10 ms.
func BenchmarkListMachines(b *testing.B) {
	db := open(b, filepath.Join(b.TempDir(), "bcd.db"))
	fill(b, db, 10_000)
	for name, f := range map[string]app.MachineFilter{
		"first":     {},
		"middle":    {After: "node-05000"},
		"state":     {States: []app.State{app.StateFailed}},
		"text":      {Text: "sn0077"},
		"rare-text": {Text: "no such machine"},
		"pool":      {Pool: "rack7"},
		"label":     {Labels: map[string]string{"rack": "7"}},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				if _, err := db.ListMachines(b.Context(), f); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	b.Run("by-mac", func(b *testing.B) {
		for b.Loop() {
			if _, err := db.MachineByMAC(b.Context(), mac(9999)); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func fill(b *testing.B, db *DB, n int) {
	tx, err := begin(b.Context(), db.writer, false)
	if err != nil {
		b.Fatal(err)
	}
	for i := range n {
		m := sample(i)
		m.Version = 1
		if err := insertMachine(tx, m); err != nil {
			b.Fatal(err)
		}
	}
	if err := tx.tx.Commit(); err != nil {
		b.Fatal(err)
	}
}
