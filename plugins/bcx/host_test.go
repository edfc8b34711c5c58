package bcx

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// startHost runs the test binary in a role until the test ends.
func startHost(t *testing.T, c HostConfig) (*Host, *driver.Driver) {
	t.Helper()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	h := NewHost(c)
	drivers, err := h.Start(withTimeout(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { h.Close() })
	return h, drivers[0]
}

func TestHostRestartsWhatCrashed(t *testing.T) {
	c := inRole(t, "echo")
	c.RestartDelay = time.Millisecond
	h, d := startHost(t, c)
	for range 3 {
		first := h.process()
		ctx := driver.NewContext(withTimeout(t))
		ctx.OnProgress = func(driver.Progress) { first.kill() }
		_, err := d.Invoke(ctx, call("acme-echo", "hang", ""))
		var e *driver.Error
		if !errors.As(err, &e) || e.Code != driver.CodeUnreachable || !e.Retryable {
			t.Fatalf("the call under way: %#v", err)
		}
		if _, err := d.Invoke(driver.NewContext(withTimeout(t)), call("power", "getPower", "")); err != nil {
			t.Fatal("the call after it:", err)
		}
		if _, err := os.Stat(first.dir); !errors.Is(err, os.ErrNotExist) {
			t.Error("the socket's directory was left behind:", err)
		}
	}
}

// A plugin that comes back with other drivers is logged, and the drivers it was started for stay, and are served.
func TestHostKeepsTheFirstDrivers(t *testing.T) {
	c := inRole(t, "changing")
	var log bytes.Buffer
	c.Env = append(c.Env, "BCX_TEST_MARK="+filepath.Join(t.TempDir(), "mark"))
	c.RestartDelay, c.Logger = time.Millisecond, slog.New(slog.NewTextHandler(&log, nil))
	h, d := startHost(t, c)
	version := d.Version()
	first := h.process()
	ctx := driver.NewContext(withTimeout(t))
	ctx.OnProgress = func(driver.Progress) { first.kill() }
	if _, err := d.Invoke(ctx, call("acme-echo", "hang", "")); err == nil {
		t.Fatal("the call outlived its plugin")
	}
	if _, err := d.Invoke(driver.NewContext(withTimeout(t)), call("power", "getPower", "")); err != nil || d.Version() != version {
		t.Errorf("%s, it was %s: %v", d.Version(), version, err)
	}
	if err := h.Close(); err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(log.String(), "the first ones stay") {
		t.Errorf("the log says %s", &log)
	}
}

// process is the run of now.
func (h *Host) process() *process {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.now
}

func TestHostStopsStartingAChangedFile(t *testing.T) {
	c := inRole(t, "echo")
	copied := filepath.Join(t.TempDir(), "plugin")
	binary, err := os.ReadFile(c.Command[0])
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, binary, 0o700); err != nil {
		t.Fatal(err)
	}
	c.Command, c.RestartDelay = []string{copied}, time.Millisecond
	h, d := startHost(t, c)
	if err := os.Rename(copied, copied+".old"); err != nil { // a running file cannot be written
		t.Fatal(err)
	}
	if err := os.WriteFile(copied, append(binary, 0), 0o700); err != nil {
		t.Fatal(err)
	}
	h.process().kill()
	ctx := driver.NewContext(withTimeout(t))
	for {
		_, err = d.Invoke(ctx, call("power", "getPower", ""))
		if err != nil && codeOf(err) != driver.CodeUnreachable { // else it met the dying process
			break
		}
	}
	if codeOf(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), "not the pinned one") {
		t.Fatal(err)
	}
	<-h.over
}

func TestHostCloseLetsCallsFinish(t *testing.T) {
	c := inRole(t, "echo")
	c.ShutdownGrace = limit
	h, d := startHost(t, c)
	ctx := driver.NewContext(withTimeout(t))
	closing := make(chan struct{})
	var once sync.Once
	ctx.OnProgress = func(driver.Progress) {
		once.Do(func() {
			go func() { defer close(closing); h.Close() }()
		})
	}
	if _, err := d.Invoke(ctx, call("acme-echo", "count", "")); err != nil {
		t.Error("the call under way:", err)
	}
	<-closing
	if _, err := d.Invoke(ctx, call("power", "getPower", "")); codeOf(err) != driver.CodeUnavailable {
		t.Error("a call after it:", err)
	}
}

func TestHostEndsWhatDoesNotEnd(t *testing.T) {
	c := inRole(t, "echo")
	c.ShutdownGrace = 50 * time.Millisecond
	h, d := startHost(t, c)
	ctx := driver.NewContext(withTimeout(t))
	ctx.OnProgress = func(driver.Progress) { go h.Close() }
	if _, err := d.Invoke(ctx, call("acme-echo", "deaf", "")); codeOf(err) != driver.CodeUnreachable {
		t.Error(err)
	}
	<-h.over
}

func TestBadStarts(t *testing.T) {
	for role, want := range map[string]string{
		"crash":        `ended before its handshake; its last words: "no license found"`,
		"hang":         "did not introduce itself in time",
		"chatty":       `not a handshake: "Welcome to Acme!"`,
		"endless line": "longer than 8192 bytes",
		"version 2":    `another version of the bcx protocol: version "2"`,
		"elsewhere":    "outside the directory it was given",
	} {
		t.Run(role, func(t *testing.T) {
			c := inRole(t, role)
			c.Logger = slog.New(slog.DiscardHandler)
			if role == "hang" {
				c.StartTimeout = 300 * time.Millisecond
			}
			_, err := NewHost(c).Start(withTimeout(t))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}

// CallTimeout is the deadline of calls that have none of their own.
func TestCallTimeout(t *testing.T) {
	c := inRole(t, "echo")
	left := func(ctx context.Context, d *driver.Driver) time.Duration {
		t.Helper()
		out, err := d.Invoke(driver.NewContext(ctx), call("acme-echo", "left", ""))
		var ms int64
		if err != nil || json.Unmarshal(out, &ms) != nil && string(out) != "{}" {
			t.Fatalf("%s, %v", out, err)
		}
		return time.Duration(ms) * time.Millisecond
	}
	_, without := startHost(t, c)
	c.CallTimeout = time.Hour
	_, with := startHost(t, c)
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Hour)
	defer cancel()
	if got := left(t.Context(), without); got != 0 {
		t.Errorf("a call without any deadline has %s", got)
	}
	if got := left(t.Context(), with); got > time.Hour || got < time.Hour-limit {
		t.Errorf("a call without its own deadline has %s", got)
	}
	if got := left(ctx, with); got < 10*time.Hour-limit {
		t.Errorf("a call with its own deadline has %s", got)
	}
	c.CallTimeout = 100 * time.Millisecond
	_, short := startHost(t, c)
	if _, err := short.Invoke(driver.NewContext(t.Context()), call("acme-echo", "hang", "")); codeOf(err) != driver.CodeTimeout {
		t.Errorf("a call that takes longer: %v", err)
	}
}

func TestPinIsCheckedFirst(t *testing.T) {
	c := inRole(t, "echo")
	c.SHA256 = strings.Repeat("0", 64)
	if _, err := NewHost(c).Start(withTimeout(t)); !errors.Is(err, ErrPin) {
		t.Fatal(err)
	}
}

func TestPinnedFile(t *testing.T) {
	for _, c := range []struct {
		command []string
		want    string // "" an error
	}{
		{[]string{"/opt/acme"}, "/opt/acme"},
		{[]string{"bin/acme"}, "/srv/bin/acme"},
		{[]string{"/usr/bin/node", "--enable-source-maps", "acme.js", "x"}, "/srv/acme.js"},
		{[]string{"nodejs", "/opt/acme.js"}, "/opt/acme.js"},
		{[]string{"bun", "run", "acme.ts"}, "/srv/acme.ts"},
		{[]string{"bun", "acme.ts"}, "/srv/acme.ts"},
		{[]string{"node"}, ""},
		{[]string{"no-such-program-of-acme"}, ""},
		{nil, ""},
	} {
		got, err := PinnedFile(c.command, "/srv")
		if got != c.want || (err == nil) != (c.want != "") {
			t.Errorf("%q: %q, %v", c.command, got, err)
		}
	}
}

func TestLoudPlugin(t *testing.T) {
	c := inRole(t, "loud")
	if !testing.Short() {
		c.Env = append(c.Env, "BCX_TEST_LOUD=full")
	}
	var log bytes.Buffer
	c.Logger = slog.New(slog.NewTextHandler(&log, nil))
	h, d := startHost(t, c)
	if _, err := d.Invoke(driver.NewContext(withTimeout(t)), call("power", "getPower", "")); err != nil {
		t.Fatal(err)
	}
	h.Close() // the log is written until the plugin is reaped
	if log.Len() > 1<<20 {
		t.Errorf("%d bytes of log", log.Len())
	}
	if !strings.Contains(log.String(), "lines were dropped") {
		t.Error("nobody is told of the dropped lines")
	}
}

func TestForwardLog(t *testing.T) {
	for name, c := range map[string]struct{ in, want string }{
		"json":            {`{"time":"2026-11-29T12:00:00Z","level":"WARN","msg":"slow","driver":"echo","n":3}`, `level=WARN msg=slow plugin.driver=echo plugin.n=3`},
		"no level":        {`{"msg":"x"}`, `level=INFO msg=x`},
		"not json":        {`panic: oh`, `level=WARN msg="panic: oh"`},
		"json, no object": {`17`, `level=WARN msg=17`},
		"a fake line":     {"{\"msg\":\"x\\nlevel=ERROR msg=fake\\u001b[2J\"}", `level=INFO msg="x level=ERROR msg=fake [2J"`},
		"a fake key":      {`{"msg":"x","a\nb":"c"}`, `level=INFO msg=x plugin."a b"=c`},
		"blank lines":     {"\n\r\n  \nx", `level=WARN msg=x`},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			log := slog.New(slog.NewTextHandler(&out, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
				if a.Key == slog.TimeKey {
					return slog.Attr{}
				}
				return a
			}}))
			forwardLog(strings.NewReader(c.in), log)
			if got := strings.TrimSpace(out.String()); got != c.want && got != strings.Replace(c.want, `plugin."a b"`, `"plugin.a b"`, 1) {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

func TestEnvironmentOfAPluginIsNotTheHosts(t *testing.T) {
	t.Setenv("ACME_PASSWORD", "hot")
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for _, kv := range (HostConfig{}).environ("/run/x", id) {
		if strings.Contains(kv, "hot") {
			t.Error(kv)
		}
	}
}

// TestNothingIsLeftBehind starts plugins and ends them in every way, and looks at descriptors and directories.
func TestNothingIsLeftBehind(t *testing.T) {
	tmp := shortDir(t)
	t.Setenv("TMPDIR", tmp)
	cycle := func(role string, end func(*Host)) {
		c := inRole(t, role)
		c.Logger, c.RestartDelay, c.ShutdownGrace = slog.New(slog.DiscardHandler), time.Millisecond, 10*time.Second
		h := NewHost(c)
		if _, err := h.Start(withTimeout(t)); err == nil {
			end(h)
			h.Close()
		}
	}
	all := func() {
		cycle("echo", func(*Host) {})
		cycle("echo", func(h *Host) { h.process().kill() })
		cycle("echo", func(h *Host) { h.process().conn.Close() })
		cycle("crash", nil)
		cycle("elsewhere", nil)
	}
	all()
	before := descriptors(t)
	for range 5 {
		all()
	}
	if after := descriptors(t); len(after) > len(before) {
		t.Errorf("%d descriptors, then %d: %v", len(before), len(after), after)
	}
	if left, err := os.ReadDir(tmp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// descriptors lists what this process has open.
func descriptors(t *testing.T) []string {
	t.Helper()
	dir, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Skip("there is no /proc/self/fd here:", err)
	}
	var out []string
	for _, d := range dir {
		to, _ := os.Readlink("/proc/self/fd/" + d.Name())
		out = append(out, d.Name()+" "+to)
	}
	return out
}
