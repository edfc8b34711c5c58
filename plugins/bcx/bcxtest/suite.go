// Package bcxtest is the conformance suite of bcx plugins: whatever language a plugin is written in, it is started as a
// real process and called over the wire.
package bcxtest

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// Plugin is a plugin under test and the calls that show how it behaves.
type Plugin struct {
	Host    bcx.HostConfig
	Start   Starter          // another host than bcx.Host; nil: bcx.Host with the configuration Host
	Driver  string           // id of the driver under test
	Config  json.RawMessage  // a configuration that works
	Secrets driver.SecretMap // what the calls need

	Results  []Case          // calls that end at once
	Progress Case            // reports progress with Done 1, 2, ... before its result
	Slow     driver.Call     // reports progress at once and runs for at least a minute
	Secret   Case            // works with Secrets, fails with credentials-unavailable without
	Stream   driver.Call     // a byte stream that gives back what it is sent; empty Kind: the driver has none
	Wrong    json.RawMessage // a configuration with one mistake against the schema ...
	WrongAt  string          // ... and the JSON pointer to it
	Sick     string          // NAME=value that makes the plugin unhealthy, and the value its reason; "" for one that always serves
}

// Case is a call and what comes of it: JSON, or an error.
type Case struct {
	Name      string
	Call      driver.Call
	Want      string // JSON
	Code      string // of the error
	Retryable bool
	Raw       bool // the arguments go to the plugin as they are, not as the host's positional array
}

// Started is a plugin that runs, whoever hosts it.
type Started struct {
	Driver *driver.Driver                           // the driver under test
	Conn   func(context.Context) (*bcx.Conn, error) // nil: the host keeps it to itself, and what needs it is left out
	Health func(context.Context) error              // nil: likewise
	Close  func()                                   // asks the plugin to stop, and waits for it
}

// Starter starts the plugin, with additional variables in its environment if the host allows any. It ends with the test.
type Starter func(t *testing.T, p Plugin, env ...string) Started

// Run runs the suite.
func Run(t *testing.T, p Plugin) {
	if p.Start == nil {
		p.Start = onHost
	}
	r := &run{p, p.Start(t, p)}
	t.Run("manifest", r.manifest)
	for _, c := range p.Results {
		t.Run("result/"+c.Name, func(t *testing.T) { r.check(t, c, p.Secrets) })
	}
	t.Run("progress in order", r.progress)
	t.Run("deadline", r.deadline)
	t.Run("cancel", r.cancel)
	t.Run("secrets", r.secrets)
	t.Run("validate", r.validate)
	t.Run("stream", r.stream)
	t.Run("mistakes", r.mistakes)
	t.Run("many at once", r.many)
	t.Run("health", r.health)
	t.Run("stop", r.stop)
}

// run is a plugin that runs.
type run struct {
	Plugin
	Started
}

// onHost starts a plugin on bcx.Host.
func onHost(t *testing.T, p Plugin, env ...string) Started {
	t.Helper()
	c := p.Host
	c.Env = slices.Concat(env, c.Env)
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	c.StartTimeout, c.ShutdownGrace = cmp.Or(c.StartTimeout, limit), cmp.Or(c.ShutdownGrace, limit)
	h := bcx.NewHost(c)
	drivers, err := h.Start(within(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = h.Close() })
	for _, d := range drivers {
		if d.ID() == p.Driver {
			return Started{Driver: d, Conn: h.Conn, Health: h.Health, Close: func() { _ = h.Close() }}
		}
	}
	t.Fatalf("the plugin serves no driver %s", p.Driver)
	return Started{}
}

// limit bounds what should take moments; a busy machine may take its time.
const limit = 5 * time.Minute

// within bounds a test.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

func (r *run) context(ctx context.Context, secrets driver.SecretMap) *driver.Context {
	c := driver.NewContext(ctx)
	c.Secrets, c.IdempotencyKey, c.TraceParent = secrets, "wf:1:main.1#0", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	return c
}

// do runs a call, with the configuration that works unless it has its own.
func (r *run) do(c *driver.Context, k Case) (json.RawMessage, error) {
	if k.Call.Config == nil {
		k.Call.Config = r.Config
	}
	if !k.Raw || r.Conn == nil {
		return r.Started.Driver.Invoke(c, k.Call)
	}
	conn, err := r.Conn(c)
	if err != nil {
		return nil, err
	}
	secrets := map[string]string{}
	for _, name := range r.Secrets.Names() {
		secrets[name] = r.Secrets[name]
	}
	return conn.Invoke(c, bcx.Request{DriverID: r.Plugin.Driver, Call: k.Call, Secrets: secrets})
}

func (r *run) check(t *testing.T, k Case, secrets driver.SecretMap) {
	t.Helper()
	out, err := r.do(r.context(within(t), secrets), k)
	if k.Code != "" {
		var e *driver.Error
		if !errors.As(err, &e) || e.Code != k.Code || e.Retryable != k.Retryable || e.Message == "" {
			t.Errorf("%s: %#v, want code %s, retryable %v", k.Call.Name(), err, k.Code, k.Retryable)
		}
		return
	}
	if err != nil {
		t.Errorf("%s: %v", k.Call.Name(), err)
		return
	}
	if !sameJSON(out, k.Want) {
		t.Errorf("%s gave %s, want %s", k.Call.Name(), out, k.Want)
	}
}

// sameJSON compares two values; {} and null are both nothing.
func sameJSON(got []byte, want string) bool {
	normal := func(b []byte) string {
		var v any
		if json.Unmarshal(b, &v) != nil {
			return "not JSON: " + string(b)
		}
		out, _ := json.Marshal(v)
		if string(out) == "null" {
			return "{}"
		}
		return string(out)
	}
	return normal(got) == normal([]byte(want))
}

func (r *run) manifest(t *testing.T) {
	if r.Conn == nil {
		t.Skip("the host keeps the connection to itself")
	}
	conn, err := r.Conn(within(t))
	if err != nil {
		t.Fatal(err)
	}
	first, err := conn.Describe(within(t))
	if err != nil {
		t.Fatal(err)
	}
	again, err := conn.Describe(within(t))
	a, _ := json.Marshal(first)
	b, _ := json.Marshal(again)
	if err != nil || !bytes.Equal(a, b) {
		t.Errorf("Describe changes: %s, then %s (%v)", a, b, err)
	}
}

func (r *run) progress(t *testing.T) {
	c := r.context(within(t), r.Secrets)
	var seen []int64
	c.OnProgress = func(p driver.Progress) {
		if p.Phase == "" {
			t.Error("a progress message has no phase")
		}
		seen = append(seen, p.Done)
	}
	out, err := r.do(c, r.Progress)
	if err != nil || !sameJSON(out, r.Progress.Want) {
		t.Errorf("got %s, %v, want %s", out, err, r.Progress.Want)
	}
	for i, done := range seen {
		if done != int64(i+1) {
			t.Fatalf("progress came as %v", seen)
		}
	}
	if len(seen) < 2 {
		t.Fatalf("only %d progress messages", len(seen))
	}
}

// deadline wants the plugin itself to end a call when its time is up. A second later the host does, which must not be needed;
// but a busy machine may hold a plugin up, so that one answer of several is enough.
func (r *run) deadline(t *testing.T) {
	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		_, err := r.do(r.context(ctx, r.Secrets), Case{Call: r.Slow})
		cancel()
		if code(err) != driver.CodeTimeout {
			t.Fatalf("got %v, want timeout", err)
		}
		if !errors.Is(err, context.DeadlineExceeded) { // which is the host's own
			return
		}
	}
	t.Error("the host had to end every call, the plugin ended none")
}

func (r *run) cancel(t *testing.T) {
	ctx, cancel := context.WithCancel(within(t))
	defer cancel()
	c := r.context(ctx, r.Secrets)
	c.OnProgress = func(driver.Progress) { cancel() }
	if _, err := r.do(c, Case{Call: r.Slow}); code(err) != driver.CodeCancelled {
		t.Errorf("got %v, want cancelled", err)
	}
	r.check(t, r.Progress, r.Secrets) // and the plugin goes on
}

func (r *run) secrets(t *testing.T) {
	r.check(t, r.Secret, r.Secrets)
	without := r.Secret
	without.Code, without.Retryable = driver.CodeNoCredentials, false
	r.check(t, without, driver.SecretMap{})
	other := driver.SecretMap{"another": "one"}
	r.check(t, without, other)
}

func (r *run) validate(t *testing.T) {
	d := r.Started.Driver
	if err := d.ValidateLive(r.context(within(t), r.Secrets), r.Config); err != nil {
		t.Error(err)
	}
	if issues := d.ValidateConfig(r.Wrong); len(issues) == 0 || issues[0].Pointer != r.WrongAt {
		t.Errorf("the host finds %v, want an issue at %s", issues, r.WrongAt)
	}
	if r.Conn == nil {
		return
	}
	conn, err := r.Conn(within(t))
	if err != nil {
		t.Fatal(err)
	}
	issues, err := conn.Validate(r.context(within(t), nil), r.Plugin.Driver, r.Wrong, nil)
	if err != nil || len(issues) == 0 || issues[0].Pointer != r.WrongAt || issues[0].Message == "" || issues[0].Code != "" {
		t.Errorf("the plugin finds %+v (%v), want an issue at %s", issues, err, r.WrongAt)
	}
	if issues, err := conn.Validate(r.context(within(t), nil), "nobody", r.Config, nil); err != nil || len(issues) != 1 {
		t.Errorf("a driver nobody serves: %v, %v, want an issue", issues, err)
	}
}

func (r *run) stream(t *testing.T) {
	if r.Stream.Kind == "" {
		t.Skip("the driver has no byte stream")
	}
	r.Stream.Config = r.Config
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	s, err := r.Started.Driver.Stream(r.context(ctx, r.Secrets), r.Stream)
	if err != nil {
		t.Fatal(err)
	}
	cancel() // bounds the opening alone
	sent := bytes.Repeat([]byte("every byte \x00\xff\r\n"), 20_000)
	go func() { _, _ = s.Write(sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(s, got); err != nil || !bytes.Equal(got, sent) {
		t.Errorf("the echo differs (%v)", err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	bad := r.Stream
	bad.Operation = "noSuchStream"
	if _, err := r.Started.Driver.Stream(r.context(within(t), r.Secrets), bad); code(err) != driver.CodeUnsupported {
		t.Errorf("a stream nobody serves: %v", err)
	}
}

func (r *run) many(t *testing.T) {
	var all sync.WaitGroup
	for range 64 {
		all.Go(func() { r.check(t, r.Progress, r.Secrets) })
	}
	all.Wait()
}

func (r *run) health(t *testing.T) {
	if r.Health == nil {
		t.Skip("the host keeps it to itself")
	}
	if err := r.Health(within(t)); err != nil {
		t.Error(err)
	}
	if r.Sick == "" {
		return
	}
	sick := r.Start(t, r.Plugin, r.Sick)
	_, why, _ := strings.Cut(r.Sick, "=")
	if err := sick.Health(within(t)); code(err) != driver.CodeUnavailable || !strings.Contains(err.Error(), why) {
		t.Errorf("a sick plugin says %v", err)
	}
}

// stop closes the host while a call runs: the call finishes, and so does the plugin.
func (r *run) stop(t *testing.T) {
	c := r.context(within(t), r.Secrets)
	var once sync.Once
	closed := make(chan struct{})
	c.OnProgress = func(driver.Progress) {
		once.Do(func() { go func() { defer close(closed); r.Close() }() })
	}
	out, err := r.do(c, r.Progress)
	if err != nil || !sameJSON(out, r.Progress.Want) {
		t.Errorf("the call under way: %s, %v", out, err)
	}
	<-closed
	if _, err := r.do(r.context(within(t), r.Secrets), r.Progress); code(err) != driver.CodeUnavailable {
		t.Errorf("a call after the end: %v", err)
	}
}

func code(err error) string {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
