package agent

import (
	"context"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// deliver sends results until each is acknowledged, and does what comes after an acknowledgement.
func (a *Agent) deliver(ctx context.Context) {
	var b backoff
	for {
		s, asked, more := a.table.undelivered()
		if !more {
			select {
			case <-a.result:
				continue
			case <-ctx.Done():
				return
			}
		}
		err := a.client.Report(ctx, agentv1.PathResult, a.ses.Secret, agentv1.ResultReport{SessionID: a.ses.SessionID, Attempt: s})
		if err != nil && ctx.Err() != nil {
			return
		}
		if err != nil && (!session.Final(err) || app.CodeOf(err) == app.Unauthenticated) {
			if b.tell() {
				a.cfg.Log.Warn("a result waits for the appliance", "key", s.Key, "error", err)
			}
			if !wait(ctx, b.next()) {
				return
			}
			continue
		}
		b.reset()
		if err != nil {
			a.cfg.Log.Error("the appliance refused a result", "key", s.Key, "error", err)
		}
		if err := a.table.acked(s.Key, asked); err != nil {
			a.cfg.Log.Error("an acknowledgement could not be written down", "error", err)
		}
		if err == nil {
			a.followUp(ctx, s.Key)
		}
	}
}

// followUp does what a handler left for after its answer. The acknowledgement is the leave to go: that the session ends
// right after it, because the appliance goes on too, changes nothing.
func (a *Agent) followUp(ctx context.Context, key string) {
	a.mu.Lock()
	do := a.then[key]
	delete(a.then, key)
	a.mu.Unlock()
	if do == nil {
		return
	}
	a.turn <- struct{}{} // nothing that changes the machine may be under way when it goes
	defer func() { <-a.turn }()
	if err := do(context.WithoutCancel(ctx)); err != nil {
		a.cfg.Log.Error("the machine stays in the ramdisk", "key", key, "error", err)
	}
}
