package web_test

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// Everybody may look at plugins, administrators may start them again, and nobody may add one over the network.
func TestPlugins(t *testing.T) {
	x := site(t)
	viewer, operator, admin := x.As(app.RoleViewer), x.As(app.RoleOperator), x.As(app.RoleAdmin)
	for _, c := range []struct {
		method, target, cookie string
		status                 int
		says                   string
	}{
		{"GET", "/api/v1/plugins", viewer, 200, `"sha256":"9f3e`},
		{"GET", "/api/v1/plugins/acme-bmc/logs", viewer, 200, `"message":"hello"`},
		{"GET", "/api/v1/plugins/acme-bmc/logs?lines=0", viewer, 422, "lines"},
		{"GET", "/api/v1/plugins/acme-bmc/logs?lines=501", viewer, 422, "lines"},
		{"GET", "/api/v1/plugins/acme-bmc/logs?lines=x", viewer, 422, "lines"},
		{"GET", "/api/v1/plugins/nobody/logs", viewer, 404, "plugin-not-found"},
		{"POST", "/api/v1/plugins/acme-bmc/restart", operator, 403, ""},
		{"POST", "/api/v1/plugins/acme-bmc/restart", admin, 204, ""},
		{"POST", "/plugins/acme-bmc/restart", operator, 403, ""},
		{"POST", "/plugins/bcx-ipmi/restart", admin, 303, ""},
		{"GET", "/plugins/acme-bmc", viewer, 200, "hello"},
		{"GET", "/plugins/bcx-ipmi", viewer, 200, "What to do: install bcd anew."},
		{"GET", "/plugins/nobody", viewer, 404, ""},
		{"GET", "/plugins/nobody/live", viewer, 404, ""},
		{"POST", "/api/v1/plugins", admin, 405, ""},
		{"DELETE", "/api/v1/plugins/acme-bmc", admin, 404, ""},
	} {
		w := x.Do(c.method, c.target, c.cookie, "")
		if w.Code != c.status || !strings.Contains(w.Body.String(), c.says) {
			t.Errorf("%s %s: %d %.300s, want %d, %q", c.method, c.target, w.Code, w.Body, c.status, c.says)
		}
	}
	if got := strings.Join(x.Plugins.Restarted(), " "); got != "acme-bmc bcx-ipmi" {
		t.Errorf("started again: %s", got)
	}
	if body := x.Do("GET", "/plugins/acme-bmc", operator, "").Body.String(); strings.Contains(body, "Restart</button>") {
		t.Error("an operator is offered the restart")
	}
}
