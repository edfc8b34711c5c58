package web_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/webtest"
)

// A question about a port through the API: listed with its sentence, answered by those who may, forgotten.
func TestPortQuestions(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "text")
	admin, viewer := x.As(app.RoleAdmin), x.As(app.RoleViewer)
	var all api.List[api.PortQuestion]
	if w := x.Do("GET", "/api/v1/port-questions", viewer, ""); w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &all) != nil || len(all.Items) != 2 {
		t.Fatalf("%d %s", w.Code, w.Body)
	}
	q := all.Items[0]
	if q.Kind != app.PortMoved || !strings.Contains(q.Text, "rack2-node1") || !strings.Contains(q.Text, "was it moved to rack2-node2?") {
		t.Errorf("%+v", q)
	}
	target := "/api/v1/port-questions/" + q.ID
	for _, c := range []struct {
		method, target, cookie, body string
		status                       int
	}{
		{"POST", target + "/answer", viewer, `{"answer":"accept"}`, 403},
		{"DELETE", target, viewer, "", 403},
		{"POST", target + "/answer", admin, `{"answer":"yes"}`, 422},
		{"POST", target + "/answer", admin, `{"answer":""}`, 422},
		{"POST", target + "/answer", admin, `{}`, 422},
		{"POST", target + "/answer", admin, ``, 400},
		{"POST", target + "/answer?answer=accept", admin, `{"answer":"no","force":true}`, 400},
		{"POST", "/api/v1/port-questions/pq-none/answer", admin, `{"answer":"accept"}`, 404},
		{"DELETE", "/api/v1/port-questions/pq-none", admin, "", 404},
	} {
		if w := x.Do(c.method, c.target, c.cookie, c.body); w.Code != c.status {
			t.Errorf("%s %s %s: %d %s", c.method, c.target, c.body, w.Code, w.Body)
		}
	}
	for _, call := range x.Service.Calls() {
		if call.What == "answer-port" && call.IDs[0] == q.ID {
			t.Errorf("a refused answer was passed on: %+v", call)
		}
	}
	w := x.Do("POST", target+"/answer", admin, `{"answer":"refuse"}`)
	var got api.PortQuestion
	if w.Code != 200 || json.Unmarshal(w.Body.Bytes(), &got) != nil || got.State != app.QuestionRefused || got.AnsweredBy == "" || got.Text != q.Text {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := x.Do("DELETE", target, admin, ""); w.Code != 204 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if left, err := x.Store.ListPortQuestions(t.Context()); err != nil || len(left) != 1 {
		t.Errorf("%+v, %v", left, err)
	}
}

// The console asks, and takes the answer; who may not answer sees the question alone.
func TestTheConsoleAsksAboutPorts(t *testing.T) {
	x := site(t)
	webtest.Demo(x, "text")
	admin, viewer := x.As(app.RoleAdmin), x.As(app.RoleViewer)
	all, err := x.Store.ListPortQuestions(t.Context())
	if err != nil || len(all) != 2 {
		t.Fatal(all, err)
	}
	if w := x.Do("GET", "/discovered", viewer, ""); !strings.Contains(w.Body.String(), "was it moved to rack2-node2?") || strings.Contains(w.Body.String(), "/answer") {
		t.Errorf("a viewer sees %s", w.Body)
	}
	page := x.Do("GET", "/discovered", admin, "").Body.String()
	if !strings.Contains(page, "/ports/"+all[0].ID+"/answer") || !strings.Contains(page, "Yes, it is in rack2-node2") {
		t.Errorf("an admin sees %s", page)
	}
	if w := x.Do("POST", "/ports/"+all[0].ID+"/answer", admin, "answer=perhaps"); w.Code != 422 || !strings.Contains(w.Body.String(), `role="alert"`) {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	if w := x.Do("POST", "/ports/"+all[0].ID+"/answer", admin, "answer=accept"); w.Code != 303 || w.Header().Get("Location") != "/machines/m-5" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if w := x.Do("POST", "/ports/"+all[1].ID+"/answer", admin, "answer=refuse"); w.Code != 303 || w.Header().Get("Location") != "/discovered" {
		t.Errorf("%d %v", w.Code, w.Header())
	}
	if page = x.Do("GET", "/discovered", admin, "").Body.String(); !strings.Contains(page, "Refused by") || !strings.Contains(page, "Ask again") {
		t.Errorf("answered: %s", page)
	}
	if w := x.Do("POST", "/ports/"+all[1].ID+"/forget", admin, ""); w.Code != 303 {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	x.Service.Err = app.Errorf(app.Conflict, "question-answered", "bob has accepted this already").Do("forget the answer")
	q := app.NewPortQuestion(app.PortNew, "00:00:5e:00:53:55", "", "m-1", time.Now())
	if _, err := x.Store.AskPort(t.Context(), &q); err != nil {
		t.Fatal(err)
	}
	if w := x.Do("POST", "/ports/"+q.ID+"/answer", admin, "answer=refuse"); w.Code != 409 || !strings.Contains(w.Body.String(), "ob has accepted this already") {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
