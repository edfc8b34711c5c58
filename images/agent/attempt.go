package agent

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// free reports whether commands of the kind only look or set the clock, and so may run beside others.
func free(kind string) bool { return kind == agentv1.KindInventory || kind == agentv1.KindSetClock }

// start runs h for c, whose intent is in the table, in the background.
func (a *Agent) start(ctx context.Context, h Handler, c agentv1.Command) {
	ctx, cancel := context.WithCancelCause(context.WithoutCancel(ctx)) // ended by stopAttempts, so that the cause is told
	a.mu.Lock()
	a.cancel[c.Key] = cancel
	a.mu.Unlock()
	a.wg.Go(func() {
		defer func() {
			a.mu.Lock()
			delete(a.cancel, c.Key)
			a.mu.Unlock()
			cancel(nil)
		}()
		a.attempt(ctx, h, c)
	})
}

// attempt runs h and enters its outcome, except when the agent is stopping: then the attempt's end is for the next start to
// tell.
func (a *Agent) attempt(ctx context.Context, h Handler, c agentv1.Command) {
	log := a.cfg.Log.With("key", c.Key, "kind", c.Kind)
	log.Info("starting")
	started := time.Now()
	result, err := a.inTurn(ctx, h, c)
	cause := context.Cause(ctx)
	if errors.Is(cause, errStopping) {
		return
	}
	if err != nil && cause != nil {
		err = errors.Join(cause, err)
	}
	then, isThen := result.(Then)
	if isThen {
		result = then.Result
		a.mu.Lock()
		a.then[c.Key] = then.Do
		a.mu.Unlock()
	}
	if err != nil {
		log.Error("failed", "error", err, "seconds", time.Since(started).Seconds())
	} else {
		log.Info("done", "seconds", time.Since(started).Seconds())
	}
	if err := a.table.end(c.Key, result, isThen, err); err != nil {
		log.Error("the outcome could not be written down", "error", err)
	}
	a.kick(a.result)
}

// inTurn waits until no other command changes the machine, then runs h with progress reports. A panic is an error.
func (a *Agent) inTurn(ctx context.Context, h Handler, c agentv1.Command) (result any, err error) {
	if !free(c.Kind) {
		select {
		case a.turn <- struct{}{}:
			defer func() { <-a.turn }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	report, stop := a.reporter(ctx, c.Key)
	defer stop()
	defer func() {
		if p := recover(); p != nil {
			a.cfg.Log.Error("a handler panicked", "key", c.Key, "panic", fmt.Sprint(p), "stack", clip(string(debug.Stack()), 4096))
			err = app.Errorf(app.Internal, "handler-panic", "the agent has a fault in %s: %.200v", c.Kind, p)
		}
	}()
	return h(ctx, c, report)
}

// cancelAttempt stops a running attempt; it is no matter when there is none.
func (a *Agent) cancelAttempt(key string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if cancel := a.cancel[key]; cancel != nil {
		a.cfg.Log.Warn("cancelling an attempt", "key", key)
		cancel(errCancelled)
	}
}

// progressEvery is the least time between two progress reports of an attempt.
const progressEvery = time.Second

// reporter gives the progress function of an attempt. A slow or absent site never holds up the work: only the latest report
// is kept, and one that cannot be delivered is dropped.
func (a *Agent) reporter(ctx context.Context, key string) (report func(agentv1.ProgressReport), stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var mu sync.Mutex // protects latest
	var latest agentv1.ProgressReport
	fresh := make(chan struct{}, 1)
	a.wg.Go(func() {
		for {
			select {
			case <-fresh:
			case <-ctx.Done():
				return
			}
			mu.Lock()
			r := latest
			mu.Unlock()
			if err := a.client.Report(ctx, agentv1.PathProgress, a.ses.Secret, r); err != nil && ctx.Err() == nil {
				a.cfg.Log.Debug("progress not delivered", "key", key, "error", err)
			}
			if !wait(ctx, progressEvery) {
				return
			}
		}
	})
	return func(r agentv1.ProgressReport) {
		r.SessionID, r.Key = a.ses.SessionID, key
		mu.Lock()
		latest = r
		mu.Unlock()
		a.kick(fresh)
	}, cancel
}
