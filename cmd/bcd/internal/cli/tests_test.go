package cli

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

func TestPrintTests(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	all := api.Tests{WorkflowID: "wf1", Started: at, Items: []api.MachineTest{
		{Title: "Read the disks", State: workflow.StepDone, TestResult: agentv1.TestResult{Test: "disk-read", Result: agentv1.TestFailed, Message: "sda rate: 12 MB/s\x1b[2J", Skipped: []string{"sdb: is storage of the network"},
			Values:  []agentv1.TestValue{{Subject: "sda", Name: "rate", Value: 12.5, Unit: "MB/s", Limit: "at least 100", Failed: true}, {Subject: "sda", Name: "written", Value: 123456789}, {Name: "fan", Text: "turns"}},
			Started: at, Ended: at.Add(10 * time.Second), Log: "one\ntwo\n"}},
		{Title: "Compute", State: workflow.StepRunning, Progress: &workflow.Progress{Done: 5, Total: 20}, TestResult: agentv1.TestResult{Test: "cpu"}},
	}}
	var out bytes.Buffer
	printTests(&out, all, true)
	got := out.String()
	for _, want := range []string{"FAIL  Read the disks (disk-read), 10 s", "not tested: sdb: is storage", "FAILED: at least 100 is wanted", "12.5 MB/s", "123456789", "fan", "turns", "    one\n    two", "RUNNING  Compute (cpu), 25%"} {
		if !strings.Contains(got, want) {
			t.Errorf("%q is missing in\n%s", want, got)
		}
	}
	if strings.Contains(got, "\x1b") {
		t.Error("control characters reach the terminal")
	}
	out.Reset()
	if printTests(&out, all, false); strings.Contains(out.String(), "log:") {
		t.Error("logs are shown unasked")
	}
}
