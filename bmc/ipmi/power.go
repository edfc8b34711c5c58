package ipmi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	pollFirst    = 250 * time.Millisecond // then doubling, for BMCs that answer soon
	pollEvery    = 2 * time.Second
	pollFailures = 7 // reads that may fail in a row while a machine changes its power
	sendTries    = 6 // a BMC may refuse a power change that follows another at once
	sendPause    = 5 * time.Second
)

// power implements driver.Power.
type power struct{ *operations }

// GetPower reads the power state.
func (p power) GetPower(ctx *driver.Context) (driver.PowerReading, error) {
	l, err := p.login(ctx)
	if err != nil {
		return driver.PowerReading{}, err
	}
	return p.readPower(ctx, l)
}

// readPower asks for the power state.
func (o *operations) readPower(ctx *driver.Context, l *login) (driver.PowerReading, error) {
	a, err := o.demand(ctx, l, words("chassis", "power", "status"))
	if err != nil {
		return driver.PowerReading{}, err
	}
	return parsePower(a.stdout), nil
}

// parsePower reads the line of the power state, and only that very line.
func parsePower(text string) driver.PowerReading {
	for line := range strings.Lines(text) {
		switch strings.TrimSpace(line) {
		case "Chassis Power is on":
			return driver.PowerReading{Power: driver.PowerOn}
		case "Chassis Power is off":
			return driver.PowerReading{Power: driver.PowerOff}
		}
	}
	says := clean(text, 80)
	if says == "" {
		return driver.PowerReading{Power: driver.PowerUnknown, Reason: "the BMC gives no power state"}
	}
	return driver.PowerReading{Power: driver.PowerUnknown, Reason: "the BMC says \"" + says + "\""}
}

// SetPower does an action and returns when the BMC reads back its end. A cycle is off and then on, each read back: the
// BMC's own cycle cannot be checked, and is refused while the machine is off.
func (p power) SetPower(ctx *driver.Context, action driver.PowerAction) error {
	if !slices.Contains([]driver.PowerAction{driver.ActionOn, driver.ActionOff, driver.ActionCycle, driver.ActionReset, driver.ActionSoft}, action) {
		return driver.Errorf(driver.CodeInvalidArgs, "the power action must be on, off, cycle, reset or soft, not %q", clip(string(action), 40))
	}
	l, err := p.login(ctx)
	if err != nil {
		return err
	}
	limit, cancel := context.WithTimeout(ctx, 2*p.powerBudget+4*p.runLimit) // a cycle waits twice
	defer cancel()
	ctx = ctx.With(limit)
	switch action {
	case driver.ActionCycle:
		if err := p.change(ctx, l, driver.ActionOff); err != nil {
			return err
		}
		return p.change(ctx, l, driver.ActionOn)
	case driver.ActionReset:
		return p.restart(ctx, l)
	}
	return p.change(ctx, l, action)
}

// change drives the machine to one end, and is done at once when it is there.
func (p power) change(ctx *driver.Context, l *login, action driver.PowerAction) error {
	end := driver.PowerOff
	if action == driver.ActionOn {
		end = driver.PowerOn
	}
	now, err := p.readPower(ctx, l)
	if err != nil || now.Power == end {
		return err
	}
	done, err := p.send(ctx, l, action, end)
	if err != nil || done {
		return err
	}
	return p.await(ctx, l, end, action)
}

// restart resets a machine that is on; one that is off is turned on, since there is nothing to reset.
func (p power) restart(ctx *driver.Context, l *login) error {
	now, err := p.readPower(ctx, l)
	if err != nil {
		return err
	}
	if now.Power == driver.PowerOff {
		return p.change(ctx, l, driver.ActionOn)
	}
	if _, err := p.send(ctx, l, driver.ActionReset, ""); err != nil {
		return err
	}
	return p.await(ctx, l, driver.PowerOn, driver.ActionReset)
}

// send asks the BMC for a change. A refusal that passes is repeated; one that comes because the machine is at its end
// already (Dell: "Command not supported in present state") is success, told by done.
func (p power) send(ctx *driver.Context, l *login, action driver.PowerAction, end string) (done bool, err error) {
	ctx.Emit(driver.Progress{Phase: "power", Message: "asking for " + string(action)})
	for tries := 1; ; tries++ {
		_, err := p.demand(ctx, l, words("chassis", "power", string(action)))
		if err == nil {
			return false, nil
		}
		if ctx.Err() != nil {
			return false, err
		}
		if now, readErr := p.readPower(ctx, l); readErr == nil && end != "" && now.Power == end {
			return true, nil
		}
		if driver.AsError(err).Code != driver.CodeBusy || tries == sendTries {
			return false, err
		}
		if err := p.wait(ctx, sendPause); err != nil {
			return false, err
		}
	}
}

// await polls until the machine reads the wanted state.
func (p power) await(ctx *driver.Context, l *login, end string, action driver.PowerAction) error {
	var last driver.PowerReading
	failures := 0
	wait, waited := pollFirst, time.Duration(0)
	for ; ; wait = min(2*wait, pollEvery) {
		now, err := p.readPower(ctx, l)
		switch {
		case err == nil && now.Power == end:
			return nil
		case err == nil:
			last, failures = now, 0
		case ctx.Err() != nil:
			return overdue(ctx, action, last, err)
		case failures >= pollFailures || !driver.AsError(err).Retryable:
			return err
		default:
			failures++
		}
		if waited >= p.powerBudget {
			return driver.Errorf(driver.CodeTimeout, "the BMC accepted %s, and %s later the machine still reads %s%s", action, waited, describe(last), wayOut(action)).Again()
		}
		ctx.Emit(driver.Progress{Phase: "power", Message: "waiting until the machine is " + end + ", it reads " + describe(last)})
		waited += wait
		if err := p.wait(ctx, wait); err != nil {
			return overdue(ctx, action, last, err)
		}
	}
}

// overdue words the end of a call's time while it waited for a change to show.
func overdue(ctx *driver.Context, action driver.PowerAction, last driver.PowerReading, err error) error {
	if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return err
	}
	return driver.Errorf(driver.CodeTimeout, "the BMC accepted %s, and the machine still read %s when the time for it was up%s", action, describe(last), wayOut(action)).Again()
}

func wayOut(action driver.PowerAction) string {
	if action == driver.ActionSoft {
		return "; its operating system may ignore the request: shut it down from inside, or ask for off"
	}
	return ""
}

func describe(r driver.PowerReading) string {
	if r.Reason != "" {
		return r.Power + " (" + r.Reason + ")"
	}
	if r.Power == "" {
		return driver.PowerUnknown
	}
	return r.Power
}
