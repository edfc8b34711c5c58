package site

import (
	"context"
	"log/slog"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/agent"
	"github.com/better-compute/bcd/app/event"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/netboot"
)

const (
	uuidA = app.UUID("00112233-4455-6677-8899-aabbccddeeff")
	uuidB = app.UUID("00112233-4455-6677-8899-aabbccddee00")
)

var listed = app.HardwareSummary{CPUs: 8} // its agent has listed its ports

func TestRecognize(t *testing.T) {
	a := app.Machine{ID: "m-a", UUID: uuidA, Summary: listed}
	b := app.Machine{ID: "m-b", UUID: uuidB, Summary: listed}
	raw := app.Machine{ID: "m-raw", UUID: uuidA}
	for name, c := range map[string]struct {
		e    evidence
		want string
		q    question
	}{
		"nobody":                                   {evidence{}, "", noQuestion},
		"by its port alone":                        {evidence{owner: &a}, "m-a", noQuestion},
		"by port and UUID":                         {evidence{owner: &a, alike: []app.Machine{a}}, "m-a", noQuestion},
		"by UUID, never inventoried":               {evidence{alike: []app.Machine{raw}}, "m-raw", noQuestion},
		"an unknown port in a known machine":       {evidence{alike: []app.Machine{a}}, "m-a", newPort},
		"a card of A in B":                         {evidence{owner: &a, alike: []app.Machine{b}}, "m-a", movedPort},
		"a UUID that many boards share":            {evidence{alike: []app.Machine{a, b}}, "", noQuestion},
		"its port, and a UUID that others share":   {evidence{owner: &a, alike: []app.Machine{b, raw}}, "m-a", noQuestion},
		"its port, and a UUID that is nobody's":    {evidence{owner: &a, alike: nil}, "m-a", noQuestion},
		"its port, in a machine without a UUID":    {evidence{owner: &raw}, "m-raw", noQuestion},
		"a card of a machine never looked into, B": {evidence{owner: &raw, alike: []app.Machine{b}}, "m-raw", movedPort},
	} {
		got, q := recognize(c.e)
		id := ""
		if got != nil {
			id = got.ID
		}
		if id != c.want || q != c.q {
			t.Errorf("%s: %q with question %q, want %q with %q", name, id, q, c.want, c.q)
		}
	}
}

// netbooting is a site as far as netboot asks it, with two machines that may load the ramdisk.
func netbooting(t *testing.T) port67 {
	t.Helper()
	db, log := openStore(t), slog.New(slog.DiscardHandler)
	s := &Site{db: db, log: log, bus: event.New(event.Config{Store: db, Log: log}), recorder: recorder.New(recorder.Config{Log: log}), programs: &bootImages{lines: map[string]string{}}}
	s.agents = agent.New(agent.Config{Store: db, SiteKey: make([]byte, 32), Log: log, Record: func(app.Event) {}, Signal: func(string, string, any) {},
		URLs: func(string) (site, boot []string) { return nil, nil }})
	for _, m := range []app.Machine{
		{ID: "m-a", Name: "node-a", UUID: uuidA, Summary: listed, NICs: []app.NIC{{MAC: "00:00:5e:00:53:0a", Name: "eno1", Confirmed: true, Source: "inventory"}}},
		{ID: "m-b", Name: "node-b", UUID: uuidB, NICs: []app.NIC{{MAC: "00:00:5e:00:53:0b", Source: "bmc"}}},
	} {
		m.State = app.StateReady
		if err := db.CreateMachine(t.Context(), &m); err != nil {
			t.Fatal(err)
		}
		if _, err := s.agents.Mint(t.Context(), app.Boot{MachineID: m.ID, WorkflowID: "w-" + m.ID, Address: "192.0.2.1"}); err != nil {
			t.Fatal(err)
		}
	}
	return port67{s}
}

// However it spells itself, a machine is one; what may be another never gets the ramdisk of a workflow.
func TestOnlyTheMachineItselfLoadsItsRamdisk(t *testing.T) {
	p := netbooting(t)
	for _, c := range []struct {
		name string
		macs []app.MAC
		uuid app.UUID
		id   string
		kind netboot.Kind
	}{
		{"its port", []app.MAC{"00:00:5e:00:53:0a"}, "", "m-a", netboot.KindRamdisk},
		{"its port and UUID", []app.MAC{"00:00:5e:00:53:0a"}, uuidA, "m-a", netboot.KindRamdisk},
		{"its UUID as SMBIOS has it", []app.MAC{"00:00:5e:00:53:0a"}, uuidA.Swapped(), "m-a", netboot.KindRamdisk},
		{"a UUID that is nobody's", []app.MAC{"00:00:5e:00:53:0a"}, "99999999-4455-6677-8899-aabbccddeeff", "m-a", netboot.KindRamdisk},
		{"a port its BMC named", []app.MAC{"00:00:5e:00:53:0b"}, "", "m-b", netboot.KindRamdisk},
		{"a new port of a machine never looked into", []app.MAC{"00:00:5e:00:53:1b"}, uuidB, "m-b", netboot.KindRamdisk},
		{"a new port of an inventoried machine, or a twin board", []app.MAC{"00:00:5e:00:53:1a"}, uuidA, "m-a", netboot.KindDisk},
		{"the same again", []app.MAC{"00:00:5e:00:53:1a"}, "", "m-a", netboot.KindDisk},
		{"a card of A in B", []app.MAC{"00:00:5e:00:53:0a"}, uuidB, "m-a", netboot.KindDisk},
		{"a stranger", []app.MAC{"00:00:5e:00:53:77"}, "99999999-4455-6677-8899-aabbccddeeff", "", netboot.KindNone},
	} {
		got, err := p.Target(t.Context(), netboot.Client{MACs: c.macs, UUID: c.uuid})
		if err != nil || got.MachineID != c.id || got.Kind != c.kind {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	page, err := p.s.db.ListMachines(t.Context(), app.MachineFilter{})
	if err != nil || page.Total != 2 {
		t.Errorf("there are %d machines now, %v", page.Total, err)
	}
	// The operator's word ends the question.
	_, err = p.s.db.UpdateMachine(t.Context(), "m-a", func(m *app.Machine) error {
		for i := range m.NICs {
			m.NICs[i].Confirmed = true
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := p.Target(t.Context(), netboot.Client{MACs: []app.MAC{"00:00:5e:00:53:1a"}, UUID: uuidA}); err != nil || got.Kind != netboot.KindRamdisk {
		t.Errorf("a confirmed port boots %+v, %v", got, err)
	}
}

// A question is in the audit trail once, however often the firmware asks.
func TestQuestionsAreAskedOnce(t *testing.T) {
	p := netbooting(t)
	sub := p.s.bus.Subscribe(event.Filter{Kind: "boot."}, 64)
	defer sub.Close()
	for range 5 {
		if _, err := p.Target(t.Context(), netboot.Client{MACs: []app.MAC{"00:00:5e:00:53:0a"}, UUID: uuidB}); err != nil {
			t.Fatal(err)
		}
	}
	p.s.bus.Emit(app.Event{Kind: "boot.end"})
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- p.s.bus.Run(ctx) }()
	asked := map[string]int{}
	for e := range sub.C {
		if e.Kind == "boot.end" {
			break
		}
		asked[e.MachineID+" "+e.Level]++
	}
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if len(asked) != 2 || asked["m-a warn"] != 1 || asked["m-b warn"] != 1 {
		t.Errorf("asked %v", asked)
	}
}

// answer says yes or no to the one open question.
func answer(t *testing.T, p port67, accept bool) app.PortQuestion {
	t.Helper()
	e := enroll.New(&metal.Ports{Machines: p.s.db, Now: now}, enroll.Config{Questions: p.s.db})
	all, err := e.Questions(t.Context())
	if err != nil || len(all) == 0 || all[0].State != app.QuestionOpen {
		t.Fatalf("the questions are %+v, %v", all, err)
	}
	q, _, err := e.Answer(t.Context(), "alice", all[0].ID, accept)
	if err != nil {
		t.Fatal(err)
	}
	return *q
}

func (p port67) boots(t *testing.T, mac app.MAC, uuid app.UUID) string {
	t.Helper()
	p.s.asked = questions{} // a minute has passed
	got, err := p.Target(t.Context(), netboot.Client{MACs: []app.MAC{mac}, UUID: uuid})
	if err != nil {
		t.Fatal(err)
	}
	return got.MachineID + " " + map[netboot.Kind]string{netboot.KindNone: "nothing", netboot.KindDisk: "disk", netboot.KindRamdisk: "ramdisk"}[got.Kind]
}

// A card of one machine in another: a yes makes it the other's, and what it then boots; a no leaves all as it is and is not
// asked again; and when the card goes back, that is a question again.
func TestAMovedCardIsAnswered(t *testing.T) {
	const port = app.MAC("00:00:5e:00:53:0a")
	p := netbooting(t)
	if got := p.boots(t, port, uuidB); got != "m-a disk" {
		t.Errorf("before an answer it boots %s", got)
	}
	answer(t, p, false)
	if got := p.boots(t, port, uuidB); got != "m-a disk" {
		t.Errorf("after a no it boots %s", got)
	}
	if all, err := p.s.db.ListPortQuestions(t.Context()); err != nil || len(all) != 1 || all[0].State != app.QuestionRefused {
		t.Errorf("a no was asked again: %+v, %v", all, err)
	}
	if w, err := p.s.askedPorts(t.Context()); err != nil || len(w) != 0 {
		t.Errorf("Health waits for an answer that was given: %+v, %v", w, err)
	}
	if got := p.boots(t, port, uuidA); got != "m-a ramdisk" {
		t.Errorf("the machine itself boots %s", got)
	}

	p = netbooting(t)
	p.boots(t, port, uuidB)
	if w, err := p.s.askedPorts(t.Context()); err != nil || len(w) != 1 || w[0].WayOut == "" {
		t.Errorf("Health says %+v, %v", w, err)
	}
	answer(t, p, true)
	if got := p.boots(t, port, uuidB); got != "m-b ramdisk" {
		t.Errorf("after a yes it boots %s", got)
	}
	if got := p.boots(t, port, uuidA); got != "m-b disk" {
		t.Errorf("back in its old machine it boots %s", got)
	}
	if q := answer(t, p, true); q.OwnerID != "m-b" || q.MachineID != "m-a" {
		t.Errorf("asked %+v", q)
	}
	p.boots(t, port, uuidB)
	if q := answer(t, p, true); q.OwnerID != "m-a" || q.MachineID != "m-b" {
		t.Errorf("the first question, again: %+v", q)
	}
}

// A port that is nobody's, with a machine's UUID: after a no it is another machine, which a person may accept.
func TestANewPortIsAnswered(t *testing.T) {
	const port = app.MAC("00:00:5e:00:53:1a")
	for accept, want := range map[bool]string{true: "m-a ramdisk", false: " nothing"} {
		p := netbooting(t)
		for range 2 { // the second time it is a proposed one
			if got := p.boots(t, port, uuidA); got != "m-a disk" {
				t.Errorf("before an answer it boots %s", got)
			}
		}
		answer(t, p, accept)
		for range 2 {
			if got := p.boots(t, port, uuidA); got != want {
				t.Errorf("answered %v, it boots %s, want %s", accept, got, want)
			}
		}
	}
}

// Two machines with one MAC address: the timeline says that the port netbooted with another UUID, once in a while.
func TestAnotherUUIDIsTold(t *testing.T) {
	p := netbooting(t)
	ctx, cancel := context.WithCancel(t.Context())
	p.s.recorder = recorder.New(recorder.Config{Log: slog.New(slog.DiscardHandler)})
	sub := p.s.recorder.Follow(app.RecordFilter{MachineID: "m-a"}, 64)
	defer sub.Close()
	done := make(chan error, 1)
	go func() { done <- p.s.recorder.Run(ctx) }()
	for _, u := range []app.UUID{uuidA, uuidA.Swapped(), "", "99999999-4455-6677-8899-aabbccddeeff", "99999999-4455-6677-8899-aabbccddeeff"} {
		if got, err := p.Target(t.Context(), netboot.Client{MACs: []app.MAC{"00:00:5e:00:53:0a"}, UUID: u}); err != nil || got.Kind != netboot.KindRamdisk {
			t.Errorf("%s: %+v, %v", u, got, err)
		}
	}
	p.s.recorder.Event(app.Event{Kind: "machine.end", MachineID: "m-a", Level: "info", Message: "end"})
	told := 0
	for x := range sub.C {
		if x.Kind == "machine.end" {
			break
		}
		if x.Kind == "boot.other-uuid" && x.Level == "warn" {
			told++
		}
	}
	cancel()
	if err := <-done; err != nil || told != 1 {
		t.Errorf("told %d times, %v", told, err)
	}
}
