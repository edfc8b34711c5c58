package host

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// Defaults and limits of supervision.
const (
	firstBackOff = time.Second      // before a plugin is started again; doubles
	maxBackOff   = time.Minute      //
	steadyRun    = time.Minute      // a run as long as this brings the back-off to its beginning
	startLimit   = 10 * time.Second // for the handshake, and then for Describe
	stopGrace    = 5 * time.Second  // between asking a plugin to stop and killing it
	drainTime    = 5 * time.Second  // for calls in flight before that
	healthEvery  = 10 * time.Second //
	healthLimit  = 5 * time.Second  // for one answer
	healthMisses = 3                // answers missed in a row, after which a plugin is started again
)

// systemPath is the PATH of plugins: it does not depend on how the appliance was started.
const systemPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// Bundled is a plugin inside the appliance's own executable, which is run with Args. A pinned plugin of the same name
// replaces it.
type Bundled struct {
	Name string
	Args []string
}

// Config is what a Host needs. Sandbox and Registry are required.
type Config struct {
	Dir      string // plugins directory; "" none
	Bundled  []Bundled
	Sandbox  sandbox.Sandbox
	Registry Registry
	Memory   string          // file that keeps what the plugins served last; "" none
	RunDir   string          // where the socket directories are made; "" the system's for temporary files
	Path     string          // PATH of the plugins; "" the system's usual
	Logger   *slog.Logger    // nil discards
	Clock    Clock           // nil: the system's
	Record   func(app.Event) // told when a plugin serves, and when it is down and why; must return soon; nil discards

	BackOff, StartLimit, Grace, Drain, HealthEvery, HealthLimit time.Duration // 0: the defaults
}

func (c *Config) defaults() error {
	if c.Sandbox == nil || c.Registry == nil {
		return errors.New("a plugin host needs a sandbox and a registry")
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	if c.Clock == nil {
		c.Clock = systemClock{}
	}
	if c.Record == nil {
		c.Record = func(app.Event) {}
	}
	if c.RunDir == "" {
		c.RunDir = os.TempDir()
	}
	if c.Path == "" {
		c.Path = systemPath
	}
	for at, value := range map[*time.Duration]time.Duration{
		&c.BackOff: firstBackOff, &c.StartLimit: startLimit, &c.Grace: stopGrace, &c.Drain: drainTime, &c.HealthEvery: healthEvery, &c.HealthLimit: healthLimit,
	} {
		if *at <= 0 {
			*at = value
		}
	}
	return nil
}

// Host runs plugins. Its methods are safe for concurrent use.
type Host struct {
	cfg    Config
	log    *slog.Logger
	clock  Clock
	loaded chan struct{} // closed once the pins were read for the first time
	memory *memory

	reload sync.Mutex // one change of the set of plugins at a time

	mu      sync.Mutex
	ctx     context.Context // of Run; nil before and after
	plugins map[string]*plugin
	changed chan struct{}     // closed and made anew when a plugin has answered or failed its first start
	issues  []Issue           // of the pins
	pins    map[string]source // as they were read last
	self    string            // SHA-256 of this program; "" while it is not known
}

// New makes a host that runs nothing yet.
func New(cfg Config) (*Host, error) {
	if err := cfg.defaults(); err != nil {
		return nil, err
	}
	m, err := openMemory(cfg.Memory)
	if err != nil {
		cfg.Logger.Warn("what the plugins served last is not known", "error", err)
	}
	return &Host{cfg: cfg, log: cfg.Logger, clock: cfg.Clock, loaded: make(chan struct{}), memory: m, plugins: map[string]*plugin{}, changed: make(chan struct{})}, nil
}

func (h *Host) record(kind, level, message string) {
	h.cfg.Record(app.Event{Time: h.clock.Now().UTC(), Kind: kind, Level: level, Actor: "system", Message: message})
}

// Run starts every plugin and supervises them until ctx ends; then it stops them all and returns. Nothing that a plugin
// does makes it fail.
func (h *Host) Run(ctx context.Context) error {
	if err := sweep(h.cfg.RunDir); err != nil {
		h.log.Warn("clearing away sockets of an earlier run", "error", err)
	}
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	h.mu.Lock()
	h.ctx = running
	h.mu.Unlock()
	if err := h.Reload(); err != nil && ctx.Err() == nil {
		h.log.Error("reading the pins", "error", err)
	}
	close(h.loaded)
	var beside sync.WaitGroup
	if len(h.cfg.Bundled) > 0 {
		beside.Go(func() { h.hashSelf(ctx) })
	}
	<-ctx.Done()
	beside.Wait()
	h.reload.Lock() // a reload that is under way ends first, and none follows
	defer h.reload.Unlock()
	h.mu.Lock()
	h.ctx = nil
	all := h.all()
	h.mu.Unlock()
	var stopping sync.WaitGroup
	for _, p := range all {
		stopping.Go(p.end)
	}
	stopping.Wait()
	return nil
}

// all gives the plugins by name; the caller holds mu.
func (h *Host) all() []*plugin {
	out := make([]*plugin, 0, len(h.plugins))
	for _, name := range sortedKeys(h.plugins) {
		out = append(out, h.plugins[name])
	}
	return out
}

// names are those of all plugins, sorted.
func (h *Host) names() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return sortedKeys(h.plugins)
}

// end stops a plugin and waits for its goroutine.
func (p *plugin) end() {
	p.stop()
	<-p.done
}

// Reload reads the pins again: new plugins are started, those that are pinned no more are stopped and leave the registry,
// those with another pin are stopped and started anew, and those that were refused are tried again. What is unchanged and
// runs is left alone. It returns when what had to stop has stopped. When the pins cannot be read nothing changes.
func (h *Host) Reload() error {
	h.reload.Lock()
	defer h.reload.Unlock()
	want, issues, err := h.wanted()
	h.mu.Lock()
	running := h.ctx
	h.issues, h.pins = issues, want
	if err != nil {
		h.issues = append(h.issues, Issue{Message: clip(err.Error())})
	}
	h.mu.Unlock()
	if running == nil {
		return app.Errorf(app.Unavailable, "host-stopped", "the plugin host does not run").Retryable()
	}
	for _, i := range issues {
		h.log.Warn("the pins file has a line that is not used", "line", i.Line, "problem", i.Message)
	}
	h.replace(running, want, err != nil)
	return err
}

// replace makes the plugins those that are wanted. keep leaves plugins that are not wanted alone.
func (h *Host) replace(running context.Context, want map[string]source, keep bool) {
	h.mu.Lock()
	var gone []*plugin
	for _, p := range h.all() {
		src, wanted := want[p.name]
		switch {
		case wanted && src.equal(p.src):
			p.retry()
		case wanted || !keep:
			gone = append(gone, p)
		}
	}
	h.mu.Unlock()
	var stopping sync.WaitGroup
	for _, p := range gone {
		stopping.Go(func() { h.remove(p) })
	}
	stopping.Wait()
	var fresh []*plugin
	h.mu.Lock()
	for _, name := range sortedKeys(want) {
		if h.plugins[name] == nil {
			p := newPlugin(h, want[name])
			h.plugins[name] = p
			fresh = append(fresh, p)
		}
	}
	h.mu.Unlock()
	for _, p := range fresh { // after all are known: the sandbox gives uids by all names
		p.recall()
		ctx, stop := context.WithCancel(running)
		p.stop = stop
		go p.supervise(ctx)
	}
}

// remember keeps what a plugin serves.
func (h *Host) remember(src source, drivers []bcx.Manifest) {
	if err := h.memory.keep(src, drivers); err != nil {
		h.log.Warn("what a plugin serves is not kept", "plugin", src.pin.Name, "error", err)
	}
}

// remove ends a plugin and takes its drivers out of the registry.
func (h *Host) remove(p *plugin) {
	p.end()
	p.leave(nil)
	h.remember(p.src, nil)
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.plugins, p.name)
}

// retry wakes a plugin that was refused, and one that waits to be started again.
func (p *plugin) retry() {
	p.mu.Lock()
	waits := p.status.State == Refused || p.status.State == BackOff
	p.mu.Unlock()
	if waits {
		p.again()
	}
}

func (p *plugin) again() {
	select {
	case p.kick <- struct{}{}:
	default: // asked already
	}
}

// wanted gives the plugins that are to run, by name. The bundled ones are known even when the pins cannot be read.
func (h *Host) wanted() (map[string]source, []Issue, error) {
	want := map[string]source{}
	for _, b := range h.cfg.Bundled {
		want[b.Name] = source{pin: Pin{Name: b.Name}, bundled: true, args: b.Args}
	}
	if h.cfg.Dir == "" {
		return want, nil, nil
	}
	pins, issues, err := readPins(h.cfg.Dir)
	for _, p := range pins {
		want[p.Name] = source{pin: p}
	}
	return want, issues, err
}

// hashSelf finds the SHA-256 of the running executable, which bundled plugins are shown with.
func (h *Host) hashSelf(ctx context.Context) {
	f, err := os.Open(ownExecutable)
	if err == nil {
		var sum string
		if f, sum, err = hashed(ctx, f); err == nil {
			h.mu.Lock()
			h.self = sum
			h.mu.Unlock()
			err = f.Close()
		}
	}
	if err != nil && ctx.Err() == nil {
		h.log.Warn("hashing this program", "error", err)
	}
}

// List tells of every plugin, by name.
func (h *Host) List() []Status {
	h.mu.Lock()
	all, self := h.all(), h.self
	h.mu.Unlock()
	out := make([]Status, 0, len(all))
	for _, p := range all {
		s := p.snapshot()
		if s.Bundled {
			s.SHA256 = self
		}
		out = append(out, s)
	}
	return out
}

// Issues tells what is wrong with the pins as they were last read, and whether they differ from what is in force.
func (h *Host) Issues() []Issue {
	now, _, err := h.wanted()
	h.mu.Lock()
	defer h.mu.Unlock()
	out := slices.Clone(h.issues)
	if err == nil && h.ctx != nil && !maps.EqualFunc(now, h.pins, source.equal) {
		out = append(out, Issue{Message: "the pins were changed and are not in force yet"})
	}
	return out
}

func (h *Host) find(name string) (*plugin, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p := h.plugins[name]; p != nil {
		return p, nil
	}
	return nil, app.Missing("plugin", clip(name))
}

// Logs gives the last n lines a plugin wrote, oldest first.
func (h *Host) Logs(name string, n int) ([]Line, error) {
	p, err := h.find(name)
	if err != nil {
		return nil, err
	}
	return p.lines.tail(n), nil
}

// Await waits until a plugin has answered or failed its first start since it was pinned as it is, and tells of it.
func (h *Host) Await(ctx context.Context, name string) (Status, error) {
	p, err := h.find(name)
	if err != nil {
		return Status{}, err
	}
	select {
	case <-p.first:
		return p.snapshot(), nil
	case <-ctx.Done():
		return p.snapshot(), context.Cause(ctx)
	}
}

// Restart starts a plugin again: at once when it is down, after a drain when it runs. It does not wait for it.
func (h *Host) Restart(name string) error {
	p, err := h.find(name)
	if err == nil {
		p.again()
	}
	return err
}
