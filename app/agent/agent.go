// Package agent is the site's side of ramdisk agents: boot tokens, sessions, signed delivery of commands, and the table of
// attempts that lets the engine ask again with the same key.
//
// A boot is minted per machine, workflow and power-on. Its token is an HMAC of its key under the site key, so the database
// holds nothing an attacker could trade. The token buys one session; a second trade ends the workflow with an alarm.
package agent

import (
	"context"
	"crypto/ed25519"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Signal names sent through Config.Signal.
const (
	SignalUp    = "agent.up"    // data: *app.AgentSession
	SignalAlarm = "agent.alarm" // data: error, a token was traded twice
)

// What a machine may make this process remember and write down. A ramdisk is a stranger with a token: an honest one has a
// dozen attempts, of which one carries an inventory.
const (
	maxAttempts   = 256     // of one session
	maxTable      = 8 << 20 // bytes of their results
	refusalsEvery = 10 * time.Second
)

// Config of a Service. A field whose zero value is not explained is required.
type Config struct {
	Store   app.AgentStore
	SiteKey []byte // 32 bytes, secret, stable over restarts
	// URLs gives the base URLs of the agent listener (https) and the boot-file listener (http) at a local address.
	URLs     func(address string) (site, boot []string)
	AgentPin string // hex SHA-256 of the agent listener's SubjectPublicKeyInfo
	Signal   func(machineID, name string, data any)
	Record   func(app.Event)
	// Identify refuses a ramdisk that runs in another machine than its token is for, as that says who it is: nothing has
	// been done to it then. nil: all are believed.
	Identify func(ctx context.Context, machineID string, req agentv1.SessionRequest) error
	// Advertised is told which drivers a machine's ramdisk carries, as labels; nil: nobody.
	Advertised func(ctx context.Context, machineID string, labels map[string]string)
	// Power asks a machine's BMC; nil: nobody can.
	Power func(ctx context.Context, machineID string) (app.Power, error)
	// Late is how long an agent may be silent until its machine's power is asked for; 0: as built in.
	Late time.Duration
	Log  *slog.Logger
	Now  func() time.Time // time.Now when nil
}

// Service holds sessions and deliveries. It is safe for concurrent use.
type Service struct {
	cfg  Config
	sign ed25519.PrivateKey

	mu       sync.Mutex
	sessions map[string]*live // by session id
	refused  time.Time        // when a refusal was last written down
	unsaid   int              // refusals since
}

// live is the memory of one session: what the agent said it did and what waits for it.
type live struct {
	machine  string
	attempts map[string]agentv1.AttemptState
	pending  map[string]agentv1.SignedCommand
	sent     map[string]bool
	cancel   map[string]bool
	rerun    map[string]bool // ordered again after the agent lost the attempt in a restart of its own
	progress map[string]func(agentv1.ProgressReport)
	polled   bool          // since this process started
	alarm    error         // somebody else came with this session's token
	seen     time.Time     // last call of any kind
	changed  chan struct{} // closed and replaced on every change
}

// New makes a Service.
func New(cfg Config) *Service {
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Late == 0 {
		cfg.Late = lateAfter
	}
	seed := derive(cfg.SiteKey, "command-signing", "")
	return &Service{cfg: cfg, sign: ed25519.NewKeyFromSeed(seed), sessions: map[string]*live{}}
}

func derive(key []byte, purpose, value string) []byte {
	m := hmac.New(sha256.New, key)
	m.Write([]byte("bcd " + purpose + "\x00" + value))
	return m.Sum(nil)
}

func hash(s string) string {
	h := sha256.Sum256([]byte(s))
	return hex.EncodeToString(h[:])
}

func (s *Service) token(key string) string {
	return key + "." + hex.EncodeToString(derive(s.cfg.SiteKey, "boot-token", key))
}

// Mint makes a boot for a machine and workflow and revokes the machine's earlier ones. address is the site's own address
// as the machine's network sees it.
func (s *Service) Mint(ctx context.Context, b app.Boot) (*app.Boot, error) {
	b.Key, b.Created = app.NewID("boot"), s.cfg.Now().UTC().Truncate(time.Second)
	if err := s.cfg.Store.CreateBoot(ctx, &b); err != nil {
		return nil, err
	}
	s.dropSessions(b.MachineID)
	return &b, nil
}

// Revoke ends a machine's boots and sessions: from now on it netboots nothing of ours.
func (s *Service) Revoke(ctx context.Context, machineID string) error {
	err := s.cfg.Store.RevokeBoots(ctx, machineID)
	s.dropSessions(machineID)
	return err
}

// dropSessions forgets a machine's sessions, which have ended, and wakes their waiters, so that each looks at the store
// again.
func (s *Service) dropSessions(machineID string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for id, l := range s.sessions {
		if l.machine == machineID {
			delete(s.sessions, id)
			l.wake()
		}
	}
}

// refuse writes down that a stranger came. It is told seldom, with how many came meanwhile: anybody on the network can make
// it happen as often as they like, and it must not push out of the audit trail what an auditor looks for.
func (s *Service) refuse(remote string) {
	s.mu.Lock()
	now := s.cfg.Now()
	s.unsaid++
	n := s.unsaid
	if since := now.Sub(s.refused); since >= 0 && since < refusalsEvery {
		s.mu.Unlock()
		return
	}
	s.refused, s.unsaid = now, 0
	s.mu.Unlock()
	msg := fmt.Sprintf("a machine at %s offered a boot token this site never made", remote)
	if n > 1 {
		msg += fmt.Sprintf("; %d such offers since the last notice", n)
	}
	s.event("warn", "agent.refused", "", "", msg)
}

// Live gives the boot a machine may netboot with now; NotFound when it may not.
func (s *Service) Live(ctx context.Context, machineID string) (*app.Boot, error) {
	return s.cfg.Store.LiveBoot(ctx, machineID)
}

// BootData gives the document for a boot key: the same bytes for every fetch, NotFound once the boot is revoked.
func (s *Service) BootData(ctx context.Context, key string) (agentv1.BootData, error) {
	b, err := s.cfg.Store.Boot(ctx, key)
	if err != nil {
		return agentv1.BootData{}, err
	}
	if !b.Revoked.IsZero() || b.ISO != "" { // a CD image is trusted with nothing
		return agentv1.BootData{}, app.Missing("boot", key)
	}
	site, boot := s.cfg.URLs(b.Address)
	d := agentv1.BootData{
		MachineID: b.MachineID, WorkflowID: b.WorkflowID,
		SiteURLs: site, BootURLs: boot,
		AgentPin:   s.cfg.AgentPin,
		CommandKey: base64.StdEncoding.EncodeToString(s.sign.Public().(ed25519.PublicKey)),
		Token:      s.token(key),
		ServerTime: b.Created,
		BootMAC:    string(b.MAC),
	}
	if b.IsRescue {
		d.Rescue = &agentv1.Rescue{AuthorizedKeys: b.Rescue}
	}
	return d, nil
}

func (s *Service) event(level, kind, machine, workflow, msg string) {
	s.cfg.Record(app.Event{Time: s.cfg.Now().UTC(), Kind: kind, Level: level, MachineID: machine, Workflow: workflow, Actor: "agent", Message: msg})
}

// up records that an agent called, and from where.
func (s *Service) up(ses *app.AgentSession, remote string) {
	host, _, err := net.SplitHostPort(remote)
	if err != nil {
		host = remote
	}
	data, err := json.Marshal(map[string]string{"address": host, "firmware": string(ses.Firmware)})
	if err != nil {
		data = nil
	}
	s.cfg.Record(app.Event{Time: s.cfg.Now().UTC(), Kind: SignalUp, Level: "info", MachineID: ses.MachineID, Workflow: ses.WorkflowID, Actor: "agent",
		Message: fmt.Sprintf("the agent of the ramdisk is up at %s (%s firmware)", remote, ses.Firmware), Data: data})
}

func newLive(machineID string) *live {
	return &live{
		machine:  machineID,
		attempts: map[string]agentv1.AttemptState{}, pending: map[string]agentv1.SignedCommand{}, sent: map[string]bool{},
		cancel: map[string]bool{}, rerun: map[string]bool{}, progress: map[string]func(agentv1.ProgressReport){}, changed: make(chan struct{}),
	}
}

// keep takes over what the agent says of an attempt, unless it would make the table larger than any honest one.
func (l *live) keep(a agentv1.AttemptState) bool {
	size, n := len(a.Result), len(l.attempts)+1
	for key, old := range l.attempts {
		if key == a.Key {
			n--
			continue
		}
		size += len(old.Result)
	}
	if n > maxAttempts || size > maxTable {
		return false
	}
	l.attempts[a.Key] = a
	return true
}

func (l *live) wake() {
	close(l.changed)
	l.changed = make(chan struct{})
}
