package site_test

import (
	"net/http"
	"path/filepath"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/images/agent"
	"github.com/better-compute/bcd/images/agent/agenttest"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// holding makes the agent hold commands of a kind; release lets them end.
func (c *computer) holding(kind string) (held <-chan struct{}, release func()) {
	step := ""
	for s, k := range onAgent {
		if k == kind {
			step = s
		}
	}
	_, held, release = c.holdAt("during " + step)
	return held, release
}

// deployed deploys the machine and waits for its end.
func (r *rig) deployed() {
	r.t.Helper()
	r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	if n := r.await(newsOver); n.State != "done" {
		r.t.Fatalf("the deploy is %s\n%s", n.State, r.story())
	}
}

// Case 63: the step that reboots the machine happens once, the workflow goes on behind it, and the next one starts.
func TestRebootHappensOnceAndTheNextWorkflowStarts(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("before result disk-on") // the machine runs its disk already
	r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	r.await(newsAt)
	r.kill()
	r.start("")
	r.await(newsOver)
	if got := c.seen().Boots; got != "Pxe Hdd" {
		t.Errorf("the machine was powered on as %q", got)
	}
	r.verb(machineName, api.Release, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Errorf("the release is %s\n%s", n.State, r.story())
	}
	m := r.machine(machineName)
	if m.State != app.StateReady || m.Deployment != nil || len(m.OwnDisks) != 0 || c.bmc.PowerState() != "Off" {
		t.Errorf("after the release: %s, %+v, %v, power %s", m.State, m.Deployment, m.OwnDisks, c.bmc.PowerState())
	}
	if got := c.seen(); got.Boots != "Pxe Hdd Pxe" || got.Wipes != 1 || got.Writes != 1 {
		t.Errorf("in all: %+v", got)
	}
}

// Case 65: after success nothing installs; a new job netboots once; a job that was aborted installs nothing later.
func TestNoInstallLoop(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	noInstaller := func(when string) {
		t.Helper()
		for _, mac := range []string{c.mac.Hyphen(), strings.ToUpper(string(c.mac))} {
			if s := c.script(t.Context(), mac); !strings.Contains(s, "sanboot") || strings.Contains(s, "kernel") {
				t.Errorf("%s %s is told:\n%s", when, mac, s)
			}
		}
	}
	noInstaller("a ready machine")
	r.deployed()
	c.called(1)
	noInstaller("a deployed machine")
	// Somebody makes it netboot: its disk is all it gets.
	if err := c.bmc.Reset("ForceOff"); err != nil {
		t.Fatal(err)
	}
	c.until("the machine is off", func() bool { return c.offs == 2 })
	c.on("Pxe")
	c.called(2)
	c.off()

	r.verb(machineName, api.Release, nil)
	r.await(newsOver)
	noInstaller("a released machine")
	held, release := c.holding(agentv1.KindWrite)
	w := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	r.must(http.MethodPost, "/api/v1/machines/"+machineName+"/abort", api.ReasonOptions{Reason: "changed my mind"}, nil)
	r.await(newsOver)
	release()
	noInstaller("a machine whose deploy was aborted")
	m := r.machine(machineName)
	if s := r.workflow(w).State; s != workflow.Aborted || m.State != app.StateFailed || m.FailedVerb != "deploy" || m.StateReason == "" || c.bmc.PowerState() != "Off" {
		t.Errorf("the workflow is %s, the machine %s after %s (%s), its power %s", s, m.State, m.FailedVerb, m.StateReason, c.bmc.PowerState())
	}
	if got := c.ran(agentv1.KindWrite); got != 2 {
		t.Errorf("%d writes in all", got)
	}
}

// Case 67: a workflow is given to its own machine, however its MAC is spelt, and to none that is unknown.
func TestWorkflowGoesToItsOwnMachineOnly(t *testing.T) {
	t.Parallel()
	r, c1 := ready(t)
	c2 := newComputer(t, r, 2)
	r.start("")
	enroll(r, c2, "node2")
	second := app.MAC("00:00:5e:00:53:22")
	r.must(http.MethodPost, "/api/v1/machines/node2/confirm-mac", api.ConfirmInput{MAC: second}, nil)
	held1, release1 := c1.holding(agentv1.KindSetClock)
	held2, release2 := c2.holding(agentv1.KindSetClock)
	w1, w2 := r.verb(machineName, api.Commission, nil), r.verb("node2", api.Commission, nil)
	<-held1
	<-held2
	for mac, want := range map[string]string{
		string(c1.mac): w1, c1.mac.Hyphen(): w1,
		string(c2.mac): w2, c2.mac.Hyphen(): w2, strings.ToUpper(string(c2.mac)): w2, strings.ToUpper(c2.mac.Hyphen()): w2,
		string(second): w2, second.Hyphen(): w2,
		"00:00:5e:00:53:99": "", "02-00-5E-00-53-98": "", "nonsense": "", "": "",
	} {
		m := bootDataRE.FindStringSubmatch(c1.script(t.Context(), mac))
		if m == nil {
			if want != "" {
				t.Errorf("%q is offered nothing", mac)
			}
			continue
		}
		_, cpio := c1.fetch(t.Context(), http.MethodGet, m[1], "")
		if d, err := readBootData(cpio); err != nil || d.WorkflowID != want {
			t.Errorf("%q gets %+v, %v, not workflow %q", mac, d, err, want)
		}
	}
	release1()
	release2()
	for range 2 {
		if n := r.await(newsOver); n.State != "done" {
			t.Errorf("a workflow is %s\n%s", n.State, r.story())
		}
	}
	for c, w := range map[*computer]string{c1: w1, c2: w2} {
		for _, k := range c.ranKeys() {
			if !strings.HasPrefix(k, "wf:"+w+":") {
				t.Errorf("the machine of workflow %s ran %s", w, k)
			}
		}
	}
}

// A second trade of a boot token fails the workflow with an alarm.
func TestSecondTradeRaisesTheAlarm(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	held, release := c.holding(agentv1.KindWrite)
	defer release()
	w := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	c.mu.Lock()
	boot := *c.boot
	c.mu.Unlock()
	other := agenttest.NewSim(agenttest.SimConfig{Boot: &boot, State: filepath.Join(t.TempDir(), "run"), Host: agent.Host{BootID: newBootID(), Firmware: "bios"}})
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	r.await(newsOver)
	if err := other.Crash(); err != nil {
		t.Error(err)
	}
	got := r.workflow(w)
	if got.State != workflow.Failed || got.Error == nil || got.Error.Reason != "boot-token-reused" || got.Error.WayOut == "" {
		t.Errorf("the deploy is %s: %+v", got.State, got.Error)
	}
	if m := r.machine(machineName); m.State != app.StateFailed || m.FailedVerb != "deploy" {
		t.Errorf("the machine is %s after %q", m.State, m.FailedVerb)
	}
	if e := r.events("agent.alarm"); len(e) != 1 || e[0].Level != "error" {
		t.Errorf("alarms %+v", e)
	}
	if len(got.Steps) == 0 || c.ran(agentv1.KindWrite) != 1 || c.bmc.PowerState() != "Off" {
		t.Errorf("%d writes, power %s", c.ran(agentv1.KindWrite), c.bmc.PowerState())
	}
	for _, k := range boot.SiteURLs {
		if !strings.HasPrefix(k, "https://"+r.cfg.Agent) {
			t.Errorf("agents are told %s, the listener is at %s", k, r.cfg.Agent)
		}
	}
}

// A failed deploy that is retried boots the ramdisk again and ends well.
func TestRetryAfterAFailure(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	held, release := c.holding(agentv1.KindWrite)
	w := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	// The machine loses its power in mid-write: the agent and its table are gone.
	if err := c.bmc.Reset("ForceOff"); err != nil {
		t.Fatal(err)
	}
	r.must(http.MethodPost, "/api/v1/machines/"+machineName+"/abort", api.ReasonOptions{Reason: "power was lost"}, nil)
	r.await(newsOver)
	release()
	if err := r.call(http.MethodPost, "/api/v1/machines/"+machineName+"/retry", struct{}{}, nil); app.CodeOf(err) != app.Conflict {
		t.Errorf("retrying an aborted workflow gave %v", err)
	}
	m := r.machine(machineName)
	if m.State != app.StateFailed || len(m.OwnDisks) != 1 {
		t.Errorf("after the abort of %s: %s, disks of ours %v", w, m.State, m.OwnDisks)
	}
	r.verb(machineName, api.Release, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("the release is %s\n%s", n.State, r.story())
	}
	r.deployed()
}
