package workflowtest

import (
	"context"
	"encoding/json"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// Memory is a workflow.Store, with its machines, in memory. What it hands out shares nothing with what it keeps.
type Memory struct {
	mu        sync.Mutex
	machines  map[string][]byte
	workflows map[string][]byte
	order     []string          // ids, oldest first
	active    map[string]string // machine → its active workflow
	journal   []workflow.Entry
}

var _ Backend = (*Memory)(nil)

// NewMemory makes an empty store.
func NewMemory() *Memory {
	return &Memory{machines: map[string][]byte{}, workflows: map[string][]byte{}, active: map[string]string{}}
}

func encode(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

func decode[T any](b []byte) *T {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		panic(err)
	}
	return &v
}

// CreateMachine adds a machine.
func (s *Memory) CreateMachine(_ context.Context, m *app.Machine) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m.Version = 1
	s.machines[m.ID] = encode(m)
	return nil
}

// Machine finds a machine by id or name.
func (s *Memory) Machine(_ context.Context, id string) (*app.Machine, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.machine(id)
}

func (s *Memory) machine(id string) (*app.Machine, error) {
	if b, ok := s.machines[id]; ok {
		return decode[app.Machine](b), nil
	}
	for _, b := range s.machines {
		if m := decode[app.Machine](b); m.Name == id {
			return m, nil
		}
	}
	return nil, app.Missing("machine", id)
}

// DeleteMachine forgets a machine and its finished workflows.
func (s *Memory) DeleteMachine(_ context.Context, id string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.machine(id)
	if err != nil {
		return err
	}
	delete(s.machines, m.ID)
	s.order = slices.DeleteFunc(s.order, func(id string) bool {
		w := decode[workflow.Workflow](s.workflows[id])
		gone := w.MachineID == m.ID && !w.State.Active()
		if gone {
			delete(s.workflows, id)
		}
		return gone
	})
	return nil
}

// change applies f to a machine; commit keeps it.
func (s *Memory) change(id string, f func(*app.Machine) error) (commit func(), err error) {
	m, err := s.machine(id)
	if err != nil {
		return nil, err
	}
	version := m.Version
	if err := f(m); err != nil {
		return nil, err
	}
	m.Version = version + 1
	return func() { s.machines[m.ID] = encode(m) }, nil
}

func (s *Memory) refuseSecond(w *workflow.Workflow) error {
	if other := s.active[w.MachineID]; other != "" && other != w.ID {
		return app.Errorf(app.Conflict, "workflow-active", "the machine has an active workflow: %s", other)
	}
	return nil
}

// write keeps a workflow.
func (s *Memory) write(w *workflow.Workflow) {
	s.workflows[w.ID] = encode(w)
	if w.State.Active() {
		s.active[w.MachineID] = w.ID
	} else if s.active[w.MachineID] == w.ID {
		delete(s.active, w.MachineID)
	}
}

// CreateWorkflow adds a workflow.
func (s *Memory) CreateWorkflow(_ context.Context, w *workflow.Workflow, change func(*app.Machine) error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	m, err := s.machine(w.MachineID)
	if err != nil {
		return err
	}
	w.MachineID = m.ID
	if err := s.refuseSecond(w); err != nil {
		return err
	}
	commit, err := s.change(w.MachineID, change)
	if err != nil {
		return err
	}
	commit()
	s.write(w)
	s.order = append(s.order, w.ID)
	return nil
}

// Workflow finds a workflow.
func (s *Memory) Workflow(_ context.Context, id string) (*workflow.Workflow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if b, ok := s.workflows[id]; ok {
		return decode[workflow.Workflow](b), nil
	}
	return nil, app.Missing("workflow", id)
}

// ListWorkflows gives workflows, newest first.
func (s *Memory) ListWorkflows(_ context.Context, f workflow.Filter) ([]workflow.Workflow, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []workflow.Workflow
	started := f.Before == ""
	for i := len(s.order) - 1; i >= 0; i-- {
		w := decode[workflow.Workflow](s.workflows[s.order[i]])
		if started && (f.MachineID == "" || f.MachineID == w.MachineID) && (f.Verb == "" || f.Verb == w.Verb) && (!f.Active || w.State.Active()) {
			all = append(all, *w)
		}
		started = started || w.ID == f.Before
		if len(all) == f.Limit && f.Limit > 0 || len(all) == 50 && f.Limit <= 0 {
			break
		}
	}
	return all, nil
}

// put replaces a workflow, all of it or but for the steps other than one.
func (s *Memory) put(w *workflow.Workflow, step int, entries []workflow.Entry) error {
	b, ok := s.workflows[w.ID]
	if !ok {
		return app.Missing("workflow", w.ID)
	}
	next := *decode[workflow.Workflow](encode(w))
	if step >= 0 {
		next.Steps = decode[workflow.Workflow](b).Steps
		next.Steps[step] = w.Steps[step]
	}
	if next.Data == nil {
		next.Data = decode[workflow.Workflow](b).Data
	}
	s.write(&next)
	for _, e := range entries {
		e.ID, e.WorkflowID = int64(len(s.journal)+1), w.ID
		if e.Time.IsZero() {
			e.Time = time.Now().UTC()
		}
		s.journal = append(s.journal, e)
	}
	return nil
}

// SaveStep writes one step.
func (s *Memory) SaveStep(_ context.Context, w *workflow.Workflow, step int, entries ...workflow.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.put(w, step, entries)
}

// EndWorkflow writes the end.
func (s *Memory) EndWorkflow(_ context.Context, w *workflow.Workflow, change func(*app.Machine) error, entries ...workflow.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	commit, err := s.change(w.MachineID, change)
	if err != nil && app.CodeOf(err) != app.NotFound {
		return err
	}
	if err := s.put(w, -1, entries); err != nil {
		return err
	}
	if commit != nil {
		commit()
	}
	return nil
}

// ReopenWorkflow makes a workflow active again.
func (s *Memory) ReopenWorkflow(_ context.Context, w *workflow.Workflow, change func(*app.Machine) error, entries ...workflow.Entry) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.refuseSecond(w); err != nil {
		return err
	}
	commit, err := s.change(w.MachineID, change)
	if err != nil {
		return err
	}
	if err := s.put(w, -1, entries); err != nil {
		return err
	}
	commit()
	return nil
}

// Journal gives a workflow's entries.
func (s *Memory) Journal(_ context.Context, workflowID string) ([]workflow.Entry, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []workflow.Entry
	for _, e := range s.journal {
		if e.WorkflowID == workflowID {
			all = append(all, e)
		}
	}
	return all, nil
}

// SaveProgress keeps how far a step is.
func (s *Memory) SaveProgress(_ context.Context, workflowID, stepID string, p workflow.Progress) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b, ok := s.workflows[workflowID]
	if !ok {
		return nil
	}
	w := decode[workflow.Workflow](b)
	for i := range w.Steps {
		if w.Steps[i].ID == stepID && w.Steps[i].State == workflow.StepRunning {
			w.Steps[i].Progress = &p
		}
	}
	s.workflows[workflowID] = encode(w)
	return nil
}
