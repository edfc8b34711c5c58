package redfish

import (
	"context"
	"encoding/json"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// fakeClock records the pauses a driver makes and lets none of them take time.
type fakeClock struct {
	mu     sync.Mutex
	waited time.Duration
	onWait func(time.Duration)
}

func (f *fakeClock) wait(ctx context.Context, d time.Duration) error {
	f.mu.Lock()
	f.waited += d
	on := f.onWait
	f.mu.Unlock()
	if on != nil {
		on(d)
	}
	return ctx.Err()
}

// patience bounds each part of an exchange between a test and its BMC: a machine that stands still fails nothing.
const patience = 5 * time.Minute

// rig is a driver against a scripted BMC.
type rig struct {
	bmctest.BMC
	bmc   *bmctest.Redfish
	redf  *Driver
	clock *fakeClock
}

func newRig(t *testing.T, bmc *bmctest.Redfish) *rig {
	t.Helper()
	clock := &fakeClock{}
	d := New(Config{Patience: patience, Wait: clock.wait, Now: func() time.Time { return time.Date(2026, 11, 29, 12, 0, 7, 0, time.UTC) }})
	t.Cleanup(func() {
		if err := d.Close(context.Background()); err != nil {
			t.Errorf("closing: %v", err)
		}
		made, deleted, _ := bmc.Sessions()
		if made != deleted {
			t.Errorf("%d sessions made, %d deleted", made, deleted)
		}
	})
	def, err := driver.Define(d.Definition())
	if err != nil {
		t.Fatal(err)
	}
	config, _ := json.Marshal(map[string]string{"address": bmc.Address(), "tlsSpkiSha256": spki(bmc.Certificate())})
	return &rig{
		BMC: bmctest.BMC{
			Driver: def, Config: config,
			Secrets: driver.SecretMap{"username": bmctest.User, "password": bmctest.Password},
			MAC:     "00:00:5e:00:53:01", UUID: "01234567-89ab-cdef-0123-456789abcdef",
			Images: [2]string{imageA, imageB},
		},
		bmc: bmc, redf: d, clock: clock,
	}
}

// call invokes an operation.
func (r *rig) call(kind, op, args string) (json.RawMessage, *driver.Error) {
	c := driver.NewContext(context.Background())
	c.Secrets = r.Secrets
	out, err := r.Driver.Invoke(c, driver.Call{Kind: kind, Operation: op, Config: r.Config, Args: json.RawMessage(args)})
	return out, driver.AsError(err)
}

func TestConformance(t *testing.T) {
	bmctest.Conformance(t, func(t *testing.T) bmctest.BMC { return newRig(t, bmctest.NewRedfish(t)).BMC })
}
