// Package recordertest is what every store of the flight recorder must do.
package recordertest

import (
	"fmt"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// Store runs the conformance suite; open gives an empty store, which the suite closes.
func Store(t *testing.T, open func(t *testing.T) app.RecordStore) {
	for name, test := range map[string]func(*testing.T, app.RecordStore){
		"keeps and pages": pages, "filters": filters, "claims": claims, "forgets": forgets, "prunes": prunes, "bounds one machine": bounds,
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t)
			test(t, s)
			if err := s.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

var begin = time.Date(2026, 1, 2, 3, 4, 5, 678000, time.UTC)

// record makes the i-th record of a machine, a second after the one before.
func record(i int, machine, kind string) app.Record {
	return app.Record{Time: begin.Add(time.Duration(i) * time.Second), Kind: kind, Level: "info", MachineID: machine, Message: fmt.Sprint(i)}
}

func add(t *testing.T, s app.RecordStore, r ...app.Record) []app.Record {
	t.Helper()
	if err := s.AddRecords(t.Context(), r); err != nil {
		t.Fatal(err)
	}
	return r
}

func list(t *testing.T, s app.RecordStore, f app.RecordFilter) (out []string) {
	t.Helper()
	all, err := s.ListRecords(t.Context(), f)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range all {
		out = append(out, r.Message)
	}
	return out
}

func want(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func pages(t *testing.T, s app.RecordStore) {
	full := app.Record{Time: begin, Kind: "dhcp.offer", Level: "warn", MachineID: "m-1", MAC: "00:00:5e:00:53:01", Workflow: "w-1", Actor: "alice", Message: "0", Data: []byte(`{"a":1}`)}
	added := add(t, s, full, record(1, "m-1", "a.b"), record(2, "m-1", "a.b"), record(3, "m-2", "a.b"))
	for i, r := range added {
		if r.ID <= 0 || i > 0 && r.ID <= added[i-1].ID {
			t.Errorf("id %d", r.ID)
		}
	}
	all, err := s.ListRecords(t.Context(), app.RecordFilter{MachineID: "m-1"})
	if err != nil || len(all) != 3 {
		t.Fatalf("%v, %v", all, err)
	}
	full.ID = added[0].ID
	if got := all[2]; fmt.Sprint(got) != fmt.Sprint(full) {
		t.Errorf("read back %+v\nwant      %+v", got, full)
	}
	want(t, "newest", list(t, s, app.RecordFilter{MachineID: "m-1", Limit: 2}), "2", "1")
	want(t, "the next page", list(t, s, app.RecordFilter{MachineID: "m-1", Limit: 2, Before: added[1].ID}), "0")
	want(t, "what came after", list(t, s, app.RecordFilter{MachineID: "m-1", After: added[0].ID}), "2", "1")
	want(t, "nobody's", list(t, s, app.RecordFilter{}))
}

func filters(t *testing.T, s app.RecordStore) {
	add(t, s, record(0, "m-1", "dhcp.offer"), record(1, "m-1", "dhcp.ack"), record(2, "m-1", "dhcpx"), record(3, "m-1", "bmc.power"), record(4, "m-1", "console.line"))
	for _, c := range []struct {
		kinds []string
		want  []string
	}{
		{[]string{"dhcp."}, []string{"1", "0"}}, {[]string{"dhcp.ack"}, []string{"1"}}, {[]string{"dhcp.", "bmc."}, []string{"3", "1", "0"}},
		{[]string{"none."}, nil}, {nil, []string{"4", "3", "2", "1", "0"}}, {[]string{"dhcp"}, nil}, {[]string{"%"}, nil},
	} {
		want(t, fmt.Sprint(c.kinds), list(t, s, app.RecordFilter{MachineID: "m-1", Kinds: c.kinds}), c.want...)
	}
	want(t, "since", list(t, s, app.RecordFilter{MachineID: "m-1", Since: begin.Add(3 * time.Second)}), "4", "3")
}

func claims(t *testing.T, s app.RecordStore) {
	mac, other := app.MAC("00:00:5e:00:53:01"), app.MAC("00:00:5e:00:53:02")
	for i, m := range []app.MAC{mac, other, mac} {
		r := record(i, "", "dhcp.heard")
		r.MAC = m
		add(t, s, r)
	}
	add(t, s, record(3, "m-1", "bmc.power"))
	want(t, "of the port", list(t, s, app.RecordFilter{MAC: mac}), "2", "0")
	if err := s.ClaimRecords(t.Context(), mac, "m-1"); err != nil {
		t.Fatal(err)
	}
	want(t, "of the machine", list(t, s, app.RecordFilter{MachineID: "m-1"}), "3", "2", "0")
	want(t, "left at the port", list(t, s, app.RecordFilter{MAC: mac}))
	want(t, "of the other port", list(t, s, app.RecordFilter{MAC: other}), "1")
	if err := s.ClaimRecords(t.Context(), mac, "m-1"); err != nil {
		t.Errorf("nothing to claim: %v", err)
	}
}

func forgets(t *testing.T, s app.RecordStore) {
	add(t, s, record(0, "m-1", "a.b"), record(1, "m-2", "a.b"))
	if err := s.ForgetRecords(t.Context(), "m-1"); err != nil {
		t.Fatal(err)
	}
	want(t, "forgotten", list(t, s, app.RecordFilter{MachineID: "m-1"}))
	want(t, "kept", list(t, s, app.RecordFilter{MachineID: "m-2"}), "1")
}

func prunes(t *testing.T, s app.RecordStore) {
	for i := range 6 {
		add(t, s, record(i, "m-1", "a.b"))
	}
	n, err := s.PruneRecords(t.Context(), begin.Add(4*time.Second))
	if err != nil || n != 4 {
		t.Errorf("pruned %d, %v", n, err)
	}
	want(t, "kept", list(t, s, app.RecordFilter{MachineID: "m-1"}), "5", "4")
	if n, err = s.PruneRecords(t.Context(), begin); err != nil || n != 0 {
		t.Errorf("pruned %d more, %v", n, err)
	}
}

// bounds: a machine whose network never rests does not grow without end, and costs no other machine its records.
func bounds(t *testing.T, s app.RecordStore) {
	add(t, s, record(0, "m-2", "bmc.power"))
	const flood = 4_000
	for i := 0; i < flood; i += 500 {
		var batch []app.Record
		for j := range 500 {
			batch = append(batch, record(i+j, "m-1", "dhcp.offer"))
		}
		add(t, s, batch...)
	}
	want(t, "the other machine", list(t, s, app.RecordFilter{MachineID: "m-2"}), "0")
	want(t, "the newest", list(t, s, app.RecordFilter{MachineID: "m-1", Limit: 1}), fmt.Sprint(flood-1))
	n, before := 0, int64(0)
	for {
		page, err := s.ListRecords(t.Context(), app.RecordFilter{MachineID: "m-1", Limit: 1000, Before: before})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		n, before = n+len(page), page[len(page)-1].ID
	}
	if n < 500 || n > flood*3/4 {
		t.Errorf("%d of %d records were kept", n, flood)
	}
}
