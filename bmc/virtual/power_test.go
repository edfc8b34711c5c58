package virtual

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// inTime runs a machine's power loop on synthetic time, without its HTTP service.
func inTime(t *testing.T, fake *Fake, test func(m *Machine)) {
	t.Helper()
	cfg := config(t)
	cfg.Hypervisor = fake
	m, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	synctest.Test(t, func(t *testing.T) {
		m.requests, m.changed = make(chan resetType, 8), make(chan struct{}, 1) // of this bubble
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() { defer close(done); m.powerLoop(ctx) }()
		test(m)
		cancel()
		<-done
		if m.PowerState() != "Off" {
			t.Errorf("the loop ended and the power is %s", m.PowerState())
		}
	})
}

func ask(t *testing.T, m *Machine, r resetType, want verdict) {
	t.Helper()
	if got := m.request(r); got != want {
		t.Errorf("%s while %s: verdict %d, want %d", r, m.PowerState(), got, want)
	}
}

func power(t *testing.T, m *Machine, want string) {
	t.Helper()
	if got := m.PowerState(); got != want {
		t.Errorf("power %s, want %s", got, want)
	}
}

func TestTransitions(t *testing.T) {
	fake := &Fake{StartDelay: 3 * time.Second, StopDelay: 5 * time.Second}
	inTime(t, fake, func(m *Machine) {
		ask(t, m, resetOn, accepted)
		power(t, m, "PoweringOn") // visible at once, not when the loop gets to it
		time.Sleep(2 * time.Second)
		power(t, m, "PoweringOn")
		time.Sleep(time.Second + time.Millisecond)
		power(t, m, "On")
		ask(t, m, resetOn, accepted) // no change
		ask(t, m, resetForceOff, accepted)
		power(t, m, "PoweringOff")
		ask(t, m, resetOn, notYet)
		ask(t, m, resetShutdown, notUnlessOn)
		time.Sleep(6 * time.Second)
		power(t, m, "Off")
		ask(t, m, resetForceOff, accepted) // idempotent
		synctest.Wait()
		power(t, m, "Off")
		if n := len(fake.Boots()); n != 1 {
			t.Errorf("%d boots", n)
		}
	})
}

func TestOnceIsSpentByTheNextBootOnly(t *testing.T) {
	fake := &Fake{}
	inTime(t, fake, func(m *Machine) {
		m.state.boot = Override{Pxe, Once, Legacy}
		ask(t, m, resetOn, accepted)
		synctest.Wait()
		fake.Reboot() // the guest itself
		synctest.Wait()
		power(t, m, "On")
		boots := fake.Boots()
		if len(boots) != 2 || boots[0].Target != Pxe || !boots[0].Override || boots[1].Target != Hdd || boots[1].Override || !boots[1].Again {
			t.Errorf("boots %+v", boots)
		}
	})
}

func TestContinuousHoldsAcrossResets(t *testing.T) {
	fake := &Fake{}
	inTime(t, fake, func(m *Machine) {
		m.state.boot = Override{Pxe, Continuous, UEFI}
		for _, r := range []resetType{resetOn, resetForce, resetCycle, resetGraceful} {
			ask(t, m, r, accepted)
			synctest.Wait()
			power(t, m, "On")
		}
		for i, b := range fake.Boots() {
			if b.Target != Pxe || b.Firmware != "uefi" || b.Again {
				t.Errorf("boot %d: %+v", i, b)
			}
		}
		if n := len(fake.Boots()); n != 4 {
			t.Errorf("%d boots, want 4", n)
		}
	})
}

func TestGracefulShutdown(t *testing.T) {
	inTime(t, &Fake{StopDelay: 10 * time.Second}, func(m *Machine) {
		ask(t, m, resetOn, accepted)
		synctest.Wait()
		ask(t, m, resetShutdown, accepted)
		time.Sleep(9 * time.Second)
		power(t, m, "PoweringOff")
		time.Sleep(2 * time.Second)
		power(t, m, "Off")
	})
}

// A guest that ignores the power key is still on, and is never cut off unless that is asked for.
func TestDeafGuestStaysOn(t *testing.T) {
	fake := &Fake{Deaf: true}
	inTime(t, fake, func(m *Machine) {
		ask(t, m, resetOn, accepted)
		synctest.Wait()
		ask(t, m, resetShutdown, accepted)
		time.Sleep(m.cfg.Grace + time.Second)
		power(t, m, "On")
		fake.Shutdown() // a late reaction counts
		synctest.Wait()
		power(t, m, "Off")
	})
}

func TestGuestThatDies(t *testing.T) {
	fake := &Fake{}
	inTime(t, fake, func(m *Machine) {
		ask(t, m, resetOn, accepted)
		synctest.Wait()
		fake.Die(errors.New("machine check"))
		synctest.Wait()
		power(t, m, "Off")
		if m.state.fault != "machine check" {
			t.Errorf("fault %q", m.state.fault)
		}
		ask(t, m, resetOn, accepted)
		synctest.Wait()
		power(t, m, "On")
		if m.state.fault != "" {
			t.Errorf("fault %q after a good start", m.state.fault)
		}
	})
}

func TestFailedStartKeepsTheOverride(t *testing.T) {
	inTime(t, &Fake{StartError: errors.New("no firmware")}, func(m *Machine) {
		m.state.boot = Override{Pxe, Once, Legacy}
		ask(t, m, resetOn, accepted)
		synctest.Wait()
		power(t, m, "Off")
		if m.Override().Enabled != Once || m.state.fault != "no firmware" {
			t.Errorf("override %+v, fault %q", m.Override(), m.state.fault)
		}
	})
}

func TestHooks(t *testing.T) {
	var targets []string
	offs := 0
	fake := &Fake{OnPowerOn: func(target string) { targets = append(targets, target) }, OnPowerOff: func() { offs++ }}
	inTime(t, fake, func(m *Machine) {
		ask(t, m, resetOn, accepted)
		synctest.Wait()
		ask(t, m, resetNMI, accepted)
		ask(t, m, resetCycle, accepted)
		synctest.Wait()
		fake.Shutdown()
		synctest.Wait()
		if len(targets) != 2 || targets[0] != "Hdd" || offs != 2 || fake.NMIs() != 1 {
			t.Errorf("targets %v, offs %d, NMIs %d", targets, offs, fake.NMIs())
		}
	})
}
