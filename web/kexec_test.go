package web_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

func TestKexecIsShownAndForgotten(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "")
	show := func() (r api.KexecReport) {
		t.Helper()
		w := x.Do("GET", "/api/v1/machines/rack1-node3/kexec", x.As(app.RoleViewer), "")
		if err := json.Unmarshal(w.Body.Bytes(), &r); err != nil || w.Code != http.StatusOK {
			t.Fatalf("%d %s", w.Code, w.Body)
		}
		return r
	}
	r := show()
	if r.Worked != 1 || r.Tried != 2 || r.Verdict != app.KexecKnownGood || len(r.Images) != 1 || len(r.Trials) != 2 || r.LastFailure == nil || !strings.Contains(r.Sentence, "worked 1 of 2") {
		t.Errorf("%+v", r)
	}
	if _, err := x.Store.UpdateMachine(t.Context(), "rack1-node3", func(m *app.Machine) error { m.KexecOK = true; return nil }); err != nil {
		t.Fatal(err)
	}
	if w := x.Do("DELETE", "/api/v1/machines/rack1-node3/kexec", x.As(app.RoleViewer), ""); w.Code != http.StatusForbidden {
		t.Errorf("a viewer may forget: %d", w.Code)
	}
	if w := x.Do("DELETE", "/api/v1/machines/rack1-node3/kexec", x.As(app.RoleOperator), ""); w.Code != http.StatusNoContent {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	m, err := x.Store.Machine(t.Context(), "rack1-node3")
	if r = show(); err != nil || m.KexecOK || r.Tried != 0 || r.Verdict != app.KexecUnknown || r.Sentence == "" {
		t.Errorf("%+v, proven %t, %v", r, m.KexecOK, err)
	}
	if w := x.Do("GET", "/api/v1/machines/nobody/kexec", x.As(app.RoleViewer), ""); w.Code != http.StatusNotFound {
		t.Errorf("%d", w.Code)
	}
	for _, body := range []string{`{"image":"debian-12","boot":"jump"}`, `{"image":"debian-12","kexec":true}`} {
		if w := x.Do("POST", "/api/v1/machines/rack1-node3/deploy", x.As(app.RoleOperator), body); w.Code != http.StatusUnprocessableEntity && w.Code != http.StatusBadRequest {
			t.Errorf("%s: %d %s", body, w.Code, w.Body)
		}
	}
}
