package site_test

import (
	"encoding/json"
	"net/http"
	"testing"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// TestRedeploy: a deployed machine is overwritten when that is said, its disk's image is offered to the agent, and nothing
// is wiped between.
func TestRedeploy(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	r.deployed()
	if err := r.call(http.MethodPost, "/api/v1/machines/"+machineName+"/deploy", app.DeploySpec{Image: imageName}, nil); app.CodeOf(err) != app.Conflict {
		t.Errorf("a deployed machine was deployed without that being said: %v", err)
	}
	id := r.verb(machineName, api.Deploy, app.DeploySpec{Image: imageName, Redeploy: true})
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("the redeploy is %s\n%s", n.State, r.story())
	}
	if m := r.machine(machineName); m.State != app.StateDeployed || len(m.OwnDisks) != 1 {
		t.Errorf("after the redeploy: %s, disks of ours %v", m.State, m.OwnDisks)
	}
	if got := c.seen(); got.Writes != 2 || got.Wipes != 0 {
		t.Errorf("in all: %+v", got)
	}
	for _, s := range r.workflow(id).Steps {
		var w agentv1.Write
		if s.ID == "write" && (json.Unmarshal(s.Payload, &w) != nil || len(w.Seeds) != 1 || w.Seeds[0].IndexSHA256 != w.IndexSHA256) {
			t.Errorf("the order offers %+v", w.Seeds)
		}
	}
}
