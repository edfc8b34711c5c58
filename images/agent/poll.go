package agent

import (
	"context"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// poll asks for commands until ctx ends or the session is over. A site that is away is asked again, for ever.
func (a *Agent) poll(ctx context.Context) {
	v := session.Verifier{
		Key: a.key, MachineID: a.ses.MachineID, SessionID: a.ses.SessionID, WorkflowID: a.ses.WorkflowID, Clock: a.clock,
	}
	var b backoff
	for ctx.Err() == nil {
		resp, err := a.client.Poll(ctx, a.ses.Secret, agentv1.PollRequest{
			SessionID: a.ses.SessionID, BootID: a.boot, Attempts: a.table.states(),
		})
		if ctx.Err() != nil {
			return
		}
		if app.CodeOf(err) == app.Unauthenticated && session.Final(err) {
			a.cfg.Log.Warn("the appliance no longer knows this session", "error", err)
			return
		}
		if err != nil {
			if b.tell() {
				a.cfg.Log.Warn("the appliance does not answer", "error", err)
			}
			wait(ctx, b.next())
			continue
		}
		b.reset()
		if resp.Bye {
			return
		}
		for _, key := range resp.Cancel {
			a.cancelAttempt(key)
		}
		for _, s := range resp.Commands {
			a.take(ctx, &v, s)
		}
	}
}

// take verifies one command and starts it, or sends its result again when the table knows it. A command that is truly ours
// and refused is answered, so that nobody waits for it; what is not ours is only logged.
func (a *Agent) take(ctx context.Context, v *session.Verifier, s agentv1.SignedCommand) {
	c, err := v.Verify(s)
	if err != nil {
		a.cfg.Log.Error("refusing a command", "error", err)
		switch {
		case c.Key == "":
		case a.table.ask(c.Key): // too late to start, but it was: a site that asks again gets the truth
			a.kick(a.result)
		default:
			a.refuse(ctx, c.Key, err)
		}
		return
	}
	h := a.cfg.Handlers[c.Kind]
	if h == nil {
		a.refuse(ctx, c.Key, app.Errorf(app.Unsupported, "unknown-kind", "this agent cannot do %.80q", c.Kind).
			Do("build the ramdisk again so that it matches the appliance"))
		return
	}
	fresh, err := a.table.begin(c)
	if err != nil {
		a.refuse(ctx, c.Key, err)
		return
	}
	if !fresh {
		a.cfg.Log.Info("not running a known attempt again", "key", c.Key)
		a.kick(a.result)
		return
	}
	a.start(ctx, h, c)
}

// refuse reports a failure of a command that was not entered in the table. It is told once, best effort: the appliance
// sends the command again with the next poll when it did not hear.
func (a *Agent) refuse(ctx context.Context, key string, why error) {
	r := agentv1.ResultReport{SessionID: a.ses.SessionID, Attempt: agentv1.AttemptState{Key: key, State: stateFailed, Error: wireError(why)}}
	if err := a.client.Report(ctx, agentv1.PathResult, a.ses.Secret, r); err != nil {
		a.cfg.Log.Warn("the refusal of a command was not delivered", "key", key, "error", err)
	}
}
