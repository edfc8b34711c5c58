package site_test

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// The power of rack and appliance goes between write and reboot. When both are back the deploy goes on where it was: the
// image is not written again, and the machine boots its disk.
func TestPowerLostBetweenWriteAndReboot(t *testing.T) {
	for _, at := range []string{"before intent revoke", "before intent disk-off", "after intent boot-disk", "before intent disk-on"} {
		t.Run(at, func(t *testing.T) {
			t.Parallel()
			r, c := ready(t)
			r.start(at)
			id := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
			r.await(newsAt)
			if c.bmc.PowerState() == "On" {
				if err := c.bmc.Reset("ForceOff"); err != nil {
					t.Fatal(err)
				}
				c.until("the power is gone", func() bool { return c.offs == 1 })
			}
			r.kill()
			r.start("")
			if n := r.await(newsOver); n.State != "done" {
				t.Fatalf("the deploy is %s\n%s", n.State, r.story())
			}
			if m := r.machine(machineName); m.State != app.StateDeployed || !m.Deployment.Confirmed {
				t.Errorf("the machine is %s (%s)", m.State, m.StateReason)
			}
			if got := c.seen(); got.Writes != 1 || got.Boots != "Pxe Hdd" || c.ran(agentv1.KindConfigure) != 1 {
				t.Errorf("%+v, %d times configured\n%s", got, c.ran(agentv1.KindConfigure), r.journal(id))
			}
		})
	}
}

// The power of a machine goes while its agent works. The job ends by what the BMC says, long before the step's own time is
// over, and a retry boots the ramdisk again.
func TestPowerLostWhileTheAgentWorks(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.cfg.Late = time.Second
	r.start("")
	held, release := c.holding(agentv1.KindWrite)
	id := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	if err := c.bmc.Reset("ForceOff"); err != nil {
		t.Fatal(err)
	}
	if n := r.await(newsOver); n.State != "failed" {
		t.Fatalf("the deploy is %s\n%s", n.State, r.story())
	}
	e := r.workflow(id).Error
	if e == nil || e.Reason != "machine-off" || !strings.HasPrefix(e.Message, "the machine is off: it lost power (or was switched off) while ") || e.WayOut == "" {
		t.Errorf("it failed by %+v\n%s", e, r.journal(id))
	}
	release()
	r.must(http.MethodPost, "/api/v1/workflows/"+id+"/retry", struct{}{}, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("the deploy is %s after a retry\n%s", n.State, r.story())
	}
	if got := c.seen(); got.Writes != 2 || got.Boots != "Pxe Pxe Hdd" {
		t.Errorf("%+v\n%s", got, r.journal(id))
	}
}

// smallDisk is a file system of its own with room for an appliance, and what fills it to the last byte.
func smallDisk(t *testing.T) (dir string, fill, drain func()) {
	t.Helper()
	dir = shortDir(t)
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size=48m,mode=0700"); err != nil {
		t.Skipf("a small file system cannot be mounted here: %v", err)
	}
	t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	filler := filepath.Join(dir, "filler")
	fill = func() {
		t.Helper()
		f, err := os.Create(filler)
		if err != nil {
			t.Fatal(err)
		}
		for n := 1 << 20; n > 0; n /= 2 {
			for err = nil; err == nil; {
				_, err = f.Write(make([]byte, n))
			}
			if !errors.Is(err, syscall.ENOSPC) {
				t.Fatal(err)
			}
		}
		_ = f.Close()
	}
	return dir, fill, func() {
		t.Helper()
		if err := os.Remove(filler); err != nil {
			t.Fatal(err)
		}
	}
}

// The appliance's disk fills up in mid-deploy. What is asked of it then is refused with the way out, Health says why; nothing
// that was kept is lost, the machine goes on, and once there is room the deploy ends as if nothing had been.
func TestTheAppliancesDiskIsFull(t *testing.T) {
	t.Parallel()
	dir, fill, drain := smallDisk(t)
	r, c := readyIn(t, dir)
	r.start("")
	held, release := c.holding(agentv1.KindWrite)
	id := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName})
	<-held
	fill()
	refused := func(what string, err error) {
		t.Helper()
		e, ok := app.AsError(err)
		for i := 0; err == nil && i < 200; i++ { // what is left of a page of the write-ahead log takes a few more
			err = r.call(http.MethodPatch, "/api/v1/machines/"+machineName, map[string]string{"note": strings.Repeat("n", 1900)}, nil)
			e, ok = app.AsError(err)
		}
		if !ok || e.Code != app.StorageFull || e.WayOut == "" {
			t.Errorf("%s gave %v", what, err)
		}
	}
	refused("an edit", r.call(http.MethodPatch, "/api/v1/machines/"+machineName, map[string]string{"note": strings.Repeat("n", 1900)}, nil))
	refused("an upload", r.call(http.MethodPut, "/api/v1/images/other", make([]byte, 1<<20), nil))
	var w api.List[api.Warning]
	r.must(http.MethodGet, "/api/v1/health", nil, &w)
	t.Logf("health: %+v", w.Items)
	found := false
	for _, x := range w.Items {
		found = found || strings.HasPrefix(x.Code, "disk-") && x.WayOut != ""
	}
	if !found {
		t.Errorf("Health does not tell: %+v", w.Items)
	}
	if m := r.machine(machineName); m.State != app.StateDeploying || m.WorkflowID != id {
		t.Errorf("the machine is %s in %q", m.State, m.WorkflowID)
	}
	release()
	c.until("the write ended", func() bool { return c.runs[agentv1.KindWrite] == 1 })
	drain()
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("the deploy is %s\n%s", n.State, r.story())
	}
	if got := c.seen(); got.Writes != 1 || c.ran(agentv1.KindConfigure) != 1 {
		t.Errorf("%+v\n%s", got, r.journal(id))
	}
}

// Killed with a full disk, the appliance starts again, shows what it has, and works once there is room.
func TestAFullApplianceStarts(t *testing.T) {
	t.Parallel()
	dir, fill, drain := smallDisk(t)
	r, _ := readyIn(t, dir)
	r.start("")
	fill()
	r.kill()
	r.start("")
	if m := r.machine(machineName); m.State != app.StateReady {
		t.Errorf("the machine is %s", m.State)
	}
	drain()
	r.deployed()
}
