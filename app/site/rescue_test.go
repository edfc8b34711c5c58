package site_test

import (
	"net/http"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// A machine that was off is off after its rescue, in the state it had.
func TestRescueOfAMachineThatWasOff(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	for _, v := range []api.Verb{api.Rescue, api.ExitRescue} {
		id := r.verb(machineName, v, struct{}{})
		if n := r.await(newsOver); n.State != "done" {
			t.Fatalf("%s is %s\n%s", v, n.State, r.story())
		}
		if v == api.Rescue && string(step(t, r.workflow(id), "before").Result) != `{"power":"off"}` {
			t.Errorf("it was remembered as %s", step(t, r.workflow(id), "before").Result)
		}
	}
	if m := r.machine(machineName); m.State != app.StateReady || c.bmc.PowerState() != "Off" {
		t.Errorf("%s, power %s", m.State, c.bmc.PowerState())
	}
}

// A deployed machine whose rescue is aborted is not left off: its own system runs again.
func TestAnAbortedRescueGivesTheMachineBack(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	r.deployed()
	c.called(1)
	held, release := c.holding(agentv1.KindSetClock)
	r.verb(machineName, api.Rescue, struct{}{})
	<-held
	r.post(api.Abort, api.ReasonOptions{Reason: "not needed"})
	if n := r.await(newsOver); n.State != "aborted" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	release()
	if m := r.machine(machineName); m.State != app.StateDeployed || m.Deployment == nil || c.bmc.PowerState() != "On" {
		t.Errorf("%s, power %s", m.State, c.bmc.PowerState())
	}
	c.called(2)
	if got := c.seen(); got.Boots != "Pxe Hdd Pxe Hdd" {
		t.Errorf("it booted %s", got.Boots)
	}
}

// Adopting a machine that runs changes nothing on it. It can be rescued and goes on after; releasing it wipes nothing,
// because nothing on it is ours.
func TestAdoptTouchesNothing(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	c := newComputer(t, r, 2)
	r.start("")
	r.refused(api.Adopt, struct{}{}, app.Conflict, "wrong-state") // it was commissioned: what is on it is nobody's
	enroll(r, c, "node2")
	done := func(v api.Verb, options any) {
		t.Helper()
		r.verb("node2", v, options)
		if n := r.await(newsOver); n.State != "done" {
			t.Fatalf("%s is %s\n%s", v, n.State, r.story())
		}
	}
	done(api.Power, api.PowerOptions{Action: "on"})
	before := c.seen()
	r.must(http.MethodPost, "/api/v1/machines/node2/adopt", struct{}{}, nil)
	if m := r.machine("node2"); m.State != app.StateDeployed || m.StateReason == "" || m.Deployment != nil || len(m.OwnDisks) > 0 {
		t.Errorf("adopted: %+v", m)
	}
	if got := c.seen(); got != before || c.bmc.PowerState() != "On" {
		t.Errorf("it was touched: %+v, not %+v; power %s", got, before, c.bmc.PowerState())
	}
	done(api.Rescue, struct{}{})
	done(api.ExitRescue, struct{}{})
	if m := r.machine("node2"); m.State != app.StateDeployed || c.bmc.PowerState() != "On" {
		t.Errorf("after its rescue: %s, power %s", m.State, c.bmc.PowerState())
	}
	done(api.Release, struct{}{})
	if m := r.machine("node2"); m.State != app.StateReady || c.ran(agentv1.KindWipe) != 0 || c.bmc.PowerState() != "Off" {
		t.Errorf("released: %s, %d wipes, power %s", m.State, c.ran(agentv1.KindWipe), c.bmc.PowerState())
	}
}
