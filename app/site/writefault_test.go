package site_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// What goes wrong on a machine's disk, as its agent tells it (the agent's own tests are in images/agent/disk). The deploy failed
// and says why and what to do; the machine is off and was never started from the disk, which is ours to wipe; and once the
// cause is gone, a retry ends well. Case 95: nothing is shown as a success after a failed verify.
func TestFaultsOfTheDiskEndWell(t *testing.T) {
	for name, f := range map[string]struct {
		kind string
		err  *app.Error
	}{
		"disk write error":    {agentv1.KindWrite, app.Errorf(app.Unavailable, "disk-io", "writing vda failed: 65536 bytes at offset 1048576: input/output error").Do("look at the disk's health")},
		"disk pulled":         {agentv1.KindWrite, app.Errorf(app.Unavailable, "disk-gone", "vda is gone").Do("put the disk back")},
		"failed verify":       {agentv1.KindWrite, app.Errorf(app.Unavailable, "read-back-mismatch", "vda reads back different from what was written").Do("replace the disk")},
		"image corrupted":     {agentv1.KindWrite, app.Errorf(app.Unavailable, "fetch-failed", "image debian: pack 1f00 has another BLAKE3").Do("import the image again")},
		"nothing that starts": {agentv1.KindConfigure, app.Errorf(app.Unsupported, "no-boot-entry", "image debian is not ready to start: vda cannot start: its menu is empty").Do("deploy with skipChecks")},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r, c := ready(t)
			c.fails = map[string]error{f.kind: f.err}
			r.start("")
			id := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
			if n := r.await(newsOver); n.State != "failed" {
				t.Fatalf("the deploy is %s\n%s", n.State, r.story())
			}
			w := r.workflow(id)
			if e := w.Error; w.State != workflow.Failed || e == nil || e.Reason != f.err.Reason || !strings.Contains(e.Message, f.err.Message) || e.WayOut == "" {
				t.Errorf("%s by %+v", w.State, w.Error)
			}
			m := r.machine(machineName)
			if m.State != app.StateFailed || m.FailedVerb != "deploy" || m.StateReason == "" || m.Deployment == nil || m.Deployment.Confirmed || len(m.OwnDisks) != 1 {
				t.Errorf("the machine is %s (%s), %+v, disks of ours %v", m.State, m.StateReason, m.Deployment, m.OwnDisks)
			}
			if wrote := f.kind != agentv1.KindWrite; wrote == m.Deployment.Written.IsZero() {
				t.Errorf("read back at %v", m.Deployment.Written)
			}
			if got := c.seen(); got.Boots != "Pxe" || got.Kexecs != 0 || c.bmc.PowerState() != "Off" {
				t.Errorf("%+v, power %s", got, c.bmc.PowerState())
			}
			c.change(func() { c.fails = nil })
			r.must(http.MethodPost, "/api/v1/workflows/"+id+"/retry", struct{}{}, nil)
			if n := r.await(newsOver); n.State != "done" || !r.machine(machineName).Deployment.Confirmed {
				t.Fatalf("the deploy is %s after a retry\n%s", n.State, r.story())
			}
			if got := c.seen(); got.Boots != "Pxe Pxe Hdd" || got.Writes != 2 {
				t.Errorf("after a retry: %+v", got)
			}
		})
	}
}

// The agent is killed while it writes, and started anew in the same boot: the write is done again, and the deploy ends well
// without anybody's doing.
func TestAgentKilledWhileItWrites(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	held, release := c.holding(agentv1.KindWrite)
	id := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	c.mu.Lock()
	sim := c.sim
	c.mu.Unlock()
	if err := sim.Crash(); err != nil {
		t.Fatal(err)
	}
	release()
	if err := sim.Start(); err != nil {
		t.Fatal(err)
	}
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("the deploy is %s\n%s", n.State, r.story())
	}
	if got := c.seen(); got.Boots != "Pxe Hdd" || got.Writes != 2 || !r.machine(machineName).Deployment.Confirmed {
		t.Errorf("%+v\n%s", got, r.journal(id))
	}
}
