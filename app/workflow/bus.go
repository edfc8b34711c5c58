package workflow

import (
	"context"
	"sync"
)

// waiting is how many signals a waiter may be behind; older ones are dropped for newer.
const waiting = 16

type topic struct{ machine, name string }

// bus passes signals to those that wait for them now. Nothing is kept for later: a waiter subscribes first, then looks at
// the stored facts, then waits. mu protects subs.
type bus struct {
	mu   sync.Mutex
	subs map[topic]map[chan any]bool
}

func (b *bus) subscribe(t topic) (<-chan any, func()) {
	ch := make(chan any, waiting)
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.subs == nil {
		b.subs = map[topic]map[chan any]bool{}
	}
	if b.subs[t] == nil {
		b.subs[t] = map[chan any]bool{}
	}
	b.subs[t][ch] = true
	return ch, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		delete(b.subs[t], ch)
		if len(b.subs[t]) == 0 {
			delete(b.subs, t)
		}
	}
}

func (b *bus) publish(t topic, data any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for ch := range b.subs[t] {
		for sent := false; !sent; {
			select {
			case ch <- data:
				sent = true
			default:
				select { // the oldest goes
				case <-ch:
				default:
				}
			}
		}
	}
}

// Signal wakes the steps that wait in Await for name on the machine.
func (e *Engine) Signal(machineID, name string, data any) {
	e.bus.publish(topic{machineID, name}, data)
}

// Await subscribes to a signal of a machine until the returned function is called or ctx ends. The channel is never closed.
func (e *Engine) Await(ctx context.Context, machineID, name string) (<-chan any, func()) {
	ch, cancel := e.bus.subscribe(topic{machineID, name})
	stop := context.AfterFunc(ctx, cancel)
	return ch, func() { stop(); cancel() }
}

// changed wakes those that wait for a workflow.
func (e *Engine) changed(id string) { e.bus.publish(topic{name: "workflow " + id}, nil) }
