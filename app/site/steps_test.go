package site_test

import (
	"encoding/json"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/host"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// kindCooling is a kind that the appliance has never heard of: only the plugin registers it.
const kindCooling = "acme-cooling"

// fans are what the plugin acme cools with.
type fans struct{}

// Invoke serves acme-cooling.setFanCurve.
func (fans) Invoke(c *driver.Context, operation string, args []json.RawMessage) (any, error) {
	var curve []int
	if operation != "setFanCurve" || len(args) != 1 || json.Unmarshal(args[0], &curve) != nil {
		return nil, driver.Errorf(driver.CodeInvalidArgs, "a fan curve is a list of numbers")
	}
	if len(curve) == 0 {
		return nil, driver.Errorf("fans-stopped", "that curve would stop the fans")
	}
	c.Emit(driver.Progress{Phase: "cooling", Message: "turning the fans"})
	return map[string]any{"points": len(curve), "key": c.IdempotencyKey}, nil
}

// cooled is a commissioned machine and an appliance with the plugin acme, whose profile cools it while it is commissioned.
func cooled(t *testing.T, with string) (*rig, *computer) {
	t.Helper()
	r, c := ready(t)
	r.cfg.Plugins = shortDir(t)
	if err := os.Chmod(r.cfg.Plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := host.Add(t.Context(), r.cfg.Plugins, "acme-bmc", os.Args[0]); err != nil {
		t.Fatal(err)
	}
	r.start("")
	r.awaitDriver(kindCooling)
	profile := `{"drivers":{"acme-cooling":{"driver":"acme","config":{"address":"192.0.2.99"}}},"kernelArgs":"quiet",
		"steps":{"commission":[{"step":"acme-cooling.setFanCurve","title":"Turn the fans up","with":` + with + `,"timeout":"1m"},{"step":"inspect.inspect","on":"ramdisk"}]}}`
	r.must(http.MethodPut, "/api/v1/profiles/cooled", json.RawMessage(profile), nil)
	r.must(http.MethodPatch, "/api/v1/machines/"+machineName, json.RawMessage(`{"hardwareProfile":"cooled"}`), nil)
	return r, c
}

func step(t *testing.T, w workflow.Workflow, id string) workflow.Step {
	t.Helper()
	i := slices.IndexFunc(w.Steps, func(s workflow.Step) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("no step %s in %+v", id, w.Steps)
	}
	return w.Steps[i]
}

// A profile's steps in a commissioning: one in a plugin, of a kind that nobody registered here, and one signed to the machine's
// agent. What plugin and ramdisk advertise becomes labels, and a plugin that is gone is told.
func TestAProfilesStepsRun(t *testing.T) {
	t.Parallel()
	r, c := cooled(t, `[30,60,100]`)
	if b := r.machine(machineName).Drivers[kindCooling]; b.Driver != "acme" || b.Layer != "profile" {
		t.Errorf("bound %+v", b)
	}
	id := r.verb(machineName, api.Commission, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	w := r.workflow(id)
	s := step(t, w, "profile-0")
	if string(s.Result) != `{"resultJson":{"key":"wf:`+id+`:profile-0#0","points":3}}` || s.Kind != agentv1.KindDriverInvoke || s.Title != "Turn the fans up" {
		t.Errorf("the plugin's step: %s %+v", s.Result, s)
	}
	var out agentv1.DriverInvokeResult
	var inv agentv1.Inventory
	if s = step(t, w, "profile-1"); json.Unmarshal(s.Result, &out) != nil || json.Unmarshal(out.Result, &inv) != nil || len(inv.Disks) != 1 || s.On != workflow.OnAgent {
		t.Errorf("the agent's step: %s", s.Result)
	}
	if c.ran(agentv1.KindDriverInvoke) != 1 {
		t.Errorf("the agent ran %d calls", c.ran(agentv1.KindDriverInvoke))
	}
	m := r.machine(machineName)
	for _, want := range []string{"bc.dev/driver.acme", "bc.dev/driver-kind.acme.acme-cooling", "bc.dev/driver.redfish", "bc.dev/driver.ramdisk", "bc.dev/driver-kind.ramdisk.inspect"} {
		if m.Labels[want] == "" {
			t.Errorf("no label %s in %v", want, m.Labels)
		}
	}
	var page app.MachinePage
	r.must(http.MethodGet, "/api/v1/machines?label=bc.dev/driver-kind.acme.acme-cooling%3D*", nil, &page)
	if page.Total != 1 {
		t.Errorf("%d machines carry the label", page.Total)
	}
	r.stop()
	r.cfg.Plugins = ""
	r.start("")
	r.awaitWarning("binding-broken")
	err := r.call(http.MethodPost, "/api/v1/machines/"+machineName+"/commission", struct{}{}, nil)
	if e, _ := app.AsError(err); e == nil || e.Reason != "driver-not-found" {
		t.Errorf("the step of a plugin that is gone: %v", err)
	}
}

// awaitWarning waits until Health warns of something.
func (r *rig) awaitWarning(code string) {
	r.t.Helper()
	r.eventually("Health warns of "+code, func() bool { return slices.Contains(r.warnings(), code) })
}

// awaitDriver waits until a driver of a kind is registered.
func (r *rig) awaitDriver(kind string) {
	r.t.Helper()
	r.eventually("a driver serves "+kind, func() bool {
		var l api.List[api.Driver]
		r.must(http.MethodGet, "/api/v1/drivers?kind="+kind, nil, &l)
		return len(l.Items) > 0 && l.Items[0].Down == ""
	})
}

// eventually waits until something the API tells is so.
func (r *rig) eventually(what string, so func() bool) {
	r.t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !so() {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("waiting in vain: %s", what)
		}
	}
}

// A step whose driver fails ends the workflow with the driver's own code, and the machine is off.
func TestAFailingStepKeepsItsDriversCode(t *testing.T) {
	t.Parallel()
	r, c := cooled(t, `[]`)
	id := r.verb(machineName, api.Commission, nil)
	if n := r.await(newsOver); n.State != "failed" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	if e := step(t, r.workflow(id), "profile-0").Error; e == nil || e.Reason != "fans-stopped" {
		t.Errorf("the step says %+v", e)
	}
	if m := r.machine(machineName); m.State != app.StateFailed || !strings.Contains(m.StateReason, "stop the fans") || c.bmc.PowerState() != "Off" {
		t.Errorf("%s: %s, power %s", m.State, m.StateReason, c.bmc.PowerState())
	}
}

// The appliance dies in a driver's call. What the driver did nobody knows, and nothing destructive is repeated by itself: a
// person looks, and the workflow goes on.
func TestAnInterruptedDriverCallIsNotRepeated(t *testing.T) {
	t.Parallel()
	r, _ := cooled(t, `[1,2]`)
	r.stop()
	r.start("before result profile-0")
	r.awaitDriver(kindCooling)
	id := r.verb(machineName, api.Commission, nil)
	r.await(newsAt)
	r.kill()
	r.start("")
	if n := r.await(newsOver); n.State != "interrupted" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	if s := step(t, r.workflow(id), "profile-0"); s.Attempt != 0 || s.Error == nil || s.Error.Reason != "end-unknown" {
		t.Errorf("the step is %+v", s)
	}
	r.must(http.MethodPost, "/api/v1/workflows/"+id+"/mark-done", api.ReasonOptions{Reason: "the fans turn"}, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
}

// A profile's steps may wipe the machine's own disks and put an image on a disk: the agent is sent one disk's identity and an
// image's index, signed, and does it by the code of the verbs.
func TestAProfilesStepsWriteDisks(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	profile := func(step string) error {
		return r.call(http.MethodPut, "/api/v1/profiles/disks", json.RawMessage(`{"drivers":{"deploy":"image-stream"},"steps":{"beforeWrite":[`+step+`]}}`), nil)
	}
	if e, _ := app.AsError(profile(`{"step":"deploy.deploy","with":{"image":"tiny"}}`)); e == nil || e.Reason != "role-unsupported" {
		t.Errorf("on the site: %v", e)
	}
	if err := profile(`{"step":"deploy.deploy","on":"ramdisk","with":{"image":"gone","disk":{"serial":"SIMDISK1"}}}`); err != nil {
		t.Fatal(err)
	}
	r.must(http.MethodPatch, "/api/v1/machines/"+machineName, json.RawMessage(`{"hardwareProfile":"disks"}`), nil)
	spec := app.DeploySpec{Image: imageName}
	err := r.call(http.MethodPost, "/api/v1/machines/"+machineName+"/deploy", spec, nil)
	if e, _ := app.AsError(err); e == nil || e.Code != app.NotFound {
		t.Errorf("a step whose image is missing: %v", err)
	}
	if err := profile(`{"step":"deploy.tearDown","on":"ramdisk","with":{"wipe":"secure"}},{"step":"deploy.deploy","on":"ramdisk","with":{"image":"tiny","disk":{"serial":"SIMDISK1"}},"timeout":"5m"}`); err != nil {
		t.Fatal(err)
	}
	id := r.verb(machineName, api.Deploy, spec)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	w := r.workflow(id)
	var out agentv1.DriverInvokeResult
	var written driver.DeployResult
	s := step(t, w, "before-1")
	if json.Unmarshal(s.Result, &out) != nil || json.Unmarshal(out.Result, &written) != nil || written.Bytes == 0 || s.On != workflow.OnAgent || !s.Destructive || !s.Rewrites || time.Duration(s.Budget) != 5*time.Minute {
		t.Errorf("the step is %+v: %s", s, s.Result)
	}
	if c.ran(agentv1.KindDriverInvoke) != 2 || c.ran(agentv1.KindWrite) != 1 {
		t.Errorf("the agent ran %d calls of drivers and %d writes", c.ran(agentv1.KindDriverInvoke), c.ran(agentv1.KindWrite))
	}
	if m := r.machine(machineName); len(m.OwnDisks) != 1 || m.OwnDisks[0].Serial != "SIMDISK1" || m.Labels["bc.dev/driver-kind.image-stream.deploy"] != "1" {
		t.Errorf("own disks %+v, labels %v", m.OwnDisks, m.Labels)
	}
}
