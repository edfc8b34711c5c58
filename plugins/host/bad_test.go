package host

import (
	"context"
	"fmt"
	"maps"
	"os"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// noise is how much more the host may hold after a bad plugin than before it, in bytes: noise of the runtime.
const noise = 4 << 20

// unharmed gives a function that wants this process to hold no more descriptors than now, and as much memory.
func unharmed(t *testing.T) func() {
	t.Helper()
	heap := func() int64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc)
	}
	open, used := descriptors(t), heap()
	return func() {
		t.Helper()
		if now, same := settled(func() (map[string]int, bool) { now := descriptors(t); return now, maps.Equal(open, now) }); !same {
			t.Errorf("open descriptors were %v and are %v", open, now)
		}
		if now := heap(); now > used+noise {
			t.Errorf("the host held %d bytes and holds %d", used, now)
		}
	}
}

// Bad plugins end in a clear state, with a sentence that names the fault. Those that may get better are tried again after the
// back-off and end as they did; the others wait for a person. The host, and the plugin beside them, are unharmed.
func TestBadPlugins(t *testing.T) {
	newBench(t, "ok:good=fine@1.0.0").start().stop() // whatever the process opens once
	took := limit.String() + " have passed"
	for mode, want := range map[string]struct {
		state State
		says  string
	}{
		"crash":             {BackOff, "the plugin did not introduce itself: it ended before its handshake; its process ended: exit status 3"},
		"silent":            {BackOff, "the plugin did not introduce itself in time: " + took},
		"endless-line":      {BackOff, "the plugin did not introduce itself: its first line is longer than 8192 bytes: \"" + strings.Repeat("x", 120) + "…\""},
		"foreign":           {Refused, `the plugin speaks another version of the bcx protocol: version "2" instead of 1`},
		"version-two":       {Refused, "asking what it serves: the plugin speaks another version of the bcx protocol: version 2 instead of 1"},
		"wrong-certificate": {BackOff, "the plugin could not be authenticated: the other side shows another certificate than the one it announced"},
		"outside":           {BackOff, `the plugin did not introduce itself: it listens on unix "/tmp/plugin.sock", outside the directory it was given`},
		"garbage":           {BackOff, "the plugin could not be authenticated: tls: first record does not look like a TLS handshake"},
		"garbage-frames":    {BackOff, "the plugin does not speak gRPC: error reading server preface: http2: frame too large"},
		"describe-hangs":    {BackOff, "it did not say in time what it serves: " + took},
		"no-driver":         {BackOff, "asking what it serves: the plugin describes 0 drivers, it must be 1 to 64"},
		"bad-id":            {BackOff, `asking what it serves: the plugin describes its driver "../etc" wrongly: ID: "../etc" is not an id: use 1 to 63 lower-case letters, digits and hyphens, a letter first`},
		"built-in-id":       {Refused, "none of its drivers can be taken: redfish@1.0.0 is taken"},
	} {
		t.Run(mode, func(t *testing.T) {
			defer unharmed(t)()
			b := newBench(t, "bad:"+mode, "ok:good=fine@1.0.0")
			late := mode == "silent" || mode == "describe-hangs"
			if late {
				b.cfg.Bundled = b.cfg.Bundled[:1] // the clock is moved for this one
			}
			b.begin()
			defer b.stop()
			pass := func(starts int) {
				t.Helper()
				if mode == "describe-hangs" { // its handshake is over once it was asked
					b.await("bad", func(Status) bool { l, _ := b.Logs("bad", starts); return len(l) == starts })
				}
				if late {
					b.clock.asleep(t, limit)
					b.clock.advance(limit)
				}
			}
			check := func(restarts int, next time.Duration) {
				t.Helper()
				s := b.await("bad", func(s Status) bool { return s.State == want.state && s.Restarts >= restarts })
				if s.Reason != want.says || s.LastErr != s.Reason || s.PID != 0 || s.Serving || s.Restarts != restarts {
					t.Errorf("it stands at %+v, want %s, %q\n%s", s, want.state, want.says, b.logs)
				}
				if (want.state == Refused) != (s.WayOut != "") || (want.state == Refused) != s.Next.IsZero() || next > 0 && !s.Next.Equal(b.clock.Now().Add(next)) {
					t.Errorf("it is tried again at %s, now is %s, the way out is %q", s.Next, b.clock.Now(), s.WayOut)
				}
			}
			pass(1)
			b.settle()
			if want.state == Refused {
				check(0, 0)
			} else {
				check(0, firstBackOff)
				b.clock.asleep(t, firstBackOff)
				b.clock.advance(firstBackOff)
				pass(2)
				if next := 2 * firstBackOff; late {
					check(1, firstBackOff) // its run was longer than what brings the back-off to its beginning
				} else {
					check(1, next)
				}
			}
			if !late {
				if _, err := b.call(t.Context(), "fine@1.0.0", "ping", ""); err != nil {
					t.Errorf("the other plugin: %v", err)
				}
			}
			if h := b.holds(); h.dirs != len(b.cfg.Bundled)-1 || h.sockets != h.dirs {
				t.Errorf("left behind: %+v", h)
			}
		})
	}
}

// A plugin that writes a gigabyte to its log starts and works; little of it is kept or forwarded.
func TestFloodOfLog(t *testing.T) {
	newBench(t, "ok:good=fine@1.0.0").start().stop() // whatever the process opens once
	defer unharmed(t)()
	b := newBench(t, "a:flood=alpha@1.0.0").start()
	defer b.stop()
	if _, err := b.call(t.Context(), "alpha@1.0.0", "ping", ""); err != nil {
		t.Fatal(err)
	}
	// A last word that comes through shows that all before it was read.
	b.clock.advance(time.Second)
	if _, err := b.call(t.Context(), "alpha@1.0.0", "say", `["that was much"]`); err != nil {
		t.Fatal(err)
	}
	s := b.await("a", func(Status) bool {
		lines, err := b.Logs("a", 1)
		return err == nil && len(lines) == 1 && lines[0].Message == `"that was much"`
	})
	if s.State != Running || s.Restarts != 0 || !s.Serving || s.Reason != "" {
		t.Errorf("it stands at %+v", s)
	}
	lines, err := b.Logs("a", 1000)
	if err != nil || len(lines) > lineBurst+2 || !strings.Contains(lines[len(lines)-2].Message, "dropped") || len(b.logs.all()) > 1<<20 {
		t.Errorf("%d lines are kept, %d bytes were forwarded, %v", len(lines), len(b.logs.all()), err)
	}
}

// What a plugin does with a call ends with the call's deadline, whatever it is, and in a clear error; the plugin, which may
// serve other calls well, goes on.
func TestCallsThatBreakTheProtocol(t *testing.T) {
	newBench(t, "ok:good=fine@1.0.0").start().stop() // whatever the process opens once
	for mode, want := range map[string]struct {
		mode, op   string // of the plugin, and what is called
		code, says string
	}{
		"progress without an end":  {"endless-progress", "x", driver.CodeTimeout, "the operation did not end before its deadline"},
		"progress of the SDK's":    {"good=acme@1.0.0", "progress", driver.CodeTimeout, "the operation did not end before its deadline"},
		"a result after an error":  {"result-after-error", "x", driver.CodeDriverError, "the plugin does not keep to the protocol: it went on after the end of acme-test.x"},
		"silence about its health": {"health-hangs", "x", "", ""},
	} {
		t.Run(mode, func(t *testing.T) {
			defer unharmed(t)()
			b := newBench(t, "a:"+want.mode).start()
			defer b.stop()
			for range 2 {
				deadline := limit
				if want.code == driver.CodeTimeout {
					deadline = time.Second
				}
				ctx, cancel := context.WithTimeout(t.Context(), deadline)
				_, err := b.call(ctx, "acme@1.0.0", want.op, "")
				cancel()
				switch e := driver.AsError(err); {
				case want.code == "" && err != nil:
					t.Errorf("the call gave %v", err)
				case want.code != "" && (e.Code != want.code || e.Message != want.says || e.Retryable):
					t.Errorf("the call gave %#v, want %s, %q", e, want.code, want.says)
				}
			}
			if s := b.status("a"); s.State != Running || s.Calls != 0 || s.Restarts != 0 || s.LastErr != "" {
				t.Errorf("it stands at %+v", s)
			}
		})
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
