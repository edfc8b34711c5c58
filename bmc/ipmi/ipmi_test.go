package ipmi

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// TestMain is ipmitool itself when the test binary runs under its name; see fake.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == toolName {
		os.Exit(fakeMain(filepath.Dir(os.Args[0]), os.Args[1:]))
	}
	goleak.VerifyTestMain(m)
}

// fakeClock lets no pause of a driver take time.
type fakeClock struct {
	mu     sync.Mutex
	waited time.Duration
	onWait func()
}

func (f *fakeClock) wait(ctx context.Context, d time.Duration) error {
	f.mu.Lock()
	f.waited += d
	on := f.onWait
	f.mu.Unlock()
	if on != nil {
		on()
	}
	return ctx.Err()
}

// rig is a driver and one BMC.
type rig struct {
	bmctest.BMC
	clock *fakeClock
}

// newRig makes a driver for the BMC at an address. options is the JSON of the driver's options, or "".
func newRig(t testing.TB, cfg Config, address, options string) *rig {
	t.Helper()
	clock := &fakeClock{}
	if cfg.Wait == nil {
		cfg.Wait = clock.wait
	}
	def, err := driver.Define(New(cfg).Definition())
	if err != nil {
		t.Fatal(err)
	}
	config := map[string]any{"address": address}
	if options != "" {
		config["options"] = json.RawMessage(options)
	}
	raw, err := json.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	return &rig{
		BMC: bmctest.BMC{
			Driver: def, Config: raw, UUID: bmctest.IPMIGUID,
			Secrets: driver.SecretMap{"username": bmctest.User, "password": bmctest.IPMIPassword},
		},
		clock: clock,
	}
}

// call invokes an operation.
func (r *rig) call(ctx context.Context, kind, op, args string) (json.RawMessage, *driver.Error) {
	c := driver.NewContext(ctx)
	c.Secrets = r.Secrets
	out, err := r.Driver.Invoke(c, driver.Call{Kind: kind, Operation: op, Config: r.Config, Args: json.RawMessage(args)})
	return out, driver.AsError(err)
}

func (r *rig) must(t *testing.T, kind, op, args string) json.RawMessage {
	t.Helper()
	out, err := r.call(t.Context(), kind, op, args)
	if err != nil {
		t.Fatalf("%s.%s%s: %s: %s", kind, op, args, err.Code, err.Message)
	}
	return out
}

func (r *rig) refused(t *testing.T, kind, op, args, code string) *driver.Error {
	t.Helper()
	out, err := r.call(t.Context(), kind, op, args)
	if err == nil {
		t.Fatalf("%s.%s%s gave %s, want %s", kind, op, args, out, code)
	}
	if err.Code != code {
		t.Fatalf("%s.%s%s: %s (%s), want %s", kind, op, args, err.Code, err.Message, code)
	}
	return err
}

// needTool skips a test where there is no ipmitool.
func needTool(t testing.TB) {
	t.Helper()
	if err := New(Config{}).Health(t.Context()); err != nil {
		t.Skipf("left out: %v", err)
	}
}

// unhurried is for BMCs that answer for sure, though this process or they may be held up for as long as it takes.
var unhurried = Config{RunLimit: 5 * time.Minute, Retries: 30}

func TestConformance(t *testing.T) {
	needTool(t)
	for name, options := range map[string]string{"suite 17": "", "suite 3": `{"cipherSuite":3}`} {
		t.Run(name, func(t *testing.T) {
			bmctest.Conformance(t, func(t *testing.T) bmctest.BMC {
				return newRig(t, unhurried, bmctest.NewIPMI(t, bmctest.IPMIConfig{}).Address(), options).BMC
			})
		})
	}
}
