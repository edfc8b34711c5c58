package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
)

const asked = app.MAC("00:00:5e:00:53:0a")

// openWithTwo is a store with two machines, of which the first has the port.
func openWithTwo(t *testing.T) *DB {
	t.Helper()
	db := open(t, "")
	for _, m := range []app.Machine{{ID: "m-a", Name: "node-a", NICs: []app.NIC{{MAC: asked, Confirmed: true}}}, {ID: "m-b", Name: "node-b"}} {
		if err := db.CreateMachine(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	return db
}

func TestPortQuestionsAreKeptByTheirFacts(t *testing.T) {
	db, at := openWithTwo(t), time.Now().UTC().Truncate(time.Microsecond)
	ask := func(at time.Time, want bool) app.PortQuestion {
		t.Helper()
		q := app.NewPortQuestion(app.PortMoved, asked, "m-a", "m-b", at)
		if anew, err := db.AskPort(t.Context(), &q); err != nil || anew != want {
			t.Fatalf("asked anew: %v, %v", anew, err)
		}
		return q
	}
	first := ask(at, true)
	if again := ask(at.Add(time.Hour), false); !again.First.Equal(at) || !again.Last.Equal(at.Add(time.Hour)) || again.ID != first.ID {
		t.Errorf("asked again: %+v", again)
	}
	list, err := db.ListPortQuestions(t.Context())
	if err != nil || len(list) != 1 || list[0].Owner != "node-a" || list[0].Machine != "node-b" {
		t.Fatalf("list %+v, %v", list, err)
	}
	answer := func(state string) {
		t.Helper()
		q, err := db.AnswerPort(t.Context(), first.ID, func(q *app.PortQuestion, owner, m *app.Machine) error {
			q.State = state
			if state == app.QuestionAccepted {
				owner.NICs, m.NICs = nil, []app.NIC{{MAC: asked, Confirmed: true}}
			}
			return nil
		})
		if err != nil || q.State != state || q.Owner != "node-a" || q.Machine != "node-b" {
			t.Fatalf("answered %+v, %v", q, err)
		}
	}
	answer(app.QuestionRefused)
	if q := ask(at.Add(2*time.Hour), false); q.State != app.QuestionRefused {
		t.Errorf("a refused question is %q", q.State)
	}
	answer(app.QuestionAccepted)
	if m, err := db.MachineByMAC(t.Context(), asked); err != nil || m.ID != "m-b" || m.Version != 3 {
		t.Errorf("the port is %+v, %v", m, err)
	}
	if id, err := db.OwnerOf(t.Context(), asked); err != nil || id != "m-b" {
		t.Errorf("DHCP takes it for one of %q, %v", id, err)
	}
	if q := ask(at.Add(3*time.Hour), true); q.State != app.QuestionOpen {
		t.Errorf("as before again, the question is %q", q.State)
	}
}

// An answer and what follows from it are one: neither is there without the other.
func TestPortAnswersAreWhole(t *testing.T) {
	db := openWithTwo(t)
	q := app.NewPortQuestion(app.PortMoved, asked, "m-a", "m-b", time.Now())
	if _, err := db.AskPort(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	for name, answer := range map[string]func(*app.PortQuestion, *app.Machine, *app.Machine) error{
		"taken by both": func(q *app.PortQuestion, _, m *app.Machine) error {
			q.State, m.NICs = app.QuestionAccepted, []app.NIC{{MAC: asked}}
			return nil
		},
		"refused by the caller": func(q *app.PortQuestion, owner, _ *app.Machine) error {
			q.State, owner.NICs = app.QuestionAccepted, nil
			return app.Errorf(app.Conflict, "machine-busy", "busy")
		},
		"a bad name": func(q *app.PortQuestion, owner, m *app.Machine) error {
			q.State, owner.NICs, m.Name = app.QuestionAccepted, nil, "No Name"
			return nil
		},
	} {
		if _, err := db.AnswerPort(t.Context(), q.ID, answer); err == nil {
			t.Errorf("%s: no error", name)
		}
		m, err := db.MachineByMAC(t.Context(), asked)
		got, qerr := db.PortQuestion(t.Context(), q.ID)
		if err != nil || qerr != nil || m.ID != "m-a" || m.Version != 1 || got.State != app.QuestionOpen {
			t.Errorf("%s left %+v and %+v, %v %v", name, m, got, err, qerr)
		}
	}
	_, err := db.AnswerPort(t.Context(), "pq-none", nil)
	wantCode(t, err, app.NotFound, "question-not-found")
	wantCode(t, db.DeletePortQuestion(t.Context(), "pq-none"), app.NotFound, "question-not-found")
}

// What is no longer a question is not shown as one.
func TestPortQuestionsWhoseFactsChanged(t *testing.T) {
	for name, c := range map[string]struct {
		kind, owner string
		change      func(t *testing.T, db *DB)
		left        int
	}{
		"moved":                   {app.PortMoved, "m-a", func(*testing.T, *DB) {}, 1},
		"moved, owner gone":       {app.PortMoved, "m-a", func(t *testing.T, db *DB) { must(t, db.DeleteMachine(t.Context(), "m-a")) }, 0},
		"moved, the other gone":   {app.PortMoved, "m-a", func(t *testing.T, db *DB) { must(t, db.DeleteMachine(t.Context(), "m-b")) }, 0},
		"moved, owner without it": {app.PortMoved, "m-a", func(t *testing.T, db *DB) { setNICs(t, db, "m-a") }, 0},
		"new, nobody's":           {app.PortNew, "", func(t *testing.T, db *DB) { setNICs(t, db, "m-a") }, 1},
		"new, proposed":           {app.PortNew, "", func(t *testing.T, db *DB) { setNICs(t, db, "m-a"); setNICs(t, db, "m-b", app.NIC{MAC: asked}) }, 1},
		"new, confirmed meanwhile": {app.PortNew, "", func(t *testing.T, db *DB) {
			setNICs(t, db, "m-a")
			setNICs(t, db, "m-b", app.NIC{MAC: asked, Confirmed: true})
		}, 0},
		"new, another's meanwhile": {app.PortNew, "", func(*testing.T, *DB) {}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			db := openWithTwo(t)
			q := app.NewPortQuestion(c.kind, asked, c.owner, "m-b", time.Now())
			if _, err := db.AskPort(t.Context(), &q); err != nil {
				t.Fatal(err)
			}
			c.change(t, db)
			if all, err := db.ListPortQuestions(t.Context()); err != nil || len(all) != c.left {
				t.Errorf("%+v, %v", all, err)
			}
		})
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func setNICs(t *testing.T, db *DB, id string, nics ...app.NIC) {
	t.Helper()
	_, err := db.UpdateMachine(t.Context(), id, func(m *app.Machine) error { m.NICs = nics; return nil })
	must(t, err)
}

func TestPortQuestionsAreBounded(t *testing.T) {
	db, at := openWithTwo(t), time.Now().UTC()
	db.maxQuestions = 20
	for i := range db.maxQuestions + 5 {
		q := app.NewPortQuestion(app.PortNew, app.MAC(fmt.Sprintf("00:00:5e:01:%02x:%02x", i/256, i%256)), "", "m-b", at.Add(time.Duration(i)*time.Second))
		if _, err := db.AskPort(t.Context(), &q); err != nil {
			t.Fatal(err)
		}
	}
	all, err := db.ListPortQuestions(t.Context())
	if err != nil || len(all) != db.maxQuestions || all[len(all)-1].MAC != "00:00:5e:01:00:05" {
		t.Errorf("%d kept, %v", len(all), err)
	}
}

// The id is made of the facts, and of nothing else.
func TestPortQuestionIDs(t *testing.T) {
	at := time.Now()
	seen := map[string]string{}
	for _, f := range [][4]string{{app.PortMoved, "a", "b", "c"}, {app.PortMoved, "a", "c", "b"}, {app.PortNew, "a", "", "c"}, {app.PortNew, "a", "c", ""}, {app.PortMoved, "ab", "", "c"}} {
		q := app.NewPortQuestion(f[0], app.MAC(f[1]), f[2], f[3], at)
		if other, ok := seen[q.ID]; ok {
			t.Errorf("%v has the id of %s", f, other)
		}
		seen[q.ID] = fmt.Sprint(f)
		if again := app.NewPortQuestion(f[0], app.MAC(f[1]), f[2], f[3], at.Add(time.Hour)); cmp.Diff(q.ID, again.ID) != "" {
			t.Errorf("%v: %s, then %s", f, q.ID, again.ID)
		}
	}
}
