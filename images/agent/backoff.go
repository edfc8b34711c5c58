package agent

import (
	"math/rand/v2"
	"time"
)

// maxBackoff is the longest pause between two tries.
const maxBackoff = 5 * time.Second

// backoff gives growing, jittered pauses, so that a rack of agents does not call at one instant when the appliance is back.
type backoff struct {
	n    int
	told time.Time
}

// next gives the pause before the next try: between half and all of 250 ms, 500 ms, … up to maxBackoff.
func (b *backoff) next() time.Duration {
	d := maxBackoff
	if b.n < 5 {
		d = min(d, 250*time.Millisecond<<b.n)
		b.n++
	}
	return d/2 + rand.N(d/2+1)
}

func (b *backoff) reset() { *b = backoff{} }

// tellEvery is the least time between two log lines about the same outage.
const tellEvery = time.Minute

// tell reports whether a failure is worth a log line: the first of an outage, then one a minute.
func (b *backoff) tell() bool {
	if !b.told.IsZero() && time.Since(b.told) < tellEvery {
		return false
	}
	b.told = time.Now()
	return true
}
