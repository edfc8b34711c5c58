package agent

import (
	"context"
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

var _ workflow.Agents = (*Service)(nil)

// tableWait is how long Lookup waits for an agent to tell its table after this process restarted: a poll and its back-off.
const tableWait = lateAfter

// Deliver hands a command to the machine's agent and waits for its end. Delivering a key again is harmless: an agent that
// knows it answers from its table. A machine that is off while its agent is late ends the wait.
func (s *Service) Deliver(ctx context.Context, c workflow.Command, progress func(workflow.Progress)) (json.RawMessage, error) {
	ses, err := s.session(ctx, c)
	if err != nil {
		return nil, err
	}
	l, err := s.enqueue(ses.ID, c, progress)
	if err != nil {
		return nil, err
	}
	defer s.forget(l, c.Key)
	o := outage{late: s.cfg.Late, since: s.cfg.Now()}
	ask := time.NewTicker(o.late / asksPerLate)
	defer ask.Stop()
	for {
		s.mu.Lock()
		a, known := l.attempts[c.Key]
		changed, alarm := l.changed, l.alarm
		s.mu.Unlock()
		if alarm != nil {
			return nil, alarm
		}
		if known && a.State != "running" {
			return a.Result, fault(a)
		}
		select {
		case <-changed:
			now, err := s.cfg.Store.AgentSession(ctx, ses.ID)
			if err == nil && !now.Ended.IsZero() {
				return nil, app.Errorf(app.Interrupted, "agent-session-over", "the agent's boot ended while %s was under way", c.Kind).
					Do("retry to boot the ramdisk again")
			}
		case <-ask.C:
			if s.lostPower(ctx, l, c, &o) {
				return nil, machineOff(c)
			}
		case <-ctx.Done():
			return nil, s.silence(ctx, l, c, &o)
		}
	}
}

// session finds the live session of the command's workflow.
func (s *Service) session(ctx context.Context, c workflow.Command) (*app.AgentSession, error) {
	ses, err := s.cfg.Store.LiveAgentSession(ctx, c.MachineID)
	if app.CodeOf(err) == app.NotFound || (err == nil && ses.WorkflowID != c.WorkflowID) {
		return nil, app.Errorf(app.Unavailable, "agent-not-up", "no agent of this workflow is connected, so %s cannot run", c.Kind).
			Do("retry to boot the ramdisk again")
	}
	return ses, err
}

// lost reports whether the agent restarted in mid-attempt, so that only the engine can say whether it may run again.
func lost(a agentv1.AttemptState) bool {
	return a.State == "failed" && a.Error != nil && a.Error.Reason == agentv1.ReasonAgentRestarted
}

func (s *Service) signed(c workflow.Command, session string, run int) (agentv1.SignedCommand, error) {
	payload := c.Payload
	if len(payload) == 0 {
		payload = json.RawMessage("{}")
	}
	payload, err := json.Marshal(payload) // the very bytes that encoding the command puts into it
	if err != nil {
		return agentv1.SignedCommand{}, fmt.Errorf("encoding payload of %s: %w", c.Key, err)
	}
	sum := sha256.Sum256(payload)
	body, err := json.Marshal(agentv1.Command{
		Key: c.Key, Kind: c.Kind, MachineID: c.MachineID, SessionID: session, WorkflowID: c.WorkflowID, StepID: c.StepID,
		Attempt: c.Attempt, Run: run, NotAfter: c.NotAfter, TraceParent: c.TraceParent, Payload: payload, PayloadSHA256: hex.EncodeToString(sum[:]),
	})
	if err != nil {
		return agentv1.SignedCommand{}, fmt.Errorf("encoding command %s: %w", c.Key, err)
	}
	return agentv1.SignedCommand{Command: body, Signature: ed25519.Sign(s.sign, append([]byte(agentv1.SigningContext), body...))}, nil
}

// enqueue puts a command where the next poll finds it. One that the agent lost in a restart is ordered anew: that the
// engine delivers it again means that it may run again.
func (s *Service) enqueue(session string, c workflow.Command, progress func(workflow.Progress)) (*live, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sessions[session]
	if l == nil {
		l = newLive(c.MachineID)
		s.sessions[session] = l
	}
	run := 0
	if a, known := l.attempts[c.Key]; known && lost(a) {
		run = int(s.cfg.Now().Unix()) // rises, over restarts of this process too
		l.rerun[c.Key] = true
		delete(l.attempts, c.Key)
		delete(l.sent, c.Key)
	}
	signed, err := s.signed(c, session, run)
	if err != nil {
		return nil, err
	}
	l.pending[c.Key] = signed
	l.progress[c.Key] = func(r agentv1.ProgressReport) {
		progress(workflow.Progress{Phase: limit(r.Phase, 64), Message: limit(r.Message, 256), Done: r.Done, Total: r.Total, Unit: limit(r.Unit, 16), At: s.cfg.Now().UTC()})
	}
	l.wake()
	return l, nil
}

func (s *Service) forget(l *live, key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(l.pending, key)
	delete(l.progress, key)
}

// silence is the error of a delivery whose context ended: the cause, and how long the agent has been silent.
func (s *Service) silence(ctx context.Context, l *live, c workflow.Command, o *outage) error {
	s.mu.Lock()
	quiet := o.quiet(l.seen, s.cfg.Now()).Round(time.Second)
	s.mu.Unlock()
	if quiet > 60*time.Second {
		return app.Errorf(app.Timeout, "agent-silent", "the agent has not called for %s while %s was under way", quiet, c.Kind).
			Do("look at the machine's console, then retry or abort")
	}
	return context.Cause(ctx)
}

func fault(a agentv1.AttemptState) error {
	if a.State == "done" {
		return nil
	}
	if a.Error == nil {
		return app.Errorf(app.Internal, "agent-failed", "the agent failed without saying why")
	}
	return attemptError(a.Error)
}

func attemptError(e *agentv1.Error) *app.Error {
	return &app.Error{Code: app.Code(limit(e.Code, 32)), Reason: limit(e.Reason, 64), Message: limit(e.Message, 1024), WayOut: limit(e.WayOut, 512), Retry: e.Retryable}
}

// Lookup asks the agent's table of attempts, waiting for its next poll when this process has not heard one yet. A poll
// comes after the agent entered what the poll before brought, so a key that is not in its table was never begun.
func (s *Service) Lookup(ctx context.Context, c workflow.Command) (workflow.Attempt, bool, error) {
	ses, err := s.cfg.Store.LiveAgentSession(ctx, c.MachineID)
	if app.CodeOf(err) == app.NotFound || (err == nil && ses.WorkflowID != c.WorkflowID) {
		return workflow.Attempt{}, false, nil
	}
	if err != nil {
		return workflow.Attempt{}, false, err
	}
	s.mu.Lock()
	l := s.sessions[ses.ID]
	if l == nil {
		l = newLive(ses.MachineID)
		s.sessions[ses.ID] = l
	}
	s.mu.Unlock()
	timer := time.NewTimer(tableWait)
	defer timer.Stop()
	for {
		s.mu.Lock()
		a, known := l.attempts[c.Key]
		polled, changed := l.polled, l.changed
		s.mu.Unlock()
		if known && lost(a) {
			return workflow.Attempt{}, false, nil
		}
		if known {
			return attempt(a), true, nil
		}
		if polled {
			return workflow.Attempt{State: workflow.Absent}, true, nil
		}
		select {
		case <-changed:
			if now, err := s.cfg.Store.AgentSession(ctx, ses.ID); err != nil || !now.Ended.IsZero() {
				return workflow.Attempt{}, false, err
			}
		case <-timer.C:
			return workflow.Attempt{}, false, nil
		case <-ctx.Done():
			return workflow.Attempt{}, false, ctx.Err()
		}
	}
}

func attempt(a agentv1.AttemptState) workflow.Attempt {
	out := workflow.Attempt{State: a.State, Result: a.Result}
	if a.Error != nil {
		out.Error = attemptError(a.Error)
	}
	return out
}

// Cancel asks the agent to stop an attempt.
func (s *Service) Cancel(ctx context.Context, c workflow.Command) {
	ses, err := s.cfg.Store.LiveAgentSession(ctx, c.MachineID)
	if err != nil || ses.WorkflowID != c.WorkflowID {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.sessions[ses.ID]; l != nil {
		l.cancel[c.Key] = true
		delete(l.pending, c.Key)
		l.wake()
	}
}
