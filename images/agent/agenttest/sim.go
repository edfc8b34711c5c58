package agenttest

import (
	"context"
	"log/slog"
	"net"
	"sync"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// SimConfig of a Sim. Boot and State are required.
type SimConfig struct {
	Boot     *agentv1.BootData        // what the machine would have got from its first cpio
	State    string                   // folder for /run/bcd, kept over Crash and Start; a fresh one is a fresh boot
	Handlers map[string]agent.Handler // by kind; DefaultHandlers when nil
	Host     agent.Host               // BootID "boot-1" and UEFI when empty
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
	// Leave is called with the kind after the answer to a reboot, power-off or kexec was acknowledged: the machine leaves the
	// ramdisk now. It must not call Crash itself, which waits for it. May be nil.
	Leave func(kind string)
	Log   *slog.Logger // nil: silent
}

// Sim is a machine in the ramdisk, without the machine: the real agent, its protocol and its table of attempts.
type Sim struct {
	cfg SimConfig

	mu   sync.Mutex // protects what follows
	runs map[string]int
	stop context.CancelFunc
	done chan error
}

// NewSim makes a simulated machine that is off.
func NewSim(cfg SimConfig) *Sim {
	if cfg.Handlers == nil {
		cfg.Handlers = DefaultHandlers()
	}
	if cfg.Host.BootID == "" {
		cfg.Host = agent.Host{BootID: "boot-1", Firmware: "uefi", MACs: []string{"00:00:5e:00:53:01"}}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	return &Sim{cfg: cfg, runs: map[string]int{}}
}

// Start runs the agent in the background. The same Sim started again is the same boot: it resumes.
func (s *Sim) Start() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return app.Errorf(app.Conflict, "sim-running", "the simulated agent runs already")
	}
	a, err := agent.New(agent.Config{
		Boot: s.cfg.Boot, Handlers: s.counted(), State: s.cfg.State, Version: "sim", Log: s.cfg.Log, Dial: s.cfg.Dial,
		Host: func() agent.Host { return s.cfg.Host },
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(context.Background())
	done := make(chan error, 1)
	s.stop, s.done = stop, done
	go func() { done <- a.Run(ctx) }()
	return nil
}

// Crash ends the agent as a kill would: attempts under way stay "running" in its table. It returns when nothing runs any
// more; it is no matter when nothing did.
func (s *Sim) Crash() error {
	s.mu.Lock()
	stop, done := s.stop, s.done
	s.stop = nil
	s.mu.Unlock()
	if stop == nil {
		return nil
	}
	stop()
	return <-done
}

// Runs tells how often the handler of a key was entered.
func (s *Sim) Runs(key string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.runs[key]
}

func (s *Sim) counted() map[string]agent.Handler {
	out := map[string]agent.Handler{}
	for kind, h := range s.cfg.Handlers {
		out[kind] = func(ctx context.Context, c agentv1.Command, p func(agentv1.ProgressReport)) (any, error) {
			s.mu.Lock()
			s.runs[c.Key]++
			s.mu.Unlock()
			result, err := h(ctx, c, p)
			switch kind {
			case agentv1.KindReboot, agentv1.KindPowerOff, agentv1.KindKexecLoad:
				if s.cfg.Leave != nil && err == nil {
					return agent.Then{Result: result, Do: func(context.Context) error { s.cfg.Leave(kind); return nil }}, nil
				}
			}
			return result, err
		}
	}
	return out
}
