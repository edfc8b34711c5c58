package bootiso

import (
	"encoding/json"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

func TestACardTellsWhetherThereIsADrive(t *testing.T) {
	for card, want := range map[string]bool{
		"": true, "null": false, "not JSON": true, // a card that nobody wrote, or can read, hides nothing
		`{}`: false, `{"virtualMedia":[]}`: false, `{"virtualMedia":[{"id":"1","types":["USBStick"]}]}`: false,
		`{"virtualMedia":[{"id":"1","types":["Floppy"]},{"id":"2","types":["CD","DVD"]}]}`: true, `{"virtualMedia":[{"id":"2","types":["DVD"]}]}`: true,
	} {
		if got := hasDrive(json.RawMessage(card)); got != want {
			t.Errorf("%s: %v", card, got)
		}
	}
}

func TestWhatAnImageNeedsToHaveStarted(t *testing.T) {
	for size, want := range map[int64]int64{0: 0, 2048: 2048, Started: Started, 600 << 20: Started} {
		if got := enough(size); got != want {
			t.Errorf("%d of %d", got, size)
		}
	}
}

// A machine that is in an image keeps where it came from, over another verb that gave up.
func TestTheWayBackIsTheMachinesOwn(t *testing.T) {
	v := &Verbs{}
	w := &workflow.Workflow{ID: "wf-1", State: workflow.Failed, Input: json.RawMessage(`{}`)}
	m := &app.Machine{State: app.StateISO, WorkflowID: "wf-1", ISO: &app.ISORun{Before: app.StateReady}}
	if err := v.endExit(m, w); err != nil || m.State != app.StateISO || m.ISO == nil || m.WorkflowID != "" {
		t.Errorf("leaving failed, and it is %s, %+v, %v", m.State, m.ISO, err)
	}
	if err := beginExit(m, w); err != nil {
		t.Errorf("it cannot be left again: %v", err)
	}
}
