package agent

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"path/filepath"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// saved is the session file. A session belongs to one boot and one token; Over says that it will never answer again.
type saved struct {
	BootID    string                   `json:"bootId"`
	TokenHash string                   `json:"tokenSha256"`
	Nonce     string                   `json:"nonce"`
	Session   *agentv1.SessionResponse `json:"session,omitempty"`
	Over      bool                     `json:"over,omitempty"`
}

func (a *Agent) sessionFile() string {
	return filepath.Join(a.cfg.State, filepath.Base(agentv1.SessionPath))
}

// connect resumes the session of this boot or trades the token for one. It reports false when the token is spent and there
// is no session to be had.
func (a *Agent) connect(ctx context.Context, host Host) (live bool, err error) {
	s, err := a.loadSaved(host)
	if err != nil {
		return false, err
	}
	if s.Over {
		return false, nil
	}
	if s.Session != nil {
		a.ses = *s.Session
		a.cfg.Log.Info("resuming the session of this boot", "machine", a.ses.MachineID)
		return true, nil
	}
	resp, err := a.trade(ctx, host, s.Nonce, nil)
	if err != nil || resp == nil {
		return false, err
	}
	if resp.SessionID == "" || resp.Secret == "" {
		return false, app.Errorf(app.Unavailable, session.ReasonBadAnswer, "the appliance took the token and gave no session")
	}
	s.Session, a.ses = resp, *resp
	if err := session.WriteFile(a.sessionFile(), s); err != nil {
		return false, err
	}
	a.cfg.Log.Info("connected to the appliance", "machine", a.ses.MachineID, "workflow", a.ses.WorkflowID)
	return true, nil
}

// loadSaved reads the session file, or starts one with a fresh nonce: the nonce is on disk before the first trade.
func (a *Agent) loadSaved(host Host) (*saved, error) {
	sum := sha256.Sum256([]byte(a.cfg.Boot.Token))
	want := saved{BootID: host.BootID, TokenHash: hex.EncodeToString(sum[:])}
	var s saved
	found, err := session.ReadFile(a.sessionFile(), &s)
	if err != nil {
		return nil, fmt.Errorf("resuming: %w", err)
	}
	if found && s.BootID == want.BootID && s.TokenHash == want.TokenHash && s.Nonce != "" {
		return &s, nil
	}
	var nonce [32]byte
	_, _ = rand.Read(nonce[:]) // crypto/rand.Read never fails since Go 1.24
	want.Nonce = hex.EncodeToString(nonce[:])
	return &want, session.WriteFile(a.sessionFile(), &want)
}

// trade offers the token until the site answers. A refusal ends it with nil: the token is no good, and offering it again
// would only raise an alarm.
func (a *Agent) trade(ctx context.Context, host Host, nonce string, found *agentv1.Inventory) (*agentv1.SessionResponse, error) {
	req := agentv1.SessionRequest{
		Token: a.cfg.Boot.Token, Nonce: nonce, BootID: host.BootID, MACs: host.MACs, UUID: host.UUID,
		Version: a.cfg.Version, Firmware: host.Firmware, Discovery: found, Drivers: agentv1.RamdiskDrivers(),
	}
	var b backoff
	for {
		resp, err := a.client.Session(ctx, req)
		if err == nil {
			return &resp, nil
		}
		if ctx.Err() != nil {
			return nil, nil
		}
		if session.Final(err) {
			a.cfg.Log.Error("the appliance refused this boot", "error", err)
			return nil, nil
		}
		if b.tell() {
			a.cfg.Log.Warn("waiting for the appliance", "error", err)
		}
		if !wait(ctx, b.next()) {
			return nil, nil
		}
	}
}

// markOver notes in the session file that the session has ended.
func (a *Agent) markOver() error {
	var s saved
	if _, err := session.ReadFile(a.sessionFile(), &s); err != nil {
		return err
	}
	s.Over = true
	return session.WriteFile(a.sessionFile(), &s)
}

// discover sends the one inventory of a machine nobody enrolled.
func (a *Agent) discover(ctx context.Context, host Host) error {
	take := a.cfg.Handlers[agentv1.KindInventory]
	if take == nil {
		return app.Errorf(app.Unsupported, "no-inventory", "this agent takes no inventory")
	}
	result, err := take(ctx, agentv1.Command{Kind: agentv1.KindInventory}, func(agentv1.ProgressReport) {})
	if err != nil {
		return fmt.Errorf("taking the inventory: %w", err)
	}
	b, err := json.Marshal(result)
	if err != nil {
		return fmt.Errorf("encoding the inventory: %w", err)
	}
	var inv agentv1.Inventory
	if err := json.Unmarshal(b, &inv); err != nil {
		return fmt.Errorf("decoding the inventory: %w", err)
	}
	if _, err := a.trade(ctx, host, "", &inv); err != nil {
		return err
	}
	return a.idle(ctx)
}
