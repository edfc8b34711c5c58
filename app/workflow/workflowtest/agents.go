package workflowtest

import (
	"context"
	"encoding/json"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// Fleet plays the machines' agents. It outlives the process that talks to it: a command that was given runs on.
type Fleet struct {
	// Handle does a command; it must return when ctx ends, which is when the machine reboots or the command is cancelled.
	Handle func(ctx context.Context, c workflow.Command, progress func(workflow.Progress)) (json.RawMessage, error)

	mu        sync.Mutex
	tables    map[string]map[string]*running // by machine and key
	Delivered []string                       // keys as they were given to agents for the first time, per boot
	Cancelled []string
}

type running struct {
	cancel   context.CancelFunc
	done     chan struct{}
	result   json.RawMessage
	err      error
	progress func(workflow.Progress)
	lost     chan struct{} // closed when the machine reboots under it
}

// Reboot ends what runs on a machine and forgets its table of attempts.
func (f *Fleet) Reboot(machineID string) {
	f.mu.Lock()
	table := f.tables[machineID]
	delete(f.tables, machineID)
	f.mu.Unlock()
	for _, r := range table {
		close(r.lost)
		r.cancel()
		<-r.done
	}
}

// Gone stops all machines.
func (f *Fleet) Gone() {
	f.mu.Lock()
	var ids []string
	for id := range f.tables {
		ids = append(ids, id)
	}
	f.mu.Unlock()
	for _, id := range ids {
		f.Reboot(id)
	}
}

// Seen gives copies of Delivered and Cancelled.
func (f *Fleet) Seen() (delivered, cancelled []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]string{}, f.Delivered...), append([]string{}, f.Cancelled...)
}

// start runs a key once per boot.
func (f *Fleet) start(c workflow.Command, progress func(workflow.Progress)) *running {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.tables == nil {
		f.tables = map[string]map[string]*running{}
	}
	if f.tables[c.MachineID] == nil {
		f.tables[c.MachineID] = map[string]*running{}
	}
	r := f.tables[c.MachineID][c.Key]
	if r != nil {
		r.progress = progress
		return r
	}
	ctx, cancel := context.WithCancel(context.Background())
	r = &running{cancel: cancel, done: make(chan struct{}), lost: make(chan struct{}), progress: progress}
	f.tables[c.MachineID][c.Key] = r
	f.Delivered = append(f.Delivered, c.Key)
	go func() {
		defer close(r.done)
		r.result, r.err = f.Handle(ctx, c, func(p workflow.Progress) {
			f.mu.Lock()
			report := r.progress
			f.mu.Unlock()
			report(p)
		})
	}()
	return r
}

// Deliver gives a command to the machine's agent and waits for it.
func (f *Fleet) Deliver(ctx context.Context, c workflow.Command, progress func(workflow.Progress)) (json.RawMessage, error) {
	r := f.start(c, progress)
	select {
	case <-r.lost:
		return nil, app.Errorf(app.Interrupted, "agent-lost", "the agent went away in mid-command")
	case <-r.done:
		return r.result, r.err
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// Lookup asks the table of attempts.
func (f *Fleet) Lookup(_ context.Context, c workflow.Command) (workflow.Attempt, bool, error) {
	f.mu.Lock()
	r := f.tables[c.MachineID][c.Key]
	f.mu.Unlock()
	if r == nil {
		return workflow.Attempt{}, false, nil
	}
	select {
	case <-r.done:
	default:
		return workflow.Attempt{State: "running"}, true, nil
	}
	if r.err != nil {
		own, _ := app.AsError(r.err)
		return workflow.Attempt{State: "failed", Error: own}, true, nil
	}
	return workflow.Attempt{State: "done", Result: r.result}, true, nil
}

// Cancel ends a running attempt.
func (f *Fleet) Cancel(_ context.Context, c workflow.Command) {
	f.mu.Lock()
	r := f.tables[c.MachineID][c.Key]
	f.Cancelled = append(f.Cancelled, c.Key)
	f.mu.Unlock()
	if r != nil {
		r.cancel()
	}
}

// KilledAgents are agents as a process that may be killed reaches them.
type KilledAgents struct {
	workflow.Agents
	Killer *Killer
}

// Deliver passes the instants around the call.
func (a KilledAgents) Deliver(ctx context.Context, c workflow.Command, progress func(workflow.Progress)) (out json.RawMessage, err error) {
	err = a.Killer.around("call "+c.StepID, func() error {
		out, err = a.Agents.Deliver(ctx, c, progress)
		return err
	})
	return out, err
}

// Cancel does nothing after death.
func (a KilledAgents) Cancel(ctx context.Context, c workflow.Command) {
	if a.Killer.Reach("") == nil {
		a.Agents.Cancel(ctx, c)
	}
}
