package drivers

import (
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/bmc/redfish"
	"github.com/better-compute/bcd/plugins/driver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The whole way of an enrolment and a power change, over HTTPS, with the real driver.
func TestRedfishFromProbeToPower(t *testing.T) {
	server := bmctest.NewRedfish(t)
	red := redfish.New(redfish.Config{Patience: 5 * time.Minute, Wait: func(ctx context.Context, _ time.Duration) error { return ctx.Err() }})
	t.Cleanup(func() {
		if err := red.Close(context.Background()); err != nil {
			t.Error(err)
		}
		if made, deleted, _ := server.Sessions(); made != deleted {
			t.Errorf("%d sessions made, %d deleted", made, deleted)
		}
	})
	const ref = "secret://root/bmc"
	r := New(Config{Secrets: vault{ref: secret.Login(bmctest.User, bmctest.Password)}, Profiles: shelf{}})
	if err := r.Register(mustDefine(t, red.Definition()), ""); err != nil {
		t.Fatal(err)
	}
	b := app.BMC{Driver: "redfish", Address: server.Address(), CredentialRef: ref}
	wrong := secret.Login(bmctest.User, "wrong")
	_, err := r.Probe(t.Context(), ProbeInput{BMC: b, Login: &wrong})
	wantError(t, err, app.InvalidConfig, driver.CodeAuthFailed, "")
	if r.IsBMCHost("127.0.0.1") {
		t.Error("an address that was no BMC to us is remembered as one")
	}
	card, err := r.Probe(t.Context(), ProbeInput{BMC: b})
	if err != nil {
		t.Fatal(err)
	}
	if card.Model != "E1" || card.SPKI == "" || card.Boot.Form == "" {
		t.Errorf("card %+v", card)
	}
	b.SPKI = card.SPKI
	m := enrolled(t, r, Input{BMC: &b})
	raw, err := json.Marshal(card)
	if err != nil {
		t.Fatal(err)
	}
	m.Card = raw
	r.Label(m)
	if labels := m.Labels; labels["bc.dev/cap.boot-override"] != "1" || labels["bc.dev/driver.redfish"] != redfish.Version {
		t.Errorf("labels %v", labels)
	}
	w := r.For(m, Options{Key: "wf:1:off#0"}).Hardware()
	if err := w.SetPower(t.Context(), "off"); err != nil {
		t.Fatal(err)
	}
	if p, err := w.Power(t.Context()); err != nil || p != app.PowerOff {
		t.Fatalf("power %s, %v", p, err)
	}
	if err := w.SetBootDevice(t.Context(), "pxe", false, app.FirmwareUEFI); err != nil {
		t.Fatal(err)
	}
	if inv, err := r.For(m, Options{}).Inspect(t.Context()); err != nil || inv.SerialNumber != "S1" {
		t.Fatalf("inventory %+v, %v", inv, err)
	}
	if failed := r.Validate(t.Context(), m); len(failed) != 0 {
		t.Errorf("live checks failed: %v", failed)
	}
	if !r.IsBMCHost("127.0.0.1") {
		t.Error("the BMC's address is not remembered")
	}

	b.SPKI = strings.Repeat("00", 32)
	m = enrolled(t, r, Input{BMC: &b})
	_, err = r.For(m, Options{}).Power().Get(t.Context())
	wantError(t, err, app.Conflict, driver.CodePinMismatch, "")
	if !strings.Contains(err.Error(), card.SPKI) || !strings.Contains(err.Error(), b.SPKI) {
		t.Errorf("the error does not show both keys: %v", err)
	}
	b.Options = []byte(`{"cipherSuite":3}`)
	_, err = r.Resolve(t.Context(), Input{BMC: &b})
	wantError(t, err, app.InvalidConfig, "invalid-config", "")
}
