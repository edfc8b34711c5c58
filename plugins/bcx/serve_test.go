package bcx

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/plugins/driver"
)

var config = json.RawMessage(`{"address":"192.0.2.10"}`)

func call(kind, op, args string) driver.Call {
	return driver.Call{Kind: kind, Operation: op, Config: config, Args: json.RawMessage(args)}
}

func TestServeByHand(t *testing.T) {
	err := Serve(t.Context(), Options{Env: []string{"PATH=/usr/bin"}}, echoDefinition())
	if !errors.Is(err, ErrNotHosted) {
		t.Fatal(err)
	}
}

func TestDescribe(t *testing.T) {
	r := startRig(t, Options{PluginVersion: "1.0.0", Streams: []string{"acme-echo.tail"}}, echoDefinition())
	want := Description{PluginVersion: "1.0.0", Drivers: []Manifest{{
		ID: "echo", Version: "1.2.3", RunsOn: "site", Kinds: []string{"acme-echo", "console", "power"},
		ConfigSchema: echoDefinition().Config, Capabilities: []string{"virtual-media"},
		Streams:   []string{"acme-echo.tail", "console.open"},
		RetrySafe: map[string][]string{"acme-echo": {"busy", "hang"}, "power": {"getPower"}},
	}}}
	if diff := cmp.Diff(want, r.desc); diff != "" {
		t.Error(diff)
	}
}

func TestInvoke(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	for _, c := range []struct{ name, kind, op, args, want, code string }{
		{"known kind", "power", "getPower", "", `{"power":"on"}`, ""},
		{"positional", "acme-echo", "args", `["a",{"b":1}]`, `["a",{"b":1}]`, ""},
		{"one object", "acme-echo", "args", `{"b":1}`, `[{"b":1}]`, ""},
		{"one value", "acme-echo", "args", `"on"`, `["on"]`, ""},
		{"none", "acme-echo", "args", ``, `[]`, ""},
		{"defaults are the plugin's", "acme-echo", "config", ``, `{"address":"192.0.2.10","timeout":"30s"}`, ""},
		{"progress", "acme-echo", "count", ``, `100`, ""},
		{"bytes that are no text", "acme-echo", "binary", ``, `"\ufffd"`, ""},
		{"own code", "acme-echo", "own", ``, ``, "acme-fan-stuck"},
		{"plain error", "acme-echo", "plain", ``, ``, "driver-error"},
		{"panic", "acme-echo", "panic", ``, ``, "driver-error"},
		{"no such operation", "acme-echo", "none", ``, ``, "unsupported-operation"},
		{"secret not given", "acme-echo", "secret", `["username"]`, ``, "credentials-unavailable"},
	} {
		t.Run(c.name, func(t *testing.T) {
			out, err := d.Invoke(driver.NewContext(withTimeout(t)), call(c.kind, c.op, c.args))
			if codeOf(err) != c.code {
				t.Fatalf("error %v, want code %q", err, c.code)
			}
			var got, want any
			_ = json.Unmarshal(out, &got)
			_ = json.Unmarshal([]byte(c.want), &want)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestProgressComesInOrder(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	ctx := driver.NewContext(withTimeout(t))
	var got []int64
	ctx.OnProgress = func(p driver.Progress) { got = append(got, p.Done) }
	if _, err := d.Invoke(ctx, call("acme-echo", "count", "")); err != nil {
		t.Fatal(err)
	}
	for i := range got {
		if got[i] != int64(i) {
			t.Fatal(got)
		}
	}
	if len(got) != 100 {
		t.Fatal(len(got))
	}
}

func TestErrorsAreCleanAndRetryableOnlyWhereSafe(t *testing.T) {
	r := startRig(t, Options{}, echoDefinition())
	for op, retryable := range map[string]bool{"busy": true, "busyOnce": false} {
		_, err := r.conn.Invoke(driver.NewContext(withTimeout(t)), Request{DriverID: "echo", Call: call("acme-echo", op, "")})
		var e *driver.Error
		if !errors.As(err, &e) || e.Code != driver.CodeBusy || e.Retryable != retryable || e.Message != "come back later [31m" {
			t.Errorf("%s: %#v", op, err)
		}
	}
}

func TestDeadlineEndsWhatIgnoresIt(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	for _, op := range []string{"hang", "deaf"} {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := d.Invoke(driver.NewContext(ctx), call("acme-echo", op, ""))
		if codeOf(err) != driver.CodeTimeout {
			t.Errorf("%s: %v", op, err)
		}
	}
}

func TestCancelReachesThePlugin(t *testing.T) {
	ended := make(chan error, 1)
	def := echoDefinition()
	def.Implements["acme-echo"] = func(json.RawMessage) (any, error) {
		return invoker(func(ctx *driver.Context) (any, error) {
			ctx.Emit(driver.Progress{Phase: "started"})
			<-ctx.Done()
			ended <- ctx.Err()
			return nil, ctx.Err()
		}), nil
	}
	d := startRig(t, Options{}, def).remote(t, "echo")
	ctx, cancel := context.WithCancel(t.Context())
	c := driver.NewContext(ctx)
	c.OnProgress = func(driver.Progress) { cancel() }
	_, err := d.Invoke(c, call("acme-echo", "any", ""))
	if codeOf(err) != driver.CodeCancelled {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
}

// invoker is an implementation of one function.
type invoker func(*driver.Context) (any, error)

func (f invoker) Invoke(ctx *driver.Context, _ string, _ []json.RawMessage) (any, error) {
	return f(ctx)
}

func TestSecretsAndKeysTravel(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	ctx := driver.NewContext(withTimeout(t))
	ctx.Secrets = driver.SecretMap{"username": "admin"}
	ctx.IdempotencyKey, ctx.TraceParent = "wf:1:2#0", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for op, want := range map[string]string{"secret": `"admin"`, "key": `["wf:1:2#0","00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"]`} {
		out, err := d.Invoke(ctx, call("acme-echo", op, `["username"]`))
		if err != nil || string(out) != want {
			t.Errorf("%s: %s, %v", op, out, err)
		}
	}
}

// lazy resolves anything and lists nothing.
type lazy struct{ asked []string }

func (l *lazy) Resolve(_ context.Context, name string) (string, error) {
	l.asked = append(l.asked, name)
	return "value of " + name, nil
}

func TestReferencesOfDeclaredFieldsAreResolved(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	ctx, secrets := driver.NewContext(withTimeout(t)), &lazy{}
	ctx.Secrets = secrets
	c := call("acme-echo", "secret", `["secret://root/bmc"]`)
	c.Config = json.RawMessage(`{"address":"secret://root/not-declared","credentials":"secret://root/bmc"}`)
	out, err := d.Invoke(ctx, c)
	if err != nil || string(out) != `"value of secret://root/bmc"` {
		t.Fatal(string(out), err)
	}
	if diff := cmp.Diff([]string{"secret://root/bmc"}, secrets.asked); diff != "" {
		t.Error(diff)
	}
}

func TestValidate(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	ctx := driver.NewContext(withTimeout(t))
	if err := d.ValidateLive(ctx, config); codeOf(err) != driver.CodeNoCredentials {
		t.Error(err)
	}
	ctx.Secrets = driver.SecretMap{"username": "admin"}
	if err := d.ValidateLive(ctx, config); err != nil {
		t.Error(err)
	}
	r := startRig(t, Options{}, echoDefinition())
	issues, err := r.conn.Validate(ctx, "echo", json.RawMessage(`{"adress":1}`), nil)
	if err != nil || len(issues) != 2 || issues[0].Pointer != "/address" || issues[0].Code != "" {
		t.Error(issues, err)
	}
}

func TestConsoleEchoes(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	s, err := d.Stream(driver.NewContext(ctx), call("console", "open", ""))
	if err != nil {
		t.Fatal(err)
	}
	cancel() // bounds the opening alone
	sent := strings.Repeat("bcx ", 100_000)
	go func() { _, _ = io.WriteString(s, sent) }()
	got := make([]byte, len(sent))
	if _, err := io.ReadFull(s, got); err != nil || string(got) != sent {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Read(got); !errors.Is(err, io.ErrClosedPipe) {
		t.Fatal(err)
	}
}

func TestStreamIsNoResult(t *testing.T) {
	d := startRig(t, Options{}, echoDefinition()).remote(t, "echo")
	if _, err := d.Invoke(driver.NewContext(withTimeout(t)), call("console", "open", "")); codeOf(err) != driver.CodeUnsupported {
		t.Fatal(err)
	}
}

func TestHealth(t *testing.T) {
	sick := errors.New("the license\nhas expired")
	r := startRig(t, Options{Health: func(context.Context) error { return sick }}, echoDefinition())
	err := r.conn.Health(withTimeout(t))
	if codeOf(err) != driver.CodeUnavailable || err.Error() != "the license has expired" {
		t.Error(err)
	}
	if err := startRig(t, Options{}, echoDefinition()).conn.Health(withTimeout(t)); err != nil {
		t.Error(err)
	}
}

func TestEndOfStdinStopsGracefully(t *testing.T) {
	started, release := make(chan struct{}), make(chan struct{})
	def := echoDefinition()
	def.Implements["acme-echo"] = func(json.RawMessage) (any, error) {
		return invoker(func(*driver.Context) (any, error) { close(started); <-release; return "finished", nil }), nil
	}
	r := startRig(t, Options{}, def)
	done := make(chan error, 1)
	go func() {
		_, err := r.conn.Invoke(driver.NewContext(withTimeout(t)), Request{DriverID: "echo", Call: call("acme-echo", "any", "")})
		done <- err
	}()
	<-started
	r.stdin.Close()
	close(release)
	if err := <-done; err != nil {
		t.Error("the call under way failed:", err)
	}
	if err := <-r.over; err != nil {
		t.Error(err)
	}
	<-r.conn.Lost()
}

func TestGraceEnds(t *testing.T) {
	r := startRig(t, Options{ShutdownGrace: time.Millisecond}, echoDefinition())
	c := driver.NewContext(withTimeout(t))
	c.OnProgress = func(driver.Progress) { r.stdin.Close() }
	_, err := r.conn.Invoke(c, Request{DriverID: "echo", Call: call("acme-echo", "deaf", "")})
	if codeOf(err) != driver.CodeUnreachable {
		t.Error(err)
	}
	if err := <-r.over; err != nil {
		t.Error(err)
	}
}

func TestStrangersAreRefused(t *testing.T) {
	r := startRig(t, Options{}, echoDefinition())
	stranger, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]DialConfig{
		"another host":   {Handshake: r.hs, Identity: stranger},
		"another plugin": {Handshake: Handshake{Network: "unix", Address: r.hs.Address, Certificate: stranger.DER()}, Identity: r.host},
	} {
		conn, err := Dial(withTimeout(t), c)
		if err == nil { // TLS 1.3 tells a client late that its certificate was refused
			err = conn.Health(withTimeout(t))
			conn.Close()
		}
		if err == nil {
			t.Errorf("%s was let in", name)
		}
	}
}

func TestServeSaysWhatIsWrong(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	good := echoDefinition()
	wrong := echoDefinition()
	wrong.Version = "one"
	for want, c := range map[string]struct {
		o    Options
		defs []driver.Definition
	}{
		"serves 1 to 64 drivers, not 0": {Options{}, nil},
		"not a semantic version":        {Options{}, []driver.Definition{wrong}},
		"driver echo is served twice":   {Options{}, []driver.Definition{good, good}},
		"is an operation of no driver":  {Options{Streams: []string{"raid.tail"}}, []driver.Definition{good}},
		"neither unix nor tcp":          {Options{Network: "udp"}, []driver.Definition{good}},
		"shorter directory":             {Options{Env: Environ("", "/run/"+strings.Repeat("x", 100), id)}, []driver.Definition{good}},
		"is not an absolute path":       {Options{Env: Environ("", "run", id)}, []driver.Definition{good}},
		"reading BCX_CLIENT_CERT":       {Options{Env: []string{EnvCookie + "=" + Cookie, EnvClientCert + "=AAAA"}}, []driver.Definition{good}},
	} {
		if c.o.Env == nil {
			c.o.Env = Environ("", shortDir(t), id)
		}
		c.o.IgnoreSignals, c.o.Stdout = true, io.Discard
		if err := Serve(t.Context(), c.o, c.defs...); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// TestTCP serves on loopback, as on systems without Unix sockets.
func TestTCP(t *testing.T) {
	id, err := NewIdentity()
	if err != nil {
		t.Fatal(err)
	}
	out, stdout := io.Pipe()
	ctx, stop := context.WithCancel(t.Context())
	over := make(chan error, 1)
	go func() {
		over <- Serve(ctx, Options{Network: "tcp", IgnoreSignals: true, Env: Environ("", "", id), Stdout: stdout}, echoDefinition())
	}()
	hs, err := ReadHandshake(withTimeout(t), out)
	if err != nil || hs.Network != "tcp" || hs.Within("/run/x") == nil {
		t.Fatal(hs, err)
	}
	conn, err := Dial(withTimeout(t), DialConfig{Handshake: hs, Identity: id})
	if err != nil {
		t.Fatal(err)
	}
	if err := conn.Health(withTimeout(t)); err != nil {
		t.Error(err)
	}
	conn.Close()
	stop()
	if err := <-over; err != nil {
		t.Error(err)
	}
}
