package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// modeArg makes the test binary a bundled plugin; the mode follows.
const modeArg = "__test-plugin"

// TestMain is the shim, a plugin, or the tests: the same binary plays all three.
func TestMain(m *testing.M) {
	switch {
	case len(os.Args) > 1 && os.Args[1] == sandbox.ShimCommand:
		os.Exit(sandbox.RunShim(os.Args[2:]))
	case os.Getenv(bcx.EnvCookie) != "":
		behave(mode())
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// limit is how long a test waits for what should come at once; a loaded machine may take its time. What a host grants a
// plugin goes by the test's clock, so no plugin is late while that stands still.
const limit = 5 * time.Minute

// registry notes what a host registers.
type registry struct {
	mu      sync.Mutex
	changed chan struct{} // closed and made anew at every change
	drivers map[string]*driver.Driver
	down    map[string]string // why, by key; absent: up
	refused string            // id that is built in
}

func newRegistry() *registry {
	return &registry{changed: make(chan struct{}), drivers: map[string]*driver.Driver{}, down: map[string]string{}, refused: "redfish"}
}

func (r *registry) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *registry) Register(d *driver.Driver, _ string) (err error) {
	r.note(func() {
		key := d.ID() + "@" + d.Version()
		if d.ID() == r.refused || r.drivers[key] != nil {
			err = fmt.Errorf("%s is taken", key)
			return
		}
		r.drivers[key] = d
		delete(r.down, key)
	})
	return err
}

func (r *registry) Unregister(id, version string) {
	r.note(func() { delete(r.drivers, id+"@"+version); delete(r.down, id+"@"+version) })
}

func (r *registry) SetUp(id, version string, up bool, reason string) {
	r.note(func() {
		if delete(r.down, id+"@"+version); !up {
			r.down[id+"@"+version] = reason
		}
	})
}

// reason tells why a driver is down; "" when it is up.
func (r *registry) reason(key string) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.down[key]
}

// keys lists what is registered.
func (r *registry) keys() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return strings.Join(sortedKeys(r.drivers), " ")
}

func (r *registry) get(key string) *driver.Driver {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.drivers[key]
}

// clock is a clock that the test moves on.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	changed chan struct{}
	waiting map[*sleeper]bool
}

type sleeper struct {
	d    time.Duration
	due  time.Time
	wake chan struct{}
}

func newClock() *clock {
	return &clock{now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), changed: make(chan struct{}), waiting: map[*sleeper]bool{}}
}

func (c *clock) Now() time.Time { c.mu.Lock(); defer c.mu.Unlock(); return c.now }

func (c *clock) Sleep(ctx context.Context, d time.Duration) error {
	c.mu.Lock()
	s := &sleeper{d, c.now.Add(d), make(chan struct{})}
	c.waiting[s] = true
	close(c.changed)
	c.changed = make(chan struct{})
	c.mu.Unlock()
	defer func() { c.mu.Lock(); delete(c.waiting, s); c.mu.Unlock() }()
	select {
	case <-s.wake:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// advance moves the time and wakes who is due.
func (c *clock) advance(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now = c.now.Add(d)
	for s := range c.waiting {
		if !s.due.After(c.now) {
			close(s.wake)
			delete(c.waiting, s)
		}
	}
}

// asleep waits until somebody sleeps for just d.
func (c *clock) asleep(t *testing.T, d time.Duration) { t.Helper(); c.sleeping(t, d, 1) }

// sleeping waits until at least n sleep for just d.
func (c *clock) sleeping(t *testing.T, d time.Duration, n int) {
	t.Helper()
	timeout := time.After(limit)
	for {
		c.mu.Lock()
		changed, found := c.changed, 0
		for s := range c.waiting {
			if s.d == d {
				found++
			}
		}
		c.mu.Unlock()
		if found >= n {
			return
		}
		select {
		case <-changed:
		case <-timeout:
			t.Fatalf("%d sleep for %s, want %d", found, d, n)
		}
	}
}

// bench is a host under test.
type bench struct {
	*Host
	t        *testing.T
	reg      *registry
	clock    *clock
	logs     *record
	dir      string // plugins directory
	run      string // of the socket directories
	moved    chan struct{}
	events   sync.Map // the last message by kind
	stop     func()
	finished chan error
}

// record keeps what a logger was given, as text.
type record struct {
	mu sync.Mutex
	b  strings.Builder
}

func (r *record) Write(p []byte) (int, error) { r.mu.Lock(); defer r.mu.Unlock(); return r.b.Write(p) }

// String gives the end of it.
func (r *record) String() string {
	s := r.all()
	return s[max(0, len(s)-4000):]
}

func (r *record) all() string { r.mu.Lock(); defer r.mu.Unlock(); return r.b.String() }

// newBench makes a host over a plugins directory of its own. It runs once start is called, and ends with the test.
func newBench(t *testing.T, bundled ...string) *bench {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Log("not root: the plugins share this account, as they do where bcd lacks capabilities")
	}
	b := &bench{t: t, reg: newRegistry(), clock: newClock(), logs: &record{}, dir: t.TempDir(), moved: make(chan struct{}, 1)}
	var err error
	if b.run, err = os.MkdirTemp("", "bcxt"); err != nil { // a socket's path is short
		t.Fatal(err)
	}
	if err := errors.Join(os.Chmod(b.dir, 0o755), os.Chmod(b.run, 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(b.run) })
	log := slog.New(slog.NewTextHandler(b.logs, &slog.HandlerOptions{Level: slog.LevelDebug}))
	confined, err := sandbox.New(sandbox.Config{Enabled: true, Landlock: true, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	cfg := Config{Dir: b.dir, Sandbox: confined, Registry: b.reg, RunDir: b.run, Logger: log, Clock: b.clock, StartLimit: limit, Drain: time.Second, Grace: 2 * time.Second,
		Record: func(e app.Event) {
			b.events.Store(e.Kind, e.Message)
			select {
			case b.moved <- struct{}{}:
			default:
			}
		}}
	for _, m := range bundled {
		name, _, _ := strings.Cut(m, ":")
		cfg.Bundled = append(cfg.Bundled, Bundled{Name: name, Args: []string{modeArg, m}})
	}
	if b.Host, err = New(cfg); err != nil {
		t.Fatal(err)
	}
	return b
}

// start runs the host and waits until each plugin has answered or failed.
func (b *bench) start() *bench {
	b.t.Helper()
	b.begin()
	b.settle()
	return b
}

// settle waits until each plugin has answered or failed.
func (b *bench) settle() {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.t.Context(), limit)
	defer cancel()
	for {
		names, changed := b.Starting(ctx)
		if len(names) == 0 && ctx.Err() == nil {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			b.t.Fatalf("%v have not settled:\n%s", names, b.logs)
		}
	}
}

func (b *bench) begin() {
	ctx, cancel := context.WithCancel(context.Background())
	b.finished = make(chan error, 1)
	go func() { b.finished <- b.Run(ctx) }()
	once := sync.OnceFunc(func() {
		cancel()
		if err := <-b.finished; err != nil {
			b.t.Errorf("the host ended with %v", err)
		}
	})
	b.stop = once
	b.t.Cleanup(once)
}

// status gives one plugin's.
func (b *bench) status(name string) Status {
	b.t.Helper()
	for _, s := range b.List() {
		if s.Name == name {
			return s
		}
	}
	return Status{}
}

// await waits until a plugin is as ok says.
func (b *bench) await(name string, ok func(Status) bool) Status {
	b.t.Helper()
	s, err := b.until(name, ok)
	if err != nil {
		b.t.Fatal(err)
	}
	return s
}

// until is await for any goroutine.
func (b *bench) until(name string, ok func(Status) bool) (Status, error) {
	timeout := time.After(limit)
	tick := time.NewTicker(20 * time.Millisecond) // not every field changes with a notice
	defer tick.Stop()
	for {
		s := b.status(name)
		if ok(s) {
			return s, nil
		}
		select {
		case <-b.moved:
		case <-tick.C:
		case <-timeout:
			return s, fmt.Errorf("%s stands at %+v\n%s", name, s, b.logs)
		}
	}
}

func (b *bench) awaitState(name string, states ...State) Status {
	b.t.Helper()
	return b.await(name, func(s Status) bool { return slices.Contains(states, s.State) })
}

// pinned makes a plugin of the directory: a copy of the test binary that finds its mode behind its end.
func (b *bench) pinned(name, mode string) Pin {
	b.t.Helper()
	self, err := os.ReadFile(ownExecutable)
	if err != nil {
		b.t.Fatal(err)
	}
	if i := strings.LastIndex(string(self[max(0, len(self)-200):]), trailer); i >= 0 {
		self = self[:max(0, len(self)-200)+i]
	}
	return b.file(name, string(self)+trailer+mode)
}

// file puts a file into the directory and pins it.
func (b *bench) file(name, content string) Pin {
	b.t.Helper()
	src := filepath.Join(b.t.TempDir(), "plugin")
	if err := os.WriteFile(src, []byte(content), 0o755); err != nil {
		b.t.Fatal(err)
	}
	// A process that another test starts meanwhile would hold the new file open for a moment, and nobody may run it then.
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	p, err := Add(b.t.Context(), b.dir, name, src)
	if err != nil {
		b.t.Fatal(err)
	}
	return p
}

// call runs an operation of a driver.
func (b *bench) call(ctx context.Context, key, op string, args string) (string, error) {
	d := b.reg.get(key)
	if d == nil {
		return "", fmt.Errorf("no driver %s among %s", key, b.reg.keys())
	}
	out, err := d.Invoke(driver.NewContext(ctx), driver.Call{Kind: "acme-test", Operation: op, Args: []byte(args)})
	return string(out), err
}

// wantCode checks a driver's error.
func wantCode(t *testing.T, err error, code string, retryable bool) {
	t.Helper()
	var e *driver.Error
	if !errors.As(err, &e) || e.Code != code || e.Retryable != retryable {
		t.Errorf("got %#v (%v), want %s, retryable %v", e, err, code, retryable)
	}
}
