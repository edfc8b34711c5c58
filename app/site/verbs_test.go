package site_test

import (
	"net/http"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// refused wants a verb refused with a reason that a person can act on.
func (r *rig) refused(v api.Verb, options any, code app.Code, reason string) {
	r.t.Helper()
	err := r.call(http.MethodPost, "/api/v1/machines/"+machineName+"/"+string(v), options, nil)
	e, ok := app.AsError(err)
	if !ok || e.Code != code || (reason != "" && e.Reason != reason) {
		r.t.Errorf("%s %+v gave %v, want %s %s", v, options, err, code, reason)
	}
}

func (r *rig) post(v api.Verb, options any) {
	r.t.Helper()
	r.must(http.MethodPost, "/api/v1/machines/"+machineName+"/"+string(v), options, nil)
}

func TestLockRefusesWhatCannotBeUndone(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	r.post(api.Lock, api.ReasonOptions{Reason: "holds the only copy"})
	r.refused(api.Deploy, app.DeploySpec{Image: imageName}, app.Conflict, "machine-locked")
	r.refused(api.Release, struct{}{}, app.Conflict, "machine-locked")
	r.refused(api.Delete, struct{}{}, app.Conflict, "machine-locked")
	r.refused(api.Retire, struct{}{}, app.Conflict, "machine-locked")
	r.post(api.Unlock, struct{}{})
	r.post(api.Retire, api.RetireOptions{Reason: "too old"})
	m := r.machine(machineName)
	if m.State != app.StateRetired || m.StateReason != "too old" || m.Locked {
		t.Errorf("retired: %s %q", m.State, m.StateReason)
	}
	r.refused(api.Deploy, app.DeploySpec{Image: imageName}, app.Conflict, "wrong-state")
	r.post(api.Delete, struct{}{})
	if err := r.call(http.MethodGet, "/api/v1/machines/"+machineName, nil, nil); app.CodeOf(err) != app.NotFound {
		t.Errorf("a deleted machine gave %v", err)
	}
	if got := c.seen(); got.Boots != "" || got.Offs != 0 {
		t.Errorf("its power was touched: %+v", got)
	}
}

func TestOverrideNeedsAReasonAndAFailure(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	r.refused(api.Override, api.OverrideOptions{State: app.StateReady}, app.InvalidInput, "")
	r.refused(api.Override, api.OverrideOptions{State: app.StateReady, Reason: "x"}, app.Conflict, "wrong-state")
	r.refused(api.Retry, struct{}{}, app.Conflict, "nothing-to-retry")
	r.refused(api.Abort, api.ReasonOptions{Reason: "x"}, app.Conflict, "nothing-to-abort")
	held, release := c.holding(agentv1.KindWrite)
	r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	r.refused(api.Abort, api.ReasonOptions{}, app.InvalidInput, "")
	r.refused(api.Commission, struct{}{}, app.Conflict, "machine-busy")
	r.refused(api.Delete, struct{}{}, app.Conflict, "machine-busy")
	r.post(api.Abort, api.ReasonOptions{Reason: "enough"})
	r.await(newsOver)
	release()
	r.refused(api.Override, api.OverrideOptions{State: app.StateRescue, Reason: "x"}, app.InvalidInput, "")
	r.post(api.Override, api.OverrideOptions{State: app.StateReady, Reason: "looked at it myself"})
	if m := r.machine(machineName); m.State != app.StateReady || m.FailedVerb != "" || len(m.OwnDisks) != 1 {
		t.Errorf("overridden: %s after %q, disks of ours %v", m.State, m.FailedVerb, m.OwnDisks)
	}
	if e := r.events("machine.override"); len(e) != 1 || e[0].Actor != "token:test" {
		t.Errorf("the override left %+v", e)
	}
}

// A forced delete in mid-write: the BMC sees no more traffic, and nothing of the machine is kept.
func TestForcedDeleteLeavesTheBMCAlone(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	held, release := c.holding(agentv1.KindWrite)
	defer release()
	r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	before := c.seen()
	r.post(api.Delete, api.RetireOptions{Force: true})
	if err := r.call(http.MethodGet, "/api/v1/machines/"+machineName, nil, nil); app.CodeOf(err) != app.NotFound {
		t.Errorf("a deleted machine gave %v", err)
	}
	var secrets api.List[app.SealedSecret]
	r.must(http.MethodGet, "/api/v1/secrets", nil, &secrets)
	if len(secrets.Items) != 0 {
		t.Errorf("its credential is kept: %+v", secrets.Items)
	}
	if s := c.script(t.Context(), c.mac.Hyphen()); bootDataRE.MatchString(s) {
		t.Errorf("it may still netboot:\n%s", s)
	}
	r.stop() // whatever would still have been done is done
	if after := c.seen(); after != before || c.bmc.PowerState() != "On" {
		t.Errorf("its power was touched: %+v, then %+v, %s", before, after, c.bmc.PowerState())
	}
	r.start("")
	var active api.List[struct{}]
	r.must(http.MethodGet, "/api/v1/workflows?active=true", nil, &active)
	if len(active.Items) != 0 {
		t.Errorf("%d workflows go on", len(active.Items))
	}
}

// A forced retirement in mid-write stays one, whatever the workflow does at its end.
func TestForcedRetirementStays(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	held, release := c.holding(agentv1.KindWrite)
	defer release()
	r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	r.post(api.Retire, api.RetireOptions{Force: true, Reason: "burning"})
	if m := r.machine(machineName); m.State != app.StateRetired || m.WorkflowID != "" {
		t.Errorf("retired: %s in %q", m.State, m.WorkflowID)
	}
	r.stop()
	r.start("")
	if m := r.machine(machineName); m.State != app.StateRetired || m.StateReason != "burning" || c.bmc.PowerState() != "On" {
		t.Errorf("after a restart: %s (%s), power %s", m.State, m.StateReason, c.bmc.PowerState())
	}
}

func TestRescueGoesBackToWhereItWas(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	over := func(what string) {
		t.Helper()
		if n := r.await(newsOver); n.State != "done" {
			t.Fatalf("%s is %s\n%s", what, n.State, r.story())
		}
	}
	r.deployed()
	c.called(1)
	key := "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIB9rd2Vha2tleWZvcnRlc3Rpbmdvbmx5MDAwMDAwMDAw someone"
	r.verb(machineName, api.Rescue, api.RescueOptions{AuthorizedKeys: []string{key}})
	over("the rescue")
	c.mu.Lock()
	boot := c.boot
	c.mu.Unlock()
	if boot == nil || boot.Rescue == nil || len(boot.Rescue.AuthorizedKeys) != 1 {
		t.Errorf("the ramdisk of a rescue got %+v", boot)
	}
	if m := r.machine(machineName); m.State != app.StateRescue || m.Before != app.StateDeployed {
		t.Errorf("in rescue: %s, before %s", m.State, m.Before)
	}
	r.refused(api.Deploy, app.DeploySpec{Image: imageName}, app.Conflict, "wrong-state")
	r.verb(machineName, api.ExitRescue, nil)
	over("the way back")
	m := r.machine(machineName)
	if m.State != app.StateDeployed || m.Deployment == nil || c.bmc.PowerState() != "On" {
		t.Errorf("after the rescue: %s, power %s", m.State, c.bmc.PowerState())
	}
	c.called(2)
	if got := c.seen(); got.Boots != "Pxe Hdd Pxe Hdd" || got.Writes != 1 {
		t.Errorf("in all: %+v", got)
	}
	r.verb(machineName, api.Power, api.PowerOptions{Action: "cycle"})
	over("the power cycle")
	r.refused(api.Power, api.PowerOptions{Action: "explode"}, app.InvalidInput, "")
	if got := c.seen(); got.Boots != "Pxe Hdd Pxe Hdd Hdd" {
		t.Errorf("after a cycle: %+v", got)
	}
}
