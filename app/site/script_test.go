package site_test

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/agent"
	"github.com/better-compute/bcd/images/agent/commission"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/api"
)

// An operator's own scripts, from the profile to the machine's page: they come signed to the agent, which runs them for real.
// What each says of itself is its result, its output is kept, a hanging one is ended at its time, and none is lost.
func TestOperatorsOwnScripts(t *testing.T) {
	t.Parallel()
	r, c := ready(t)
	tester := commission.New(commission.Config{Log: slog.New(slog.DiscardHandler), Shell: []string{"/bin/sh"}, Temp: shortDir(t)})
	c.tester = agent.Handler(tester.Handlers()[agentv1.KindTest])
	r.start("")
	put := func(tests string) error {
		return r.call(http.MethodPut, "/api/v1/profiles/own", json.RawMessage(`{"commissioning":[`+tests+`]}`), nil)
	}
	for name, bad := range map[string]string{
		"no script": `{"test":"script","title":"x"}`, "for another test": `{"test":"cpu","script":"exit 0"}`, "time": `{"test":"script","script":"exit 0","timeout":"-1s"}`,
		"for ever": `{"test":"script","script":"exit 0","timeout":"1000h"}`, "title": `{"test":"script","script":"exit 0","title":"a\nb"}`,
	} {
		if err := put(bad); app.CodeOf(err) != app.InvalidInput && app.CodeOf(err) != app.InvalidConfig {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := put(`{"test":"script","title":"Says more","script":"echo looking\necho '{\"result\":\"pass\",\"values\":{\"fans\":6},\"message\":\"six fans\"}'\n"},
		{"test":"script","title":"Ends with 1","script":"echo no fan turns >&2\nexit 1\n"},
		{"test":"script","title":"Hangs","script":"sleep 600 & sleep 600\n","timeout":"1s"},
		{"test":"script","title":"Plain","script":"true\n"}`); err != nil {
		t.Fatal(err)
	}
	r.must(http.MethodPatch, "/api/v1/machines/"+machineName, json.RawMessage(`{"hardwareProfile":"own"}`), nil)
	id := r.verb(machineName, api.Commission, nil)
	if n := r.await(newsOver); n.State != "failed" {
		t.Fatalf("it is %s\n%s", n.State, r.story())
	}
	got, all := r.results()
	if !slices.Equal(got, []string{"script pass", "script fail", "script error", "script pass"}) || len(all.Items) != 4 {
		t.Fatalf("%v: %+v", got, all.Items)
	}
	if x := all.Items[0]; x.Message != "six fans" || !strings.Contains(x.Log, "looking") || len(x.Values) != 1 || x.Values[0].Value != 6 {
		t.Errorf("%+v", x)
	}
	if x := all.Items[1]; !strings.Contains(x.Log, "no fan turns") {
		t.Errorf("%+v", x)
	}
	if x := all.Items[2]; !strings.Contains(x.Message, "killed") {
		t.Errorf("%+v", x)
	}
	e := step(t, r.workflow(id), "tests").Error
	if e == nil || !strings.Contains(e.Message, "Ends with 1") || !strings.Contains(e.Message, "Hangs") || e.WayOut == "" {
		t.Errorf("%+v", e)
	}
}
