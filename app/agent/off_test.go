package agent

import (
	"errors"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
)

// A machine is off only by two answers in a row of a BMC that could be asked, while its agent was late.
func TestWhenASilentMachineIsOff(t *testing.T) {
	type answer struct {
		quiet time.Duration
		pw    app.Power
		err   error
	}
	off, on := answer{time.Minute, app.PowerOff, nil}, answer{time.Minute, app.PowerOn, nil}
	dead := answer{time.Minute, app.PowerOff, errors.New("no route to host")}
	called := answer{time.Second, app.PowerOff, nil}
	unsure := answer{time.Minute, app.PowerUnknown, nil}
	for _, c := range []struct {
		name    string
		answers []answer
		want    bool
	}{
		{"it lost power", []answer{off, off}, true},
		{"it was on at first", []answer{on, on, off, off}, true},
		{"one answer falls into a power cycle", []answer{off, on, off}, false},
		{"the agent hangs", []answer{on, on, on}, false},
		{"the BMC cannot be asked", []answer{dead, dead, dead}, false},
		{"the BMC falls silent between", []answer{off, dead, off}, false},
		{"the BMC does not know", []answer{unsure, unsure}, false},
		{"the agent called while the BMC was asked", []answer{off, called, off}, false},
	} {
		o, got := outage{late: 40 * time.Second}, false
		for _, a := range c.answers {
			got = o.off(a.quiet, a.pw, a.err)
		}
		if got != c.want {
			t.Errorf("%s: %v", c.name, got)
		}
	}
}

// After a restart of this process nothing was heard of an agent yet: its silence counts from the wait's beginning.
func TestSilenceIsCountedFromTheWait(t *testing.T) {
	began := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	o := outage{since: began}
	if q := o.quiet(time.Time{}, began.Add(5*time.Second)); q != 5*time.Second {
		t.Errorf("never heard: %s", q)
	}
	if q := o.quiet(began.Add(4*time.Second), began.Add(5*time.Second)); q != time.Second {
		t.Errorf("heard a second ago: %s", q)
	}
}
