package drivers

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// lanes let one call at a time through to each BMC.
type lanes struct {
	mu sync.Mutex
	m  map[string]*lane
}

// lane is the queue before one BMC.
type lane struct {
	turn   chan struct{} // holds one token while the lane is free
	halted chan struct{} // closed by halt
	users  int           // waiting or inside; lanes.mu protects it

	mu    sync.Mutex // protects what follows
	doing string
	since time.Time
}

// errHalted ends the calls of a BMC that Halt was called for.
var errHalted = errors.New("all traffic to this BMC was stopped")

// enter waits for a turn. The context given back ends with ctx and with halt; leave must be called.
func (l *lanes) enter(ctx context.Context, key, doing string) (_ context.Context, leave func(), _ error) {
	q := l.join(key)
	select {
	case <-q.turn:
	case <-q.halted:
		l.drop(key, q)
		return nil, nil, stopped()
	case <-ctx.Done():
		l.drop(key, q)
		return nil, nil, q.busy(ctx)
	}
	q.set(doing)
	inner, cancel := context.WithCancelCause(ctx)
	left := make(chan struct{})
	go func() {
		select {
		case <-q.halted:
			cancel(errHalted)
		case <-left:
		}
	}()
	return inner, func() {
		close(left)
		cancel(nil)
		q.set("")
		q.turn <- struct{}{}
		l.drop(key, q)
	}, nil
}

// join finds or makes a lane and takes a place in it.
func (l *lanes) join(key string) *lane {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.m == nil {
		l.m = map[string]*lane{}
	}
	q := l.m[key]
	if q == nil {
		q = &lane{turn: make(chan struct{}, 1), halted: make(chan struct{})}
		q.turn <- struct{}{}
		l.m[key] = q
	}
	q.users++
	return q
}

// drop gives up a place in a lane; the last one takes the lane away.
func (l *lanes) drop(key string, q *lane) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q.users--; q.users == 0 && l.m[key] == q {
		delete(l.m, key)
	}
}

// halt ends every call of a lane, running or waiting. Later calls find a new lane.
func (l *lanes) halt(key string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if q := l.m[key]; q != nil {
		close(q.halted)
		delete(l.m, key)
	}
}

func (q *lane) set(doing string) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.doing, q.since = doing, time.Now()
}

// busy words a wait that ended before its turn came.
func (q *lane) busy(ctx context.Context) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.doing == "" || errors.Is(ctx.Err(), context.Canceled) {
		return app.Errorf(app.Unavailable, "cancelled", "the call to the BMC was given up before its turn")
	}
	return app.Errorf(app.Unavailable, "busy", "the BMC has been busy with %s for %s", q.doing, time.Since(q.since).Round(time.Second)).
		Do("wait for it to end").Retryable()
}

func stopped() error {
	return app.Errorf(app.Conflict, "bmc-traffic-stopped", "%w", errHalted)
}
