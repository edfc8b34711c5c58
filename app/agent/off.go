package agent

import (
	"context"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// lateAfter is how long an agent that works may be silent: a poll, which it makes whatever else it does, and its back-off.
const lateAfter = (agentv1.PollSeconds + 15) * time.Second

// How a machine whose agent is late is asked for its power.
const (
	asksPerLate = 4                // how often, in the time after which an agent is late
	askTimeout  = 20 * time.Second // of one question
	offsNeeded  = 2                // answers "off" in a row: one may fall into a power cycle that is not ours
)

// outage gathers what is known of a machine whose agent may be gone.
type outage struct {
	late  time.Duration // silence from which on the BMC is believed
	since time.Time     // the wait began: what was heard before it may be unknown
	offs  int           // answers "off" in a row
}

// quiet is how long nothing was heard at now, as far as this wait can tell.
func (o *outage) quiet(seen, now time.Time) time.Duration {
	if seen.Before(o.since) {
		seen = o.since
	}
	return now.Sub(seen)
}

// off takes one answer of the BMC and decides whether the machine is off. An agent that calls, a BMC that cannot be asked, and
// any answer but "off" begin the count anew.
func (o *outage) off(quiet time.Duration, pw app.Power, err error) bool {
	if quiet < o.late || err != nil || pw != app.PowerOff {
		o.offs = 0
		return false
	}
	o.offs++
	return o.offs >= offsNeeded
}

// lostPower asks for the power of a machine whose agent is late, and reports whether it is off. The agent may call while the
// BMC thinks: its silence is measured after the answer.
func (s *Service) lostPower(ctx context.Context, l *live, c workflow.Command, o *outage) bool {
	quiet := func() time.Duration {
		s.mu.Lock()
		defer s.mu.Unlock()
		return o.quiet(l.seen, s.cfg.Now())
	}
	if s.cfg.Power == nil || quiet() < o.late {
		o.offs = 0
		return false
	}
	ask, cancel := context.WithTimeout(ctx, askTimeout)
	defer cancel()
	pw, err := s.cfg.Power(ask, c.MachineID)
	return o.off(quiet(), pw, err)
}

// machineOff is the end of a command whose machine is off.
func machineOff(c workflow.Command) error {
	return app.Errorf(app.Unavailable, "machine-off", "the machine is off: it lost power (or was switched off) while %s was under way", c.Kind).
		Do("see to its power, then retry, which boots the ramdisk again")
}
