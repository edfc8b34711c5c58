package redfish

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/plugins/driver"
)

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

// A session's address names the BMC as the BMC knows itself; only its path is used to delete it.
func TestSessionAddressOfAnotherName(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	bmc.SessionHost = "https://idrac.internal.example"
	r := newRig(t, bmc)
	r.must(t, "power", "getPower", "[]")
	r.must(t, "management", "probe", "[]")
}

// A refused login is not repeated at once: BMCs lock out who fails too often. Other credentials are tried.
func TestRefusedLoginIsNotRepeated(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	r := newRig(t, bmc)
	now := time.Unix(0, 0)
	r.redf.now = func() time.Time { return now }
	r.Secrets["password"] = "wrong"
	for range 5 {
		_, err := r.call("power", "getPower", "[]")
		wants(t, err, driver.CodeAuthFailed)
	}
	if n := len(bmc.Requests("POST")); n != 1 {
		t.Errorf("%d logins tried, want 1", n)
	}
	now = now.Add(denialTime)
	_, err := r.call("power", "getPower", "[]")
	wants(t, err, driver.CodeAuthFailed)
	if n := len(bmc.Requests("POST")); n != 2 {
		t.Errorf("%d logins tried, want 2", n)
	}
	r.Secrets["password"] = bmctest.Password
	r.must(t, "power", "getPower", "[]")
}

// iDRAC answers 503 while it refreshes its data.
func TestReadsWaitForABusyBMC(t *testing.T) {
	bmc := bmctest.NewRedfish(t)
	left := getTries - 1
	bmc.Intercept = func(w http.ResponseWriter, q *http.Request, _ map[string]any) bool {
		if q.URL.Path != bmctest.SystemPath || left == 0 {
			return false
		}
		left--
		bmctest.Fail(w, http.StatusServiceUnavailable, "IDRAC.2.1.SYS518", "The data sources are unavailable.")
		return true
	}
	r := newRig(t, bmc)
	r.must(t, "power", "getPower", "[]")
	left = 99
	_, err := r.call("power", "getPower", "[]")
	wants(t, err, driver.CodeBusy)
	if !err.Retryable {
		t.Error("it is not retryable")
	}
}
