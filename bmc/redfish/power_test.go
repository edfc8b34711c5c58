package redfish

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// resets are the reset types posted so far.
func (r *rig) resets() []string {
	var out []string
	for _, q := range r.bmc.Requests("POST") {
		if k, ok := q.Body["ResetType"].(string); ok {
			out = append(out, k)
		}
	}
	return out
}

// Case 37: reset types come from the list, and shutting down never becomes pulling the plug.
func TestResetTypeFromTheList(t *testing.T) {
	offer := func(bmc *bmctest.Redfish, values ...any) {
		actions := bmc.Doc(bmctest.SystemPath)["Actions"].(map[string]any)["#ComputerSystem.Reset"].(map[string]any)
		actions["ResetType@Redfish.AllowableValues"] = values
	}
	t.Run("restart", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		offer(bmc, "On", "ForceOff", "ForceRestart", "GracefulShutdown", "Nmi")
		r := newRig(t, bmc)
		r.must(t, "power", "setPower", `["reset"]`)
		if got := r.resets(); !slices.Equal(got, []string{"ForceRestart"}) {
			t.Errorf("posted %v", got)
		}
	})
	t.Run("soft is refused, never forced", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		offer(bmc, "On", "ForceOff", "ForceRestart", "PushPowerButton", "Nmi")
		r := newRig(t, bmc)
		_, err := r.call("power", "setPower", `["soft"]`)
		wants(t, err, driver.CodeUnsupported)
		if got := r.resets(); len(got) != 0 {
			t.Errorf("posted %v", got)
		}
	})
	t.Run("behind ActionInfo", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		bmc.Doc(bmctest.SystemPath)["Actions"] = map[string]any{"#ComputerSystem.Reset": map[string]any{
			"target": bmctest.SystemPath + "/Actions/ComputerSystem.Reset", "@Redfish.ActionInfo": bmctest.SystemPath + "/ResetActionInfo"}}
		bmc.Doc(bmctest.SystemPath + "/ResetActionInfo")["Parameters"] = []any{
			map[string]any{"Name": "Other", "AllowableValues": []any{"GracefulShutdown"}},
			map[string]any{"Name": "ResetType", "AllowableValues": []any{"ForceOn", "ForceOff", "PowerCycle"}}}
		r := newRig(t, bmc)
		_, err := r.call("power", "setPower", `["soft"]`)
		wants(t, err, driver.CodeUnsupported)
		r.must(t, "power", "setPower", `["off"]`)
		r.must(t, "power", "setPower", `["on"]`)
		r.must(t, "power", "setPower", `["reset"]`)
		if got := r.resets(); !slices.Equal(got, []string{"ForceOff", "ForceOn", "PowerCycle"}) {
			t.Errorf("posted %v", got)
		}
	})
	t.Run("no list at all", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		bmc.Doc(bmctest.SystemPath)["Actions"] = map[string]any{"#ComputerSystem.Reset": map[string]any{"target": bmctest.SystemPath + "/Actions/ComputerSystem.Reset"}}
		r := newRig(t, bmc)
		r.must(t, "power", "setPower", `["off"]`)
	})
}

// Case 41: accepted is not done; transitions are neither on nor off.
func TestPowerIsReadBack(t *testing.T) {
	t.Run("after transitions", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		bmc.PowerScript = []string{"On", "On", "On", "PoweringOff", "Off"}
		r := newRig(t, bmc)
		r.must(t, "power", "setPower", `["off"]`)
		if r.clock.waited < 3*pollFirst {
			t.Errorf("waited %s, less than the transition took", r.clock.waited)
		}
	})
	t.Run("never off", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		bmc.PowerScript = []string{"On"}
		bmc.Intercept = func(_ http.ResponseWriter, q *http.Request, _ map[string]any) bool {
			if q.Method == http.MethodGet {
				bmc.PowerScript = append(bmc.PowerScript, "PoweringOff")
			}
			return false
		}
		r := newRig(t, bmc)
		_, err := r.call("power", "setPower", `["off"]`)
		wants(t, err, driver.CodeTimeout)
		if !strings.Contains(err.Message, "PoweringOff") || r.clock.waited < 5*time.Minute {
			t.Errorf("after %s: %v", r.clock.waited, err)
		}
		if got := r.resets(); len(got) != 1 {
			t.Errorf("asked %d times, want once: %v", len(got), got)
		}
	})
	t.Run("reads as unknown", func(t *testing.T) {
		for state, want := range map[string]string{"PoweringOn": "unknown", "Paused": "unknown", "off": "off", "ON": "on"} {
			bmc := bmctest.NewRedfish(t)
			bmc.Power = state
			var p driver.PowerReading
			if err := json.Unmarshal(newRig(t, bmc).must(t, "power", "getPower", "[]"), &p); err != nil || p.Power != want {
				t.Errorf("%s reads %+v, want %s", state, p, want)
			}
			if p.Power == "unknown" && !strings.Contains(p.Reason, state) {
				t.Errorf("%s is unknown for the reason %q", state, p.Reason)
			}
		}
	})
	t.Run("dies half way", func(t *testing.T) {
		bmc := bmctest.NewRedfish(t)
		bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
			if bmc.Power == "Off" && q.Method == http.MethodGet {
				bmctest.Fail(w, http.StatusInternalServerError, "Base.1.0.InternalError", "Out of memory.")
				return true
			}
			return false
		}
		_, err := newRig(t, bmc).call("power", "setPower", `["off"]`)
		wants(t, err, driver.CodeBMCError)
		if !strings.Contains(err.Message, "Out of memory") {
			t.Errorf("%+v", err)
		}
	})
}

// Case 43: off when off already is success, and asks for nothing.
func TestPowerThereAlready(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.Power = "Off"
	r := newRig(t, bmc)
	r.must(t, "power", "setPower", `["off"]`)
	r.must(t, "power", "setPower", `["soft"]`)
	bmc.Do(func() { bmc.Power = "On" })
	r.must(t, "power", "setPower", `["on"]`)
	if got := r.resets(); len(got) != 0 {
		t.Errorf("posted %v", got)
	}
}

// A refusal that comes because the machine got there meanwhile is success; one that passes is repeated.
func TestPowerRefusals(t *testing.T) {
	for name, c := range map[string]struct {
		status  int
		id      string
		times   int
		flip    bool
		code    string
		resets  int
		message string
	}{
		"409 and already off (Dell)": {status: 409, id: "IDRAC.2.1.SYS428", times: 99, flip: true, resets: 1},
		"409 for seconds (iDRAC 10)": {status: 409, id: "Base.1.12.ActionParameterValueConflict", times: 2, resets: 3},
		"POST (iLO)":                 {status: 400, id: "iLO.2.15.InvalidOperationForSystemState", times: 2, resets: 3},
		"503":                        {status: 503, id: "Base.1.8.ServiceTemporarilyUnavailable", times: 3, resets: 4},
		"503 for ever":               {status: 503, id: "Base.1.8.ServiceTemporarilyUnavailable", times: 99, code: driver.CodeBusy, resets: resetTries},
		"no licence":                 {status: 403, id: "SMC.1.0.OemLicenseNotPassed", times: 99, code: "licence-missing", resets: 1},
		"no privilege":               {status: 403, id: "Base.1.8.InsufficientPrivilege", times: 99, code: "access-denied", resets: 1},
		"nonsense":                   {status: 400, id: "Base.1.8.GeneralError", times: 99, code: driver.CodeBMCError, resets: 1},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			left := c.times
			bmc.Intercept = func(w http.ResponseWriter, q *http.Request, body map[string]any) bool {
				if body["ResetType"] == nil || left == 0 {
					return false
				}
				left--
				if c.flip {
					bmc.Power = "Off"
				}
				bmctest.Fail(w, c.status, c.id, "Refused.")
				return true
			}
			r := newRig(t, bmc)
			_, err := r.call("power", "setPower", `["off"]`)
			if c.code == "" && err != nil || c.code != "" && (err == nil || err.Code != c.code) {
				t.Errorf("got %v, want %q", err, c.code)
			}
			if got := r.resets(); len(got) != c.resets {
				t.Errorf("posted %d times, want %d", len(got), c.resets)
			}
		})
	}
}
