package site_test

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// path is one way to deploy: its steps, and what a machine that was on has seen when it is over.
type path struct {
	kexec  bool
	hangs  bool           // the system that is entered by kexec
	refuse *agentv1.Error // why the ramdisk does not jump
	steps  []string
	want   seen
}

var common = []string{"off", "permit", "boot-network", "on", "agent", "clock", "claim", "write", "written", "configure"}

var firmware = path{
	steps: append(common[:len(common):len(common)], "revoke", "disk-off", "boot-disk", "disk-on", "alive", "home"),
	want:  seen{Boots: "Hdd Pxe Hdd", Offs: 2, Writes: 1},
}

var kexec = path{
	kexec: true,
	steps: append(common[:len(common):len(common)], "revoke", "kexec", "alive", "home", "proof-off", "proof-disk", "proof-on", "proof"),
	want:  seen{Boots: "Hdd Pxe Hdd", Offs: 2, Writes: 1, Kexecs: 1},
}

var deadMan = []string{"alive", "retreat-off", "retreat-forget", "retreat-disk", "retreat-on", "retreat-alive", "home"}

// hung enters a system that hangs, and is reset into its disk.
var hung = path{
	kexec: true, hangs: true, steps: deadMan,
	want: seen{Boots: "Hdd Pxe Hdd", Offs: 2, Writes: 1, Kexecs: 1},
}

// refused cannot jump, and boots its disk at once.
var refused = path{
	kexec: true, refuse: &agentv1.Error{Code: string(app.Unsupported), Reason: "kexec-lockdown", Message: "the ramdisk's kernel is locked down"},
	steps: append([]string{"kexec"}, deadMan...),
	want:  seen{Boots: "Hdd Pxe Hdd", Offs: 2, Writes: 1, Kexecs: 1},
}

// onAgent are the steps that the machine's agent does.
var onAgent = map[string]string{
	"clock": agentv1.KindSetClock, "write": agentv1.KindWrite, "configure": agentv1.KindConfigure, "kexec": agentv1.KindKexecLoad,
}

// TestKillMatrix kills the real process, by SIGKILL, at each instant of each step of a deploy, lets it come back, and
// counts what happened at the BMC and on the machine.
func TestKillMatrix(t *testing.T) {
	for name, p := range map[string]path{"firmware": firmware, "kexec": kexec, "hung": hung, "refused": refused} {
		instants := []string{"before start deploy", "after start deploy", "before end deploy", "after end deploy"}
		switch {
		case p.hangs || p.refuse != nil:
			instants = []string{"after skip proof-off"}
		case p.kexec:
			instants = append(instants, "before skip retreat-off", "after skip retreat-off", "after skip retreat-alive")
		}
		for _, s := range p.steps {
			instants = append(instants, "before intent "+s, "after intent "+s, "before result "+s)
			if onAgent[s] != "" {
				instants = append(instants, "after deliver "+s, "during "+s)
			}
		}
		for _, at := range instants {
			if p.kexec && isCommon(at) {
				continue // the very steps that the other path has
			}
			t.Run(name+"/"+at, func(t *testing.T) {
				t.Parallel()
				p.killedAt(t, at)
			})
		}
	}
}

func isCommon(instant string) bool {
	for _, s := range common {
		if strings.HasSuffix(instant, " "+s) {
			return true
		}
	}
	return false
}

// killedAt deploys a machine that is on, with one kill.
func (p path) killedAt(t *testing.T, at string) {
	r, c := ready(t)
	if err := c.bmc.Reset("On"); err != nil {
		t.Fatal(err)
	}
	c.until("the machine is on", func() bool { return len(c.boots) == 1 })
	if c.refuse = p.refuse; p.hangs {
		c.hangs, r.cfg.Silence = true, time.Second
	}
	during, held, release := c.holdAt(at)
	if during {
		at = ""
	}
	r.start(at)
	spec := app.DeploySpec{Image: imageName, Boot: app.BootReboot, ColdProof: p.kexec}
	if p.kexec {
		spec.Boot = app.BootKexec
	}
	started, life := make(chan error, 1), r.last
	go func() {
		started <- r.callOf(life, http.MethodPost, "/api/v1/machines/"+machineName+"/"+string(api.Deploy), spec, nil)
	}()
	if during {
		<-held
	} else {
		r.await(newsAt)
	}
	r.kill()
	<-started // answered, or cut off by the kill
	release()
	r.start("")
	if at == "before start deploy" {
		if m := r.machine(machineName); m.State != app.StateReady || m.WorkflowID != "" {
			t.Errorf("the machine is %s in workflow %q", m.State, m.WorkflowID)
		}
		r.verb(machineName, api.Deploy, spec)
	}
	if at != "after end deploy" {
		r.await(newsOver)
	}
	p.judge(t, r, c)
}

// holdAt makes the agent hold the command of a "during" instant until release is called.
func (c *computer) holdAt(at string) (during bool, held <-chan struct{}, release func()) {
	step, during := strings.CutPrefix(at, "during ")
	reached, goOn := make(chan struct{}), make(chan struct{})
	if during {
		c.hold = func(ctx context.Context, kind string) {
			if kind != onAgent[step] {
				return
			}
			select {
			case <-reached:
			default:
				close(reached)
			}
			select {
			case <-goOn:
			case <-ctx.Done():
			}
		}
	}
	return during, reached, func() { close(goOn) }
}

// judgeEntry looks at how the system was entered, and what is remembered of it: one trial, however often it was told.
func (p path) judgeEntry(t *testing.T, r *rig, d *app.Deployment) {
	t.Helper()
	var k api.KexecReport
	r.must(http.MethodGet, "/api/v1/machines/"+machineName+"/kexec", nil, &k)
	retreats, by, verdict := p.hangs || p.refuse != nil, "firmware", app.KexecUnknown
	switch {
	case retreats:
		verdict = app.KexecKnownBad
	case p.kexec:
		by, verdict = "kexec", app.KexecKnownGood
	}
	if d == nil || d.BootPath != by || retreats != (d.Retreat != "") || p.kexec && !retreats == d.ColdBoot.IsZero() {
		t.Errorf("entered by %s: %+v", by, d)
	}
	if k.Verdict != verdict && p.refuse == nil || p.kexec != (len(k.Trials) == 1) || p.refuse != nil && k.Trials[0].Reason != p.refuse.Reason {
		t.Errorf("remembered %+v", k)
	}
}

// judge looks at the end.
func (p path) judge(t *testing.T, r *rig, c *computer) {
	t.Helper()
	var all api.List[workflow.Workflow]
	r.must(http.MethodGet, "/api/v1/workflows?machine="+machineName+"&verb=deploy", nil, &all)
	if len(all.Items) != 1 {
		t.Fatalf("%d deploys", len(all.Items))
	}
	w := all.Items[0]
	m := r.machine(machineName)
	d := m.Deployment
	if w.State != workflow.Done || m.State != app.StateDeployed || d == nil || !d.Confirmed || m.WorkflowID != "" {
		t.Errorf("the deploy is %s (%v), the machine %s (%s), its deployment %+v\n%s", w.State, w.Error, m.State, m.StateReason, d, r.journal(w.ID))
	}
	p.judgeEntry(t, r, d)
	if diff := cmp.Diff(p.want, c.seen()); diff != "" {
		t.Errorf("want - got +\n%s\n%s", diff, r.journal(w.ID))
	}
	ran := map[string]int{}
	for _, k := range c.ranKeys() {
		if ran[k]++; ran[k] > 1 {
			t.Errorf("the agent ran %s %d times", k, ran[k])
		}
	}
	if s := c.script(t.Context(), c.mac.Hyphen()); s == "" || bootDataRE.MatchString(s) {
		t.Errorf("a machine that is deployed is offered:\n%s", s)
	}
}
