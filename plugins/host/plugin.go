package host

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// source is where a plugin's program comes from.
type source struct {
	pin     Pin
	bundled bool // this program's own executable, run with args
	args    []string
}

func (s source) equal(o source) bool { return s.pin == o.pin && s.bundled == o.bundled }

// plugin is one supervised plugin. Its goroutine is supervise; the rest may be called by anybody.
type plugin struct {
	host  *Host
	name  string
	src   source // of the goroutine's life: a changed source is a new plugin
	lines *lines
	kick  chan struct{} // capacity 1: start again, now
	stop  context.CancelFunc
	first chan struct{} // closed once the first start has answered or failed
	done  chan struct{} // closed once the goroutine has ended

	mu      sync.Mutex
	status  Status
	conn    *bcx.Conn     // of the run that takes calls; nil while there is none
	reason  string        // why there is none
	drained chan struct{} // closed once no call is in flight; nil when nobody waits for that
	served  map[string]*served

	secrets secrets // that it was handed
}

var (
	errAgain = errors.New("it is started again on request")
	errHung  = errors.New("it no longer answers")
)

func newPlugin(h *Host, src source) *plugin {
	log := h.log.With("plugin", src.pin.Name)
	p := &plugin{
		host: h, name: src.pin.Name, src: src, kick: make(chan struct{}, 1),
		first: make(chan struct{}), done: make(chan struct{}), served: map[string]*served{}, reason: "it has not started yet",
	}
	p.lines = newLines(log, h.clock.Now, p.secrets.hide)
	p.status = Status{Name: p.name, Bundled: src.bundled, SHA256: src.pin.SHA256, State: Starting, Since: h.clock.Now().UTC(), Restarts: -1}
	return p
}

// supervise takes the plugin through its runs until ctx ends.
func (p *plugin) supervise(ctx context.Context) {
	defer close(p.done)
	answered := sync.OnceFunc(func() { p.host.answered(p) })
	defer answered()
	delay := p.host.cfg.BackOff
	for ctx.Err() == nil {
		began := p.host.clock.Now()
		why := p.once(ctx, answered)
		switch {
		case ctx.Err() != nil:
		case errors.Is(why, errAgain):
			delay = p.host.cfg.BackOff
		case isRefusal(why):
			p.rest(Refused, why, time.Time{})
			answered()
			p.pause(ctx, 0)
			delay = p.host.cfg.BackOff
		default:
			if p.host.clock.Now().Sub(began) >= steadyRun {
				delay = p.host.cfg.BackOff
			}
			p.rest(BackOff, why, p.host.clock.Now().Add(delay))
			answered()
			if p.pause(ctx, delay) {
				delay = p.host.cfg.BackOff
			} else {
				delay = min(2*delay, maxBackOff)
			}
		}
	}
	p.rest(Stopped, nil, time.Time{})
}

// pause waits for d, without end when it is 0, or until somebody asks for a start, which it reports.
func (p *plugin) pause(ctx context.Context, d time.Duration) (kicked bool) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	slept := make(chan struct{})
	if d > 0 {
		go func() {
			defer close(slept)
			_ = p.host.clock.Sleep(ctx, d) // its end is what counts, not why
		}()
		defer func() { cancel(nil); <-slept }()
	}
	select {
	case <-ctx.Done():
	case <-slept:
	case <-p.kick:
		return true
	}
	return false
}

// once is one run: from the start until the plugin is down again. It says why it is.
func (p *plugin) once(ctx context.Context, answered func()) error {
	p.begin()
	run, err := p.launch(ctx)
	if err != nil {
		return err
	}
	grace := time.Duration(0)
	err = p.serve(ctx, run)
	if err == nil {
		answered()
		err = p.watch(ctx, run)
		if ctx.Err() != nil || errors.Is(err, errAgain) {
			p.down("it is being stopped", Stopping)
			p.drain(ctx, run)
			grace = p.host.cfg.Grace
		} else {
			p.down(clip(err.Error()), Stopping)
			err = run.because(ctx, err)
		}
	}
	if eerr := run.end(ctx, grace); eerr != nil {
		p.host.log.Error("a plugin left something behind", "plugin", p.name, "error", eerr)
	}
	return err
}

// serve asks a started plugin what it serves and lets calls go to it.
func (p *plugin) serve(ctx context.Context, run *process) error {
	ctx, done := p.host.within(ctx, p.host.cfg.StartLimit)
	defer done()
	desc, err := run.conn.Describe(ctx)
	if err != nil {
		if err = fmt.Errorf("asking what it serves: %w", err); ctx.Err() != nil {
			err = fmt.Errorf("it did not say in time what it serves: %w", context.Cause(ctx))
		}
		return run.because(ctx, err)
	}
	// Calls are let through before the registry knows the drivers, never the other way round; and it is said to run when it
	// can be called by them.
	p.admit(run)
	if err := p.merge(desc); err != nil {
		p.down(clip(err.Error()), Refused)
		return err
	}
	p.up(desc)
	return nil
}

// watch waits until a running plugin ends, hangs, is asked to start again, or ctx ends.
func (p *plugin) watch(ctx context.Context, run *process) error {
	watching, stop := context.WithCancel(ctx)
	hung := make(chan struct{})
	polled := make(chan struct{})
	go func() {
		defer close(polled)
		if p.poll(watching, run) {
			close(hung)
		}
	}()
	defer func() { stop(); <-polled }()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-p.kick:
		return errAgain
	case <-hung:
		return errHung
	case <-run.exited:
		return run.ending()
	case <-run.conn.Lost():
		return errors.New("its connection broke")
	}
}

// poll asks for the plugin's health until ctx ends. It reports whether the plugin answers no more.
func (p *plugin) poll(ctx context.Context, run *process) bool {
	missed := 0
	for {
		ask, done := p.host.within(ctx, p.host.cfg.HealthLimit)
		err := run.conn.Health(ask)
		done()
		said := driver.AsError(err)
		switch {
		case ctx.Err() != nil:
			return false
		case err == nil:
			missed = 0
			p.healthy(true, "")
		case said.Code == driver.CodeUnavailable:
			missed = 0
			p.healthy(false, clip(p.secrets.hide(said.Message)))
		default:
			missed++
			p.host.log.Warn("a plugin did not tell its health", "plugin", p.name, "error", err)
			if missed == healthMisses {
				return true
			}
		}
		if p.host.clock.Sleep(ctx, p.host.cfg.HealthEvery) != nil {
			return false
		}
	}
}

// drain lets calls in flight end, for as long as the host's configuration grants.
func (p *plugin) drain(ctx context.Context, run *process) {
	p.mu.Lock()
	if p.status.Calls == 0 {
		p.mu.Unlock()
		return
	}
	idle := make(chan struct{})
	p.drained = idle
	p.mu.Unlock()
	t := time.NewTimer(p.host.cfg.Drain)
	defer t.Stop()
	select {
	case <-idle:
	case <-t.C:
	case <-run.exited:
	}
}

// connection gives the connection a call goes over, or refuses the call while the plugin is down.
func (p *plugin) connection(*driver.Context) (*bcx.Conn, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.conn == nil {
		return nil, driver.Errorf(driver.CodeUnavailable, "the plugin %s is down: %s", p.name, p.reason).Again()
	}
	return p.conn, nil
}

func (p *plugin) entered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Calls++
}

func (p *plugin) left() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.status.Calls--
	if p.status.Calls == 0 && p.drained != nil {
		close(p.drained)
		p.drained = nil
	}
}
