package agent

import (
	"context"
	"crypto/hmac"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Session trades a boot token for a session.
func (s *Service) Session(ctx context.Context, req agentv1.SessionRequest, remote string) (agentv1.SessionResponse, error) {
	var none agentv1.SessionResponse
	key, _, ok := strings.Cut(req.Token, ".")
	if !ok || !hmac.Equal([]byte(req.Token), []byte(s.token(key))) {
		s.refuse(remote)
		return none, app.Errorf(app.Unauthenticated, "token-unknown", "this site did not make that boot token")
	}
	b, err := s.cfg.Store.Boot(ctx, key)
	if err != nil {
		return none, err
	}
	if s.cfg.Identify != nil {
		if err := s.cfg.Identify(ctx, b.MachineID, req); err != nil {
			return none, s.turnAway(ctx, b, remote, err)
		}
	}
	now := s.cfg.Now().UTC()
	// Both come from the boot, the agent's nonce and the kernel's boot id: the same trade, repeated because its answer was
	// lost, finds the same session; any other trade does not.
	trade := key + "\x00" + req.Nonce + "\x00" + req.BootID
	secret := hex.EncodeToString(derive(s.cfg.SiteKey, "agent-session-secret", trade))
	ses := &app.AgentSession{
		ID: "ses-" + hex.EncodeToString(derive(s.cfg.SiteKey, "agent-session-id", trade)[:10]), SecretHash: hash(secret), BootKey: key, MachineID: b.MachineID, WorkflowID: b.WorkflowID,
		BootID: limit(req.BootID, 64), Firmware: firmware(req.Firmware), Created: now,
	}
	resp := agentv1.SessionResponse{SessionID: ses.ID, Secret: secret, MachineID: b.MachineID, WorkflowID: b.WorkflowID, ServerTime: now}
	if err := s.cfg.Store.SpendBoot(ctx, ses, now); err != nil {
		if old, oerr := s.cfg.Store.AgentSession(ctx, ses.ID); oerr == nil && old.Ended.IsZero() && req.Nonce != "" {
			return resp, nil
		}
		if app.CodeOf(err) == app.Conflict {
			s.alarm(ctx, b, remote, app.Errorf(app.Conflict, "boot-token-reused", "the boot token of this power-on was traded a second time, from %s", remote).
				Do("check that no other machine uses this machine's address on the provisioning network, then retry"))
		}
		return none, err
	}
	s.mu.Lock()
	l := s.sessions[ses.ID]
	if l == nil { // else a step saw the session in the store and has a command waiting already
		l = newLive(ses.MachineID)
		s.sessions[ses.ID] = l
	}
	l.seen = now
	s.mu.Unlock()
	if s.cfg.Advertised != nil {
		s.cfg.Advertised(ctx, b.MachineID, labels(req.Drivers))
	}
	s.up(ses, remote)
	s.cfg.Signal(b.MachineID, SignalUp, ses)
	return resp, nil
}

// turnAway tells the workflow that another machine came in place of its own. It is written down: the step that waits for the
// agent may not have begun.
func (s *Service) turnAway(ctx context.Context, b *app.Boot, remote string, err error) error {
	why, ok := app.AsError(err)
	if !ok || why.Code != app.Conflict {
		return err
	}
	if err := s.cfg.Store.RefuseBoot(ctx, b.Key, why); err != nil {
		return err
	}
	s.alarm(ctx, b, remote, why)
	return why
}

// alarm tells the workflow that somebody else holds its token, unless the boot was simply over.
func (s *Service) alarm(ctx context.Context, b *app.Boot, remote string, err *app.Error) {
	if !b.Revoked.IsZero() {
		s.event("warn", "agent.refused", b.MachineID, b.WorkflowID, fmt.Sprintf("a machine at %s came with the token of a boot that is over", remote))
		return
	}
	s.event("error", "agent.alarm", b.MachineID, b.WorkflowID, err.Message)
	if ses, serr := s.cfg.Store.LiveAgentSession(ctx, b.MachineID); serr == nil {
		s.mu.Lock()
		if l := s.sessions[ses.ID]; l != nil {
			l.alarm = err
			l.wake()
		}
		s.mu.Unlock()
	}
	s.cfg.Signal(b.MachineID, SignalAlarm, err)
}

func firmware(s string) app.Firmware {
	if s == string(app.FirmwareUEFI) {
		return app.FirmwareUEFI
	}
	return app.FirmwareBIOS
}

func limit(s string, n int) string {
	if len(s) > n {
		return s[:n]
	}
	return s
}

// auth finds the session of a call by its bearer secret. A session that ended gives a nil live and no error.
func (s *Service) auth(ctx context.Context, id, secret string) (*app.AgentSession, *live, error) {
	ses, err := s.cfg.Store.AgentSession(ctx, id)
	if err != nil || !hmac.Equal([]byte(ses.SecretHash), []byte(hash(secret))) {
		return nil, nil, app.Errorf(app.Unauthenticated, "session-unknown", "no such agent session")
	}
	if !ses.Ended.IsZero() {
		s.mu.Lock()
		delete(s.sessions, id)
		s.mu.Unlock()
		return ses, nil, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.sessions[id]
	if l == nil { // this process restarted: the agent's next poll tells its table
		l = newLive(ses.MachineID)
		s.sessions[id] = l
	}
	l.seen = s.cfg.Now()
	return ses, l, nil
}

// Poll waits up to agentv1.PollSeconds for commands. The agent's table of attempts replaces ours.
func (s *Service) Poll(ctx context.Context, req agentv1.PollRequest, secret string) (agentv1.PollResponse, error) {
	ses, l, err := s.auth(ctx, req.SessionID, secret)
	if err != nil {
		return agentv1.PollResponse{}, err
	}
	if l == nil || ses.BootID != limit(req.BootID, 64) {
		return agentv1.PollResponse{ServerTime: s.cfg.Now().UTC(), Bye: true}, nil
	}
	s.learn(l, req.Attempts)
	timer := time.NewTimer(agentv1.PollSeconds * time.Second)
	defer timer.Stop()
	for {
		s.mu.Lock()
		resp := agentv1.PollResponse{ServerTime: s.cfg.Now().UTC()}
		for key, c := range l.pending {
			if _, known := l.attempts[key]; !known && !l.sent[key] {
				resp.Commands = append(resp.Commands, c)
				l.sent[key] = true
			}
		}
		for key := range l.cancel {
			resp.Cancel = append(resp.Cancel, key)
			delete(l.cancel, key)
		}
		changed := l.changed
		l.seen = s.cfg.Now()
		s.mu.Unlock()
		if len(resp.Commands)+len(resp.Cancel) > 0 {
			return resp, nil
		}
		select {
		case <-changed:
			if now, err := s.cfg.Store.AgentSession(ctx, req.SessionID); err != nil || !now.Ended.IsZero() {
				return agentv1.PollResponse{ServerTime: s.cfg.Now().UTC(), Bye: true}, nil
			}
		case <-timer.C:
			return resp, nil
		case <-ctx.Done():
			return resp, ctx.Err()
		}
	}
}

// learn takes over the agent's table. A command sent in a poll whose answer was lost is not in it: it is sent again. The
// table may be older than a result that came by itself meanwhile: what has ended stays ended.
func (s *Service) learn(l *live, table []agentv1.AttemptState) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.polled = true
	clear(l.sent)
	for i, a := range table {
		if i == maxAttempts {
			break
		}
		if lost(a) && l.rerun[a.Key] {
			continue // it polled before it had the new order
		}
		if a.State == "done" && a.Unreported {
			a = agentv1.AttemptState{Key: a.Key, State: "running"} // its report follows, and the agent waits for our answer
		}
		if old, known := l.attempts[a.Key]; known && old.State != "running" {
			continue
		}
		if !l.keep(a) {
			break
		}
	}
	l.wake()
}

// Progress takes a report about a running attempt.
func (s *Service) Progress(ctx context.Context, r agentv1.ProgressReport, secret string) (agentv1.Ack, error) {
	_, l, err := s.auth(ctx, r.SessionID, secret)
	if err != nil || l == nil {
		return agentv1.Ack{}, err
	}
	s.mu.Lock()
	f := l.progress[r.Key]
	s.mu.Unlock()
	if f != nil {
		f(r)
	}
	return agentv1.Ack{OK: true}, nil
}

// Result takes the end of an attempt. It is refused once the session is over: the answer is the agent's leave to jump or
// reboot, which a workflow that has ended does not give.
func (s *Service) Result(ctx context.Context, r agentv1.ResultReport, secret string) (agentv1.Ack, error) {
	_, l, err := s.auth(ctx, r.SessionID, secret)
	if err != nil {
		return agentv1.Ack{}, err
	}
	if l == nil {
		return agentv1.Ack{}, app.Errorf(app.Conflict, "agent-session-over", "the session of this boot is over")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !l.keep(r.Attempt) {
		return agentv1.Ack{}, app.Errorf(app.TooLarge, "too-many-attempts", "this session told of more attempts than one may have")
	}
	l.wake()
	return agentv1.Ack{OK: true}, nil
}

// Log puts lines of the agent on the machine's timeline: at most 100 of 1 KiB each a call.
func (s *Service) Log(ctx context.Context, r agentv1.LogReport, secret string) (agentv1.Ack, error) {
	ses, _, err := s.auth(ctx, r.SessionID, secret)
	if err != nil {
		return agentv1.Ack{}, err
	}
	for i, line := range r.Lines {
		if i == 100 {
			break
		}
		s.event("info", "agent.log", ses.MachineID, ses.WorkflowID, limit(line, 1024))
	}
	return agentv1.Ack{OK: true}, nil
}
