package workflow

import (
	"context"
	"sync"
)

type laneKey struct {
	machine string
	lane    Lane
}

type lane struct {
	turn  chan struct{} // holds one token while the lane is free
	users int           // that hold or wait
}

// lanes keeps commands of one machine and lane apart. Machines never wait for each other. mu protects all.
type lanes struct {
	mu  sync.Mutex
	all map[laneKey]*lane
}

// acquire waits for the lane. The query lane is always free.
func (l *lanes) acquire(ctx context.Context, machineID string, name Lane) (release func(), err error) {
	if ctx.Err() != nil || name == LaneQuery {
		return func() {}, context.Cause(ctx)
	}
	key := laneKey{machineID, name}
	ln := l.join(key)
	select {
	case <-ln.turn:
		return sync.OnceFunc(func() { ln.turn <- struct{}{}; l.leave(key, ln) }), nil
	case <-ctx.Done():
		l.leave(key, ln)
		return nil, context.Cause(ctx)
	}
}

func (l *lanes) join(key laneKey) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all == nil {
		l.all = map[laneKey]*lane{}
	}
	ln := l.all[key]
	if ln == nil {
		ln = &lane{turn: make(chan struct{}, 1)}
		ln.turn <- struct{}{}
		l.all[key] = ln
	}
	ln.users++
	return ln
}

func (l *lanes) leave(key laneKey, ln *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if ln.users--; ln.users == 0 {
		delete(l.all, key)
	}
}

// Lane waits for a machine's lane, for work outside a workflow that must not meet one: a power poll, a console.
func (e *Engine) Lane(ctx context.Context, machineID string, lane Lane) (release func(), err error) {
	return e.lanes.acquire(ctx, machineID, lane)
}
