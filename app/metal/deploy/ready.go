package deploy

import (
	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Bounds of what an agent may say of a disk that is to boot.
const (
	maxNotes = 8
	maxNote  = 600 // bytes
)

// ready tells what the agent found on the disk before its first boot. A note is a warning of the machine, too: nobody reads the
// log of a step that did not fail.
func (v *Verbs) ready(s workflow.StepContext) {
	var r agentv1.ConfigureResult
	if !s.Result("configure", &r) {
		return
	}
	if r.Entry != "" || r.Kernel != "" {
		s.Log("the disk starts by default: %s, kernel %s", clip(r.Entry, maxNote), clip(r.Kernel, maxNote))
	}
	for _, n := range r.Notes[:min(len(r.Notes), maxNotes)] {
		s.Log("%s", clip(n, maxNote))
		if v.p.Record != nil {
			v.p.Record(app.Event{Time: v.p.Now().UTC(), Kind: "deploy.note", Level: "warn", MachineID: s.Command().MachineID, Workflow: s.Command().WorkflowID, Message: clip(n, maxNote)})
		}
	}
}
