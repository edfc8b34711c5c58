package site

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/health"
	"github.com/better-compute/bcd/netboot"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// question is what only a person can say about a client that netboots: a kind of app.PortQuestion, or none.
type question string

// The questions. A machine about which there is one boots its disk: it may be another than it seems.
const (
	noQuestion question = ""
	newPort    question = app.PortNew
	movedPort  question = app.PortMoved
)

// evidence is what is known of a client that netboots.
type evidence struct {
	owner *app.Machine  // whose the first known of its MACs is; nil: nobody's
	alike []app.Machine // machines with its UUID, in any byte order
}

// recognize says which machine a client is, and what is to be asked about it. A MAC address counts before a UUID: boards
// share UUIDs, and firmware and BMC spell them as they like. But a UUID that exactly one machine has, and not the owner of
// the port, tells of a card that was moved.
func recognize(e evidence) (*app.Machine, question) {
	var alike *app.Machine
	if len(e.alike) == 1 {
		alike = &e.alike[0]
	}
	switch {
	case e.owner != nil && alike != nil && alike.ID != e.owner.ID:
		return e.owner, movedPort
	case e.owner != nil:
		return e.owner, noQuestion
	case alike == nil:
		return nil, noQuestion
	case alike.Summary != (app.HardwareSummary{}): // its agent has listed its ports: this one was not there
		return alike, newPort
	}
	return alike, noQuestion
}

// find looks for a machine by its MACs, then by its UUID.
func (p port67) find(ctx context.Context, c netboot.Client) (*app.Machine, question, error) {
	var e evidence
	var mac app.MAC
	for _, mac = range c.MACs {
		m, err := p.s.db.MachineByMAC(ctx, mac)
		if err == nil {
			e.owner = m
			break
		}
		if app.CodeOf(err) != app.NotFound {
			return nil, noQuestion, err
		}
	}
	if c.UUID != "" {
		var err error
		if e.alike, err = p.s.db.MachinesByUUID(ctx, c.UUID); err != nil {
			return nil, noQuestion, err
		}
	}
	m, q := recognize(e)
	switch {
	case m == nil || len(c.MACs) == 0:
	case q == movedPort:
		p.s.ask(ctx, q, mac, m, &e.alike[0])
	case e.owner == nil && q == newPort:
		mac = c.MACs[0]
		if refused, err := p.s.refused(ctx, q, mac, m); err != nil || refused {
			return nil, noQuestion, err // a person says that it is another machine, so it is nobody's yet
		}
		p.s.ask(ctx, q, mac, nil, m)
		return m, q, p.propose(ctx, m, mac)
	case e.owner == nil:
		return m, q, p.propose(ctx, m, c.MACs[0])
	case len(e.alike) == 0 && c.UUID != "" && m.UUID != "" && !m.UUID.Same(c.UUID):
		p.s.otherUUID(m, mac, c.UUID)
	case !confirmed(m, mac) && m.Summary != (app.HardwareSummary{}): // it was asked before
		q = newPort
		p.s.ask(ctx, q, mac, nil, m)
	}
	return m, q, nil
}

// otherUUID notes that a port netbooted in something else than its machine: firmware that spells a UUID in its own way, a new
// mainboard, or a second machine with the same MAC address. It is not held back: its ramdisk says who it is.
func (s *Site) otherUUID(m *app.Machine, mac app.MAC, u app.UUID) {
	at := now().UTC()
	if !s.asked.due("uuid"+m.ID+string(u), at) {
		return
	}
	data, err := json.Marshal(map[string]any{"mac": mac, "uuid": u, "wayOut": "see whether another machine has this MAC address; what runs there gets no commands while its UUID differs"})
	if err != nil {
		data = nil
	}
	s.recorder.Event(app.Event{Time: at, Kind: "boot.other-uuid", Level: "warn", MachineID: m.ID, Actor: "system", Data: data,
		Message: fmt.Sprintf("Port %s netbooted with UUID %s; %s has %s: are there two machines with one MAC address?", mac, u, m.Name, m.UUID)})
}

// confirmed reports whether a port was proposed by the network alone.
func confirmed(m *app.Machine, mac app.MAC) bool {
	for _, n := range m.NICs {
		if n.MAC == mac {
			return n.Confirmed || n.Source != "netboot"
		}
	}
	return false
}

// propose notes a port that a machine known by its UUID netbooted from; a person or its agent confirms it.
func (p port67) propose(ctx context.Context, m *app.Machine, mac app.MAC) error {
	if len(m.NICs) >= 64 {
		return nil
	}
	_, err := p.s.db.UpdateMachine(ctx, m.ID, func(m *app.Machine) error {
		for _, n := range m.NICs {
			if n.MAC == mac {
				return nil
			}
		}
		m.NICs = append(m.NICs, app.NIC{MAC: mac, Source: "netboot"})
		return nil
	})
	return err
}

// askEvery is how often one question is put down again.
const askEvery = time.Minute

// maxAsked bounds the questions that are remembered.
const maxAsked = 1024

// questions remembers when each was put down last.
type questions struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due reports whether a question is to be put down.
func (q *questions) due(key string, now time.Time) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if at, known := q.last[key]; known && now.Sub(at).Abs() < askEvery {
		return false
	}
	if q.last == nil || len(q.last) >= maxAsked {
		q.last = map[string]time.Time{}
	}
	q.last[key] = now
	return true
}

// ask puts a question down and on the timelines of its machines, the first time into the audit trail too. One that a person
// has answered is not asked again. owner is nil when the port is nobody's.
func (s *Site) ask(ctx context.Context, kind question, mac app.MAC, owner, m *app.Machine) {
	at := now().UTC()
	ownerID := ""
	if owner != nil {
		ownerID = owner.ID
	}
	q := app.NewPortQuestion(string(kind), mac, ownerID, m.ID, at)
	if !s.asked.due(q.ID, at) {
		return
	}
	anew, err := s.db.AskPort(ctx, &q)
	if err != nil {
		s.log.Error("a question about a port was not put down", "mac", mac, "machine", m.ID, "error", err)
		return
	}
	if q.State != app.QuestionOpen {
		return
	}
	if q.Machine = m.Name; owner != nil {
		q.Owner = owner.Name
	}
	for _, about := range []*app.Machine{owner, m} {
		if about != nil {
			s.question(q, about.ID, anew)
		}
	}
}

// question tells of an open question on the timeline of one of its machines.
func (s *Site) question(q app.PortQuestion, machineID string, audit bool) {
	wayOut := fmt.Sprintf("see which machine the port is in, and answer under Discovered or with bcd port answer %s accept (or refuse); then let it netboot again", q.ID)
	data, err := json.Marshal(map[string]any{"mac": q.MAC, "question": q.Kind, "id": q.ID, "wayOut": wayOut})
	if err != nil {
		data = nil
	}
	e := app.Event{Time: q.Last, Kind: "boot.question", Level: "warn", MachineID: machineID, Actor: "system", Message: q.Text() + " Until a person answers, what netboots from it boots its disk.", Data: data}
	s.recorder.Event(e)
	if audit {
		s.bus.Emit(e)
	}
}

// refused reports whether a person said no to a question about a port that is nobody's.
func (s *Site) refused(ctx context.Context, kind question, mac app.MAC, m *app.Machine) (bool, error) {
	q, err := s.db.PortQuestion(ctx, app.NewPortQuestion(string(kind), mac, "", m.ID, now()).ID)
	if app.CodeOf(err) == app.NotFound {
		return false, nil
	}
	return err == nil && q.State == app.QuestionRefused, err
}

// identify refuses a ramdisk whose machine has another UUID than the one that it was booted for: two machines with one MAC
// address, or a card that was moved, must never get one another's disks written. What has no UUID is known by its port alone.
func (s *Site) identify(ctx context.Context, machineID string, req agentv1.SessionRequest) error {
	u, err := app.ParseUUID(req.UUID)
	if err != nil || u == "" {
		return nil // firmware that says nothing usable
	}
	m, err := s.db.Machine(ctx, machineID)
	if err != nil || m.UUID == "" || m.UUID.Same(u) {
		return err
	}
	return app.Errorf(app.Conflict, "another-machine", "the machine that answered for %s has UUID %s, not %s: nothing was done to it", m.Name, u, m.UUID).
		Do("see which machine netbooted from this one's ports: two may have one MAC address, or a card was moved; after a change of its mainboard, let its UUID be learned anew with bcd machine set %s --productUuid '', and retry", m.Name)
}

// askedPorts says that questions about ports wait for a person: what netboots from them boots its disk until then.
func (s *Site) askedPorts(ctx context.Context) ([]health.Warning, error) {
	all, err := s.db.ListPortQuestions(ctx)
	n := 0
	for _, q := range all {
		if q.State == app.QuestionOpen {
			n++
		}
	}
	if n == 0 || err != nil {
		return nil, err
	}
	return []health.Warning{{Code: "port-questions", Level: "warn", Message: fmt.Sprintf("network ports of which a person must say whose they are: %d; until then, what netboots from them boots its disk", n),
		WayOut: "answer the questions under Discovered, or with bcd port list and bcd port answer"}}, nil
}
