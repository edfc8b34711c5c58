package deploy

import (
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

// configured is the context of a step after the disk was configured.
type configured struct {
	workflow.StepContext
	result agentv1.ConfigureResult
	lines  []string
}

func (c *configured) Command() workflow.Command {
	return workflow.Command{WorkflowID: "wf-1", MachineID: "m-1"}
}

func (c *configured) Log(format string, args ...any) {
	c.lines = append(c.lines, fmt.Sprintf(format, args...))
}

func (c *configured) Result(step string, into any) bool {
	b, err := json.Marshal(c.result)
	return step == "configure" && err == nil && json.Unmarshal(b, into) == nil
}

// What the agent found on the disk before its first boot is told: in the step's log, and as a warning of the machine when it may
// not be as wanted. An agent that says too much is cut short.
func TestWhatIsFoundBeforeTheRebootIsTold(t *testing.T) {
	var events []app.Event
	v := &Verbs{p: &metal.Ports{Now: time.Now, Record: func(e app.Event) { events = append(events, e) }}}
	c := &configured{result: agentv1.ConfigureResult{Entry: "Debian", Kernel: "/boot/vmlinuz"}}
	v.ready(c)
	if len(events) != 0 || len(c.lines) != 1 || !strings.Contains(c.lines[0], "Debian") || !strings.Contains(c.lines[0], "/boot/vmlinuz") {
		t.Errorf("%q, %+v", c.lines, events)
	}
	c = &configured{}
	for range 3 * maxNotes {
		c.result.Notes = append(c.result.Notes, strings.Repeat("x", 3*maxNote))
	}
	v.ready(c)
	if len(events) != maxNotes || len(c.lines) != maxNotes {
		t.Fatalf("%d events, %d lines", len(events), len(c.lines))
	}
	if e := events[0]; e.Level != "warn" || e.MachineID != "m-1" || e.Workflow != "wf-1" || len(e.Message) > maxNote {
		t.Errorf("%+v", e)
	}
}
