package session_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

var (
	signer   = ed25519.NewKeyFromSeed(make([]byte, 32))
	stranger = ed25519.NewKeyFromSeed(append(make([]byte, 31), 1))
	instant  = time.Date(2031, 4, 5, 6, 7, 8, 0, time.UTC)
)

func command() agentv1.Command {
	payload := []byte(`{"disk":{"serial":"A","bytes":1,"sectorSize":512}}`)
	sum := sha256.Sum256(payload)
	return agentv1.Command{
		Key: "wf:1:write#0", Kind: agentv1.KindWrite, MachineID: "m1", SessionID: "s1", WorkflowID: "w1", StepID: "write",
		NotAfter: instant.Add(time.Minute), Payload: payload, PayloadSHA256: hex.EncodeToString(sum[:]),
	}
}

func sign(key ed25519.PrivateKey, context string, c agentv1.Command) agentv1.SignedCommand {
	b, _ := json.Marshal(c)
	return agentv1.SignedCommand{Command: b, Signature: ed25519.Sign(key, append([]byte(context), b...))}
}

// verifier knows that the server's time is instant plus mono.
func verifier(mono *time.Duration) *session.Verifier {
	clock := session.NewClock(func() time.Duration { return *mono })
	clock.Observe(instant)
	return &session.Verifier{Key: signer.Public().(ed25519.PublicKey), MachineID: "m1", SessionID: "s1", WorkflowID: "w1", Clock: clock}
}

func TestVerify(t *testing.T) {
	change := func(f func(*agentv1.Command)) agentv1.SignedCommand {
		c := command()
		f(&c)
		return sign(signer, agentv1.SigningContext, c)
	}
	good := change(func(*agentv1.Command) {})
	resigned := append(append([]byte{}, good.Command[:len(good.Command)-1]...), ' ', '}') // the same JSON in other bytes
	tests := []struct {
		name   string
		in     agentv1.SignedCommand
		reason string
		key    bool // the refusal names the key
	}{
		{"good", good, "", true},
		{"unsigned", agentv1.SignedCommand{Command: good.Command}, "command-unsigned", false},
		{"wrong key", sign(stranger, agentv1.SigningContext, command()), "command-signature", false},
		{"signed for another purpose", sign(signer, "", command()), "command-signature", false},
		{"other bytes of the same JSON", agentv1.SignedCommand{Command: resigned, Signature: good.Signature}, "command-signature", false},
		{"short signature", agentv1.SignedCommand{Command: good.Command, Signature: good.Signature[:10]}, "command-signature", false},
		{"other machine", change(func(c *agentv1.Command) { c.MachineID = "m2" }), "command-not-ours", false},
		{"other session", change(func(c *agentv1.Command) { c.SessionID = "s2" }), "command-not-ours", false},
		{"other workflow", change(func(c *agentv1.Command) { c.WorkflowID = "w2" }), "command-not-ours", false},
		{"no key", change(func(c *agentv1.Command) { c.Key = "" }), "command-malformed", false},
		{"expired", change(func(c *agentv1.Command) { c.NotAfter = instant.Add(-time.Nanosecond) }), "command-expired", true},
		{"no expiry", change(func(c *agentv1.Command) { c.NotAfter = time.Time{} }), "command-expired", true},
		{"payload changed", change(func(c *agentv1.Command) { c.Payload = []byte(`{"disk":{"serial":"B"}}`) }), "command-payload", true},
		{"digest missing", change(func(c *agentv1.Command) { c.PayloadSHA256 = "" }), "command-payload", true},
		{"oversize", agentv1.SignedCommand{Command: make([]byte, agentv1.MaxBody+1), Signature: good.Signature}, "command-too-large", false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var mono time.Duration
			c, err := verifier(&mono).Verify(tt.in)
			e, _ := app.AsError(err)
			if (tt.reason == "") != (err == nil) || (e != nil && e.Reason != tt.reason) {
				t.Fatalf("got %v, want reason %q", err, tt.reason)
			}
			if (c.Key != "") != tt.key {
				t.Errorf("key %q", c.Key)
			}
			if err != nil && c.Kind != "" {
				t.Error("a refused command came back whole")
			}
		})
	}
}

func TestExpiryFollowsMonotonicTime(t *testing.T) {
	var mono time.Duration
	v := verifier(&mono)
	s := sign(signer, agentv1.SigningContext, command())
	mono = 59 * time.Second
	if _, err := v.Verify(s); err != nil {
		t.Errorf("before its expiry: %v", err)
	}
	mono = 61 * time.Second
	if _, err := v.Verify(s); err == nil {
		t.Error("accepted past its expiry")
	}
	v.Clock = session.NewClock(nil) // no server time known: the wall clock must not stand in
	if _, err := v.Verify(s); err == nil {
		t.Error("accepted without a server time")
	}
}

func FuzzVerify(f *testing.F) {
	c := sign(signer, agentv1.SigningContext, command())
	f.Add(c.Command, c.Signature)
	f.Add([]byte(`{}`), []byte{})
	f.Fuzz(func(t *testing.T, b, sig []byte) {
		var mono time.Duration
		v := verifier(&mono)
		if got, err := v.Verify(agentv1.SignedCommand{Command: b, Signature: sig}); err == nil && string(b) != string(c.Command) {
			t.Errorf("accepted %+v", got)
		}
		// Correctly signed garbage must not get through or panic either.
		signed := agentv1.SignedCommand{Command: b, Signature: ed25519.Sign(signer, append([]byte(agentv1.SigningContext), b...))}
		if got, err := v.Verify(signed); err == nil && (got.MachineID != "m1" || got.SessionID != "s1" || got.WorkflowID != "w1" || got.Key == "") {
			t.Errorf("accepted %+v", got)
		}
	})
}
