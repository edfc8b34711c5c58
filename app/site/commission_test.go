package site_test

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// results are the tests of the machine, by title and outcome.
func (r *rig) results() (out []string, all api.Tests) {
	r.t.Helper()
	r.must(http.MethodGet, "/api/v1/machines/"+machineName+"/tests", nil, &all)
	for _, x := range all.Items {
		out = append(out, x.Test+" "+x.Result)
	}
	return out, all
}

// A profile's tests are all made; one that fails, fails the commissioning by its name and with the ways out, and none is
// lost. The operator may vouch for the machine all the same, or choose other tests.
func TestAFailedTestFailsTheCommissioning(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	if err := r.call(http.MethodGet, "/api/v1/machines/"+machineName+"/tests", nil, nil); app.CodeOf(err) != app.NotFound {
		if got, _ := r.results(); !slices.Equal(got, []string{"link pass", "smart pass"}) {
			t.Errorf("by default: %v", got)
		}
	}
	bad := json.RawMessage(`{"commissioning":[{"test":"disk-read","with":{"minMBps":1e9}}]}`)
	if err := r.call(http.MethodPut, "/api/v1/profiles/fast", bad, nil); app.CodeOf(err) != app.InvalidInput {
		t.Errorf("a limit out of range: %v", err)
	}
	profile := `{"commissioning":[{"test":"disk-read","with":{"minMBps":900}},{"test":"script","title":"Look at the fans","script":"exit 0\n"}]}`
	r.must(http.MethodPut, "/api/v1/profiles/fast", json.RawMessage(profile), nil)
	r.must(http.MethodPatch, "/api/v1/machines/"+machineName, json.RawMessage(`{"hardwareProfile":"fast"}`), nil)
	id := r.verb(machineName, api.Commission, nil)
	if n := r.await(newsOver); n.State != "failed" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	got, all := r.results()
	if !slices.Equal(got, []string{"disk-read fail", "script pass"}) || all.WorkflowID != id || all.Items[1].Title != "Look at the fans" || all.Items[0].Log == "" {
		t.Errorf("%v: %+v", got, all)
	}
	if v := all.Items[0].Values; len(v) != 1 || !v[0].Failed || v[0].Value != 500 || v[0].Limit != "at least 900" {
		t.Errorf("measured %+v", v)
	}
	e := step(t, r.workflow(id), "tests").Error
	if e == nil || e.Reason != "commission-test-failed" || !strings.Contains(e.Message, `"Read the disks" failed: vda rate: 500 MB/s`) || !strings.Contains(e.WayOut, "profile fast") || !strings.Contains(e.WayOut, "override") {
		t.Errorf("%+v", e)
	}
	if m := r.machine(machineName); m.State != app.StateFailed || m.FailedVerb != "commission" || c.bmc.PowerState() != "Off" {
		t.Errorf("%s after %s, power %s", m.State, m.FailedVerb, c.bmc.PowerState())
	}
	r.post(api.Override, api.OverrideOptions{State: app.StateReady, Reason: "good enough for a cache"})
	if m := r.machine(machineName); m.State != app.StateReady {
		t.Errorf("overridden: %s", m.State)
	}
	r.refused(api.Commission, api.CommissionOptions{Tests: []string{"burn"}}, app.InvalidInput, "")
	id = r.verb(machineName, api.Commission, api.CommissionOptions{Tests: []string{"cpu,smart"}})
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	if got, _ = r.results(); !slices.Equal(got, []string{"cpu pass", "smart pass"}) {
		t.Errorf("by name: %v", got)
	}
	ran := c.ran(agentv1.KindTest)
	r.verb(machineName, api.Commission, api.CommissionOptions{Tests: []string{"none"}})
	if n := r.await(newsOver); n.State != "done" || c.ran(agentv1.KindTest) != ran {
		t.Fatalf("without tests: %s\n%s", n.State, r.story())
	}
	if got, last := r.results(); !slices.Equal(got, []string{"cpu pass", "smart pass"}) || last.WorkflowID != id {
		t.Errorf("a commissioning without tests: %v", got)
	}
}
