package store

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

func add(t testing.TB, db *DB, events ...app.Event) []app.Event {
	t.Helper()
	if err := db.AddEvents(t.Context(), events); err != nil {
		t.Fatal(err)
	}
	return events
}

func ids(t testing.TB, db *DB, f app.EventFilter) (all []int64) {
	t.Helper()
	events, err := db.ListEvents(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		all = append(all, e.ID)
	}
	return all
}

func TestEvents(t *testing.T) {
	db := open(t, "")
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	got := add(t, db,
		app.Event{Time: at, Kind: "dhcp.offer", MachineID: "m1", Message: "offered", Data: json.RawMessage(`{"a":1}`)},
		app.Event{Time: at.Add(time.Second), Kind: "dhcpd", Level: "warn", Message: "another family"},
		app.Event{Time: at.Add(2 * time.Second), Kind: "dhcp.ack", MachineID: "m2", Workflow: "wf-1", Actor: "alice"},
		app.Event{Kind: "user.login", Actor: "alice"},
	)
	for i, e := range got {
		if e.ID != int64(i+1) || e.Time.IsZero() || e.Level == "" {
			t.Errorf("event %d came back as %+v", i, e)
		}
	}
	for _, c := range []struct {
		f    app.EventFilter
		want string
	}{
		{app.EventFilter{}, "[4 3 2 1]"},
		{app.EventFilter{Limit: 2}, "[4 3]"},
		{app.EventFilter{Before: 3}, "[2 1]"},
		{app.EventFilter{Kind: "dhcp."}, "[3 1]"},
		{app.EventFilter{Kind: "dhcp.ack"}, "[3]"},
		{app.EventFilter{MachineID: "m1"}, "[1]"},
		{app.EventFilter{WorkflowID: "wf-1"}, "[3]"},
		{app.EventFilter{Since: at.Add(time.Second), Before: 4}, "[3 2]"},
		{app.EventFilter{MachineID: "m2", Kind: "dhcp.", Since: at}, "[3]"},
		{app.EventFilter{MachineID: "nobody"}, "[]"},
	} {
		if got := fmt.Sprint(ids(t, db, c.f)); got != c.want {
			t.Errorf("%+v: %s, want %s", c.f, got, c.want)
		}
	}
	all, _ := db.ListEvents(t.Context(), app.EventFilter{MachineID: "m1"})
	if e := all[0]; !e.Time.Equal(at) || e.Message != "offered" || string(e.Data) != `{"a":1}` || e.Level != "info" {
		t.Errorf("%+v", e)
	}
}

func TestEventsOfAMachineAreBounded(t *testing.T) {
	db := open(t, "")
	add(t, db, app.Event{Kind: "old", MachineID: "quiet"}, app.Event{Kind: "old"})
	for range 25 {
		batch := make([]app.Event, 100)
		for i := range batch {
			batch[i] = app.Event{Kind: "dhcp.offer", MachineID: "loud"}
		}
		add(t, db, batch...)
		var n int
		if err := db.reader.QueryRow("SELECT count(*) FROM events WHERE machine_id = 'loud'").Scan(&n); err != nil || n > MaxMachineEvents {
			t.Fatalf("%d events of one machine, %v", n, err)
		}
	}
	last := add(t, db, app.Event{Kind: "new", MachineID: "loud"})[0].ID
	if newest := ids(t, db, app.EventFilter{MachineID: "loud", Limit: 1}); newest[0] != last {
		t.Errorf("the newest is %v, want %d", newest, last)
	}
	if n := len(ids(t, db, app.EventFilter{MachineID: "quiet"})); n != 1 {
		t.Errorf("another machine has %d events left", n)
	}
	counted(t, db)
}

func TestEventsInAllAreBounded(t *testing.T) {
	db := open(t, "")
	db.maxEvents = 1000
	add(t, db, app.Event{Kind: "first", MachineID: "m-first"}, app.Event{Kind: "first"})
	for i := range 15 {
		batch := make([]app.Event, 100)
		for j := range batch {
			batch[j] = app.Event{Kind: "k", MachineID: fmt.Sprintf("m%d", i)}
		}
		add(t, db, batch...)
		var n int
		if err := db.reader.QueryRow("SELECT count(*) FROM events").Scan(&n); err != nil || n > db.maxEvents {
			t.Errorf("%d events in all, %v", n, err)
		}
	}
	if left := ids(t, db, app.EventFilter{MachineID: "m-first"}); len(left) != 0 {
		t.Error("the oldest was kept")
	}
	if n := len(ids(t, db, app.EventFilter{MachineID: "m14", Limit: 1000})); n != 100 {
		t.Errorf("%d of the newest 100 are left", n)
	}
	counted(t, db)
}

// counted compares the counts that pruning goes by with the rows.
func counted(t *testing.T, db *DB) {
	t.Helper()
	var wrong int
	err := db.reader.QueryRow(`SELECT count(*) FROM event_counts c
		WHERE n <> (SELECT count(*) FROM events e WHERE c.machine_id IN ('', e.machine_id))`).Scan(&wrong)
	if err != nil || wrong != 0 {
		t.Errorf("%d counts are wrong, %v", wrong, err)
	}
}

// BenchmarkAddEvents adds to a full table, pruning included.
func BenchmarkAddEvents(b *testing.B) {
	db := open(b, "")
	for i := range MaxEvents / 1000 {
		batch := make([]app.Event, 1000)
		for j := range batch {
			batch[j] = app.Event{Kind: "dhcp.offer", MachineID: fmt.Sprintf("m%d", i), Message: "offered 192.0.2.9"}
		}
		add(b, db, batch...)
	}
	slowest := time.Duration(0)
	for b.Loop() {
		begun := time.Now()
		add(b, db, app.Event{Kind: "dhcp.offer", MachineID: "m1", Message: "offered 192.0.2.9"})
		slowest = max(slowest, time.Since(begun))
	}
	b.ReportMetric(float64(slowest.Microseconds())/1000, "slowest-ms")
}

// Field case 59: what is stored in one zone is ordered, filtered and read right in another.
func TestTimesDoNotDependOnTheZone(t *testing.T) {
	zone := time.Local
	defer func() { time.Local = zone }()
	path := filepath.Join(t.TempDir(), "bcd.db")
	start := time.Date(2026, 3, 8, 9, 59, 58, 123456000, time.UTC) // two seconds before Los Angeles changes its clocks
	zones := []string{"America/Los_Angeles", "Asia/Kathmandu", "UTC"}
	for i, name := range zones {
		loc, err := time.LoadLocation(name)
		if err != nil {
			t.Fatal(err)
		}
		time.Local = loc
		db, err := Open(t.Context(), Config{Path: path})
		if err != nil {
			t.Fatal(err)
		}
		at := start.Add(time.Duration(i) * time.Second)
		add(t, db, app.Event{Time: at.In(loc), Kind: name})
		create(t, db, &app.Machine{ID: fmt.Sprintf("m-%d", i), Name: fmt.Sprintf("node-%d", i), StateSince: at.In(loc), Deployment: &app.Deployment{Started: at.In(loc)}})
		if i == 0 {
			put(t, db, subnet("s-a", "192.0.2.0/24"))
		}
		if err := db.PutLeases(t.Context(), []app.Lease{{MAC: mac(i), Addr: netip.AddrFrom4([4]byte{192, 0, 2, byte(10 + i)}), SubnetID: "s-a", State: "bound", Expires: at.In(loc)}}); err != nil {
			t.Fatal(err)
		}
		leases, err := db.ListLeases(t.Context()) // by which they expire
		if err != nil || len(leases) != i+1 {
			t.Fatalf("%s: %d leases, %v", name, len(leases), err)
		}
		for j, l := range leases {
			if want := start.Add(time.Duration(j) * time.Second); !l.Expires.Equal(want) {
				t.Errorf("%s: lease %d ends at %v, want %v", name, j, l.Expires, want)
			}
		}

		if got := fmt.Sprint(ids(t, db, app.EventFilter{Since: start})); got != fmt.Sprint([]int64{3, 2, 1}[2-i:]) {
			t.Errorf("%s: order %s", name, got)
		}
		if got := ids(t, db, app.EventFilter{Since: at}); len(got) != 1 || got[0] != int64(i+1) {
			t.Errorf("%s: since %v finds %v", name, at, got)
		}
		for j := range i + 1 {
			want := start.Add(time.Duration(j) * time.Second)
			events, _ := db.ListEvents(t.Context(), app.EventFilter{Kind: zones[j]})
			m, err := db.Machine(t.Context(), fmt.Sprintf("m-%d", j))
			if err != nil || !events[0].Time.Equal(want) || events[0].Time.Location() != time.UTC ||
				!m.StateSince.Equal(want) || !m.Deployment.Started.Equal(want) || m.Created.Location() != time.UTC {
				t.Errorf("%s: event %v, machine %v, want %v (%v)", name, events[0].Time, m.StateSince, want, err)
			}
		}
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
