package site_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/web/api"
)

// How a machine's BMC is reached is changed only after the real BMC has answered so: with its key, its login, and as this
// machine's.
func TestABMCIsChangedOnceItHasAnswered(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	r.start("")
	set := func(in api.BMCChange) (out api.BMCChanged, err error) {
		err = r.call(http.MethodPut, "/api/v1/machines/"+machineName+"/bmc", in, &out)
		return out, err
	}
	before := r.machine(machineName)
	if out, err := set(api.BMCChange{Test: true}); err != nil || !out.Card.OK || out.Card.PinStatus != "matches" || out.Machine != nil {
		t.Errorf("a test says %+v, %v", out.Card, err)
	}
	for reason, in := range map[string]api.BMCChange{
		"tls-pin-mismatch": {AcceptPin: strings.Repeat("ab", 32)},
		"auth-failed":      {Credentials: &api.Credentials{Username: "admin", Password: "wrong-" + bmcPassword}},
		"unreachable":      {Address: "https://127.0.0.1:1"},
	} {
		_, err := set(in)
		if e, _ := app.AsError(err); e == nil || e.Reason != reason {
			t.Errorf("%+v gave %v, want %s", in, err, reason)
		}
		in.Test = true
		if out, err := set(in); err != nil || out.Card.OK || out.Card.Error == nil || out.Card.Error.Reason != reason {
			t.Errorf("a test of %+v gave %+v, %v", in, out.Card, err)
		}
	}
	if now := r.machine(machineName); now.Version != before.Version {
		t.Errorf("a refused change left %+v", now.BMC)
	}
	out, err := set(api.BMCChange{Address: c.bmc.URL() + "/", Credentials: &api.Credentials{Username: "admin", Password: bmcPassword}})
	if err != nil || out.Machine == nil || out.Machine.BMC.Address != c.bmc.URL()+"/" || out.Machine.BMC.SPKI != c.bmc.SPKI() {
		t.Fatalf("%+v, %v", out, err)
	}
	for kind, b := range out.Machine.Drivers {
		if b.Layer == "bmc" && !strings.Contains(string(b.Config), c.bmc.URL()+"/") {
			t.Errorf("%s still goes to %s", kind, b.Config)
		}
	}
	r.verb(machineName, api.Power, api.PowerOptions{Action: "on"})
	if n := r.await(newsOver); n.State != "done" {
		t.Errorf("the BMC is not reached so: %s\n%s", n.State, r.story())
	}
	pending := "/api/v1/secrets/bmc-" + before.ID + ".pending" // as a rotation leaves it that could not be settled
	r.must(http.MethodPut, pending, api.SecretInput{Value: secret.Login("admin", "newer-"+bmcPassword)}, nil)
	_, err = set(api.BMCChange{Credentials: &api.Credentials{Username: "admin", Password: bmcPassword}})
	refusedAs(t, err, app.Conflict, "credential-unsettled")
	told := r.events("machine.bmc")
	if len(told) != 1 || !strings.Contains(told[0].Message, "address "+c.bmc.URL()+"/ instead of") || told[0].Actor == "" || strings.Contains(told[0].Message, bmcPassword) {
		t.Errorf("the audit trail says %+v", told)
	}
}

// A machine that was enrolled without a BMC is given one, and its power goes through that from then on.
func TestAMachineIsGivenABMC(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	r.start("")
	c := newComputer(t, r, 2)
	r.must(http.MethodPost, "/api/v1/machines", api.EnrollInput{Name: "bare", MACs: []app.MAC{"00:00:5e:00:53:77"}}, nil)
	refusedAs(t, r.call(http.MethodPost, "/api/v1/machines/bare/power", api.PowerOptions{Action: "on"}, nil), app.Unsupported, "bmc-driver-unsupported")
	change := api.BMCChange{Address: c.bmc.URL(), Credentials: &api.Credentials{Username: "admin", Password: bmcPassword}}
	refusedAs(t, r.call(http.MethodPut, "/api/v1/machines/bare/bmc", change, nil), app.InvalidInput, "no-bmc")
	change.Driver = "redfish"
	var out api.BMCChanged
	r.must(http.MethodPut, "/api/v1/machines/bare/bmc", change, &out)
	if m := out.Machine; out.Card == nil || out.Card.PinStatus != "first-use" || m == nil || m.BMC == nil || m.BMC.SPKI != c.bmc.SPKI() || m.Drivers["power"].Driver != "redfish" {
		t.Fatalf("%+v, %+v", out.Card, out.Machine)
	}
	r.verb("bare", api.Power, api.PowerOptions{Action: "on"})
	if n := r.await(newsOver); n.State != "done" {
		t.Errorf("the BMC is not reached: %s\n%s", n.State, r.story())
	}
	r.settle()
	var told api.List[app.Event]
	r.must(http.MethodGet, "/api/v1/events?kind=machine.bmc&machine=bare&limit=10", nil, &told)
	if len(told.Items) != 1 || !strings.Contains(told.Items[0].Message, "bare was given a BMC: redfish at "+c.bmc.URL()) {
		t.Errorf("the audit trail says %+v", told.Items)
	}
}
