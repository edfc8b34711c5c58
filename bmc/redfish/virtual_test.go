package redfish

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/plugins/driver"
)

// scaled runs a pause twenty times as fast, and at least for a millisecond: the other side runs on real time, and fetches
// an image while a drive is read 45 times, which is for 4 s.
func scaled(ctx context.Context, d time.Duration) error { return sleep(ctx, d/20+time.Millisecond) }

// The lab's virtual BMC and this driver were written apart; the conformance suite holds them together.
func TestConformanceOfVirtualBMC(t *testing.T) {
	images := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "iso") }))
	defer images.Close()
	bmctest.Conformance(t, func(t *testing.T) bmctest.BMC {
		m, err := virtual.New(virtual.Config{
			Name: "node-1", UUID: "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5", Serial: "SN0001", Password: bmctest.Password,
			NICs:       []virtual.NIC{{MAC: "00:00:5e:00:53:01", Netdev: "user"}},
			Hypervisor: &virtual.Fake{},
		})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- m.Run(context.Background()) }()
		d := New(Config{Patience: patience, Wait: scaled})
		t.Cleanup(func() {
			if err := d.Close(context.Background()); err != nil {
				t.Errorf("closing: %v", err)
			}
			m.Close()
			if err := <-done; err != nil {
				t.Errorf("the virtual BMC: %v", err)
			}
		})
		def, err := driver.Define(d.Definition())
		if err != nil {
			t.Fatal(err)
		}
		config, _ := json.Marshal(map[string]string{"address": m.URL(), "tlsSpkiSha256": m.SPKI()})
		b := bmctest.BMC{
			Driver: def, Config: config, MAC: "00:00:5e:00:53:01", UUID: "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5",
			Lacks: []string{"bios"}, Images: [2]string{images.URL + "/a.iso", images.URL + "/b.iso"},
			Secrets: driver.SecretMap{"username": "admin", "password": bmctest.Password},
		}
		c := &driver.Context{Context: t.Context(), Secrets: b.Secrets}
		if _, err := def.Invoke(c, driver.Call{Kind: "power", Operation: "setPower", Config: config, Args: json.RawMessage(`["on"]`)}); err != nil {
			t.Fatal(err)
		}
		return b
	})
}
