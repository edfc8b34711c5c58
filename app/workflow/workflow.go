// Package workflow is the durable engine: workflows are lists of steps held in the store before anything happens, each
// attempt of a step is journaled as an intent and then a result, and after a crash at any instant every workflow goes on.
//
// A use case registers step kinds (what a step does, how its effect is checked) and starts workflows (data). The engine
// owns order, lanes, deadlines, repetition, abort and resume. It knows no machine hardware and no adapter.
package workflow

import (
	"context"
	"encoding/json"
	"time"

	"github.com/better-compute/bcd/app"
)

// Lane is a queue a command waits in.
type Lane string

// The lanes. One command at a time per machine in provision and bmc; query is free.
const (
	LaneBMC       Lane = "bmc"
	LaneProvision Lane = "provision"
	LaneQuery     Lane = "query"
)

// Where a command runs.
const (
	OnSite  = "site"    // in this process: the Kind's Run
	OnAgent = "ramdisk" // on the machine's agent: delivered signed, by the Agents port
)

// State of a workflow.
type State string

// The workflow states. Interrupted waits for a person (retry, done, abort); the last three are final.
const (
	Running     State = "running"
	Interrupted State = "interrupted"
	Aborting    State = "aborting"
	Done        State = "done"
	Failed      State = "failed"
	Aborted     State = "aborted"
)

// Active reports whether the workflow still holds its machine.
func (s State) Active() bool { return s == Running || s == Interrupted || s == Aborting }

// StepState of a step.
type StepState string

// The step states.
const (
	StepWaiting     StepState = "waiting"
	StepRunning     StepState = "running"
	StepDone        StepState = "done"
	StepFailed      StepState = "failed"
	StepInterrupted StepState = "interrupted" // its end is unknown
	StepSkipped     StepState = "skipped"     // marked done by a person, or not needed
)

// Workflow is one run of a verb on one machine.
type Workflow struct {
	ID          string          `json:"id"`
	Verb        string          `json:"verb"`    // "commission", "deploy", "release", "rescue", "power"
	Version     int             `json:"version"` // of the verb's definition; unknown after an upgrade: interrupted
	MachineID   string          `json:"machineId"`
	State       State           `json:"state"`
	Steps       []Step          `json:"steps"`
	Cursor      int             `json:"cursor"` // index of the current step
	Input       json.RawMessage `json:"input,omitempty"`
	Data        json.RawMessage `json:"data,omitempty"` // what steps learned for later steps: see StepContext.SetData
	Actor       string          `json:"actor"`
	TraceParent string          `json:"traceparent"` // W3C
	Error       *app.Error      `json:"error,omitempty"`
	Created     time.Time       `json:"created"`
	Ended       time.Time       `json:"ended,omitzero"`
}

// Step is one step: what was planned and how it went.
type Step struct {
	ID          string          `json:"id"` // "write", unique in the workflow
	Title       string          `json:"title"`
	Kind        string          `json:"kind"` // registered kind, "bmc.power-on"
	On          string          `json:"on"`   // OnSite or OnAgent
	Lane        Lane            `json:"lane"`
	Destructive bool            `json:"destructive,omitempty"`
	RetrySafe   bool            `json:"retrySafe,omitempty"`
	Rewrites    bool            `json:"rewrites,omitempty"` // an image write or wipe: may repeat on the same disk identity in this workflow
	Budget      app.Duration    `json:"budget"`             // for one attempt; 0 means the kind's
	Stall       app.Duration    `json:"stall,omitempty"`    // longest time without progress; 0 means no such limit
	Payload     json.RawMessage `json:"payload,omitempty"`

	State    StepState       `json:"state"`
	Attempt  int             `json:"attempt"` // counts from 0; only a person's retry raises it
	Started  time.Time       `json:"started,omitzero"`
	Ended    time.Time       `json:"ended,omitzero"`
	Progress *Progress       `json:"progress,omitempty"`
	Result   json.RawMessage `json:"result,omitempty"`
	Error    *app.Error      `json:"error,omitempty"`
}

// Progress is how far a step is.
type Progress struct {
	Phase   string    `json:"phase"`
	Message string    `json:"message,omitempty"`
	Done    int64     `json:"done,omitempty"`  // in Unit
	Total   int64     `json:"total,omitempty"` // 0 unknown
	Unit    string    `json:"unit,omitempty"`  // "bytes" or ""
	Rate    float64   `json:"rate,omitempty"`  // Unit per second, filled in by the engine
	ETA     float64   `json:"eta,omitempty"`   // seconds, filled in by the engine; 0 unknown
	At      time.Time `json:"at"`
}

// Command is what an executor gets for one attempt of a step.
type Command struct {
	Key         string          `json:"key"` // wf:<workflow>:<step>#<attempt>, the same on every delivery of the attempt
	Kind        string          `json:"kind"`
	WorkflowID  string          `json:"workflowId"`
	StepID      string          `json:"stepId"`
	Attempt     int             `json:"attempt"`
	MachineID   string          `json:"targetNodeId"`
	Lane        Lane            `json:"lane"`
	Destructive bool            `json:"destructive"`
	RetrySafe   bool            `json:"retrySafe"`
	NotAfter    time.Time       `json:"notAfter"`
	TraceParent string          `json:"traceparent"`
	Payload     json.RawMessage `json:"payload,omitempty"`
}

// StepContext is what a site step's Run and Check see.
type StepContext interface {
	Command() Command
	Workflow() Workflow                  // a copy
	Result(stepID string, into any) bool // decode an earlier step's result
	Data(into any) bool                  // decode Workflow.Data
	SetData(v any) error                 // durable when it returns
	Progress(p Progress)                 // at most kept once a second
	Log(format string, args ...any)      // a line of the step's log, on the machine's timeline
}

// Verdict is what a check found about an attempt whose end is unknown.
type Verdict string

// The verdicts.
const (
	Happened    Verdict = "happened"     // the effect is there: the step is done
	NotHappened Verdict = "not-happened" // the effect is not there and nothing is under way: run it, with the same key
	Unknown     Verdict = "unknown"      // cannot be told
)

// Kind is a registered step kind. Run is nil for kinds that only agents run.
type Kind struct {
	Name   string
	Budget time.Duration // default
	// Run does the step and returns after its effect was read back. It must return soon after ctx ends.
	// An error that is an *app.Error is shown to people as it is; one with the code app.Interrupted says that the end of
	// the attempt is unknown, and the engine settles it as after a crash. context.Cause(ctx) tells why ctx ended: ErrStopped
	// (the step will be settled by the next process), ErrAborted, ErrDeadline, ErrStalled.
	Run func(ctx context.Context, s StepContext) (any, error)
	// Prepare, for agent kinds, completes the payload at delivery time (a digest, a disk identity, an address);
	// it must give the same bytes for the same key. nil: the step's payload goes as it is.
	Prepare func(ctx context.Context, s StepContext) (any, error)
	// Check settles an attempt whose end is unknown. nil: Unknown.
	Check func(ctx context.Context, s StepContext) (Verdict, any, error)
}

// Verb is a registered kind of workflow.
type Verb struct {
	Name    string
	Version int
	// Begin changes the machine in the transaction that creates the workflow (state, Before, deadlines); an error refuses.
	// It is called again when a failed workflow is retried, with the machine's state put back to Before.
	Begin func(m *app.Machine, w *Workflow) error
	// End changes the machine in the transaction that ends the workflow: the new state, with reason and way out.
	End func(m *app.Machine, w *Workflow) error
	// Cleanup runs, with a time limit and journaled, when a workflow fails or is aborted, before End: power off, revoke
	// tokens. Its failure is reported beside the workflow's own error, never instead of it. May be nil.
	Cleanup func(ctx context.Context, s StepContext) error
	// RetryFrom names the step that a retry of a failed workflow begins at: Cleanup may have undone what the failed step
	// needs, a running agent for one. All steps from there on get a new attempt. nil, or a later step: the failed one.
	// An interrupted workflow, which was not cleaned up, always goes on at its step.
	RetryFrom func(w *Workflow) int
	// Skip says why a step that would begin now is not needed, "" when it is. It is a function of the workflow alone, so that
	// it says the same after a crash. The step is journaled as skipped, with the reason. May be nil.
	Skip func(w *Workflow, step int) (why string)
}

// Agents delivers commands to machines' agents. Deliver blocks until the attempt ended; the same key never runs twice on
// one agent: a key the agent knows answers with its state. An error with the code app.Interrupted says that the attempt's
// end is unknown (a session lost in mid-command), and the engine settles it. It is implemented by app/agent.
type Agents interface {
	Deliver(ctx context.Context, c Command, progress func(Progress)) (json.RawMessage, error)
	// Lookup asks the executor's table of attempts. Known is false when no session that saw the key lives.
	Lookup(ctx context.Context, c Command) (a Attempt, known bool, err error)
	// Cancel tells the machine's agent to stop a running attempt, best effort.
	Cancel(ctx context.Context, c Command)
}

// Absent is the state of a key that was delivered, as far as the journal knows, and that a session which lives and would
// know it never began: delivering it again runs it for the first time.
const Absent = "absent"

// Attempt is an executor's memory of one key.
type Attempt struct {
	State  string          `json:"state"` // "running", "done", "failed", or Absent
	Result json.RawMessage `json:"result,omitempty"`
	Error  *app.Error      `json:"error,omitempty"`
}

// New is the input of Start.
type New struct {
	Verb      string
	MachineID string
	Steps     []Step // State and Attempt are zero
	Input     any
	Actor     string
}

// API is what use cases and faces call; *Engine implements it.
type API interface {
	Start(ctx context.Context, n New) (*Workflow, error)
	Get(ctx context.Context, id string) (*Workflow, error)
	List(ctx context.Context, f Filter) ([]Workflow, error)
	Retry(ctx context.Context, id, actor string) error                      // failed or interrupted step: raises the attempt, goes on
	MarkDone(ctx context.Context, id, actor, reason string) error           // interrupted step: taken as done
	Abort(ctx context.Context, id, actor, reason string) error              // any active state
	Wait(ctx context.Context, id string) (*Workflow, error)                 // until it is final or interrupted
	Journal(ctx context.Context, id string) ([]Entry, error)                // oldest first
	Signal(machineID, name string, data any)                                // wakes steps waiting in Await
	Await(ctx context.Context, machineID, name string) (<-chan any, func()) // subscribe before looking; cancel when done
}

// Filter selects workflows, newest first.
type Filter struct {
	MachineID string
	Verb      string
	Active    bool
	Before    string // id of the last row of the page before
	Limit     int    // default 50
}

// Entry is one line of the journal: an intent, a delivery, a result, a decision.
type Entry struct {
	ID         int64           `json:"id"`
	Time       time.Time       `json:"time"`
	WorkflowID string          `json:"workflowId"`
	StepID     string          `json:"stepId"`
	Attempt    int             `json:"attempt"`
	What       string          `json:"what"` // "intent", "deliver", "redeliver", "check", "result", "error", "interrupted", "retry", "mark-done", "abort", "skip", "cleanup", "clock", "end"
	Data       json.RawMessage `json:"data,omitempty"`
}

// Store keeps workflows. Each method is one transaction, durable when it returns.
type Store interface {
	// CreateWorkflow writes the workflow and the changed machine; a second active workflow of a machine is a Conflict.
	CreateWorkflow(ctx context.Context, w *Workflow, change func(*app.Machine) error) error
	Workflow(ctx context.Context, id string) (*Workflow, error)
	ListWorkflows(ctx context.Context, f Filter) ([]Workflow, error)
	// SaveStep writes one step, the cursor, state and data of its workflow, and appends the entries.
	SaveStep(ctx context.Context, w *Workflow, step int, entries ...Entry) error
	// EndWorkflow writes the final state and the changed machine. When the machine is gone, change is not called.
	EndWorkflow(ctx context.Context, w *Workflow, change func(*app.Machine) error, entries ...Entry) error
	// ReopenWorkflow makes a failed workflow active again (Retry); a Conflict when the machine has another.
	ReopenWorkflow(ctx context.Context, w *Workflow, change func(*app.Machine) error, entries ...Entry) error
	Journal(ctx context.Context, workflowID string) ([]Entry, error)
	// SaveProgress is best effort: it may be lost in a crash. It changes nothing unless the step is running.
	SaveProgress(ctx context.Context, workflowID, stepID string, p Progress) error
}
