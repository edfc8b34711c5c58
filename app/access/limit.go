package access

import (
	"net/netip"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// Failed logins allowed in one window, per user and address and per address over all users.
const (
	failWindow     = 15 * time.Minute
	failsPerUser   = 5
	failsPerAddr   = 30
	limiterEntries = 10_000
)

type failKey struct{ user, addr string }

type failCount struct {
	n     int
	until time.Time
}

// limiter counts failed logins in memory; a restart forgets them, which the cost of argon2id makes harmless.
type limiter struct {
	now func() time.Time
	mu  sync.Mutex // protects m
	m   map[failKey]failCount
}

func newLimiter(now func() time.Time) *limiter { return &limiter{now: now, m: map[failKey]failCount{}} }

// network is the part of an address that one attacker surely owns: an IPv4 address, an IPv6 /64.
func network(remote string) string {
	ap, err := netip.ParseAddrPort(remote)
	a := ap.Addr()
	if err != nil {
		if a, err = netip.ParseAddr(remote); err != nil {
			return "?"
		}
	}
	a = a.Unmap().WithZone("")
	if a.Is4() {
		return a.String()
	}
	p, _ := a.Prefix(64)
	return p.String()
}

// begin counts an attempt as failed until forget says otherwise, so that parallel attempts cannot outrun the count.
func (l *limiter) begin(user, remote string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	now, addr := l.now(), network(remote)
	keys := []struct {
		k   failKey
		max int
	}{{failKey{user, addr}, failsPerUser}, {failKey{"", addr}, failsPerAddr}}
	for _, e := range keys {
		if c := l.m[e.k]; c.n >= e.max && now.Before(c.until) {
			wait := c.until.Sub(now).Round(time.Second)
			return app.Errorf(app.RateLimited, "too-many-logins", "too many failed logins from this address").
				Do("try again in %s, or run \"bcd reset-password\" on the appliance", wait).Retryable()
		}
	}
	l.makeRoom(now)
	for _, e := range keys {
		c := l.m[e.k]
		if !now.Before(c.until) {
			c = failCount{until: now.Add(failWindow)}
		}
		c.n++
		l.m[e.k] = c
	}
	return nil
}

// forget takes back one attempt, and the user's earlier failures with it: the password was right.
func (l *limiter) forget(user, remote string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	addr := network(remote)
	delete(l.m, failKey{user, addr})
	if c, ok := l.m[failKey{"", addr}]; ok && c.n > 0 {
		c.n--
		l.m[failKey{"", addr}] = c
	}
}

// makeRoom drops expired entries, and when all are live those ending first.
func (l *limiter) makeRoom(now time.Time) {
	if len(l.m) < limiterEntries {
		return
	}
	var first failKey
	var at time.Time
	for k, c := range l.m {
		if !now.Before(c.until) {
			delete(l.m, k)
		} else if at.IsZero() || c.until.Before(at) {
			first, at = k, c.until
		}
	}
	if len(l.m) >= limiterEntries {
		delete(l.m, first)
	}
}
