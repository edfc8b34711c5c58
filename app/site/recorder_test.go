package site_test

import (
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

func (r *rig) timeline(query string) (t api.Timeline) {
	r.t.Helper()
	r.must(http.MethodGet, "/api/v1/machines/"+machineName+"/timeline"+query, nil, &t)
	return t
}

// warned reports whether Health has a warning of a code.
func (r *rig) warned(code string) bool {
	r.t.Helper()
	var l api.List[api.Warning]
	r.must(http.MethodGet, "/api/v1/health", nil, &l)
	return slices.ContainsFunc(l.Items, func(w api.Warning) bool { return w.Code == code && w.WayOut != "" })
}

// A deploy is on the timeline from the first word to the BMC to the system's call, and stays there after kill -9. A file that
// is broken, or that cannot be opened at all, stops no deploy.
func TestTimelineTellsOfADeployAndStopsNone(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	r.start("")
	r.deployed()
	r.stop()
	r.start("")
	var kinds []string
	for _, x := range slices.Backward(r.timeline("?limit=1000").Items) {
		kinds = append(kinds, x.Kind)
	}
	at := -1
	for _, k := range []string{"boot.permit", "bmc.boot", "bmc.power", "ipxe.script", "agent.up", "boot.revoke", "os.home", "workflow.end"} {
		i := slices.Index(kinds[at+1:], k)
		if i < 0 {
			t.Fatalf("no %s after the %d. of %v", k, at, kinds)
		}
		at += 1 + i
	}
	if v := r.timeline("").Verdict; v == nil || v.Code != "all-well" {
		t.Errorf("verdict %+v", v)
	}
	if got := r.timeline("?kind=bmc.").Items[0]; !strings.Contains(got.Message, "read back") || got.Data == nil {
		t.Errorf("a BMC action: %+v", got)
	}

	file := filepath.Join(r.dir, "recorder.db")
	broken := func(f func() error) {
		t.Helper()
		r.stop()
		if err := f(); err != nil {
			t.Fatal(err)
		}
		r.start("")
		r.verb(machineName, api.Release, nil)
		if n := r.await(newsOver); n.State != "done" {
			t.Errorf("the release is %s\n%s", n.State, r.story())
		}
	}
	broken(func() error { return os.WriteFile(file, []byte("this is no database of any kind"), 0o600) })
	if !r.warned("recorder-anew") {
		t.Error("a broken file was not begun anew, or nobody is told")
	}
	r.eventually("the new file holds something", func() bool { return len(r.timeline("?kind=workflow.").Items) > 0 })
	r.deployed()
	broken(func() error {
		if err := os.Remove(file); err != nil {
			return err
		}
		return os.MkdirAll(filepath.Join(file, "in", "the", "way"), 0o700)
	})
	if !r.warned("recorder-broken") {
		t.Error("a file that cannot be opened is not told of")
	}
	r.eventually("something is held in memory", func() bool { return len(r.timeline("?kind=workflow.").Items) > 0 })
	if m := r.machine(machineName); m.State != app.StateReady {
		t.Errorf("in the end it is %s", m.State)
	}
}

// What was seen of a port while it was nobody's is on the timeline of the machine that it turns out to belong to.
func TestTimelineBeginsBeforeTheMachineWasKnown(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	r.start("")
	c := newComputer(t, r, 2)
	if s := c.script(t.Context(), c.mac.Hyphen()); !strings.Contains(s, "sanboot") {
		t.Fatalf("a stranger is told:\n%s", s)
	}
	settled := func(path string) (page api.Timeline) {
		t.Helper()
		r.stop() // all is written down
		r.start("")
		r.must(http.MethodGet, path+"/timeline?kind=ipxe.", nil, &page)
		return page
	}
	if p := settled("/api/v1/discoveries/" + string(c.mac)); len(p.Items) != 1 || p.Items[0].MAC != c.mac {
		t.Errorf("of the port: %+v", p.Items)
	}
	enroll(r, c, "node2")
	if p := settled("/api/v1/machines/node2"); len(p.Items) != 1 || p.Items[0].MAC != c.mac || p.Items[0].MachineID == "" {
		t.Errorf("of the machine: %+v", p.Items)
	}
	if p := settled("/api/v1/discoveries/" + string(c.mac)); len(p.Items) != 0 {
		t.Errorf("left at the port: %+v", p.Items)
	}
	r.verb("node2", api.Delete, nil)
	enroll(r, c, "node2")
	if p := settled("/api/v1/machines/node2"); len(p.Items) != 0 {
		t.Errorf("another machine has the past of the deleted one: %+v", p.Items)
	}
}
