package host

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// Bad plugins end in a clear state, and the host lives.
func TestBadPlugins(t *testing.T) {
	for mode, want := range map[string]struct {
		state State
		says  string
	}{
		"crash":             {BackOff, "exit status 3"},
		"silent":            {BackOff, "in time"},
		"endless-line":      {BackOff, "longer than"},
		"foreign":           {Refused, "version"},
		"version-two":       {Refused, "version"},
		"wrong-certificate": {BackOff, "certificate"},
		"outside":           {BackOff, "outside"},
		"garbage":           {BackOff, ""},
		"describe-hangs":    {BackOff, "asking what it serves: 5m0s have passed"},
		"no-driver":         {BackOff, "0 drivers"},
		"bad-id":            {BackOff, "wrongly"},
		"built-in-id":       {Refused, "taken"},
	} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			b := newBench(t, "bad:"+mode, "ok:good=fine@1.0.0")
			late := mode == "silent" || mode == "describe-hangs"
			if late {
				b.cfg.Bundled = b.cfg.Bundled[:1] // the clock is moved for this one
			}
			b.begin()
			if mode == "describe-hangs" { // its handshake is over once it was asked
				b.await("bad", func(Status) bool { l, _ := b.Logs("bad", 1); return len(l) == 1 })
			}
			if late {
				b.clock.asleep(t, limit)
				b.clock.advance(limit)
			}
			b.settle()
			s := b.status("bad")
			if s.State != want.state || !strings.Contains(s.Reason, want.says) || s.PID != 0 {
				t.Errorf("it stands at %+v, want %s, %q\n%s", s, want.state, want.says, b.logs)
			}
			if len(b.cfg.Bundled) > 1 {
				if _, err := b.call(t.Context(), "fine@1.0.0", "ping", ""); err != nil {
					t.Errorf("the other plugin: %v", err)
				}
			}
			if dirs, err := os.ReadDir(b.run); err != nil || len(dirs) > len(b.cfg.Bundled)-1 {
				t.Errorf("left behind: %v, %v", dirs, err)
			}
		})
	}
}

// A plugin that writes a gigabyte to its log starts and works; little of it is kept or forwarded.
func TestFloodOfLog(t *testing.T) {
	b := newBench(t, "a:flood=alpha@1.0.0").start()
	if _, err := b.call(t.Context(), "alpha@1.0.0", "ping", ""); err != nil {
		t.Fatal(err)
	}
	// A last word that comes through shows that all before it was read.
	b.clock.advance(time.Second)
	if _, err := b.call(t.Context(), "alpha@1.0.0", "say", `["that was much"]`); err != nil {
		t.Fatal(err)
	}
	b.await("a", func(Status) bool {
		lines, err := b.Logs("a", 1)
		return err == nil && len(lines) == 1 && lines[0].Message == `"that was much"`
	})
	lines, err := b.Logs("a", 1000)
	if err != nil || len(lines) > lineBurst+2 || !strings.Contains(lines[len(lines)-2].Message, "dropped") || len(b.logs.all()) > 1<<20 {
		t.Errorf("%d lines are kept, %d bytes were forwarded, %v", len(lines), len(b.logs.all()), err)
	}
}

// What a plugin does with a call ends with the call's deadline, whatever it is.
func TestCallsThatBreakTheProtocol(t *testing.T) {
	for mode, want := range map[string]string{"endless-progress": "", "result-after-error": "", "health-hangs": "ok"} {
		t.Run(mode, func(t *testing.T) {
			b := newBench(t, "a:"+mode).start()
			deadline := 2 * time.Second
			if want == "ok" {
				deadline = limit
			}
			ctx, cancel := context.WithTimeout(t.Context(), deadline)
			defer cancel()
			_, err := b.call(ctx, "acme@1.0.0", "x", "")
			var e *driver.Error
			if want == "" && (!errors.As(err, &e) || e.Retryable) || want == "ok" && err != nil {
				t.Errorf("the call gave %v", err)
			}
			if _, err := b.call(ctx, "acme@1.0.0", "x", ""); err == nil && want == "" {
				t.Error("the call worked")
			}
			if s := b.status("a"); s.State != Running || s.Calls != 0 {
				t.Errorf("it stands at %+v", s)
			}
		})
	}
	b := newBench(t, "a:good=alpha@1.0.0").start()
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	if _, err := b.call(ctx, "alpha@1.0.0", "progress", ""); driver.AsError(err).Code != driver.CodeTimeout {
		t.Errorf("endless progress gave %v", err)
	}
}

// A sandbox that cannot be had as configured is not tried again and again: the plugin waits for another configuration.
func TestMisconfiguredSandbox(t *testing.T) {
	for name, tt := range map[string]struct {
		cfg  sandbox.Config
		root bool
		says string
	}{
		"an account that is not there": {sandbox.Config{Enabled: true, User: "nobody-has-this"}, true, `no account "nobody-has-this"`},
		"an unusable cgroup":           {sandbox.Config{Enabled: true, Cgroup: "/nowhere/plugins"}, false, "cgroup /nowhere/plugins cannot be used"},
	} {
		t.Run(name, func(t *testing.T) {
			if tt.root && os.Geteuid() != 0 {
				t.Skip("left out: another account for plugins needs root")
			}
			b := newBench(t, "a:good=alpha@1.0.0")
			var err error
			if b.cfg.Sandbox, err = sandbox.New(tt.cfg); err != nil {
				t.Fatal(err)
			}
			s := b.start().status("a")
			if s.State != Refused || !strings.Contains(s.Reason, tt.says) || !s.Next.IsZero() || !strings.Contains(s.WayOut, "config.toml") {
				t.Errorf("it stands at %+v", s)
			}
			if said, _ := b.events.Load("plugin.refused"); !strings.Contains(fmt.Sprint(said), tt.says) {
				t.Errorf("the event says %v", said)
			}
		})
	}
}
