package enroll_test

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal/enroll"
	"github.com/better-compute/bcd/plugins/driver"
)

// enrolled is a desk with a machine.
func enrolled(t *testing.T) (*desk, *app.Machine) {
	t.Helper()
	d := newDesk(t)
	m, err := d.Enroll(t.Context(), input("node1"))
	if err != nil {
		t.Fatal(err)
	}
	return d, m
}

var newLogin = &enroll.Credentials{Username: "admin", Password: "another-secret"}

func TestABMCIsReachedOtherwise(t *testing.T) {
	d, m := enrolled(t)
	d.card.SPKI, d.card.Firmware = "cd", "2.0"
	got, card, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Address: "192.0.2.11", Pin: "cd", Credentials: newLogin})
	if err != nil {
		t.Fatal(err)
	}
	want := app.BMC{Driver: "redfish", Address: "192.0.2.11", SPKI: "cd", CredentialRef: got.BMC.CredentialRef}
	if diff := cmp.Diff(want, *got.BMC); diff != "" || card.Firmware != "2.0" || len(got.Card) == 0 {
		t.Errorf("%s, card %+v", diff, card)
	}
	if d.sealed[want.CredentialRef] != *newLogin || len(d.sealed) != 1 || !slices.Equal(d.left, []string{"192.0.2.10"}) || !d.forced {
		t.Errorf("sealed %v, left %v, forced %v", d.sealed, d.left, d.forced)
	}
	if tried := d.tried[0]; tried.Address != "192.0.2.11" || tried.SPKI != "cd" || d.typed[0] != newLogin {
		t.Errorf("asked %+v", tried)
	}
	// What is left out stays, and the pinned key is what is asked for: no other is accepted by itself.
	if _, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Address: "192.0.2.12"}); err != nil {
		t.Fatal(err)
	}
	if tried := d.tried[1]; tried.SPKI != "cd" || tried.CredentialRef != want.CredentialRef || d.typed[1] != nil {
		t.Errorf("asked %+v", tried)
	}
	if stored, err := d.db.Machine(t.Context(), m.ID); err != nil || stored.BMC.Address != "192.0.2.12" || stored.BMC.SPKI != "cd" || d.sealed[want.CredentialRef] != *newLogin {
		t.Errorf("stored %+v, %v", stored, err)
	}
}

// What is refused, or only tested, leaves address, key, login and sessions as they were.
func TestABMCThatIsNotChanged(t *testing.T) {
	for name, c := range map[string]struct {
		before func(*testing.T, *desk, *app.Machine)
		change enroll.BMCChange
		reason string // "": only a test
	}{
		"a test": {func(*testing.T, *desk, *app.Machine) {}, enroll.BMCChange{Address: "192.0.2.11", Test: true}, ""},
		"it does not answer": {func(_ *testing.T, d *desk, _ *app.Machine) {
			d.probe = app.Errorf(app.Unavailable, "unreachable", "no answer")
		}, enroll.BMCChange{Address: "192.0.2.11"}, "unreachable"},
		"another key": {func(_ *testing.T, d *desk, _ *app.Machine) {
			d.probe = app.Errorf(app.Conflict, driver.CodePinMismatch, "seen cd")
		}, enroll.BMCChange{Address: "192.0.2.11"}, driver.CodePinMismatch},
		"another UUID": {func(_ *testing.T, d *desk, _ *app.Machine) {
			d.card.ProductUUID = "99999999-4455-6677-8899-aabbccddeeff"
		}, enroll.BMCChange{Address: "192.0.2.11"}, "another-machine"},
		"another serial number":       {func(_ *testing.T, d *desk, _ *app.Machine) { d.card.ProductUUID, d.card.Serial = "", "S2" }, enroll.BMCChange{Address: "192.0.2.11"}, "another-machine"},
		"a test of another machine's": {func(_ *testing.T, d *desk, _ *app.Machine) { d.card.Serial = "S2" }, enroll.BMCChange{Address: "192.0.2.11", Test: true}, "another-machine"},
		"its bindings do not resolve": {func(_ *testing.T, d *desk, _ *app.Machine) { d.bind = app.Invalid("drivers", "no such driver") }, enroll.BMCChange{Address: "192.0.2.11"}, "invalid-field"},
		"a workflow runs": {func(t *testing.T, d *desk, m *app.Machine) {
			d.update(t, m.ID, func(m *app.Machine) { m.WorkflowID = "wf-1" })
		}, enroll.BMCChange{Address: "192.0.2.11"}, "machine-busy"},
		"a rotation is unsettled": {func(_ *testing.T, d *desk, _ *app.Machine) { d.torn = true }, enroll.BMCChange{Address: "192.0.2.11"}, "credential-unsettled"},
		"another's, and enrolled already": {func(t *testing.T, d *desk, _ *app.Machine) {
			d.card.ProductUUID, d.card.Serial = "99999999-4455-6677-8899-aabbccddeeff", "S2"
			if _, err := d.Enroll(t.Context(), input("node2")); err != nil {
				t.Fatal(err)
			}
		}, enroll.BMCChange{Address: "192.0.2.11", Another: true}, "uuid-taken"},
	} {
		t.Run(name, func(t *testing.T) {
			d, m := enrolled(t)
			c.before(t, d, m)
			was, err := d.db.Machine(t.Context(), m.ID)
			if err != nil {
				t.Fatal(err)
			}
			secrets := fmt.Sprint(len(d.sealed), d.sealed["secret:bmc-"+m.ID].Password)
			c.change.Credentials = newLogin
			_, _, err = d.ChangeBMC(t.Context(), m.ID, c.change)
			if e, _ := app.AsError(err); c.reason == "" && err != nil || c.reason != "" && (e == nil || e.Reason != c.reason) {
				t.Errorf("got %v, want %q", err, c.reason)
			}
			now, err := d.db.Machine(t.Context(), m.ID)
			if diff := cmp.Diff(was, now); err != nil || diff != "" {
				t.Errorf("%v %s", err, diff)
			}
			if got := fmt.Sprint(len(d.sealed), d.sealed["secret:bmc-"+m.ID].Password); got != secrets || len(d.left) != 0 {
				t.Errorf("secrets %s, they were %s; left %v", got, secrets, d.left)
			}
		})
	}
}

// The login that is kept is shown to no BMC that another address and another key, or none, make a stranger.
func TestAKeptLoginIsNotShownToAStranger(t *testing.T) {
	for _, test := range []bool{false, true} {
		d, m := enrolled(t)
		_, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Address: "192.0.2.11", Pin: "cd", Test: test})
		if e, _ := app.AsError(err); e == nil || e.Reason != "credentials-needed" || e.Field != "credentials" || e.WayOut == "" {
			t.Errorf("test %v: got %v", test, err)
		}
		if len(d.tried) != 0 {
			t.Errorf("the BMC was asked: %+v", d.tried)
		}
		for name, c := range map[string]enroll.BMCChange{
			"the pinned key":  {Address: "192.0.2.11"},
			"the same place":  {Pin: "cd"},
			"its own login":   {Address: "192.0.2.12", Pin: "cd", Credentials: newLogin},
			"a stored secret": {Address: "192.0.2.12", Pin: "cd", CredentialRef: "secret:by-hand"},
		} {
			c.Test = true
			if _, _, err := d.ChangeBMC(t.Context(), m.ID, c); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// While a rotation is unsettled, a typed login may be tested, and a stored secret may take the old one's place: neither loses
// a password that the BMC may take.
func TestAnUnsettledRotationKeepsBothPasswords(t *testing.T) {
	d, m := enrolled(t)
	d.torn = true
	_, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Credentials: newLogin})
	if e, _ := app.AsError(err); e == nil || e.Code != app.Conflict || e.Field != "credentials" || e.WayOut == "" {
		t.Errorf("got %v", err)
	}
	if len(d.tried) != 0 {
		t.Errorf("the BMC was asked: %+v", d.tried)
	}
	if _, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Credentials: newLogin, Test: true}); err != nil {
		t.Errorf("a test gave %v", err)
	}
	old := d.sealed["secret:bmc-"+m.ID]
	got, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{CredentialRef: "secret:by-hand"})
	if err != nil || got.BMC.CredentialRef != "secret:by-hand" || d.sealed["secret:bmc-"+m.ID] != old {
		t.Errorf("%+v, %v", got, err)
	}
}

// Until the machine is reached otherwise it keeps its login: the appliance may end at any instant, and two people may change
// the same BMC at once.
func TestALoginIsNotLostOnTheWay(t *testing.T) {
	d, m := enrolled(t)
	old := d.sealed[m.BMC.CredentialRef]
	login := func() enroll.Credentials {
		now, err := d.db.Machine(t.Context(), m.ID)
		if err != nil {
			t.Fatal(err)
		}
		return d.sealed[now.BMC.CredentialRef]
	}
	other := &enroll.Credentials{Username: "admin", Password: "of-the-other"}
	d.binding = func() {
		if login() != old {
			t.Errorf("it is still at its old address, with the login %v", login())
		}
		if _, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Address: "192.0.2.12", Credentials: other}); err != nil {
			t.Error(err)
		}
	}
	_, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Address: "192.0.2.11", Credentials: newLogin})
	if e, _ := app.AsError(err); e == nil || e.Reason != "machine-changed" {
		t.Errorf("the second change gave %v", err)
	}
	if login() != *other || len(d.sealed) != 1 {
		t.Errorf("it has the login %v of %v", login(), d.sealed)
	}
}

// A machine whose board was replaced keeps its name, and takes over what the new one says.
func TestAnotherBoardIsAccepted(t *testing.T) {
	d, m := enrolled(t)
	d.card.ProductUUID, d.card.Serial = "99999999-4455-6677-8899-aabbccddeeff", "S2"
	got, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Address: "192.0.2.11", Another: true})
	if err != nil || got.UUID != "99999999-4455-6677-8899-aabbccddeeff" || got.Serial != "S2" || got.Sources["serial"] != "redfish" {
		t.Errorf("%+v, %v", got, err)
	}
}

// A machine without a BMC is not given half of one.
func TestAFirstBMCIsWhole(t *testing.T) {
	d := newDesk(t)
	m, err := d.Enroll(t.Context(), enroll.Input{Name: "bare"})
	if err != nil {
		t.Fatal(err)
	}
	for field, in := range map[string]enroll.BMCChange{
		"driver":      {Address: "192.0.2.11", Credentials: newLogin},
		"address":     {Driver: "redfish", Credentials: newLogin},
		"credentials": {Driver: "redfish", Address: "192.0.2.11", Test: true},
	} {
		_, _, err = d.ChangeBMC(t.Context(), m.ID, in)
		if e, _ := app.AsError(err); e == nil || e.Reason != "no-bmc" || e.Field != field || e.WayOut == "" {
			t.Errorf("without %s: got %v", field, err)
		}
	}
	if len(d.tried)+len(d.sealed) != 0 {
		t.Errorf("asked %+v, sealed %v", d.tried, d.sealed)
	}
}

// A machine that was enrolled without a BMC is given one, and takes over what that says and was not known.
func TestAMachineIsGivenABMC(t *testing.T) {
	d := newDesk(t)
	m, err := d.Enroll(t.Context(), enroll.Input{Name: "bare", MACs: []app.MAC{"00:00:5e:00:53:01"}})
	if err != nil {
		t.Fatal(err)
	}
	d.update(t, m.ID, func(m *app.Machine) { m.Model = "As inventoried" })
	d.card.MACs, d.card.Model = []string{"00:00:5e:00:53:01", "00:00:5e:00:53:02"}, "As the BMC says"
	first := enroll.BMCChange{Driver: "redfish", Address: "192.0.2.11", Credentials: newLogin}
	d.probe = app.Errorf(app.Unavailable, "unreachable", "no answer")
	if _, _, err := d.ChangeBMC(t.Context(), m.ID, first); app.CodeOf(err) != app.Unavailable || len(d.sealed) != 0 {
		t.Errorf("a dead BMC gave %v, sealed %v", err, d.sealed)
	}
	d.probe, d.bind = nil, app.Invalid("drivers", "no such driver")
	if _, _, err := d.ChangeBMC(t.Context(), m.ID, first); app.CodeOf(err) != app.InvalidInput || len(d.sealed) != 0 {
		t.Errorf("bindings that do not resolve gave %v, sealed %v", err, d.sealed)
	}
	d.bind = nil
	if _, _, err := d.ChangeBMC(t.Context(), m.ID, first); err != nil {
		t.Fatal(err)
	}
	got, err := d.db.Machine(t.Context(), m.ID)
	if err != nil {
		t.Fatal(err)
	}
	want := app.BMC{Driver: "redfish", Address: "192.0.2.11", SPKI: "ab", CredentialRef: got.BMC.CredentialRef}
	if diff := cmp.Diff(want, *got.BMC); diff != "" || d.sealed[want.CredentialRef] != *newLogin || len(d.left) != 0 {
		t.Errorf("%s, sealed %v, left %v", diff, d.sealed, d.left)
	}
	if got.UUID != uuid || got.Serial != "S1" || got.Vendor != "Example" || got.Model != "As inventoried" || got.Sources["vendor"] != "redfish" || got.Sources["model"] == "redfish" {
		t.Errorf("it is known as %+v", got)
	}
	if len(got.NICs) != 2 || !got.NICs[0].Confirmed || got.NICs[1].Confirmed || got.NICs[1].Source != "bmc" {
		t.Errorf("ports %+v", got.NICs)
	}
}

// The first BMC of a machine that is known already must be that machine's.
func TestAFirstBMCOfAnotherMachine(t *testing.T) {
	d, _ := enrolled(t)
	m, err := d.Enroll(t.Context(), enroll.Input{Name: "bare", UUID: "99999999-4455-6677-8899-aabbccddeeff"})
	if err != nil {
		t.Fatal(err)
	}
	first := enroll.BMCChange{Driver: "redfish", Address: "192.0.2.11", Credentials: newLogin}
	for _, reason := range []string{"another-machine", "uuid-taken"} { // node1 has the UUID that the BMC says
		_, _, err := d.ChangeBMC(t.Context(), m.ID, first)
		if e, _ := app.AsError(err); e == nil || e.Reason != reason {
			t.Errorf("got %v, want %s", err, reason)
		}
		first.Another = true
	}
}

// With another driver, the options of the one before do not stay.
func TestABMCIsReachedByAnotherDriver(t *testing.T) {
	d := newDesk(t)
	in := input("node1")
	in.BMC.Options = []byte(`{"of":"redfish"}`)
	m, err := d.Enroll(t.Context(), in)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := d.ChangeBMC(t.Context(), m.ID, enroll.BMCChange{Driver: "ipmi"})
	if err != nil || got.BMC.Driver != "ipmi" || got.BMC.Options != nil || got.BMC.Address != "192.0.2.10" || d.tried[0].Driver != "ipmi" {
		t.Errorf("%+v, %v", got, err)
	}
}

func (d *desk) update(t *testing.T, id string, change func(*app.Machine)) {
	t.Helper()
	if _, err := d.db.UpdateMachine(t.Context(), id, func(m *app.Machine) error { change(m); return nil }); err != nil {
		t.Fatal(err)
	}
}
