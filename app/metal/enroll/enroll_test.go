package enroll_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/store"
)

const uuid = "00112233-4455-6677-8899-aabbccddeeff"

// desk is an enrolment desk with a real store and a BMC that says what the test wants.
type desk struct {
	*enroll.Verbs
	db      *store.DB
	card    driver.Card
	probe   error
	bind    error
	binding func() // what happens meanwhile, once
	sealed  map[string]enroll.Credentials
	forced  bool // the last bindings were made with force
	probed  int
	tried   []app.BMC // with what login: see typed
	typed   []*enroll.Credentials
	left    []string // addresses of BMCs that are reached otherwise
	torn    bool     // a rotation of the BMC's password is unsettled
}

func newDesk(t *testing.T) *desk {
	t.Helper()
	db, err := store.Open(t.Context(), store.Config{Path: filepath.Join(t.TempDir(), "bcd.db"), Log: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	d := &desk{db: db, sealed: map[string]enroll.Credentials{}, card: driver.Card{SPKI: "ab", ProductUUID: uuid, Serial: "S1", Vendor: "Example"}}
	d.Verbs = enroll.New(&metal.Ports{Machines: db, Now: func() time.Time { return time.Date(2026, 1, 2, 12, 0, 0, 0, time.UTC) }}, enroll.Config{
		Network: db, Questions: db,
		Seal: func(_ context.Context, name string, c enroll.Credentials) (string, error) {
			d.sealed["secret:"+name] = c
			return "secret:" + name, nil
		},
		Forget: func(ctx context.Context, ref string) error {
			if ctx.Err() != nil {
				return ctx.Err()
			}
			delete(d.sealed, ref)
			return nil
		},
		Probe: func(context.Context, app.BMC) (driver.Card, error) { d.probed++; return d.card, d.probe },
		Try: func(_ context.Context, b app.BMC, c *enroll.Credentials) (driver.Card, error) {
			d.tried, d.typed = append(d.tried, b), append(d.typed, c)
			return d.card, d.probe
		},
		Ref:       func(name string) string { return "secret:" + name },
		Unsettled: func(context.Context, string) (bool, error) { return d.torn, nil },
		Left:      func(was *app.Machine) { d.left = append(d.left, was.BMC.Address) },
		Bind: func(_ context.Context, m *app.Machine, own map[string]app.Binding, force bool) error {
			m.Drivers, d.forced = own, force
			if f := d.binding; f != nil {
				d.binding = nil
				f()
			}
			return d.bind
		},
	})
	return d
}

func input(name string) enroll.Input {
	return enroll.Input{Name: name, BMC: &app.BMC{Driver: "redfish", Address: "192.0.2.10"}, Credentials: &enroll.Credentials{Username: "admin", Password: "tell-nobody"}}
}

// refused wants an error and nothing left of the attempt.
func (d *desk) refused(t *testing.T, name string, in enroll.Input, code app.Code, field string) {
	t.Helper()
	page, err := d.db.ListMachines(t.Context(), app.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	before, secrets := page.Total, len(d.sealed)
	_, err = d.Enroll(t.Context(), in)
	if e, ok := app.AsError(err); !ok || e.Code != code || (field != "" && e.Field != field) {
		t.Errorf("%s gave %v, want %s at %s", name, err, code, field)
	}
	if err != nil && strings.Contains(err.Error(), "tell-nobody") {
		t.Errorf("%s: the error holds the password: %v", name, err)
	}
	if page, err = d.db.ListMachines(t.Context(), app.MachineFilter{}); err != nil || page.Total != before || len(d.sealed) != secrets {
		t.Errorf("%s left %d machines and %d secrets, %v", name, page.Total-before, len(d.sealed)-secrets, err)
	}
}

func TestEnrollTakesOverWhatTheBMCSays(t *testing.T) {
	d := newDesk(t)
	d.card.MACs = []string{"00:00:5E:00:53:01", "nonsense", "00-00-5e-00-53-02", "00:00:5e:00:53:02"}
	d.card.Power = driver.PowerReading{Power: "on"}
	in := input("node1")
	in.MACs = []app.MAC{"00:00:5e:00:53:01"}
	m, err := d.Enroll(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	if m.State != app.StateEnrolled || m.UUID != uuid || m.BMC.SPKI != "ab" || m.BMC.CredentialRef != "secret:bmc-"+m.ID || m.Power != app.PowerOn || len(m.Card) == 0 {
		t.Errorf("enrolled %+v", m)
	}
	if len(m.NICs) != 2 || !m.NICs[0].Confirmed || m.NICs[1].Confirmed || m.NICs[1].Source != "bmc" {
		t.Errorf("ports %+v", m.NICs)
	}
	if in.BMC.CredentialRef != "" {
		t.Error("the caller's input was changed")
	}
	if s := fmt.Sprintf("%v %+v %s", *in.Credentials, in.Credentials, in.Credentials); strings.Contains(s, "tell-nobody") {
		t.Errorf("printed credentials show %q", s)
	}
}

func TestFailedEnrolmentLeavesNothing(t *testing.T) {
	d := newDesk(t)
	d.probe = app.Errorf(app.Unavailable, "unreachable", "the BMC does not answer")
	d.refused(t, "a dead BMC", input("node1"), app.Unavailable, "")
	d.probe = nil
	d.bind = app.Invalid("drivers", "no such driver")
	d.refused(t, "a driver that is not there", input("node1"), app.InvalidInput, "drivers")
	d.bind = nil
	wrong := input("node1")
	wrong.UUID = "99999999-4455-6677-8899-aabbccddeeff"
	d.refused(t, "the BMC of another machine", wrong, app.Conflict, "productUuid")
	if _, err := d.Enroll(t.Context(), input("node1")); err != nil {
		t.Fatal(err)
	}
	d.card.ProductUUID = ""
	d.refused(t, "a name that is taken", input("node1"), app.Conflict, "")

	// The caller goes away in the middle: what was sealed goes all the same.
	d.probe = context.Canceled
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Enroll(ctx, input("node2")); !errors.Is(err, context.Canceled) || len(d.sealed) != 1 {
		t.Errorf("gave %v and left %d secrets", err, len(d.sealed)-1)
	}
}

func TestDuplicateUUIDsAreRefused(t *testing.T) {
	d := newDesk(t)
	if _, err := d.Enroll(t.Context(), input("node1")); err != nil {
		t.Fatal(err)
	}
	d.refused(t, "the BMC's UUID, again", input("node2"), app.Conflict, "productUuid")
	d.card.ProductUUID = "33221100-5544-7766-8899-aabbccddeeff"
	d.refused(t, "in the other byte order", input("node2"), app.Conflict, "productUuid")
	d.card.ProductUUID = ""
	typed := input("node2")
	typed.UUID = uuid
	probed := d.probed
	d.refused(t, "typed", typed, app.Conflict, "productUuid")
	if d.probed != probed {
		t.Error("a BMC was asked about a machine that is enrolled already")
	}
	// Machines without a UUID are not one another.
	for _, name := range []string{"node2", "node3"} {
		if _, err := d.Enroll(t.Context(), enroll.Input{Name: name}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.card.ProductUUID = "03000200-0400-0500-0006-000700080009"
	for _, name := range []string{"node4", "node5"} {
		if m, err := d.Enroll(t.Context(), input(name)); err != nil || m.UUID != "" {
			t.Errorf("%s with a placeholder: %v", name, err)
		}
	}
}

func TestTheBindingsAreMadeOfWhatWasGiven(t *testing.T) {
	d := newDesk(t)
	d.card.ProductUUID = ""
	in := input("node1")
	in.Pool, in.Profile, in.Force, in.Firmware = "web", "big", true, app.FirmwareUEFI
	in.Drivers = map[string]app.Binding{"boot": {Driver: "ipxe"}}
	m, err := d.Enroll(t.Context(), in)
	if err != nil || m.Profile != "big" || m.Pool != "web" || m.Firmware != app.FirmwareUEFI || !d.forced || m.Drivers["boot"].Driver != "ipxe" {
		t.Errorf("%+v, forced %v, %v", m, d.forced, err)
	}
}

func TestAcceptForgetsTheDiscovery(t *testing.T) {
	d := newDesk(t)
	const mac = app.MAC("00:00:5e:00:53:09")
	if err := d.db.PutDiscovery(t.Context(), &app.Discovery{MAC: mac, UUID: uuid, Last: time.Now()}); err != nil {
		t.Fatal(err)
	}
	if _, err := d.Accept(t.Context(), "00:00:5e:00:53:0a", enroll.Input{Name: "node1"}); app.CodeOf(err) != app.NotFound {
		t.Errorf("an unknown discovery gave %v", err)
	}
	d.probe = app.Errorf(app.Unavailable, "unreachable", "the BMC does not answer")
	if _, err := d.Accept(t.Context(), mac, input("node1")); err == nil {
		t.Error("a dead BMC was accepted")
	}
	if all, err := d.db.ListDiscoveries(t.Context()); err != nil || len(all) != 1 {
		t.Errorf("after a failure: %v, %v", all, err)
	}
	d.probe = nil
	m, err := d.Accept(t.Context(), mac, input("node1"))
	if err != nil || m.UUID != uuid || len(m.NICs) != 1 || m.NICs[0].MAC != mac || !m.NICs[0].Confirmed {
		t.Errorf("accepted %+v, %v", m, err)
	}
	if all, err := d.db.ListDiscoveries(t.Context()); err != nil || len(all) != 0 {
		t.Errorf("after the acceptance: %v, %v", all, err)
	}
}

// A machine boots as it did when DHCP saw it, unless its operator knows better.
func TestAnAcceptedMachineBootsAsItWasSeen(t *testing.T) {
	d := newDesk(t)
	d.card.ProductUUID = ""
	for i, c := range []struct {
		arch        string
		given, want app.Firmware
	}{
		{"", "", ""}, {"bios", "", app.FirmwareBIOS}, {"x64", "", app.FirmwareUEFI}, {"x86", "", app.FirmwareUEFI}, {"arm64", "", app.FirmwareUEFI},
		{"bios", app.FirmwareUEFI, app.FirmwareUEFI},
	} {
		mac := app.MAC(fmt.Sprintf("00:00:5e:00:53:%02x", i))
		if err := d.db.PutDiscovery(t.Context(), &app.Discovery{MAC: mac, Arch: c.arch, Last: time.Now()}); err != nil {
			t.Fatal(err)
		}
		in := input(fmt.Sprintf("node%d", i))
		in.Firmware = c.given
		if _, err := d.Accept(t.Context(), mac, in); err != nil {
			t.Fatal(err)
		}
		if m, err := d.db.Machine(t.Context(), in.Name); err != nil || m.Firmware != c.want {
			t.Errorf("seen as %q, given %q: stored %q, %v", c.arch, c.given, m.Firmware, err)
		}
	}
}

func TestConfirmMAC(t *testing.T) {
	d := newDesk(t)
	d.card.MACs = []string{"00:00:5e:00:53:01"}
	m, err := d.Enroll(t.Context(), input("node1"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Enroll(t.Context(), enroll.Input{Name: "node2", MACs: []app.MAC{"00:00:5e:00:53:02"}}); err != nil {
		t.Fatal(err)
	}
	if m, err = d.ConfirmMAC(t.Context(), m.ID, "00:00:5e:00:53:01"); err != nil || len(m.NICs) != 1 || !m.NICs[0].Confirmed {
		t.Errorf("confirmed %+v, %v", m, err)
	}
	if _, err := d.ConfirmMAC(t.Context(), m.ID, "00:00:5e:00:53:02"); app.CodeOf(err) != app.Conflict {
		t.Errorf("another machine's MAC gave %v", err)
	}
}
