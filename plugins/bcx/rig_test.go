package bcx

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// rig is a plugin served in this process over a real socket, and the connection to it.
type rig struct {
	conn  *Conn
	desc  Description
	stdin io.Closer
	over  chan error // what Serve returned
	dir   string
	host  *Identity
	hs    Handshake
	stop  context.CancelFunc
}

// startRig serves definitions. It ends with the test.
func startRig(t *testing.T, o Options, defs ...driver.Definition) *rig {
	t.Helper()
	r := &rig{over: make(chan error, 1), dir: shortDir(t)}
	var err error
	if r.host, err = NewIdentity(); err != nil {
		t.Fatal(err)
	}
	stdin, hold := io.Pipe()
	out, stdout := io.Pipe()
	r.stdin = hold
	o.Env, o.Stdin, o.Stdout = Environ("/usr/bin", r.dir, r.host), stdin, stdout
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	ctx, stop := context.WithCancel(t.Context())
	r.stop = stop
	finished := make(chan struct{})
	go func() {
		err := Serve(ctx, o, defs...)
		stdout.CloseWithError(io.EOF)
		r.over <- err
		close(finished)
	}()
	t.Cleanup(func() { hold.Close(); stop(); <-finished })
	r.hs, err = ReadHandshake(withTimeout(t), out)
	if err != nil {
		t.Fatal(err, <-r.over)
	}
	if err := r.hs.Within(r.dir); err != nil {
		t.Fatal(err)
	}
	r.conn, err = Dial(withTimeout(t), DialConfig{Handshake: r.hs, Identity: r.host})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { r.conn.Close() })
	if r.desc, err = r.conn.Describe(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	return r
}

// remote is the proxy of a driver of the rig.
func (r *rig) remote(t *testing.T, id string) *driver.Driver {
	t.Helper()
	for _, m := range r.desc.Drivers {
		if m.ID == id {
			d, err := driver.Define(Remote(m, func(*driver.Context) (*Conn, error) { return r.conn, nil }))
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
	}
	t.Fatalf("the plugin describes no %s: %+v", id, r.desc)
	return nil
}

// limit bounds what should take milliseconds; a busy machine may take its time.
const limit = 5 * time.Minute

func withTimeout(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	t.Cleanup(cancel)
	return ctx
}

// shortDir is a temporary directory whose path leaves room for a socket's name.
func shortDir(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bcx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	return filepath.Clean(dir)
}

// echo is a driver whose behaviour its arguments choose.
type echo struct {
	config json.RawMessage
	held   *sync.Map // names of calls under way -> their context
}

func echoDefinition() driver.Definition {
	held := &sync.Map{}
	make := func(config json.RawMessage) (any, error) { return &echo{config: config, held: held}, nil }
	return driver.Definition{
		ID: "echo", Version: "1.2.3", RunsOn: driver.RunsOnSite, Capabilities: []string{"virtual-media"},
		Config: []byte(`{"type":"object","required":["address"],"additionalProperties":false,"properties":{
			"address":{"type":"string"},"credentials":{"type":"string","x-bc":{"kind":"secret"}},"timeout":{"type":"string","default":"30s"}}}`),
		Implements: map[string]driver.Factory{
			"acme-echo": make,
			"power":     make,
			"console":   func(json.RawMessage) (any, error) { return echoConsole{}, nil },
		},
		RetrySafe: map[string][]string{"acme-echo": {"busy", "hang"}, "power": {"getPower"}},
		Validate: func(ctx *driver.Context, config json.RawMessage) error {
			if _, err := ctx.Secret("username"); err != nil {
				return err
			}
			return nil
		},
	}
}

// Invoke serves both kinds by name.
func (e *echo) Invoke(ctx *driver.Context, op string, args []json.RawMessage) (any, error) {
	switch op {
	case "getPower":
		return driver.PowerReading{Power: driver.PowerOn}, nil
	case "args":
		return args, nil
	case "config":
		return e.config, nil
	case "count":
		for i := range int64(100) {
			ctx.Emit(driver.Progress{Phase: "count", Message: "n", Done: i, Total: 100})
		}
		return 100, nil
	case "secret":
		var name string
		if err := json.Unmarshal(args[0], &name); err != nil {
			return nil, err
		}
		return ctx.Secret(name)
	case "key":
		return []string{ctx.IdempotencyKey, ctx.TraceParent}, nil
	case "busy", "busyOnce":
		return nil, driver.Errorf(driver.CodeBusy, "come back later\x1b[31m\n\u202e").Again()
	case "own":
		return nil, driver.Errorf("acme-fan-stuck", "the fan is stuck")
	case "plain":
		return nil, errors.New("plain")
	case "panic":
		panic("hot")
	case "hang": // until its context ends
		ctx.Emit(driver.Progress{Phase: "hanging"})
		<-ctx.Done()
		return nil, ctx.Err()
	case "deaf": // for good
		ctx.Emit(driver.Progress{Phase: "hanging"})
		select {}
	case "left": // until its deadline, in milliseconds; null: it has none
		if until, has := ctx.Deadline(); has {
			return time.Until(until).Milliseconds(), nil
		}
		return nil, nil
	case "binary":
		return json.RawMessage("\"\xff\""), nil
	}
	return nil, driver.Errorf(driver.CodeUnsupported, "no %s", op)
}

// echoConsole gives back what is written to it.
type echoConsole struct{}

func (echoConsole) Open(ctx *driver.Context) (io.ReadWriteCloser, error) {
	r, w := io.Pipe()
	return struct {
		io.Reader
		io.Writer
		io.Closer
	}{r, w, w}, nil
}

// codeOf is the code of a driver's error.
func codeOf(err error) string {
	var e *driver.Error
	if errors.As(err, &e) {
		return e.Code
	}
	return ""
}
