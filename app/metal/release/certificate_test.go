package release

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// run is a release's workflow as far as its steps have results.
type run struct {
	workflow.StepContext
	results map[string]any
	lines   []string
}

func (r *run) Command() workflow.Command {
	return workflow.Command{WorkflowID: "wf-1", MachineID: "m-1"}
}
func (r *run) Workflow() workflow.Workflow { return workflow.Workflow{Actor: "ada"} }
func (r *run) Log(format string, args ...any) {
	r.lines = append(r.lines, fmt.Sprintf(format, args...))
}

func (r *run) Result(step string, into any) bool {
	v, ok := r.results[step]
	b, err := json.Marshal(v)
	return ok && err == nil && json.Unmarshal(b, into) == nil
}

// one machine, as a release finds it.
type lone struct{ app.MachineStore }

func (lone) Machine(context.Context, string) (*app.Machine, error) {
	return &app.Machine{ID: "m-1", Name: "node1", Serial: "CN-1", Vendor: "Contoso", Model: "R640"}, nil
}

func wiped(disks ...agentv1.WipedDisk) *run {
	return &run{results: map[string]any{"wipe": agentv1.WipeResult{Disks: disks}}}
}

var (
	done = agentv1.WipedDisk{Disk: agentv1.DiskTarget{Serial: "A", Name: "sda"}, Model: "Example", Method: "ata-sanitize-crypto", Erased: true, Sentinels: 272, Bytes: 10,
		Started: time.Unix(1, 0), Ended: time.Unix(2, 0)}
	kept = agentv1.WipedDisk{Disk: agentv1.DiskTarget{Serial: "B", Name: "sdb"}, Sentinels: 272, Note: "it still gives back old bytes"}
)

// drawer keeps the last one.
type drawer struct {
	app.CertificateStore
	last *app.Certificate
}

// PutCertificate implements app.CertificateStore.
func (s *drawer) PutCertificate(_ context.Context, c *app.Certificate) error {
	s.last = c
	return nil
}

// TestCertificate: a disk without proof is named as not erased, and the release fails; the certificate is there all the same.
func TestCertificate(t *testing.T) {
	var drawer drawer
	v := &Verbs{p: &metal.Ports{Machines: lone{}, Certificates: &drawer, Now: func() time.Time { return time.Unix(3, 0) }}}
	for name, c := range map[string]struct {
		disks  []agentv1.WipedDisk
		erased bool
		err    string
	}{
		"all":  {[]agentv1.WipedDisk{done}, true, ""},
		"some": {[]agentv1.WipedDisk{done, kept}, false, `NOT erased: sdb (serial "B"): it still gives back old bytes`},
		"none": {[]agentv1.WipedDisk{kept}, false, "NOT erased"},
	} {
		r := wiped(c.disks...)
		out, err := v.certify(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		cert := out.(app.Certificate)
		if cert.Erased() != c.erased || len(cert.Disks) != len(c.disks) || cert.Operator != "ada" || cert.Machine != "node1" || cert.Serial != "CN-1" || cert.WorkflowID != "wf-1" || cert.Issued.Unix() != 3 {
			t.Errorf("%s: %+v", name, cert)
		}
		if drawer.last == nil || drawer.last.WorkflowID != "wf-1" || drawer.last.Erased() != c.erased || len(drawer.last.Disks) != len(c.disks) {
			t.Errorf("%s: kept is %+v", name, drawer.last)
		}
		r.results["certificate"] = cert
		_, err = v.proof(t.Context(), r)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: %v", name, err)
		}
	}
	cert, _ := v.certify(t.Context(), wiped(done))
	d := cert.(app.Certificate).Disks[0]
	if d.Method != "ata-sanitize-crypto" || d.Sentinels != 272 || d.Disk != (app.DiskID{Serial: "A", Name: "sda", Model: "Example", Bytes: 10}) || d.Ended.Unix() != 2 {
		t.Errorf("%+v", d)
	}
	if _, err := v.certify(t.Context(), wiped()); err == nil {
		t.Error("a certificate of nothing")
	}
	if _, err := v.proof(t.Context(), wiped(done)); err == nil {
		t.Error("a proof without a certificate")
	}
}
