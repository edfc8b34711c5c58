package rotate_test

import (
	"context"
	"encoding/json"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/app/metal/rotate"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/store"
)

// bmc is a controller with one account.
type bmc struct {
	mu       sync.Mutex
	password string
	away     bool                      // it does not answer
	refuses  bool                      // it takes no new password
	changes  int                       // of the password
	rotated  func(ctx *driver.Context) // called after a change
}

func (b *bmc) login(password string) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.away:
		return driver.Errorf(driver.CodeUnreachable, "no answer")
	case password != b.password:
		return driver.Errorf(driver.CodeAuthFailed, "refused")
	}
	return nil
}

// Invoke serves management.rotateCredential.
func (b *bmc) Invoke(ctx *driver.Context, op string, args []json.RawMessage) (any, error) {
	old, _ := ctx.Secret("password")
	if err := b.login(old); err != nil {
		return nil, err
	}
	next, err := ctx.Secret("newPassword")
	if err != nil || len(args) == 0 || string(args[0]) != "null" {
		return nil, driver.Errorf(driver.CodeInvalidArgs, "the new password is not a secret alone: %s", args)
	}
	b.mu.Lock()
	if b.refuses {
		b.mu.Unlock()
		return nil, driver.Errorf("policy", "the password is too long")
	}
	b.password, b.changes = next, b.changes+1
	b.mu.Unlock()
	if b.rotated != nil {
		b.rotated(ctx)
	}
	return nil, nil
}

// bench is an engine over a real store, with one machine.
type bench struct {
	*rotate.Verbs
	b     *bmc
	db    *store.DB
	vault *secret.Vault
	flows *workflow.Engine
}

const first = "Old-Pl4nted"

func newBench(t *testing.T) *bench {
	t.Helper()
	dir := t.TempDir()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(dir, "bcd.db")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	x := &bench{b: &bmc{password: first}, db: db}
	if x.vault, err = secret.Open(secret.Config{KeyFile: filepath.Join(dir, "key"), Store: db}); err != nil {
		t.Fatal(err)
	}
	if err := x.vault.Put(t.Context(), "shared", secret.Login("admin", first)); err != nil {
		t.Fatal(err)
	}
	reg := drivers.New(drivers.Config{Secrets: x.vault, Profiles: db, Journal: db})
	d, err := driver.Define(driver.Definition{ID: "acme", Version: "1.0.0", RunsOn: "site", Config: []byte(`{"type":"object"}`),
		Implements: map[string]driver.Factory{"management": func(json.RawMessage) (any, error) { return x.b, nil }}})
	if err == nil {
		err = reg.Register(d, "")
	}
	if err != nil {
		t.Fatal(err)
	}
	m := &app.Machine{ID: "m-1", Name: "node1", State: app.StateReady, BMC: &app.BMC{Driver: "acme", Address: "192.0.2.10", CredentialRef: secret.Ref("shared")}}
	res, err := reg.Resolve(t.Context(), drivers.InputOf(m))
	if err == nil {
		m.Drivers = res.Bindings
		err = db.CreateMachine(t.Context(), m)
	}
	if err != nil {
		t.Fatal(err)
	}
	x.flows = workflow.NewEngine(workflow.Config{Store: db, Log: slog.New(slog.DiscardHandler), Record: func(app.Event) {}})
	p := &metal.Ports{Machines: db, Drivers: reg, Flows: x.flows, Now: time.Now, Supports: func(_ context.Context, m *app.Machine, ops ...string) error { return reg.Check(m, ops...) }}
	x.Verbs = rotate.New(p, rotate.Config{Open: func(ctx context.Context, c workflow.Command, ref string) (enroll.Credentials, error) {
		if c.WorkflowID == "" || c.MachineID != "m-1" {
			t.Errorf("a secret is opened for %+v", c)
		}
		return x.open(ctx, ref)
	}, Ref: secret.Ref,
		Seal: func(ctx context.Context, name string, c enroll.Credentials) (string, error) {
			return secret.Ref(name), x.vault.Put(ctx, name, secret.Login(c.Username, c.Password))
		},
		Forget: func(ctx context.Context, ref string) error {
			return x.vault.Delete(ctx, strings.TrimPrefix(ref, secret.Ref("")))
		},
		Login: func(_ context.Context, _ *app.Machine, c enroll.Credentials) error { return x.b.login(c.Password) },
	})
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- x.flows.Run(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return x
}

func (x *bench) open(ctx context.Context, ref string) (enroll.Credentials, error) {
	v, err := x.vault.Resolve(ctx, ref)
	user, _ := v.Field("username")
	password, _ := v.Field("password")
	return enroll.Credentials{Username: user, Password: password}, err
}

// rotate runs a rotation to its end.
func (x *bench) rotate(t *testing.T) *workflow.Workflow {
	t.Helper()
	w, err := x.Start(t.Context(), "alice", "m-1")
	if err != nil {
		t.Fatal(err)
	}
	if w, err = x.flows.Wait(t.Context(), w.ID); err != nil {
		t.Fatal(err)
	}
	return w
}

// holds checks which password is stored for the machine, and which names there are.
func (x *bench) holds(t *testing.T, password string, names ...string) {
	t.Helper()
	m, err := x.db.Machine(t.Context(), "m-1")
	if err != nil {
		t.Fatal(err)
	}
	c, err := x.open(t.Context(), m.BMC.CredentialRef)
	if err != nil || c.Password != password || c.Username != "admin" {
		t.Errorf("stored %q of %q at %s (%v), want %q", c.Password, c.Username, m.BMC.CredentialRef, err, password)
	}
	all, err := x.vault.List(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range all {
		got = append(got, s.Name)
	}
	if strings.Join(got, " ") != strings.Join(names, " ") {
		t.Errorf("secrets %q, want %q", got, names)
	}
}

func TestANewPasswordIsStoredOnceTheBMCTakesIt(t *testing.T) {
	x := newBench(t)
	if w := x.rotate(t); w.State != workflow.Done {
		t.Fatalf("%s: %v", w.State, w.Error)
	}
	p := x.b.password
	if p == first || len(p) != 20 || x.b.changes != 1 {
		t.Errorf("the BMC has %q after %d changes", p, x.b.changes)
	}
	for _, class := range []string{"ABCDEFGHJKLMNPQRSTUVWXYZ", "abcdefghijkmnopqrstuvwxyz", "23456789", "-_.+"} {
		if !strings.ContainsAny(p, class) {
			t.Errorf("no character of %s in the password", class)
		}
	}
	// The shared secret, which other machines may use, is left alone.
	x.holds(t, p, "bmc-m-1", "shared")
	if w := x.rotate(t); w.State != workflow.Done {
		t.Fatalf("again: %v", w.Error)
	}
	x.holds(t, x.b.password, "bmc-m-1", "shared")
	rows, err := x.db.ListBMCOperations(t.Context(), "m-1", 0, 10)
	raw, _ := json.Marshal(rows)
	if err != nil || len(rows) != 2 || strings.Contains(string(raw), x.b.password) || strings.Contains(string(raw), p) {
		t.Errorf("journal %s, %v", raw, err)
	}
}

func TestARefusedPasswordLeavesTheOldOne(t *testing.T) {
	x := newBench(t)
	x.b.refuses = true
	if w := x.rotate(t); w.State != workflow.Failed || w.Error.Reason != "policy" {
		t.Fatalf("%s: %v", w.State, w.Error)
	}
	x.holds(t, first, "shared")
}

func TestAChangeThatIsNotAnsweredIsFoundOut(t *testing.T) {
	x := newBench(t)
	x.b.rotated = func(*driver.Context) { panic("the answer is lost") }
	if w := x.rotate(t); w.State != workflow.Failed {
		t.Fatalf("%s: %v", w.State, w.Error)
	}
	if x.b.changes != 1 || x.b.password == first {
		t.Fatal("the BMC did not change it")
	}
	x.holds(t, x.b.password, "bmc-m-1", "shared") // the clean-up logged in with both, and keeps what works
}

func TestBothAreKeptWhileTheBMCIsAway(t *testing.T) {
	x := newBench(t)
	x.b.rotated = func(*driver.Context) {
		x.b.mu.Lock()
		x.b.away = true
		x.b.mu.Unlock()
		panic("the BMC restarts")
	}
	if w := x.rotate(t); w.State != workflow.Failed {
		t.Fatalf("%s: %v", w.State, w.Error)
	}
	x.holds(t, first, "bmc-m-1.pending", "shared")
	if id, ok := rotate.Unsettled("bmc-m-1.pending"); !ok || id != "m-1" {
		t.Errorf("%q %v", id, ok)
	}
	next, err := x.open(t.Context(), secret.Ref(rotate.Pending("m-1")))
	if err != nil || next.Password != x.b.password {
		t.Fatalf("the BMC has %q, kept is %q (%v)", x.b.password, next.Password, err)
	}
	// The BMC is back: a retry finds that it takes the new one, and changes nothing.
	x.b.mu.Lock()
	x.b.away, x.b.rotated = false, nil
	x.b.mu.Unlock()
	last, err := x.flows.List(t.Context(), workflow.Filter{MachineID: "m-1", Limit: 1})
	if err != nil || len(last) != 1 {
		t.Fatal(err)
	}
	if err := x.flows.Retry(t.Context(), last[0].ID, "alice"); err != nil {
		t.Fatal(err)
	}
	w, err := x.flows.Wait(t.Context(), last[0].ID)
	if err != nil || w.State != workflow.Done || x.b.changes != 1 {
		t.Fatalf("%+v after %d changes, %v", w.Error, x.b.changes, err)
	}
	x.holds(t, x.b.password, "bmc-m-1", "shared")
}

func TestWhatCannotBeRotated(t *testing.T) {
	x := newBench(t)
	for ref, reason := range map[string]string{"env://BCD_SECRET_BMC": "rotation-unsupported", "vault://kv/bmc": "rotation-unsupported"} {
		if _, err := x.db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error { m.BMC.CredentialRef = ref; return nil }); err != nil {
			t.Fatal(err)
		}
		_, err := x.Start(t.Context(), "alice", "m-1")
		if e, _ := app.AsError(err); e == nil || e.Code != app.Unsupported || e.Reason != reason {
			t.Errorf("%s: %v", ref, err)
		}
	}
	if _, err := x.db.UpdateMachine(t.Context(), "m-1", func(m *app.Machine) error {
		m.BMC.CredentialRef, m.Drivers = secret.Ref("shared"), nil
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	_, err := x.Start(t.Context(), "alice", "m-1")
	if e, _ := app.AsError(err); e == nil || e.Reason != "bmc-driver-unsupported" {
		t.Errorf("without a driver: %v", err)
	}
}
