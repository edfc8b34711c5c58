package site_test

import (
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
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
	told := r.events("machine.bmc")
	if len(told) != 1 || !strings.Contains(told[0].Message, "address "+c.bmc.URL()+"/ instead of") || told[0].Actor == "" || strings.Contains(told[0].Message, bmcPassword) {
		t.Errorf("the audit trail says %+v", told)
	}
}
