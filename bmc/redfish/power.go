package redfish

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/stmcginnis/gofish/schemas"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	pollFirst    = 250 * time.Millisecond // then doubling, for BMCs that answer soon
	pollEvery    = 2 * time.Second
	pollFailures = 7 // reads that may fail in a row while a machine changes its power
	resetTries   = 6 // a BMC may refuse a power change that follows another at once
	resetPause   = 5 * time.Second
)

// power implements driver.Power.
type power struct{ *operations }

// GetPower reads the power state.
func (p power) GetPower(ctx *driver.Context) (driver.PowerReading, error) {
	var reading driver.PowerReading
	err := p.use(ctx, readLimit, func(ctx *driver.Context, c *conn) error {
		sys, err := c.findSystem(ctx)
		if err != nil {
			return err
		}
		reading, err = c.readPower(ctx, sys)
		return err
	})
	return reading, err
}

// readPower takes the power state of a system.
func (c *conn) readPower(ctx context.Context, sys *document) (driver.PowerReading, error) {
	if link := quirkPowerOnChassis(sys); link != "" {
		chassis, err := c.find(ctx, link)
		return powerOf(chassis.text("PowerState")), err
	}
	return powerOf(sys.text("PowerState")), nil
}

// powerOf maps a PowerState. Transitions are neither on nor off.
func powerOf(state string) driver.PowerReading {
	switch {
	case strings.EqualFold(state, string(schemas.OnPowerState)):
		return driver.PowerReading{Power: driver.PowerOn}
	case strings.EqualFold(state, string(schemas.OffPowerState)):
		return driver.PowerReading{Power: driver.PowerOff}
	case state == "":
		return driver.PowerReading{Power: driver.PowerUnknown, Reason: "the BMC gives no power state"}
	}
	return driver.PowerReading{Power: driver.PowerUnknown, Reason: fmt.Sprintf("the BMC says %q", clip(state, 40))}
}

// SetPower does an action and returns when the BMC reads back its end.
func (p power) SetPower(ctx *driver.Context, action driver.PowerAction) error {
	if !slices.Contains([]driver.PowerAction{driver.ActionOn, driver.ActionOff, driver.ActionCycle, driver.ActionReset, driver.ActionSoft}, action) {
		return driver.Errorf(driver.CodeInvalidArgs, "the power action must be on, off, cycle, reset or soft, not %q", clip(string(action), 40))
	}
	return p.use(ctx, 2*p.powerBudget+writeLimit, func(ctx *driver.Context, c *conn) error {
		switch action {
		case driver.ActionCycle:
			if err := p.change(ctx, c, driver.ActionOff); err != nil {
				return err
			}
			return p.change(ctx, c, driver.ActionOn)
		case driver.ActionReset:
			return p.restart(ctx, c)
		default:
			return p.change(ctx, c, action)
		}
	})
}

// change drives the machine to one end, and is done at once when it is there.
func (p power) change(ctx *driver.Context, c *conn, action driver.PowerAction) error {
	end := driver.PowerOff
	if action == driver.ActionOn {
		end = driver.PowerOn
	}
	sys, err := c.findSystem(ctx)
	if err != nil {
		return err
	}
	now, err := c.readPower(ctx, sys)
	if err != nil || now.Power == end {
		return err
	}
	ctx.Emit(driver.Progress{Phase: "power", Message: "asking for " + string(action)})
	kind, err := p.reset(ctx, c, sys, action, end)
	if err != nil || kind == "" {
		return err
	}
	return p.await(ctx, c, end, kind)
}

// restart resets a machine that is on; one that is off is turned on, since there is nothing to reset.
func (p power) restart(ctx *driver.Context, c *conn) error {
	sys, err := c.findSystem(ctx)
	if err != nil {
		return err
	}
	now, err := c.readPower(ctx, sys)
	if err != nil {
		return err
	}
	if now.Power == driver.PowerOff {
		return p.change(ctx, c, driver.ActionOn)
	}
	kind, err := p.reset(ctx, c, sys, driver.ActionReset, "")
	if err != nil {
		return err
	}
	return p.await(ctx, c, driver.PowerOn, kind)
}

// reset posts the reset type for an action. Refusals that pass (iDRAC10 and iLO for seconds after another change) are
// repeated; one that comes because the machine is at its end already is success, told by an empty kind.
func (p power) reset(ctx *driver.Context, c *conn, sys *document, action driver.PowerAction, end string) (schemas.ResetType, error) {
	for tries := 0; ; tries++ {
		allowed, err := c.allowedResets(ctx, sys)
		if err != nil {
			return "", err
		}
		kind, err := chooseReset(action, allowed)
		if err != nil {
			return "", err
		}
		target := sys.text("Actions", "#ComputerSystem.Reset", "target")
		if target == "" {
			return "", driver.Errorf(driver.CodeUnsupported, "the BMC offers no way to change this machine's power")
		}
		r, err := c.send(ctx, http.MethodPost, target, map[string]any{"ResetType": kind}, nil)
		if err != nil {
			return "", err
		}
		if r.status < 300 {
			return kind, nil
		}
		f := parseFault(r)
		if sys, err = c.findSystem(ctx); err != nil {
			return "", err
		}
		if now, err := c.readPower(ctx, sys); err != nil || (end != "" && now.Power == end) {
			return "", err
		}
		if !f.passing() && !quirkTooSoon(f) || tries+1 >= resetTries {
			return "", f.err("the power change " + string(kind))
		}
		if err := p.pause(ctx, resetPause); err != nil {
			return "", err
		}
	}
}

// await polls until the machine reads the wanted state.
func (p power) await(ctx *driver.Context, c *conn, end string, kind schemas.ResetType) error {
	var last driver.PowerReading
	failures := 0
	wait, waited := pollFirst, time.Duration(0)
	for ; ; wait = min(2*wait, pollEvery) {
		sys, err := c.findSystem(ctx)
		if err == nil {
			last, err = c.readPower(ctx, sys)
		}
		switch {
		case err == nil && last.Power == end:
			return nil
		case err == nil:
			failures = 0
		case failures >= pollFailures || !driver.AsError(err).Retryable:
			return err
		default:
			failures++
		}
		if waited >= p.powerBudget {
			return driver.Errorf(driver.CodeTimeout, "the BMC accepted %s, and %s later the machine still reads %s", kind, waited, describe(last)).Again()
		}
		ctx.Emit(driver.Progress{Phase: "power", Message: "waiting until the machine is " + end + ", it reads " + describe(last)})
		waited += wait
		if err := p.pause(ctx, wait); err != nil {
			if driver.AsError(err).Code == driver.CodeTimeout {
				return driver.Errorf(driver.CodeTimeout, "the BMC accepted %s, and the machine still read %s when the time for it was up", kind, describe(last)).Again()
			}
			return err
		}
	}
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

// allowedResets reads the reset types that the BMC takes now: at the action, else behind its ActionInfo. nil means that
// it does not say. The list changes with the power state on some (Fujitsu iRMC S4 offers only On while off).
func (c *conn) allowedResets(ctx context.Context, sys *document) ([]string, error) {
	action := sys.object("Actions", "#ComputerSystem.Reset")
	if list := action.texts("ResetType@Redfish.AllowableValues"); len(list) > 0 {
		return list, nil
	}
	info, err := c.find(ctx, action.text("@Redfish.ActionInfo"))
	if err != nil {
		return nil, err
	}
	params, _ := info.get("Parameters").([]any)
	for _, p := range params {
		m, _ := p.(map[string]any)
		if d := (&document{body: m}); d.text("Name") == "ResetType" {
			return d.texts("AllowableValues"), nil
		}
	}
	return nil, nil
}

// chooseReset picks the reset type for an action among those allowed; nil means unknown, and the usual one is tried. A
// request to shut down is never answered with a forced one.
func chooseReset(action driver.PowerAction, allowed []string) (schemas.ResetType, error) {
	wishes := map[driver.PowerAction][]schemas.ResetType{
		driver.ActionOn:    {schemas.OnResetType, schemas.ForceOnResetType},
		driver.ActionOff:   {schemas.ForceOffResetType},
		driver.ActionSoft:  {schemas.GracefulShutdownResetType},
		driver.ActionReset: {schemas.ForceRestartResetType, schemas.PowerCycleResetType},
	}[action]
	if allowed == nil {
		return wishes[0], nil
	}
	for _, w := range wishes {
		if slices.Contains(allowed, string(w)) {
			return w, nil
		}
	}
	way := "use another action"
	if action == driver.ActionSoft {
		way = "shut the operating system down from inside, or ask for off"
	}
	return "", driver.Errorf(driver.CodeUnsupported, "the BMC offers no reset type for %q now, only %s; %s",
		action, clip(strings.Join(allowed, ", "), 200), way)
}
