package agent

import (
	"encoding/json"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Limits of the table.
const (
	maxAttempts = 256
	maxResult   = agentv1.MaxBody - 64<<10 // bytes of one result: it travels inside a report
	maxTable    = agentv1.MaxBody - 64<<10 // bytes of all results in one poll
	maxKept     = 8 << 20                  // bytes of all results in the file
)

// States of an attempt.
const (
	stateRunning = "running"
	stateDone    = "done"
	stateFailed  = "failed"
)

// entry is one row of the table.
type entry struct {
	agentv1.AttemptState
	Run   int  `json:"run,omitempty"`
	Acked bool `json:"acked,omitempty"` // the site has the result
	Then  bool `json:"then,omitempty"`  // an effect follows the acknowledgement
	asked int  // how often the site asked for the result again; an acknowledgement of an older sending does not count
}

// lost reports whether the attempt's end is unknown because the agent died.
func (e *entry) lost() bool {
	return e.State == stateFailed && e.Error != nil && e.Error.Reason == agentv1.ReasonAgentRestarted
}

// ask makes the result be delivered again.
func (e *entry) ask() { e.Acked, e.asked = false, e.asked+1 }

// tableFile is the table on disk.
type tableFile struct {
	SessionID string   `json:"sessionId"`
	Attempts  []*entry `json:"attempts"`
}

// table is the agent's memory of what it did in this session, on disk before anything happens. It is safe for concurrent use.
type table struct {
	path string

	mu   sync.Mutex // protects file and byKey
	file tableFile
	by   map[string]*entry
}

// openTable reads the table of a session, or starts it. What was running when the agent died is now lost.
func openTable(path, sessionID string) (*table, error) {
	t := &table{path: path, by: map[string]*entry{}}
	if _, err := session.ReadFile(path, &t.file); err != nil {
		return nil, err
	}
	if t.file.SessionID != sessionID {
		t.file = tableFile{SessionID: sessionID}
	}
	for _, e := range t.file.Attempts {
		if e.State == stateRunning || (e.Then && !e.Acked) {
			e.State, e.Result, e.Acked, e.Then = stateFailed, nil, false, false
			e.Error = wireError(app.Errorf(app.Interrupted, agentv1.ReasonAgentRestarted,
				"the agent was restarted while this was under way, so its end is unknown"))
		}
		t.by[e.Key] = e
	}
	return t, t.save()
}

func (t *table) save() error { return session.WriteFile(t.path, &t.file) }

// begin enters the intent to run c. It reports false when the key is known and must not run: its result is then delivered
// again. An error means that nothing was entered and nothing may run.
func (t *table) begin(c agentv1.Command) (bool, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.by[c.Key]; e != nil {
		if e.lost() && c.Run > e.Run {
			before := *e
			*e = entry{AttemptState: agentv1.AttemptState{Key: c.Key, State: stateRunning}, Run: c.Run}
			return true, t.saveOr(func() { *e = before })
		}
		e.ask()
		return false, nil
	}
	if len(t.file.Attempts) >= maxAttempts {
		return false, app.Errorf(app.TooLarge, "too-many-attempts", "this boot has run %d commands, which is the limit", maxAttempts).
			Do("retry to boot the ramdisk again")
	}
	e := &entry{AttemptState: agentv1.AttemptState{Key: c.Key, State: stateRunning}, Run: c.Run}
	t.file.Attempts, t.by[c.Key] = append(t.file.Attempts, e), e
	return true, t.saveOr(func() {
		t.file.Attempts = t.file.Attempts[:len(t.file.Attempts)-1]
		delete(t.by, c.Key)
	})
}

// ask makes the result of key be delivered again, and reports false when the key is not known.
func (t *table) ask(key string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.by[key]
	if e == nil {
		return false
	}
	e.ask()
	return true
}

// saveOr saves, and undoes the change in memory when that fails.
func (t *table) saveOr(undo func()) error {
	if err := t.save(); err != nil {
		undo()
		return app.Errorf(app.StorageFull, "attempt-not-kept", "the attempt could not be written down, so it was not started: %w", err)
	}
	return nil
}

// end enters the outcome of an attempt. A result that cannot be encoded or is too large becomes a failure.
func (t *table) end(key string, result any, then bool, err error) error {
	state := agentv1.AttemptState{Key: key, State: stateDone}
	if err == nil {
		state.Result, err = encodeResult(result)
	}
	if err != nil {
		state.State, state.Result, state.Error = stateFailed, nil, wireError(err)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	e := t.by[key]
	if e == nil || e.State != stateRunning {
		return nil
	}
	kept := len(state.Result)
	for _, other := range t.file.Attempts {
		kept += len(other.Result)
	}
	if kept > maxKept {
		err = app.Errorf(app.TooLarge, "result-too-large", "the results of this boot add up to more than %d bytes", maxKept)
		state = agentv1.AttemptState{Key: key, State: stateFailed, Error: wireError(err)}
	}
	e.AttemptState, e.Acked, e.Then = state, false, then && err == nil
	return t.save()
}

func encodeResult(v any) (json.RawMessage, error) {
	if v == nil {
		v = struct{}{}
	}
	b, err := json.Marshal(v)
	if err != nil {
		return nil, app.Errorf(app.Internal, "result-unreadable", "the result cannot be encoded: %w", err)
	}
	if len(b) > maxResult {
		return nil, app.Errorf(app.TooLarge, "result-too-large", "the result has %d bytes, the limit is %d", len(b), maxResult)
	}
	return b, nil
}

// undelivered gives a finished attempt the site has not acknowledged, and what to tell acked when it has.
func (t *table) undelivered() (s agentv1.AttemptState, asked int, ok bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, e := range t.file.Attempts {
		if e.State != stateRunning && !e.Acked {
			return e.AttemptState, e.asked, true
		}
	}
	return agentv1.AttemptState{}, 0, false
}

// acked notes that the site has the result of key.
func (t *table) acked(key string, asked int) error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if e := t.by[key]; e != nil && e.asked == asked {
		e.Acked = true
	}
	return t.save()
}

// states gives the table as a poll tells it. When not all results fit into one request the newest are kept.
func (t *table) states() []agentv1.AttemptState {
	t.mu.Lock()
	defer t.mu.Unlock()
	out := make([]agentv1.AttemptState, len(t.file.Attempts))
	room := maxTable
	for i := len(out) - 1; i >= 0; i-- {
		out[i] = t.file.Attempts[i].AttemptState
		out[i].Unreported = out[i].State != stateRunning && !t.file.Attempts[i].Acked
		if room -= len(out[i].Result) + 512 + len(out[i].Key); room < 0 {
			out[i].Result = nil
		}
	}
	return out
}

// Limits of the texts of an error on the wire, in bytes.
const (
	maxMessage = 1024
	maxWayOut  = 512
)

// wireError is err in the words of the protocol. What is not an *app.Error is internal; its text still helps the operator
// and stays on this machine's own site.
func wireError(err error) *agentv1.Error {
	e, ok := app.AsError(err)
	if !ok {
		e = &app.Error{Code: app.Internal, Reason: "agent-internal", Message: err.Error()}
	}
	return &agentv1.Error{
		Code: string(e.Code), Reason: e.Reason, Message: clip(e.Message, maxMessage), WayOut: clip(e.WayOut, maxWayOut), Retryable: e.Retry,
	}
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}
