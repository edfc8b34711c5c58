package agent

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent/session"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Handler does one command. It must return soon after ctx ends, and only after its effect was read back. progress may be
// called at any rate and never blocks; the agent sends the latest once a second and fills in session and key. An error that
// is an *app.Error reaches people as it is.
type Handler func(ctx context.Context, cmd agentv1.Command, progress func(agentv1.ProgressReport)) (result any, err error)

// Then is a handler's result whose effect ends the agent (a reboot, a jump into another kernel): the site acknowledges
// Result first, then Do runs.
type Then struct {
	Result any
	Do     func(ctx context.Context) error
}

// Host is what the agent says about the machine when it trades the token.
type Host struct {
	BootID   string // /proc/sys/kernel/random/boot_id
	MACs     []string
	UUID     string
	Firmware string // "bios", "uefi"
}

// Config of an Agent. Boot, Handlers, Host, State and Log are required.
type Config struct {
	Boot     *agentv1.BootData // from session.ReadBootData
	Handlers map[string]Handler
	Host     func() Host
	State    string // folder of the state files, filepath.Dir(agentv1.SessionPath) on a machine; made with mode 0700
	Version  string
	Log      *slog.Logger
	Lines    *Lines         // log lines to forward, filled by Log's handler; nil: none are forwarded
	Clock    *session.Clock // shared with the handler that sets the system clock; a new one when nil
	// Network brings the machine onto its network and returns once it has an address; nil: it is there already.
	Network func(ctx context.Context) error
	Dial    func(ctx context.Context, network, addr string) (net.Conn, error) // nil: the machine's network
}

// Agent is one run of the agent. Make it with New.
type Agent struct {
	cfg    Config
	client *session.Client
	clock  *session.Clock
	table  *table
	key    ed25519.PublicKey

	ses    agentv1.SessionResponse // set before any other goroutine starts
	boot   string                  // boot id, likewise
	turn   chan struct{}           // holds one token: commands that change the machine run one at a time
	result chan struct{}           // has room for one: some result waits for delivery
	wg     sync.WaitGroup          // attempts and their progress reporters

	mu     sync.Mutex // protects cancel and then
	cancel map[string]context.CancelCauseFunc
	then   map[string]func(context.Context) error
}

// Causes that end an attempt's context.
var (
	errStopping  = errors.New("the agent is stopping")
	errCancelled = app.Errorf(app.Conflict, "attempt-cancelled", "the appliance cancelled this attempt")
	errOver      = app.Errorf(app.Conflict, "session-over", "the session of this boot is over")
)

// New makes an agent. It touches neither network nor state.
func New(cfg Config) (*Agent, error) {
	if cfg.Boot == nil || cfg.Handlers == nil || cfg.Host == nil || cfg.State == "" || cfg.Log == nil {
		return nil, app.Errorf(app.InvalidConfig, "agent-config", "the agent needs boot data, handlers, host facts, a state folder and a log")
	}
	if cfg.Clock == nil {
		cfg.Clock = session.NewClock(nil)
	}
	client, err := session.NewClient(cfg.Boot, cfg.Clock, cfg.Dial)
	if err != nil {
		return nil, err
	}
	key, err := session.ParseCommandKey(cfg.Boot.CommandKey)
	if err != nil {
		return nil, app.Errorf(app.InvalidConfig, "boot-data-unusable", "commands cannot be checked: %w", err)
	}
	return &Agent{
		cfg: cfg, client: client, clock: cfg.Clock, key: key,
		turn: make(chan struct{}, 1), result: make(chan struct{}, 1),
		cancel: map[string]context.CancelCauseFunc{}, then: map[string]func(context.Context) error{},
	}, nil
}

// Run works until ctx ends, or for good: a session that is over leaves the agent idle, because only a new power-on brings a
// new token. What it started has stopped when it returns; running attempts stay "running" in the table, so that the next
// start reports them as agentv1.ReasonAgentRestarted.
func (a *Agent) Run(ctx context.Context) error {
	defer a.client.Close()
	if a.cfg.Network != nil {
		if err := a.cfg.Network(ctx); err != nil {
			return fmt.Errorf("bringing up the network: %w", err)
		}
	}
	host := a.cfg.Host()
	a.boot = host.BootID
	if a.cfg.Boot.MachineID == "" {
		return a.discover(ctx, host)
	}
	live, err := a.connect(ctx, host)
	if err != nil {
		return err
	}
	if live {
		if err := a.serve(ctx); err != nil {
			return err
		}
	}
	return a.idle(ctx)
}

func (a *Agent) idle(ctx context.Context) error {
	if ctx.Err() == nil {
		a.cfg.Log.Info("the session of this boot is over; waiting to be switched off")
	}
	<-ctx.Done()
	return nil
}

// serve runs the loops of a session until ctx ends or the session is over.
func (a *Agent) serve(parent context.Context) error {
	t, err := openTable(filepath.Join(a.cfg.State, "attempts.json"), a.ses.SessionID)
	if err != nil {
		return err
	}
	a.table = t
	a.kick(a.result)
	ctx, stop := context.WithCancelCause(parent)
	defer stop(nil)
	var loops sync.WaitGroup
	loops.Go(func() { a.deliver(ctx) })
	if a.cfg.Lines != nil {
		loops.Go(func() { a.forward(ctx) })
	}
	a.poll(ctx)
	if parent.Err() == nil {
		a.stopAttempts(errOver)
		err = a.markOver()
	} else {
		a.stopAttempts(errStopping)
	}
	stop(errStopping)
	loops.Wait()
	a.wg.Wait()
	return err
}

func (a *Agent) stopAttempts(why error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, cancel := range a.cancel {
		cancel(why)
	}
}

// kick wakes the reader of c, which has room for one.
func (a *Agent) kick(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait sleeps for d unless ctx ends first, which it reports as false.
func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
