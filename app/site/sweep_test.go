package site_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console"
)

// A planted password is found in no log, event, answer, page, journal, store, process list or environment, after every operation
// that uses it, those that fail too.
func TestAPasswordIsLeftNowhere(t *testing.T) {
	t.Parallel()
	r, c := cooled(t, `[30,60,100]`)
	r.stop()
	if r.cfg.Log == "" {
		r.cfg.Log = t.TempDir() + "/log"
	}
	r.start("")
	r.awaitDriver(kindCooling)
	putISO(r, isoName, bootCD(true, true))
	planted := []string{bmcPassword}
	do := func(state string, v api.Verb, options any) (id string) {
		t.Helper()
		id = r.verb(machineName, v, options)
		if n := r.await(newsOver); n.State != state {
			t.Fatalf("%s is %s\n%s", v, n.State, r.story())
		}
		r.sweep(string(v), planted)
		return id
	}
	do("done", api.Commission, nil) // with a step in a plugin
	do("done", api.BootISO, app.ISOSpec{Image: isoName, Via: app.ISOByMedia})
	do("done", api.ExitISO, nil)
	do("done", api.Rescue, nil)
	do("done", api.ExitRescue, nil)
	do("done", api.Deploy, app.DeploySpec{Image: imageName})
	do("done", api.Power, api.PowerOptions{Action: "cycle"})
	r.refusedLogins(c)
	r.sweep("the calls that start no workflow", planted)
	do("done", api.RotateCredential, nil)
	if planted = append(planted, c.bmc.Password()); planted[1] == bmcPassword {
		t.Fatal("the BMC has its old password")
	}
	r.sweep("the rotation", planted)
	own := "/api/v1/secrets/bmc-" + r.machine(machineName).ID
	keep := func(password string) {
		t.Helper()
		r.must(http.MethodPut, own, map[string]any{"value": map[string]string{"username": "admin", "password": password}}, nil)
	}
	keep("wr0ng+" + bmcPassword)
	if e := r.workflow(do("failed", api.Power, api.PowerOptions{Action: "cycle"})).Error; e == nil || e.Reason != "auth-failed" {
		t.Errorf("with a wrong password the power change ended with %v", e)
	}
	keep(planted[1])
	do("done", api.Power, api.PowerOptions{Action: "cycle"})
	do("done", api.Release, nil)
	r.settle()
	var fetched api.List[app.Event]
	r.must(http.MethodGet, "/api/v1/events?kind=secret.fetched&machine="+machineName+"&limit=1000", nil, &fetched)
	if !slices.ContainsFunc(fetched.Items, func(e app.Event) bool {
		return e.Workflow != "" && e.MachineID != "" && strings.Contains(e.Message, "for the step change")
	}) {
		t.Errorf("the audit of secrets has no workflow, machine and step: %+v", fetched.Items)
	}
	r.must(http.MethodPost, "/api/v1/machines/"+machineName+"/delete", api.RetireOptions{Force: true}, nil)
	r.stop()
	r.sweepFiles(planted)
}

// refusedLogins makes the calls with a password, or with the BMC's own, that start no workflow. Their errors tell none.
func (r *rig) refusedLogins(c *computer) {
	r.t.Helper()
	login := &api.BMCInput{Driver: "redfish", Address: c.bmc.URL(), Credentials: &api.Credentials{Username: "admin", Password: bmcPassword}}
	var card api.Card
	if r.must(http.MethodPost, "/api/v1/machines/test-bmc", login, &card); !card.OK {
		r.t.Errorf("the BMC's test says %+v", card)
	}
	refused := func(reason string, err error) {
		r.t.Helper()
		if e, ok := app.AsError(err); !ok || e.Reason != reason || strings.Contains(err.Error(), bmcPassword) {
			r.t.Errorf("%v, want %s without a password", err, reason)
		}
	}
	refused("uuid-taken", r.call(http.MethodPost, "/api/v1/machines", api.EnrollInput{Name: "twice", BMC: login}, nil))
	wrong := &api.Credentials{Username: "admin", Password: "wr0ng+" + bmcPassword}
	refused("auth-failed", r.call(http.MethodPut, "/api/v1/machines/"+machineName+"/bmc", api.BMCChange{Credentials: wrong}, nil))
	r.must(http.MethodPut, "/api/v1/machines/"+machineName+"/bmc", api.BMCChange{Credentials: login.Credentials}, nil)
	step := `{"steps":{"commission":[{"step":"management.rotateCredential","with":{"newPassword":"` + bmcPassword + `"}}]}}`
	refused("step-unsupported", r.call(http.MethodPut, "/api/v1/profiles/leaky", json.RawMessage(step), nil))
	for _, operation := range drivers.Queries() { // some of them the BMC does not have
		if err := r.call(http.MethodPost, "/api/v1/machines/"+machineName+"/query", api.QueryInput{Operation: operation}, nil); err != nil {
			r.look(operation, err.Error(), []string{bmcPassword})
		}
	}
}

// look looks for texts in one.
func (r *rig) look(where, text string, planted []string) {
	r.t.Helper()
	for _, p := range planted {
		for _, form := range []string{p, url.QueryEscape(p), url.PathEscape(p)} {
			if strings.Contains(text, form) {
				r.t.Errorf("a password is in %s", where)
			}
		}
	}
}

// sweep looks for texts wherever a running appliance shows any.
func (r *rig) sweep(after string, planted []string) {
	r.t.Helper()
	places := 0
	look := func(where, text string) {
		r.t.Helper()
		places++
		r.look(where+", after "+after, text, planted)
	}
	r.answers(look)
	if places < 65 {
		r.t.Errorf("after %s only %d answers and pages were there", after, places)
	}
	look("the journals", r.story())
	shown := places
	if r.processes(look); places < shown+4 {
		r.t.Errorf("after %s only %d files of processes were there: those of appliance and plugin are more", after, places-shown)
	}
	log, err := os.ReadFile(r.cfg.Log)
	if err != nil || len(log) == 0 {
		r.t.Errorf("the log: %d bytes, %v", len(log), err)
	}
	look("the log", string(log))
}

// answers gets all that the API tells about what the site has, and every page of the console: those that there are, by its own
// description and its own list.
func (r *rig) answers(look func(where, text string)) {
	r.t.Helper()
	var doc struct {
		Paths map[string]map[string]json.RawMessage `json:"paths"`
	}
	r.must(http.MethodGet, "/api/v1/openapi.json", nil, &doc)
	var paths []string
	for path, methods := range doc.Paths {
		if methods["get"] != nil {
			paths = append(paths, path)
		}
	}
	for _, p := range (*console.Console)(nil).Pages() {
		if p.Method == http.MethodGet {
			paths = append(paths, p.Path)
		}
	}
	r.logIn()
	for _, path := range paths {
		if strings.HasSuffix(path, "/stream") || strings.HasSuffix(path, "/live") { // they tell what the page beside them tells, and do not end
			continue
		}
		for _, one := range r.named(path) {
			status, text := r.page(one)
			if look(one, text); status >= http.StatusInternalServerError {
				r.t.Errorf("%s answers %d: %.200s", one, status, oneLine([]byte(text)))
			}
		}
	}
}

// logIn gets a session for the console's pages.
func (r *rig) logIn() {
	r.t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		r.t.Fatal(err)
	}
	r.last.http.Jar = jar
	r.must(http.MethodPost, "/api/v1/session", api.LoginInput{Name: "admin", Password: "a long enough password"}, nil)
}

// page gets one answer, whatever it is.
func (r *rig) page(path string) (status int, text string) {
	r.t.Helper()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodGet, r.last.ready.URL+path, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	if strings.HasPrefix(path, "/api/") {
		req.Header.Set("Authorization", "Bearer "+r.token)
	}
	res, err := r.last.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	if err != nil {
		r.t.Fatal(err)
	}
	return res.StatusCode, string(raw)
}

// named puts what the site has in the place of a path's parameter; what it has none of is left out.
func (r *rig) named(path string) (out []string) {
	r.t.Helper()
	before, rest, has := strings.Cut(path, "{")
	if !has {
		return []string{path}
	}
	_, after, _ := strings.Cut(rest, "}")
	var names []string
	switch before[strings.LastIndex(strings.TrimSuffix(before, "/"), "/")+1:] {
	case "machines/":
		names = []string{machineName}
	case "images/":
		names = []string{imageName}
	case "plugins/":
		names = []string{"acme-bmc"}
	case "profiles/", "edit/":
		names = []string{"cooled"}
	case "workflows/":
		var all api.List[workflow.Workflow]
		r.must(http.MethodGet, "/api/v1/workflows?limit=2", nil, &all) // the journals of all are looked through besides
		for _, w := range all.Items {
			names = append(names, w.ID)
		}
	}
	for _, n := range names {
		if one := before + n + after; !strings.Contains(one, "{") {
			out = append(out, one)
		}
	}
	return out
}

// sweepFiles looks for texts in what an appliance that has ended keeps.
func (r *rig) sweepFiles(planted []string) {
	r.t.Helper()
	for _, name := range []string{"bcd.db", "recorder.db", "plugins.json", "bcd.db-wal", "recorder.db-wal"} {
		raw, err := os.ReadFile(r.dir + "/" + name)
		if err != nil && (!strings.HasSuffix(name, "-wal") || !os.IsNotExist(err)) { // an orderly end removes a log of writes
			r.t.Error(err)
		}
		r.look(name, string(raw), planted)
	}
}

// processes looks at command lines and environments of the appliance and everything it started.
func (r *rig) processes(look func(where, text string)) {
	all, err := os.ReadDir("/proc")
	if err != nil {
		r.t.Fatal(err)
	}
	family := map[string]bool{}
	for range 8 { // generations
		for _, p := range all {
			stat, err := os.ReadFile("/proc/" + p.Name() + "/stat")
			_, rest, ok := strings.Cut(string(stat), ") ")
			if f := strings.Fields(rest); err == nil && ok && len(f) > 1 && (family[f[1]] || p.Name() == strconv.Itoa(r.last.cmd.Process.Pid)) {
				family[p.Name()] = true
			}
		}
	}
	for pid := range family {
		for _, file := range []string{"cmdline", "environ"} {
			if raw, err := os.ReadFile("/proc/" + pid + "/" + file); err == nil {
				look("/proc/"+pid+"/"+file, string(raw))
			}
		}
	}
}
