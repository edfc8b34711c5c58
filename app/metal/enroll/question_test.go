package enroll_test

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal/enroll"
)

const card = app.MAC("00:00:5e:00:53:0a")

// moved is a desk with a port of node-a that was seen in node-b.
func moved(t *testing.T) (*desk, app.PortQuestion) {
	t.Helper()
	d := newDesk(t)
	for _, m := range []app.Machine{
		{ID: "m-a", Name: "node-a", NICs: []app.NIC{{MAC: card, Confirmed: true}, {MAC: "00:00:5e:00:53:1a", Confirmed: true}}},
		{ID: "m-b", Name: "node-b", UUID: uuid, NICs: []app.NIC{{MAC: "00:00:5e:00:53:0b", Confirmed: true}}},
	} {
		if err := d.db.CreateMachine(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
	}
	return d, d.asked(t, app.PortMoved, card, "m-a")
}

// asked puts a question about node-b down.
func (d *desk) asked(t *testing.T, kind string, mac app.MAC, owner string) app.PortQuestion {
	t.Helper()
	q := app.NewPortQuestion(kind, mac, owner, "m-b", time.Now())
	if _, err := d.db.AskPort(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	return q
}

func (d *desk) ports(t *testing.T, id string) (out string) {
	t.Helper()
	m, err := d.db.Machine(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	for _, n := range m.NICs {
		out += fmt.Sprintf("%s %v,", n.MAC[15:], n.Confirmed)
	}
	return out
}

func TestAcceptingMovesThePort(t *testing.T) {
	d, q := moved(t)
	got, first, err := d.Answer(t.Context(), "alice", q.ID, true)
	if err != nil || !first || got.State != app.QuestionAccepted || got.AnsweredBy != "alice" || got.Answered.IsZero() || got.Owner != "node-a" {
		t.Fatalf("%+v, first %v, %v", got, first, err)
	}
	if a, b := d.ports(t, "m-a"), d.ports(t, "m-b"); a != "1a true," || b != "0b true,0a true," {
		t.Errorf("node-a has %s node-b %s", a, b)
	}
	before, err := d.db.Machine(t.Context(), "m-b")
	if err != nil {
		t.Fatal(err)
	}
	if again, first, err := d.Answer(t.Context(), "bob", q.ID, true); err != nil || first || again.AnsweredBy != "alice" {
		t.Errorf("the same answer again: %+v, first %v, %v", again, first, err)
	}
	if _, _, err := d.Answer(t.Context(), "bob", q.ID, false); !reasoned(err, "question-answered") {
		t.Errorf("another answer gave %v", err)
	}
	if after, err := d.db.Machine(t.Context(), "m-b"); err != nil || after.Version != before.Version {
		t.Errorf("answers that came too late changed the machine: %v", err)
	}
}

func reasoned(err error, reason string) bool {
	e, ok := app.AsError(err)
	return ok && e.Reason == reason && e.WayOut != ""
}

func TestRefusingLeavesThePort(t *testing.T) {
	d, q := moved(t)
	if got, first, err := d.Answer(t.Context(), "alice", q.ID, false); err != nil || !first || got.State != app.QuestionRefused {
		t.Fatalf("%+v, %v", got, err)
	}
	if a, b := d.ports(t, "m-a"), d.ports(t, "m-b"); a != "0a true,1a true," || b != "0b true," {
		t.Errorf("node-a has %s node-b %s", a, b)
	}
	if again := d.asked(t, app.PortMoved, card, "m-a"); again.State != app.QuestionRefused {
		t.Errorf("asked again it is %s", again.State)
	}
	if err := d.ForgetQuestion(t.Context(), q.ID); err != nil {
		t.Fatal(err)
	}
	if again := d.asked(t, app.PortMoved, card, "m-a"); again.State != app.QuestionOpen {
		t.Errorf("forgotten and asked again it is %s", again.State)
	}
}

// A port that is nobody's: proposed when it netbooted, then the machine's own, or no longer proposed.
func TestAnswersAboutANewPort(t *testing.T) {
	const mac = app.MAC("00:00:5e:00:53:2b")
	for accept, want := range map[bool]string{true: "0b true,2b true,", false: "0b true,"} {
		d, _ := moved(t)
		_, err := d.db.UpdateMachine(t.Context(), "m-b", func(m *app.Machine) error {
			m.NICs = append(m.NICs, app.NIC{MAC: mac, Source: "netboot"})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		q := d.asked(t, app.PortNew, mac, "")
		if _, _, err := d.Answer(t.Context(), "alice", q.ID, accept); err != nil || d.ports(t, "m-b") != want {
			t.Errorf("accept %v: node-b has %s %v", accept, d.ports(t, "m-b"), err)
		}
	}
}

// A board that shares its UUID with another, as a person has said, is enrolled without it.
func TestATwinIsAcceptedWithoutItsUUID(t *testing.T) {
	d, _ := moved(t)
	const mac = app.MAC("00:00:5e:00:53:77")
	if err := d.db.PutDiscovery(t.Context(), &app.Discovery{MAC: mac, UUID: uuid}); err != nil {
		t.Fatal(err)
	}
	in := enroll.Input{Name: "node-c"}
	if _, err := d.Accept(t.Context(), mac, in); !reasoned(err, "uuid-taken") {
		t.Errorf("before anybody said so: %v", err)
	}
	q := d.asked(t, app.PortNew, mac, "")
	if _, _, err := d.Answer(t.Context(), "alice", q.ID, false); err != nil {
		t.Fatal(err)
	}
	if m, err := d.Accept(t.Context(), mac, in); err != nil || m.UUID != "" || len(m.NICs) != 1 {
		t.Errorf("%+v, %v", m, err)
	}
}

func TestAnswersThatCannotBeFollowed(t *testing.T) {
	for name, c := range map[string]struct {
		change func(m *app.Machine)
		id     string
		reason string
	}{
		"the owner is at work":       {func(m *app.Machine) { m.WorkflowID = "w-1" }, "m-a", "machine-busy"},
		"the owner has it no longer": {func(m *app.Machine) { m.NICs = m.NICs[1:] }, "m-a", "question-stale"},
		"too many": {func(m *app.Machine) {
			for i := range 63 {
				m.NICs = append(m.NICs, app.NIC{MAC: app.MAC(fmt.Sprintf("00:00:5e:01:00:%02x", i))})
			}
		}, "m-b", "too-many-ports"},
	} {
		d, q := moved(t)
		if _, err := d.db.UpdateMachine(t.Context(), c.id, func(m *app.Machine) error { c.change(m); return nil }); err != nil {
			t.Fatal(err)
		}
		a, b := d.ports(t, "m-a"), d.ports(t, "m-b")
		if _, _, err := d.Answer(t.Context(), "alice", q.ID, true); !reasoned(err, c.reason) {
			t.Errorf("%s: %v", name, err)
		}
		got, err := d.Question(t.Context(), q.ID)
		if err != nil || got.State != app.QuestionOpen || d.ports(t, "m-a") != a || d.ports(t, "m-b") != b {
			t.Errorf("%s: it is %s now, the ports %s %s, %v", name, got.State, d.ports(t, "m-a"), d.ports(t, "m-b"), err)
		}
		if _, _, err := d.Answer(t.Context(), "alice", q.ID, false); err != nil {
			t.Errorf("%s: refusing gave %v", name, err)
		}
	}
	d, _ := moved(t)
	if _, _, err := d.Answer(t.Context(), "alice", "pq-none", true); app.CodeOf(err) != app.NotFound {
		t.Errorf("no question: %v", err)
	}
}

// Many operators answer at once: one answer counts, whoever said the same has it too, whoever said the other is told.
func TestAnswersAtOnce(t *testing.T) {
	for range 8 {
		d, q := moved(t)
		const n = 8
		errs, firsts := make([]error, n), make([]bool, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() { _, firsts[i], errs[i] = d.Answer(t.Context(), fmt.Sprint("op", i), q.ID, i%2 == 0) })
		}
		wg.Wait()
		got, err := d.Question(t.Context(), q.ID)
		if err != nil {
			t.Fatal(err)
		}
		accepted, first := got.State == app.QuestionAccepted, 0
		for i := range n {
			if same := (i%2 == 0) == accepted; same != (errs[i] == nil) || !same && !reasoned(errs[i], "question-answered") {
				t.Errorf("it is %s; answer %d gave %v", got.State, i, errs[i])
			}
			if firsts[i] {
				first++
				if got.AnsweredBy != fmt.Sprint("op", i) {
					t.Errorf("op%d was first, %s has answered", i, got.AnsweredBy)
				}
			}
		}
		want := map[bool]string{true: "1a true, 0b true,0a true,", false: "0a true,1a true, 0b true,"}[accepted]
		if ports := d.ports(t, "m-a") + " " + d.ports(t, "m-b"); first != 1 || ports != want {
			t.Errorf("%d were first; %s and the ports %s: %v", first, got.State, ports, errors.Join(errs...))
		}
	}
}

// Open questions come first, whenever they were asked.
func TestOpenQuestionsComeFirst(t *testing.T) {
	d, q := moved(t)
	if _, _, err := d.Answer(t.Context(), "alice", q.ID, false); err != nil {
		t.Fatal(err)
	}
	old := app.NewPortQuestion(app.PortNew, "00:00:5e:00:53:2b", "", "m-b", time.Now().Add(-time.Hour))
	if _, err := d.db.AskPort(t.Context(), &old); err != nil {
		t.Fatal(err)
	}
	if all, err := d.Questions(t.Context()); err != nil || len(all) != 2 || all[0].ID != old.ID || all[1].ID != q.ID {
		t.Errorf("%+v, %v", all, err)
	}
}
