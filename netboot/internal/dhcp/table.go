package dhcp

import (
	"hash/fnv"
	"net/netip"
	"time"

	"github.com/better-compute/bcd/app"
)

// holdTime is how long an offered address waits for its REQUEST.
const holdTime = time.Minute

// quarantine is how long an address rests after a client declined it or a probe found it in use.
const quarantine = 10 * time.Minute

type leaseKey struct {
	subnet string
	mac    app.MAC
}

// entry is what the table knows of one address.
type entry struct {
	lease app.Lease
	held  time.Time   // an offer holds the address until then
	lost  []app.Lease // stored leases that this one replaces, to be deleted when it is stored
}

// takeLost gives the replaced leases, once.
func (e *entry) takeLost() []app.Lease {
	lost := e.lost
	e.lost = nil
	return lost
}

// live reports whether the address may not be given to another client.
func (e *entry) live(now time.Time) bool {
	return e.lease.Reserved || e.held.After(now) || (e.lease.State != "released" && e.lease.Expires.After(now))
}

// table is the set of leases, by address and by client. It is not safe for concurrent use.
type table struct {
	byKey  map[leaseKey]*entry
	byAddr map[netip.Addr]*entry
}

func newTable() *table {
	return &table{byKey: map[leaseKey]*entry{}, byAddr: map[netip.Addr]*entry{}}
}

// load puts a stored lease in. Of two that claim one address or one client, the one seen last stays.
func (t *table) load(l app.Lease) {
	for _, old := range []*entry{t.byAddr[l.Addr], t.byKey[leaseKey{l.SubnetID, l.MAC}]} {
		if old != nil && old.lease.Seen.After(l.Seen) {
			return
		}
	}
	t.put(l, time.Time{})
}

// put makes a lease the only one of its address and of its client. The entry remembers the stored leases it replaces.
func (t *table) put(l app.Lease, held time.Time) *entry {
	key := leaseKey{l.SubnetID, l.MAC}
	e := &entry{lease: l, held: held}
	for _, old := range []*entry{t.byAddr[l.Addr], t.byKey[key]} {
		if old == nil {
			continue
		}
		t.drop(old)
		e.lost = append(e.lost, old.lost...)
		if old.lease.State != "offered" && (old.lease.MAC != l.MAC || old.lease.Addr != l.Addr) {
			e.lost = append(e.lost, old.lease)
		}
	}
	t.byAddr[l.Addr] = e
	if l.State != "declined" { // a declined address belongs to nobody
		t.byKey[key] = e
	}
	return e
}

func (t *table) drop(e *entry) {
	if t.byAddr[e.lease.Addr] == e {
		delete(t.byAddr, e.lease.Addr)
	}
	if key := (leaseKey{e.lease.SubnetID, e.lease.MAC}); t.byKey[key] == e {
		delete(t.byKey, key)
	}
}

// forget drops the entries that gone accepts.
func (t *table) forget(gone func(*entry) bool) {
	for _, e := range t.byAddr {
		if gone(e) {
			t.drop(e)
		}
	}
}

// free reports whether an address may be given to mac: nobody else lives there.
func (t *table) free(a netip.Addr, mac app.MAC, now time.Time) bool {
	e := t.byAddr[a]
	if e == nil {
		return true
	}
	if e.lease.State == "declined" {
		return !e.live(now)
	}
	return e.lease.MAC == mac || !e.live(now)
}

// pick chooses a pool address for mac that skip does not exclude: one never given out, starting at a place that
// depends on the MAC, so that a client gets the same address even after the table was lost; else the one unused for
// longest. It reports false when the pool is exhausted.
func (t *table) pick(p pool, mac app.MAC, now time.Time, skip func(netip.Addr) bool) (netip.Addr, bool) {
	if p.size == 0 {
		return netip.Addr{}, false
	}
	h := fnv.New64a()
	_, _ = h.Write([]byte(mac))
	start := h.Sum64() % p.size
	var oldest netip.Addr
	var oldestAt time.Time
	for i := range p.size {
		a := p.at((start + i) % p.size)
		if skip(a) {
			continue
		}
		e := t.byAddr[a]
		if e == nil {
			return a, true
		}
		if !e.live(now) && (!oldest.IsValid() || e.lease.Expires.Before(oldestAt)) {
			oldest, oldestAt = a, e.lease.Expires
		}
	}
	return oldest, oldest.IsValid()
}
