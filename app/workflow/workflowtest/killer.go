package workflowtest

import (
	"context"
	"errors"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// ErrKilled is what everything answers once the process is dead.
var ErrKilled = errors.New("the process was killed")

// Killer ends a simulated process at a named instant. Instants are "before WHAT STEP" and "after WHAT STEP", where WHAT is
// the journal's word of a write ("intent", "deliver", "result", …) or "effect", or "call" for a command on its way to an
// agent. From then on nothing that the process does has an effect.
type Killer struct {
	at   string
	once sync.Once
	dead chan struct{}
}

// NewKiller makes a killer for one instant; "" never kills.
func NewKiller(at string) *Killer { return &Killer{at: at, dead: make(chan struct{})} }

// Dead is closed when the process is dead.
func (k *Killer) Dead() <-chan struct{} { return k.dead }

// Kill ends the process now.
func (k *Killer) Kill() { k.once.Do(func() { close(k.dead) }) }

// Reach passes an instant and fails when the process is dead.
func (k *Killer) Reach(instant string) error {
	if instant == k.at {
		k.Kill()
	}
	select {
	case <-k.dead:
		return ErrKilled
	default:
		return nil
	}
}

// around does f between two instants.
func (k *Killer) around(what string, f func() error) error {
	if err := k.Reach("before " + what); err != nil {
		return err
	}
	if err := f(); err != nil {
		return err
	}
	return k.Reach("after " + what)
}

// Effect counts as done only when the process lives.
func (k *Killer) Effect(step string, f func()) error {
	return k.around("effect "+step, func() error { f(); return nil })
}

// KilledStore is a store as a process that may be killed uses it.
type KilledStore struct {
	workflow.Store
	Killer *Killer
}

// SaveStep passes the instants around each kind of journal entry.
func (s KilledStore) SaveStep(ctx context.Context, w *workflow.Workflow, step int, entries ...workflow.Entry) error {
	what := "save " + w.Steps[step].ID
	if len(entries) > 0 {
		what = entries[0].What + " " + w.Steps[step].ID
	}
	return s.Killer.around(what, func() error { return s.Store.SaveStep(ctx, w, step, entries...) })
}

// EndWorkflow passes the instants around the end.
func (s KilledStore) EndWorkflow(ctx context.Context, w *workflow.Workflow, change func(*app.Machine) error, entries ...workflow.Entry) error {
	return s.Killer.around("end "+w.Verb, func() error { return s.Store.EndWorkflow(ctx, w, change, entries...) })
}

// SaveProgress does nothing after death.
func (s KilledStore) SaveProgress(ctx context.Context, workflowID, stepID string, p workflow.Progress) error {
	if err := s.Killer.Reach(""); err != nil {
		return err
	}
	return s.Store.SaveProgress(ctx, workflowID, stepID, p)
}
