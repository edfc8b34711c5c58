package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

// must fails the test on an error.
func (r *rig) must(t *testing.T, kind, op, args string) json.RawMessage {
	t.Helper()
	out, err := r.call(kind, op, args)
	if err != nil {
		t.Fatalf("%s.%s%s: %v", kind, op, args, err)
	}
	return out
}

// wants checks the code of an error.
func wants(t *testing.T, err *driver.Error, code string) {
	t.Helper()
	if err == nil || err.Code != code {
		t.Fatalf("got %v, want the code %s", err, code)
	}
}

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

// Case 33: a member of the wrong JSON type costs that member, never the machine.
func TestWrongTypesKeepTheMachine(t *testing.T) {
	for name, c := range map[string]struct {
		change   func(sys map[string]any)
		serial   string
		warnings int
	}{
		"number for text":    {func(s map[string]any) { s["SerialNumber"] = 12345 }, "12345", 0},
		"text for number":    {func(s map[string]any) { s["MemorySummary"] = map[string]any{"TotalSystemMemoryGiB": "96"} }, "S1", 0},
		"text for count":     {func(s map[string]any) { s["ProcessorSummary"] = map[string]any{"Count": "2"} }, "S1", 0},
		"number for tag":     {func(s map[string]any) { s["@odata.etag"] = 87422082150 }, "S1", 0},
		"null boot":          {func(s map[string]any) { s["Boot"] = nil }, "S1", 0},
		"words for a number": {func(s map[string]any) { s["MemorySummary"] = map[string]any{"TotalSystemMemoryGiB": "N/A"} }, "S1", 1},
		"text for an object": {func(s map[string]any) { s["ProcessorSummary"] = "two" }, "S1", 1},
		"list for an object": {func(s map[string]any) { s["Status"] = []any{map[string]any{"Health": "OK"}} }, "S1", 1},
		"object for a list":  {func(s map[string]any) { s["HostingRoles"] = map[string]any{"a": 1} }, "S1", 1},
		"everything at once": {func(s map[string]any) {
			s["SerialNumber"], s["Status"], s["MemorySummary"], s["AssetTag"] = 12345, 7, "x", 9
		}, "12345", 1},
		"object where a link": {func(s map[string]any) { s["Storage"] = "none" }, "S1", 0},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			c.change(bmc.Doc(bmctest.SystemPath))
			r := newRig(t, bmc)
			var inv driver.Inventory
			if err := json.Unmarshal(r.must(t, "inspect", "inspect", "[]"), &inv); err != nil {
				t.Fatal(err)
			}
			if inv.SerialNumber != c.serial || inv.Model != "E1" || inv.Power != "on" {
				t.Errorf("inventory %+v", inv)
			}
			if len(inv.Warnings) != c.warnings {
				t.Errorf("warnings %q, want %d", inv.Warnings, c.warnings)
			}
			r.must(t, "power", "setPower", `["off"]`)
			r.must(t, "power", "setPower", `["on"]`)
			r.must(t, "management", "setBootDevice", `["pxe"]`)
		})
	}
}

// Case 35: the PATCH carries the entity tag that the BMC counts, and none when there is none.
func TestPatchCarriesTheTag(t *testing.T) {
	for name, c := range map[string]struct {
		header, body, accepted string
		refusals               int
	}{
		"header":                      {`"h1"`, "", `"h1"`, 0},
		"body, weak":                  {"", `W/"1"`, `W/"1"`, 0},
		"body counts, not header":     {`"h1"`, `"b1"`, `"b1"`, 1},
		"weak must be sent strong":    {`W/"1"`, "", `"1"`, 1},
		"without quotes":              {"", "1779099411", "1779099411", 0},
		"compressed header":           {`"h1-gzip"`, "", `"h1"`, 0},
		"no tag, plain PATCH":         {"", "", "", 0},
		"empty tag is none":           {`""`, "", "", 0},
		"wrong tag, none is accepted": {`"old"`, "", "", 1},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			if c.body != "" {
				bmc.Doc(bmctest.SystemPath)["@odata.etag"] = c.body
			}
			bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if c.header != "" && q.URL.Path == bmctest.SystemPath {
					w.Header().Set("ETag", c.header)
				}
				if q.Method != http.MethodPatch || q.Header.Get("If-Match") == c.accepted {
					return false
				}
				bmctest.Fail(w, http.StatusPreconditionRequired, "Ami.1.0.PreconditionHeaderMissing", "If-Match is needed.")
				return true
			}
			r := newRig(t, bmc)
			r.must(t, "management", "setBootDevice", `["pxe"]`)
			patches := bmc.Requests("PATCH")
			last := patches[len(patches)-1]
			if got := last.Header.Values("If-Match"); strings.Join(got, "|") != c.accepted || (c.accepted == "" && got != nil) {
				t.Errorf("If-Match %q, want %q", got, c.accepted)
			}
			if len(patches)-1 != c.refusals {
				t.Errorf("%d refusals, want %d", len(patches)-1, c.refusals)
			}
		})
	}
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
		if r.clock.waited < 3*pollEvery {
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
		if !err.Retryable || !strings.Contains(err.Message, "Out of memory") {
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
		"no privilege":               {status: 403, id: "Base.1.8.InsufficientPrivilege", times: 99, code: driver.CodeAuthFailed, resets: 1},
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

// Case 39: never more than two sessions, each deleted whatever happens.
func TestSessionsDoNotLeak(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.MaxSessions = 4
	polls := 0
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		if q.Method != http.MethodGet || q.URL.Path != bmctest.SystemPath {
			return false
		}
		switch polls++; polls % 7 {
		case 3:
			bmctest.Fail(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "No.")
			return true
		case 5:
			bmctest.Fail(w, http.StatusInternalServerError, "Base.1.8.InternalError", "No.")
			return true
		}
		return false
	}
	for range 5 { // the driver is restarted now and then
		r := newRig(t, bmc)
		for i := range 10 {
			_, err := r.call("power", "getPower", "[]")
			if err != nil && err.Code != driver.CodeBMCError && err.Code != driver.CodeAuthFailed {
				t.Errorf("poll %d: %v", i, err)
			}
		}
		if err := r.redf.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	made, deleted, peak := bmc.Sessions()
	if made != deleted || peak > 2 {
		t.Errorf("%d sessions made, %d deleted, %d at once", made, deleted, peak)
	}
	if made > 20 {
		t.Errorf("%d sessions for 50 polls", made)
	}
}

func TestSessionExpires(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	r := newRig(t, bmc)
	r.must(t, "power", "getPower", "[]")
	bmc.ExpireSessions()
	r.must(t, "power", "getPower", "[]")
	if made, _, _ := bmc.Sessions(); made != 2 {
		t.Errorf("%d sessions, want one more after the first expired", made)
	}
}

// A failing logout fails nothing.
func TestLogoutFails(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		if q.Method == http.MethodDelete {
			bmctest.Fail(w, http.StatusUnauthorized, "Base.1.8.NoValidSession", "No.")
			return true
		}
		return false
	}
	r := newRig(t, bmc)
	r.must(t, "management", "probe", "[]")
	r.must(t, "power", "getPower", "[]")
	if err := r.redf.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := len(bmc.Requests("DELETE")); n != 2 {
		t.Errorf("%d logouts tried, want 2", n)
	}
	bmc.ExpireSessions()
}

// When sessions are used up, absent or broken, basic authentication does it, and no session is left.
func TestBasicWhenSessionsFail(t *testing.T) {
	for name, prepare := range map[string]func(*bmctest.Redfish){
		"absent": func(b *bmctest.Redfish) { delete(b.Doc("/redfish/v1"), "Links") },
		"full (RAC0218)": func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/Sessions") {
					bmctest.Fail(w, http.StatusServiceUnavailable, "IDRAC.2.1.RAC0218", "The maximum number of user sessions is reached.")
					return true
				}
				return false
			}
		},
		"no token": func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
				if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/Sessions") {
					w.WriteHeader(http.StatusCreated)
					fmt.Fprint(w, "{}")
					return true
				}
				return false
			}
		},
		"moved to the slash": func(b *bmctest.Redfish) {
			b.Intercept = func(w http.ResponseWriter, q *http.Request, body map[string]any) bool {
				if q.Method == http.MethodPost && strings.HasSuffix(q.URL.Path, "/Sessions") {
					http.Redirect(w, q, q.URL.Path+"/", http.StatusPermanentRedirect)
					return true
				}
				return false
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			bmc := bmctest.NewRedfish(t)
			prepare(bmc)
			r := newRig(t, bmc)
			var card driver.Card
			if err := json.Unmarshal(r.must(t, "management", "probe", "[]"), &card); err != nil {
				t.Fatal(err)
			}
			want := "basic"
			if strings.HasPrefix(name, "moved") {
				want = "session" // the POST is repeated with its body, on the same host
			}
			if card.Sessions.Auth != want {
				t.Errorf("logged in by %q, want %q", card.Sessions.Auth, want)
			}
		})
	}
}

func TestForcedPasswordChange(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		if q.Method == http.MethodGet && q.URL.Path == bmctest.SystemPath {
			bmctest.Fail(w, http.StatusForbidden, "Base.1.13.0.PasswordChangeRequired", "The password must be changed.")
			return true
		}
		return false
	}
	_, err := newRig(t, bmc).call("power", "getPower", "[]")
	wants(t, err, "password-change-required")
}
