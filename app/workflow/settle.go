package workflow

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/better-compute/bcd/app"
)

const (
	checkTries = 5 // of a check, or a look-up, that fails: a BMC is often away for some seconds
	checkPause = time.Second
)

// settle finds out about an attempt that was begun and whose end nobody saw. settled: result or err is its end. Not
// settled and no error: it may be done (again) with the same key. errUndecided: a person must say.
func (a *attempt) settle() (result json.RawMessage, settled bool, err error) {
	if a.step.On == OnAgent {
		if result, settled, err = a.settleOnAgent(); settled || err != nil || a.delivered == "" || a.unbegun {
			return result, settled, err
		}
	}
	verdict, result, err := a.check()
	switch {
	case err != nil:
		return nil, false, err
	case verdict == Happened:
		return result, true, nil
	case verdict == NotHappened, a.step.RetrySafe, a.step.Rewrites:
		if a.step.On == OnSite {
			return nil, false, a.note("redeliver", nil)
		}
		return nil, false, nil // deliver journals, and refuses another payload
	}
	return nil, false, errUndecided
}

// settleOnAgent asks the agent's table of attempts, unless the command never left: then nothing can have happened.
func (a *attempt) settleOnAgent() (result json.RawMessage, settled bool, err error) {
	if a.delivered == "" {
		err := a.patiently(func() (err error) { a.delivered, err = a.lastDelivery(); return err })
		if err != nil || a.delivered == "" {
			return nil, false, err
		}
	}
	return a.askAgent()
}

// lastDelivery reads from the journal which payload was delivered under the attempt's key, "" when none was.
func (a *attempt) lastDelivery() (digest string, err error) {
	entries, err := a.r.e.store.Journal(a.ctx, a.r.id)
	for _, e := range entries {
		if e.StepID == a.step.ID && e.Attempt == a.step.Attempt && (e.What == "deliver" || e.What == "redeliver") {
			var d delivery
			if json.Unmarshal(e.Data, &d) == nil && d.PayloadSHA256 != "" {
				digest = d.PayloadSHA256
			}
		}
	}
	return digest, err
}

// askAgent looks the key up in the agent's table of attempts. A running attempt is waited for.
func (a *attempt) askAgent() (result json.RawMessage, settled bool, err error) {
	a.unbegun = false
	var at *Attempt
	err = a.patiently(func() error {
		found, err := bounded(a.ctx, func() (any, error) {
			at, known, err := a.r.e.agents.Lookup(a.ctx, a.cmd)
			if !known {
				return (*Attempt)(nil), err
			}
			return &at, err
		})
		if err == nil {
			at = found.(*Attempt)
		}
		return err
	})
	if a.ctx.Err() != nil {
		return nil, false, context.Cause(a.ctx)
	}
	if err != nil || at == nil {
		return nil, false, nil // an agent that cannot be asked tells nothing; one that lives refuses a key it knows
	}
	if err := a.note("check", map[string]any{"agent": at.State}); err != nil {
		return nil, false, err
	}
	switch at.State {
	case "done":
		return at.Result, true, nil
	case "failed":
		if at.Error == nil {
			at.Error = app.Errorf(app.Unavailable, "agent-failed", "the agent failed without saying why")
		}
		return nil, true, at.Error
	}
	if at.State == Absent {
		a.unbegun = true
		return nil, false, nil
	}
	if err := a.prepare(); err != nil {
		return nil, false, err
	}
	result, err = a.await() // the same key: the agent answers for the attempt it runs
	if app.CodeOf(err) == app.Interrupted && a.ctx.Err() == nil {
		a.doubt = err.Error()
		return nil, false, nil
	}
	return result, true, err
}

// check asks the step's own check whether the effect is there.
func (a *attempt) check() (Verdict, json.RawMessage, error) {
	if a.kind.Check == nil {
		return Unknown, nil, nil
	}
	verdict := Unknown
	var result json.RawMessage
	err := a.patiently(func() (err error) {
		var found Verdict
		result, err = a.outcome(func() (v any, err error) {
			found, v, err = a.kind.Check(a.ctx, a)
			return v, err
		})
		if err == nil {
			verdict = found
		}
		return err
	})
	if a.ctx.Err() != nil {
		return Unknown, nil, context.Cause(a.ctx)
	}
	line := map[string]any{"verdict": verdict}
	if err != nil {
		a.doubt = "the check failed: " + a.explain(err, nil).Error()
		line["error"] = a.doubt
	}
	return verdict, result, a.note("check", line)
}

// patiently tries f a few times, waiting longer each time.
func (a *attempt) patiently(f func() error) (err error) {
	for i := range checkTries {
		if err = f(); err == nil || errors.Is(err, errAbandoned) {
			return err
		}
		if i < checkTries-1 && !pause(a.ctx, checkPause<<i) {
			return context.Cause(a.ctx)
		}
	}
	return err
}

// undecided is the question to the operator.
func (a *attempt) undecided() *app.Error {
	doubt := ""
	if a.doubt != "" {
		doubt = " (" + a.doubt + ")"
	}
	way := "look at the machine: mark the step done if its effect is there, retry to do it again, or abort"
	if a.step.Destructive {
		way += "; a retry repeats an action that cannot be undone"
	}
	return app.Errorf(app.Interrupted, "end-unknown", "bcd cannot tell whether %q happened before it was interrupted%s", a.step.Title, doubt).Do("%s", way)
}
