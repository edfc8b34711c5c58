package session

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Limits of a command, in bytes.
const (
	maxCommand = agentv1.MaxBody
	maxKey     = 512
)

// Verifier decides whether a command may run on this machine, in this session.
type Verifier struct {
	Key        ed25519.PublicKey // of the boot data
	MachineID  string
	SessionID  string
	WorkflowID string
	Clock      *Clock
}

// Verify checks the signature over the exact bytes that travelled, then what they say. The reasons of its refusals are
// command-too-large, command-unsigned, command-signature, command-malformed, command-not-ours, command-expired and
// command-payload. With an error the command is empty, except when it is ours and merely too late or damaged: then it holds
// the key, so that the refusal can be told. Whether the key was seen before is for the table of attempts to say.
func (v *Verifier) Verify(s agentv1.SignedCommand) (agentv1.Command, error) {
	var none agentv1.Command
	if err := v.checkSignature(s); err != nil {
		return none, err
	}
	var c agentv1.Command
	if err := json.Unmarshal(s.Command, &c); err != nil {
		return none, refuse("command-malformed", "the command cannot be decoded: %w", err)
	}
	if c.Key == "" || len(c.Key) > maxKey || c.Kind == "" || len(c.Kind) > maxKey || c.Run < 0 {
		return none, refuse("command-malformed", "the command has no usable key or kind")
	}
	if c.MachineID != v.MachineID {
		return none, refuse("command-not-ours", "the command is for machine %.80q", c.MachineID)
	}
	if c.SessionID != v.SessionID {
		return none, refuse("command-not-ours", "the command is for another session of this machine")
	}
	if c.WorkflowID != v.WorkflowID {
		return none, refuse("command-not-ours", "the command is for workflow %.80q", c.WorkflowID)
	}
	sum := sha256.Sum256(c.Payload)
	if !strings.EqualFold(hex.EncodeToString(sum[:]), c.PayloadSHA256) {
		return agentv1.Command{Key: c.Key}, refuse("command-payload", "the command's payload is not the one its digest names")
	}
	if err := v.checkExpiry(c); err != nil {
		return agentv1.Command{Key: c.Key}, err
	}
	return c, nil
}

func (v *Verifier) checkSignature(s agentv1.SignedCommand) error {
	if len(s.Command) > maxCommand {
		return refuse("command-too-large", "the command has %d bytes, the limit is %d", len(s.Command), maxCommand)
	}
	if len(s.Signature) == 0 {
		return refuse("command-unsigned", "the command carries no signature")
	}
	signed := append([]byte(agentv1.SigningContext), s.Command...)
	if len(v.Key) != ed25519.PublicKeySize || !ed25519.Verify(v.Key, signed, s.Signature) {
		return refuse("command-signature", "the command is not signed by the key this machine was booted with")
	}
	return nil
}

// checkExpiry refuses a command past NotAfter by the server's time; without a known server time or expiry it refuses too.
func (v *Verifier) checkExpiry(c agentv1.Command) error {
	now, known := v.Clock.Now()
	if !known || c.NotAfter.IsZero() {
		return refuse("command-expired", "the command's expiry cannot be judged")
	}
	if now.After(c.NotAfter) {
		return refuse("command-expired", "the command expired %s ago by the appliance's clock", now.Sub(c.NotAfter).Round(1e6))
	}
	return nil
}

func refuse(reason, format string, args ...any) error {
	return app.Errorf(app.Forbidden, reason, format, args...).Do("let the appliance send the command again")
}
