package site

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot"
)

// question is what only a person can say about a client that netboots.
type question string

// The questions. A machine about which there is one boots its disk: it may be another than it seems.
const (
	noQuestion question = ""
	newPort    question = "new-port"   // a port that is nobody's, in a machine all of whose ports are known
	movedPort  question = "moved-port" // a port of one machine, in another
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
		p.s.ask(m, mac, q, fmt.Sprintf("port %s of %s netbooted in a machine with the UUID of %s", mac, m.Name, e.alike[0].Name))
		p.s.ask(&e.alike[0], mac, q, fmt.Sprintf("port %s, which is known as one of %s, netbooted in a machine with this one's UUID", mac, m.Name))
	case e.owner == nil:
		if err := p.propose(ctx, m, c.MACs[0]); err != nil {
			return nil, noQuestion, err
		}
		if q == newPort {
			p.s.ask(m, c.MACs[0], q, fmt.Sprintf("port %s netbooted with the UUID of %s, among whose ports it was not", c.MACs[0], m.Name))
		}
	case !confirmed(m, mac) && m.Summary != (app.HardwareSummary{}): // it was asked before
		q = newPort
		p.s.ask(m, mac, q, fmt.Sprintf("port %s netbooted as one of %s, and nobody has confirmed it", mac, m.Name))
	}
	return m, q, nil
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

// questions remembers when each was asked last.
type questions struct {
	mu   sync.Mutex
	last map[string]time.Time
}

// due reports whether a question is to be put down, and whether it is new.
func (q *questions) due(key string, now time.Time) (due, first bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at, known := q.last[key]
	if known && now.Sub(at) < askEvery {
		return false, false
	}
	if q.last == nil || len(q.last) >= maxAsked {
		q.last = map[string]time.Time{}
	}
	q.last[key] = now
	return true, !known
}

// ask puts a question on a machine's timeline, and the first time into the audit trail.
func (s *Site) ask(m *app.Machine, mac app.MAC, q question, what string) {
	at := now().UTC()
	due, first := s.asked.due(m.ID+string(mac)+string(q), at)
	if !due {
		return
	}
	wayOut := fmt.Sprintf("see which machine the port is in; if it is %s, confirm the port on its page, and retry", m.Name)
	data, err := json.Marshal(map[string]any{"mac": mac, "question": q, "wayOut": wayOut})
	if err != nil {
		data = nil
	}
	e := app.Event{Time: at, Kind: "boot.question", Level: "warn", MachineID: m.ID, Actor: "system", Message: what + ": it was sent on to its disk", Data: data}
	s.recorder.Event(e)
	if first {
		s.bus.Emit(e)
	}
}
