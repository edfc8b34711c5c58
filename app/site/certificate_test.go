package site_test

import (
	"net/http"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// A machine is released, and deleted as it leaves the rack: what became of its disks can still be shown and found.
func TestACertificateOutlivesItsMachine(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	r.start("")
	r.deployed()
	id := r.verb(machineName, api.Release, nil)
	if n := r.await(newsOver); n.State != "done" {
		t.Fatalf("the release is %s\n%s", n.State, r.story())
	}
	r.post(api.Delete, api.RetireOptions{})
	if err := r.call(http.MethodGet, "/api/v1/workflows/"+id, nil, nil); app.CodeOf(err) != app.NotFound {
		t.Errorf("the workflow of a deleted machine gave %v", err)
	}
	var c app.Certificate
	r.must(http.MethodGet, "/api/v1/workflows/"+id+"/certificate", nil, &c)
	if c.WorkflowID != id || c.Machine != machineName || !c.Erased() || c.Operator == "" {
		t.Errorf("%+v", c)
	}
	var l api.List[api.ListedCertificate]
	r.must(http.MethodGet, "/api/v1/certificates?machine="+machineName, nil, &l)
	if len(l.Items) != 1 || l.Items[0].WorkflowID != id || !l.Items[0].All {
		t.Errorf("%+v", l.Items)
	}
}
