package views

import (
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// What a device or a script says stays text on the page, and what failed stands open.
func TestMachineTests(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	d := MachineData{Tests: &api.Tests{WorkflowID: "wf1", Items: []api.MachineTest{
		{Title: "Read the disks", State: workflow.StepDone, TestResult: agentv1.TestResult{Test: "disk-read", Result: agentv1.TestFailed, Message: "sda rate: 12 MB/s",
			Values: []agentv1.TestValue{{Subject: "<b>sda</b>", Name: "rate", Value: 12.5, Unit: "MB/s", Limit: "at least 100", Failed: true}}, Log: "<script>alert(1)</script>", Started: at, Ended: at.Add(1500 * time.Millisecond)}},
		{Title: "Ask the disks for their health", State: workflow.StepDone, TestResult: agentv1.TestResult{Test: "smart", Result: agentv1.TestNotRun, Message: "vda: a virtio disk has no command for its health", Skipped: []string{"vda: none"}}},
		{Title: "Compute", State: workflow.StepRunning},
	}}}
	var b strings.Builder
	if err := machineTests(d).Render(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	got := b.String()
	for _, want := range []string{"chip bad\">fail<", "chip warn\">not run<", "chip busy\">running<", "at least 100", "12.5 MB/s", "1.5s", "&lt;script&gt;", "&lt;b&gt;sda", "Not tested: vda: none"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in %s", want, got)
		}
	}
	if strings.Count(got, "<details open>") != 1 || strings.Contains(got, "<script") {
		t.Error(got)
	}
	b.Reset()
	if err := machineTests(MachineData{}).Render(t.Context(), &b); err != nil || b.Len() > 0 {
		t.Errorf("a machine that was never tested: %q, %v", b.String(), err)
	}
}
