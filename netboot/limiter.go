package netboot

import (
	"sync"
	"time"
)

// What is recorded of strangers: a rack that boots for the first time is seen whole, a flood of invented MACs does not
// fill the event log.
const (
	strangersBurst  = 500
	strangersPerSec = 20
)

// limiter lets strangersBurst things pass and strangersPerSec a second after that.
type limiter struct {
	mu   sync.Mutex
	used float64
	last time.Time
}

func (l *limiter) allow(now time.Time) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if d := now.Sub(l.last).Seconds(); d > 0 {
		l.used = max(0, l.used-d*strangersPerSec)
	}
	l.last = now
	if l.used >= strangersBurst {
		return false
	}
	l.used++
	return true
}
