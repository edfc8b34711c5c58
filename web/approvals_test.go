package web_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

// herd stores n machines and gives their names as JSON strings, joined.
func herd(t *testing.T, x *webtest.Site, n int) string {
	t.Helper()
	var names []string
	for i := range n {
		m := &app.Machine{ID: fmt.Sprintf("m-%d", i), Name: fmt.Sprintf("node%d", i), State: app.StateReady, Labels: map[string]string{"rack": fmt.Sprint(i % 2)}}
		if err := x.Store.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
		names = append(names, fmt.Sprintf("%q", m.Name))
	}
	return strings.Join(names, ",")
}

func answer[T any](t *testing.T, body []byte) (v T) {
	t.Helper()
	if err := json.Unmarshal(body, &v); err != nil {
		t.Fatalf("%s: %v", body, err)
	}
	return v
}

func TestALargeBatchWaitsForASecondOperator(t *testing.T) {
	x := site(t)
	op, admin, viewer := x.As(app.RoleOperator), x.As(app.RoleAdmin), x.As(app.RoleViewer)
	ids := herd(t, x, 6)
	w := x.Do("POST", "/api/v1/machines/actions/release", op, `{"ids":[`+ids+`]}`)
	res := answer[api.VerbResults](t, w.Body.Bytes())
	if w.Code != http.StatusAccepted || res.Approval == nil || len(res.Items) != 0 || w.Header().Get("Location") != "/api/v1/approvals/"+res.Approval.ID {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	if a := res.Approval; a.Operation != "release" || a.Actor != "operator" || len(a.Machines) != 6 || a.State != app.ApprovalPending || !a.Expires.After(a.Created) {
		t.Errorf("approval %+v", a)
	}
	if len(x.Service.Calls()) != 0 {
		t.Fatalf("it was carried out: %+v", x.Service.Calls())
	}
	decide := "/api/v1/approvals/" + res.Approval.ID + "/decision"
	if w := x.Do("POST", decide, viewer, `{}`); w.Code != http.StatusForbidden {
		t.Errorf("a viewer decides: %d", w.Code)
	}
	if w := x.Do("POST", decide, op, `{}`); w.Code != http.StatusForbidden || refusal(t, w).Reason != "own-approval" {
		t.Errorf("the one who asked approves: %d %s", w.Code, w.Body)
	}
	w = x.Do("POST", decide, admin, `{"reason":"planned work"}`)
	got := answer[app.Approval](t, w.Body.Bytes())
	if w.Code != http.StatusOK || got.State != app.ApprovalApproved || got.DecidedBy != "admin" || got.Machines[5].WorkflowID != "w-1" {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	calls := x.Service.Calls()
	if len(calls) != 1 || calls[0].What != "release" || len(calls[0].IDs) != 6 || calls[0].Actor != "operator, approved by admin" {
		t.Errorf("calls %+v", calls)
	}
	if w := x.Do("POST", decide, admin, `{}`); w.Code != http.StatusConflict || refusal(t, w).Reason != "approval-approved" {
		t.Errorf("it was approved twice: %d %s", w.Code, w.Body)
	}
	events, err := x.Store.ListEvents(t.Context(), app.EventFilter{Kind: "approval."})
	if err != nil || len(events) != 2 || events[0].Kind != "approval.approved" || events[0].Actor != "admin" || !strings.Contains(events[0].Message, "planned work") || events[1].Actor != "operator" {
		t.Errorf("audit %+v, %v", events, err)
	}
}

func TestOperationsAreCountedNotRoutes(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	x.As(app.RoleAdmin)
	six := herd(t, x, 6)
	five := six[:strings.LastIndex(six, ",")]
	for _, c := range []struct {
		verb, ids, options string
		waits              bool
	}{
		{"release", five, "", false}, {"release", six, "", true}, {"deploy", six, `{"image":"debian"}`, true}, {"commission", six, "", true}, {"rescue", six, "", true},
		{"power", six, `{"action":"on"}`, false}, {"power", six, `{"action":"off"}`, true}, {"power", six, `{"action":"cycle"}`, true}, {"power", six, `{"action":"reset"}`, true},
		{"power", six, `{"action":"soft"}`, true}, {"power", five, `{"action":"off"}`, false}, {"rotate-credential", six, "", true}, {"delete", six, "", true},
		{"retire", six, "", false}, {"retire", six, `{"powerOff":true}`, true}, {"lock", six, "", false}, {"abort", six, "", false},
	} {
		body := `{"ids":[` + c.ids + `]`
		if c.options != "" {
			body += `,"options":` + c.options
		}
		w := x.Do("POST", "/api/v1/machines/actions/"+c.verb, op, body+"}")
		if res := answer[api.VerbResults](t, w.Body.Bytes()); w.Code != http.StatusAccepted || (res.Approval != nil) != c.waits {
			t.Errorf("%s %s of %d: %d, waits %v", c.verb, c.options, strings.Count(c.ids, ",")+1, w.Code, res.Approval != nil)
		}
	}
	// Every batch that can wait can be carried out.
	all, err := x.Store.ListApprovals(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range all {
		if w := x.Do("POST", "/api/v1/approvals/"+a.ID+"/decision", x.As(app.RoleAdmin), `{}`); w.Code != http.StatusOK {
			t.Errorf("%s: %d %s", a.Operation, w.Code, w.Body)
		}
	}
}

func TestTheOnlyOperatorTypesTheNumber(t *testing.T) {
	x := site(t)
	admin := x.As(app.RoleAdmin)
	x.As(app.RoleViewer) // may not approve
	ids := herd(t, x, 6)
	for _, confirm := range []string{"", `,"confirm":5`, `,"confirm":7`} {
		w := x.Do("POST", "/api/v1/machines/actions/release", admin, `{"ids":[`+ids+`]`+confirm+`}`)
		if e := refusal(t, w); w.Code != http.StatusUnprocessableEntity || e.Field != "confirm" || !strings.Contains(e.WayOut, "6") {
			t.Errorf("%q: %d %s", confirm, w.Code, w.Body)
		}
	}
	if w := x.Do("POST", "/api/v1/machines/actions/release", admin, `{"ids":[`+ids+`],"confirm":6}`); w.Code != http.StatusAccepted || len(x.Service.Calls()) != 1 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

func TestApprovalsExpireAndCanBeDenied(t *testing.T) {
	x := site(t)
	op, admin := x.As(app.RoleOperator), x.As(app.RoleAdmin)
	ids := herd(t, x, 6)
	ask := func() string {
		w := x.Do("POST", "/api/v1/machines/actions/release", op, `{"ids":[`+ids+`]}`)
		return answer[api.VerbResults](t, w.Body.Bytes()).Approval.ID
	}
	denied := ask()
	w := x.Do("POST", "/api/v1/approvals/"+denied+"/decision", op, `{"deny":true,"reason":"a mistake"}`) // one may take back one's own
	if got := answer[app.Approval](t, w.Body.Bytes()); w.Code != http.StatusOK || got.State != app.ApprovalDenied {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	late := ask()
	if _, err := x.Store.UpdateApproval(t.Context(), late, func(a *app.Approval) error { a.Expires = time.Now().Add(-time.Second); return nil }); err != nil {
		t.Fatal(err)
	}
	if w := x.Do("POST", "/api/v1/approvals/"+late+"/decision", admin, `{}`); w.Code != http.StatusConflict || refusal(t, w).Reason != "approval-expired" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := x.Do("GET", "/api/v1/approvals/"+late, admin, ""); answer[app.Approval](t, w.Body.Bytes()).State != app.ApprovalExpired {
		t.Errorf("%s", w.Body)
	}
	if w := x.Do("GET", "/api/v1/approvals", admin, ""); len(answer[api.List[app.Approval]](t, w.Body.Bytes()).Items) != 2 {
		t.Errorf("%s", w.Body)
	}
	if len(x.Service.Calls()) != 0 {
		t.Errorf("calls %+v", x.Service.Calls())
	}
}

func TestMachinesAreChosenByLabels(t *testing.T) {
	x := site(t)
	op := x.As(app.RoleOperator)
	herd(t, x, 6)
	for _, c := range []struct {
		filter string
		status int
		n      int
	}{
		{`{"labels":{"rack":"1"}}`, 202, 3}, {`{"labels":{"rack":"*"},"states":["ready"],"count":4}`, 202, 4}, {`{"labels":{"rack":"7"}}`, 422, 0},
		{`{"labels":{"rack":"1"},"count":4}`, 409, 0}, {`{"labels":{"rack":"1"},"count":-1}`, 422, 0}, {`{"count":2}`, 422, 0},
	} {
		before := len(x.Service.Calls())
		w := x.Do("POST", "/api/v1/machines/actions/deploy", op, `{"filter":`+c.filter+`,"options":{"image":"debian"}}`)
		n := 0
		for _, call := range x.Service.Calls()[before:] {
			n += len(call.IDs)
		}
		if w.Code != c.status || n != c.n {
			t.Errorf("%s: %d, %d machines: %s", c.filter, w.Code, n, w.Body)
		}
	}
}
