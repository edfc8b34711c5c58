package recorder

import (
	"context"
	"slices"

	"github.com/better-compute/bcd/app"
)

// List gives a timeline, newest first.
func (r *Recorder) List(ctx context.Context, f app.RecordFilter) ([]app.Record, error) {
	r.mu.Lock()
	s := r.store
	r.mu.Unlock()
	return s.ListRecords(ctx, f)
}

// Claim makes what was and will be seen of ports that were nobody's part of a machine's timeline. It does not wait.
func (r *Recorder) Claim(machineID string, macs ...app.MAC) {
	r.inPlace(func(ctx context.Context) {
		for _, mac := range macs {
			r.mu.Lock()
			if len(r.owner) >= maxPorts {
				clear(r.owner)
			}
			r.owner[mac] = machineID
			s := r.store
			delete(r.facts, machineID) // to be read back with what was claimed
			r.mu.Unlock()
			if err := s.ClaimRecords(ctx, mac, machineID); err != nil {
				r.cfg.Log.Warn("claiming records", "mac", mac, "machine", machineID, "error", err)
			}
		}
	})
}

// Forget drops a machine's timeline. It does not wait.
func (r *Recorder) Forget(machineID string) {
	r.inPlace(func(ctx context.Context) {
		r.mu.Lock()
		for mac, id := range r.owner {
			if id == machineID {
				delete(r.owner, mac)
			}
		}
		delete(r.facts, machineID)
		s := r.store
		r.mu.Unlock()
		if err := s.ForgetRecords(ctx, machineID); err != nil {
			r.cfg.Log.Warn("forgetting records", "machine", machineID, "error", err)
		}
	})
}

// inPlace queues something to be done after the records that were told before it.
func (r *Recorder) inPlace(do func(context.Context)) {
	select {
	case r.queue <- item{do: do}:
	default:
		r.lost.Add(1)
	}
}

// telling are the kinds that facts are made of.
var telling = []string{"bmc.", "boot.", "dhcp.", "tftp.", "http.", "ipxe.", "agent.", "os.", "iso.", "network."}

// Facts gives what is known of a machine's boot now.
func (r *Recorder) Facts(ctx context.Context, machineID string) Facts {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), writeTime) // what is read is kept for others
	defer cancel()
	r.mu.Lock()
	f := r.known(ctx, machineID).copy()
	r.mu.Unlock()
	if r.cfg.Rivals != nil && f.Rival == "" {
		f.Rival = rivalOf(f.Ports, r.cfg.Rivals())
	}
	return f
}

// rivalOf is the address of a server that offers addresses where a port asked; "" when there is none.
func rivalOf(ports []Port, rivals []app.Rival) string {
	for _, p := range ports {
		for _, x := range rivals {
			if p.Interface != "" && x.Interface == p.Interface && x.Offered.IsValid() {
				return x.Server.String()
			}
		}
	}
	return ""
}

// Verdict judges a machine's boot as it stands; nil when none is under way.
func (r *Recorder) Verdict(ctx context.Context, machineID string) *Verdict {
	return Judge(r.Facts(ctx, machineID), r.cfg.Now())
}

// known gives a machine's facts, read back from its records the first time. mu must be held.
func (r *Recorder) known(ctx context.Context, machineID string) *Facts {
	f := r.facts[machineID]
	if f != nil {
		return f
	}
	if len(r.facts) >= maxFollowed {
		clear(r.facts)
	}
	f = &Facts{Names: r.cfg.Names}
	r.facts[machineID] = f
	past, err := r.store.ListRecords(ctx, app.RecordFilter{MachineID: machineID, Kinds: telling, Limit: factsPage})
	if err != nil {
		r.cfg.Log.Warn("reading a machine's records", "machine", machineID, "error", err)
	}
	lines, err := r.store.ListRecords(ctx, app.RecordFilter{MachineID: machineID, Kinds: []string{KindConsole}, Limit: maxTail})
	if err != nil {
		r.cfg.Log.Warn("reading a machine's console", "machine", machineID, "error", err)
	}
	past = append(past, lines...)
	slices.SortFunc(past, func(a, b app.Record) int { return int(min(max(a.ID-b.ID, -1), 1)) })
	for i := range past {
		f.Add(past[i])
	}
	return f
}

// learn adds a record to its machine's facts. mu must be held.
func (r *Recorder) learn(ctx context.Context, x *app.Record) {
	if x.MachineID != "" {
		r.known(ctx, x.MachineID).Add(*x)
	}
}

// Subscription is one reader of records as they come in. They arrive on C; a record of kind KindDropped stands where some
// were lost.
type Subscription struct {
	C      <-chan app.Record
	out    chan app.Record
	filter app.RecordFilter
	lost   int64 // under the recorder's mu
	r      *Recorder
}

// Follow starts a subscription that holds at most buffer records that were not read yet; buffer is at least 2. Of the filter,
// the subject and the kinds count. The caller must Close it.
func (r *Recorder) Follow(f app.RecordFilter, buffer int) *Subscription {
	ch := make(chan app.Record, max(buffer, 2))
	s := &Subscription{C: ch, out: ch, filter: app.RecordFilter{MachineID: f.MachineID, MAC: f.MAC, Kinds: f.Kinds}, r: r}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subs[s] = struct{}{}
	return s
}

// Close ends the subscription. C is not closed.
func (s *Subscription) Close() {
	s.r.mu.Lock()
	defer s.r.mu.Unlock()
	delete(s.r.subs, s)
}

// offer hands a record over if there is room, and first the notice of what was lost. The recorder's mu is held.
func (s *Subscription) offer(x app.Record) {
	if !matches(s.filter, &x) {
		return
	}
	room := cap(s.out) - len(s.out)
	if s.lost > 0 && room >= 2 {
		s.out <- s.r.left(x, s.lost, "records are missing here because this reader was too slow")
		s.lost, room = 0, room-1
	}
	if s.lost > 0 || room == 0 {
		s.lost++
		return
	}
	s.out <- x
}
