package event

import (
	"strings"

	"github.com/better-compute/bcd/app"
)

// Filter selects what a subscriber sees. Zero fields select all.
type Filter struct {
	MachineID string
	Workflow  string
	Kind      string // may end in "." to match a family
}

// Match reports whether e passes the filter.
func (f Filter) Match(e app.Event) bool {
	if f.MachineID != "" && f.MachineID != e.MachineID || f.Workflow != "" && f.Workflow != e.Workflow {
		return false
	}
	if strings.HasSuffix(f.Kind, ".") {
		return strings.HasPrefix(e.Kind, f.Kind)
	}
	return f.Kind == "" || f.Kind == e.Kind
}

// Subscription is one reader of the bus. Events arrive on C; a notice of kind KindDropped stands where some were lost.
type Subscription struct {
	C      <-chan app.Event
	out    chan app.Event
	filter Filter
	lost   int64 // under the bus's mu
	bus    *Bus
}

// Subscribe starts a subscription holding at most buffer events that were not read yet; buffer is at least 2.
// The caller must Close it.
func (b *Bus) Subscribe(f Filter, buffer int) *Subscription {
	ch := make(chan app.Event, max(buffer, 2))
	s := &Subscription{C: ch, out: ch, filter: f, bus: b}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.subs[s] = struct{}{}
	return s
}

// Close ends the subscription. C is not closed.
func (s *Subscription) Close() {
	s.bus.mu.Lock()
	defer s.bus.mu.Unlock()
	delete(s.bus.subs, s)
}

// offer hands e over if there is room, and first the notice of what was lost. The bus's mu is held.
func (s *Subscription) offer(e app.Event) {
	if !s.filter.Match(e) {
		return
	}
	room := cap(s.out) - len(s.out)
	if s.lost > 0 && room >= 2 {
		s.out <- notice(e.Time, s.lost, "are missing here because this reader was too slow")
		s.lost, room = 0, room-1
	}
	if s.lost > 0 || room == 0 {
		s.lost++
		return
	}
	s.out <- e
}
