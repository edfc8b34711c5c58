package virtual

import (
	"context"
	"slices"
	"time"
)

type powerState string

const (
	powerOn     powerState = "On"
	powerOff    powerState = "Off"
	poweringOn  powerState = "PoweringOn"
	poweringOff powerState = "PoweringOff"
)

type resetType string

const (
	resetOn       resetType = "On"
	resetForceOn  resetType = "ForceOn"
	resetForceOff resetType = "ForceOff"
	resetShutdown resetType = "GracefulShutdown"
	resetGraceful resetType = "GracefulRestart"
	resetForce    resetType = "ForceRestart"
	resetCycle    resetType = "PowerCycle"
	resetNMI      resetType = "Nmi"
)

var resetTypes = []resetType{resetOn, resetForceOn, resetForceOff, resetShutdown, resetGraceful, resetForce, resetCycle, resetNMI}

// startTimeout bounds one start of the hypervisor.
const startTimeout = 30 * time.Second

// state is what the BMC knows. Machine.mu protects it.
type state struct {
	power     powerState
	boot      Override
	version   int       // raised by each change of a writable member: the ETag
	lastReset time.Time // zero before the first power-on
	fault     string    // why the last start or run failed, "" when it did not
	password  string    // of the only account
	media     [drives]medium
}

// verdict of a BMC on a reset request.
type verdict int

const (
	accepted verdict = iota
	notUnlessOn
	notYet // a transition is under way
	overloaded
)

// request asks for a reset and returns at once: accepted means that it will be tried, not that it is done.
// The power state it leads to is visible when request returns.
func (m *Machine) request(r resetType) verdict {
	m.mu.Lock()
	defer m.mu.Unlock()
	next := m.state.power
	switch r {
	case resetOn, resetForceOn:
		switch m.state.power {
		case poweringOff:
			return notYet
		case powerOff:
			next = poweringOn
		}
	case resetForceOff:
		if m.state.power != powerOff {
			next = poweringOff
		}
	default:
		if m.state.power != powerOn {
			return notUnlessOn
		}
		if slices.Contains([]resetType{resetShutdown, resetGraceful, resetCycle}, r) {
			next = poweringOff
		}
	}
	select {
	case m.requests <- r:
		m.state.power = next
		return accepted
	default:
		return overloaded
	}
}

// powerLoop is the only one that touches the guest. It ends with ctx, and then the power is off.
func (m *Machine) powerLoop(ctx context.Context) {
	l := &powerLoop{Machine: m}
	defer l.cut()
	for {
		var done <-chan struct{}
		if l.guest != nil {
			done = l.guest.Done()
		}
		select {
		case <-ctx.Done():
			return
		case r := <-m.requests:
			l.handle(ctx, r)
		case <-done:
			l.ended(ctx)
		case <-l.grace:
			l.ignored()
		case <-m.changed:
			l.showMedia()
		}
	}
}

// powerLoop holds what only the loop knows.
type powerLoop struct {
	*Machine
	guest   Guest            // nil while off
	restart bool             // start again once the guest has switched itself off
	grace   <-chan time.Time // fires when a power key was ignored for too long
	has     [drives]string   // the files in the drives at power-on
	shown   [drives]string   // what the guest sees in its drives now
}

func (l *powerLoop) handle(ctx context.Context, r resetType) {
	l.cfg.Log.Info("reset asked for", "machine", l.cfg.Name, "type", string(r))
	switch r {
	case resetOn, resetForceOn:
		if l.guest == nil {
			l.start(ctx, poweringOn, false)
		}
	case resetForceOff:
		l.cut()
	case resetForce:
		l.cutFor(powerOn)
		l.start(ctx, powerOn, false)
	case resetCycle:
		l.cutFor(poweringOn)
		l.start(ctx, poweringOn, false)
	case resetShutdown, resetGraceful:
		l.pressButton(r == resetGraceful)
	case resetNMI:
		if l.guest != nil {
			l.warn("raising an NMI", l.guest.NMI())
		}
	}
}

// start powers the guest on, consuming a one-shot override when it has worked. The state is then On, else Off.
func (l *powerLoop) start(ctx context.Context, during powerState, again bool) {
	l.mu.Lock()
	l.state.power = during
	boot := l.state.boot.boot(l.cfg.Firmware, l.cfg.DefaultBoot)
	media := l.state.files()
	l.mu.Unlock()
	boot.Again, boot.CD, boot.Stick = again, media[driveCD], media[driveUSB]

	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	guest, err := l.hv.Start(ctx, boot)

	l.mu.Lock()
	defer l.mu.Unlock()
	l.restart, l.grace = false, nil
	if err != nil {
		l.cfg.Log.Error("power-on failed", "machine", l.cfg.Name, "error", err)
		l.state.power, l.state.fault = powerOff, err.Error()
		return
	}
	l.cfg.Log.Info("powered on", "machine", l.cfg.Name, "firmware", string(boot.Firmware), "target", string(boot.Target), "guest_reboot", again)
	l.guest, l.has, l.shown = guest, media, media
	if after := l.state.boot.consumed(); after != l.state.boot {
		l.state.boot = after
		l.state.version++
	}
	l.state.power, l.state.fault, l.state.lastReset = powerOn, "", l.now()
}

// cut takes the power away, for good.
func (l *powerLoop) cut() { l.cutFor(powerOff) }

// cutFor takes the power away and leaves the state that the caller goes on from.
func (l *powerLoop) cutFor(next powerState) {
	if l.guest != nil {
		l.guest.Stop()
	}
	l.rest(next, "")
}

// rest settles the state after a guest is gone.
func (l *powerLoop) rest(next powerState, fault string) {
	l.guest, l.restart, l.grace = nil, false, nil
	l.mu.Lock()
	defer l.mu.Unlock()
	l.state.power, l.state.fault = next, fault
}

// pressButton asks the guest to switch itself off.
func (l *powerLoop) pressButton(restart bool) {
	if l.guest == nil { // it ended by itself in between
		l.rest(powerOff, "")
		return
	}
	l.mu.Lock()
	l.state.power = poweringOff
	l.mu.Unlock()
	l.restart, l.grace = restart, time.After(l.cfg.Grace)
	l.warn("pressing the power key", l.guest.PowerButton())
}

// ignored is what a BMC does when the guest did not react to the power key: it says On again. A late reaction still counts.
func (l *powerLoop) ignored() {
	l.grace = nil
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.state.power == poweringOff {
		l.state.power = powerOn
	}
}

// ended follows a guest that ended by itself.
func (l *powerLoop) ended(ctx context.Context) {
	end := l.guest.End()
	l.cfg.Log.Info("guest ended", "machine", l.cfg.Name, "how", string(end.Kind))
	switch {
	case end.Kind == EndReset:
		// The emulator cannot change its boot order on a reset, and the override of this boot is spent: a fresh start
		// stands for the reset, and the power stays on across it.
		l.guest = nil
		l.start(ctx, powerOn, true)
	case end.Kind == EndPowerOff && l.restart:
		l.guest = nil
		l.start(ctx, poweringOn, false)
	case end.Kind == EndDied:
		l.cfg.Log.Error("guest died", "machine", l.cfg.Name, "error", end.Err)
		l.rest(powerOff, end.Err.Error())
	default:
		l.rest(powerOff, "")
	}
}

func (l *powerLoop) warn(doing string, err error) {
	if err != nil {
		l.cfg.Log.Warn(doing, "machine", l.cfg.Name, "error", err)
	}
}
