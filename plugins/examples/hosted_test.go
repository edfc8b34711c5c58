package examples

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/bcx/bcxtest"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// TestMain is the sandbox's shim, or the tests: the appliance's host starts plugins through its own executable.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 && os.Args[1] == sandbox.ShimCommand {
		os.Exit(sandbox.RunShim(os.Args[2:]))
	}
	os.Exit(m.Run())
}

// limit is what a busy machine may take for what takes moments.
const limit = 5 * time.Minute

// registry keeps what the host registers.
type registry struct {
	mu      sync.Mutex
	drivers map[string]*driver.Driver
}

func (r *registry) Register(d *driver.Driver, _ string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drivers[d.ID()] = d
	return nil
}

func (r *registry) Unregister(string, string)          {}
func (r *registry) SetUp(string, string, bool, string) {}

// confined gives a starter that runs a file as the appliance does: copied into a plugins directory, pinned, executed from
// the descriptor that was hashed, under the sandbox.
func confined(file string) bcxtest.Starter {
	return func(t *testing.T, p bcxtest.Plugin, _ ...string) bcxtest.Started {
		t.Helper()
		dir := t.TempDir()
		run, err := os.MkdirTemp("", "bcx") // a socket's path is short
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { os.RemoveAll(run) })
		for _, d := range []string{dir, run} {
			if err := os.Chmod(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := host.Add(t.Context(), dir, "cooling", file); err != nil {
			t.Fatal(err)
		}
		box, err := sandbox.New(sandbox.Config{Enabled: true, Landlock: true, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		reg := &registry{drivers: map[string]*driver.Driver{}}
		h, err := host.New(host.Config{Dir: dir, RunDir: run, Sandbox: box, Registry: reg, Path: os.Getenv("PATH"),
			StartLimit: limit, HealthLimit: limit, Drain: limit, Grace: limit})
		if err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(context.Background())
		over := make(chan struct{})
		go func() { defer close(over); _ = h.Run(ctx) }()
		end := func() { stop(); <-over }
		t.Cleanup(end)
		h.Starting(t.Context()) // until it knows the plugin
		s, err := h.Await(t.Context(), "cooling")
		if err != nil {
			t.Fatal(err)
		}
		if s.State != host.Running {
			t.Fatalf("the plugin stands at %+v", s)
		}
		if !s.Sandbox.Confined {
			t.Logf("the sandbox of this machine lacks: %v", s.Sandbox.Missing)
		}
		serving := func(context.Context) error {
			if s := h.List()[0]; !s.Serving {
				return errors.New(s.Message)
			}
			return nil
		}
		return bcxtest.Started{Driver: reg.drivers[p.Driver], Health: serving, Close: end}
	}
}

func TestGoConfined(t *testing.T) {
	file := buildGo(t)
	p := cooling(t, file)
	p.Start, p.Sick = confined(file), "" // the environment is not the test's to choose
	bcxtest.Run(t, p)
}

func TestJavaScriptConfined(t *testing.T) {
	file := bundleJavaScript(t)
	p := cooling(t, file)
	p.Start, p.Sick = confined(file), "" // the environment is not the test's to choose
	bcxtest.Run(t, p)
}
