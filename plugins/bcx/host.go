package bcx

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"reflect"
	"sync"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// HostConfig says which plugin a Host runs, and how.
type HostConfig struct {
	Command       []string      // command line, run without a shell; a name is found in PATH, a path is relative to Dir
	SHA256        string        // hex digest of PinnedFile(Command), checked before every start
	Env           []string      // what the plugin gets besides PATH, HOME, the temporary directories, language and time zone
	Dir           string        // the plugin's working directory; "": the host's
	StartTimeout  time.Duration // to print the handshake and answer Describe; 0: 30 s
	CallTimeout   time.Duration // deadline of calls whose context has none; 0: none
	RestartDelay  time.Duration // before the first restart, doubling; 0: 250 ms
	RestartMax    time.Duration // longest delay; 0: 30 s. A run that lasted as long starts the doubling anew
	ShutdownGrace time.Duration // between the request to stop and the end; 0: 5 s
	Logger        *slog.Logger  // what the plugin writes to stderr, exits and restarts; nil: warnings on stderr
}

// Host runs one plugin and keeps it running. It is for authors, tests and small programs; the appliance has a supervisor
// of its own with confinement.
type Host struct {
	cfg HostConfig

	mu      sync.Mutex
	now     *process      // nil while there is none
	why     error         // why there never will be one again
	changed chan struct{} // closed, and made anew, when now or why changes

	first  Description
	cancel context.CancelFunc
	over   chan struct{} // supervise has ended
}

// NewHost makes a host that Start starts.
func NewHost(c HostConfig) *Host {
	c.StartTimeout = cmp.Or(c.StartTimeout, 30*time.Second)
	c.RestartDelay = cmp.Or(c.RestartDelay, 250*time.Millisecond)
	c.RestartMax = cmp.Or(c.RestartMax, 30*time.Second)
	c.ShutdownGrace = cmp.Or(c.ShutdownGrace, 5*time.Second)
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	return &Host{cfg: c, changed: make(chan struct{}), over: make(chan struct{})}
}

// Start starts the plugin and gives its drivers, which stay valid over restarts. When it fails nothing is left running.
// Close ends what a successful Start began.
func (h *Host) Start(ctx context.Context) ([]*driver.Driver, error) {
	p, err := h.launch(ctx)
	if err != nil {
		return nil, err
	}
	var drivers []*driver.Driver
	for _, m := range p.desc.Drivers {
		d, err := driver.Define(Remote(m, h.conn))
		if err != nil {
			p.stop()
			return nil, fmt.Errorf("driver %s: %w", m.ID, err)
		}
		drivers = append(drivers, d)
	}
	h.first, h.now = p.desc, p
	var life context.Context
	life, h.cancel = context.WithCancel(context.WithoutCancel(ctx))
	go h.supervise(life, p)
	return drivers, nil
}

// Close asks the plugin to stop, waits for it, and fails every call from then on. It may be called more than once.
func (h *Host) Close() error {
	if h.cancel == nil {
		return nil // nothing was started
	}
	h.cancel()
	<-h.over
	return nil
}

// Health asks the running plugin; nil means it serves.
func (h *Host) Health(ctx context.Context) error {
	c, err := h.Conn(ctx)
	if err != nil {
		return err
	}
	return c.Health(ctx)
}

// Conn gives the connection to the running plugin, waiting for a restart under way. It ends with this run of the plugin.
func (h *Host) Conn(ctx context.Context) (*Conn, error) { return h.conn(driver.NewContext(ctx)) }

func (h *Host) launch(ctx context.Context) (*process, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, h.cfg.StartTimeout, fmt.Errorf("%s passed", h.cfg.StartTimeout))
	defer cancel()
	return launch(ctx, h.cfg)
}

// conn is Conn for one call.
func (h *Host) conn(ctx *driver.Context) (*Conn, error) {
	for {
		h.mu.Lock()
		p, why, changed := h.now, h.why, h.changed
		h.mu.Unlock()
		if why != nil {
			return nil, driver.Errorf(driver.CodeUnavailable, "%s", clean(why.Error(), maxText))
		}
		if p != nil {
			select {
			case <-p.conn.Lost(): // supervise has not seen it yet
			default:
				return p.conn, nil
			}
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, driver.AsError(ctx.Err())
		}
	}
}

func (h *Host) set(p *process, why error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.now, h.why = p, why
	close(h.changed)
	h.changed = make(chan struct{})
}

// supervise starts the plugin again whenever it ends, until ctx ends or starting it again cannot help.
func (h *Host) supervise(ctx context.Context, p *process) {
	defer close(h.over)
	delay := h.cfg.RestartDelay
	for {
		began := time.Now()
		select {
		case <-ctx.Done():
			h.set(nil, errors.New("the plugin was stopped"))
			p.stop()
			return
		case <-p.conn.Lost():
		case <-p.exited:
		}
		h.set(nil, nil)
		p.kill()
		<-p.exited
		p.conn.Close()
		h.cfg.Logger.Warn("plugin ended", "command", h.cfg.Command[0], "status", fmt.Sprint(p.status))
		if time.Since(began) >= h.cfg.RestartMax {
			delay = h.cfg.RestartDelay
		}
		if p, delay = h.again(ctx, delay); p == nil {
			return
		}
		h.set(p, nil)
	}
}

// again starts the plugin after a delay, as often as it takes. It gives nil when ctx ends or a start cannot succeed.
func (h *Host) again(ctx context.Context, delay time.Duration) (*process, time.Duration) {
	for {
		select {
		case <-ctx.Done():
			h.set(nil, errors.New("the plugin was stopped"))
			return nil, 0
		case <-time.After(delay):
		}
		delay = min(2*delay, h.cfg.RestartMax)
		p, err := h.launch(ctx)
		switch {
		case err == nil:
			if !reflect.DeepEqual(p.desc.Drivers, h.first.Drivers) {
				h.cfg.Logger.Warn("plugin came back with other drivers; the first ones stay", "command", h.cfg.Command[0])
			}
			return p, delay
		case errors.Is(err, ErrPin), errors.Is(err, ErrProtocol):
			h.cfg.Logger.Error("plugin is not started again", "command", h.cfg.Command[0], "error", err)
			h.set(nil, err)
			return nil, 0
		case ctx.Err() == nil:
			h.cfg.Logger.Warn("plugin did not start", "command", h.cfg.Command[0], "error", err, "again", delay)
		}
	}
}
