package session

import (
	"sync"
	"time"
)

// Clock keeps the server's time. It anchors each server time it is told to the monotonic clock, so that a wrong or stepped
// wall clock on the machine changes nothing. It is safe for concurrent use.
type Clock struct {
	mono func() time.Duration

	mu     sync.Mutex // protects server and at
	server time.Time
	at     time.Duration
}

// NewClock makes a clock over mono, which gives the time since any fixed instant and never goes back; nil is the process's
// own monotonic clock.
func NewClock(mono func() time.Duration) *Clock {
	if mono == nil {
		start := time.Now()
		mono = func() time.Duration { return time.Since(start) }
	}
	return &Clock{mono: mono}
}

// Observe takes a server time that has just arrived. It lies by the time the answer travelled, which errs to the past.
func (c *Clock) Observe(server time.Time) {
	if server.IsZero() {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.server, c.at = server.Round(0), c.mono()
}

// Now gives the server's time, and false before any was observed.
func (c *Clock) Now() (time.Time, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server.IsZero() {
		return time.Time{}, false
	}
	return c.server.Add(c.mono() - c.at), true
}
