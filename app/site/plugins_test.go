package site_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/cookiejar"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/site"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/plugins/sandbox"
	"github.com/better-compute/bcd/web/api"
)

// player makes this test binary what a site with plugins runs of it: the sandbox's shim, or a plugin. It reports
// whether it was one.
func player() bool {
	switch {
	case len(os.Args) > 1 && os.Args[1] == sandbox.ShimCommand:
		os.Exit(sandbox.RunShim(os.Args[2:]))
	case os.Getenv(bcx.EnvCookie) != "" && ownName() == ipmiPlugin:
		playIPMI()
	case os.Getenv(bcx.EnvCookie) != "":
		held()
		if err := driver.RegisterKind(driver.Kind{Name: kindCooling, Operations: []driver.Operation{{Name: "setFanCurve", Params: []string{"curve"}}}}); err != nil {
			panic(err)
		}
		bcx.Main(bcx.Options{PluginVersion: "1"}, variableBMC(strings.TrimSuffix(ownName(), "-bmc")))
	}
	return false
}

// heldBy is, with a plugin's name before it, a file in the plugins directory: while it is there, that plugin does not introduce
// itself.
const heldBy = ".held"

// executable is the file that this process runs, as the plugins directory has it.
func executable() string {
	self, err := os.Executable()
	if err != nil {
		panic(err)
	}
	return self
}

// ownName is the name of the plugin that this process is.
func ownName() string { return filepath.Base(executable()) }

// held waits, in the plugin, until it is let go. A stat is all that a confined plugin can see of its directory.
func held() {
	for {
		if _, err := os.Stat(executable() + heldBy); err != nil {
			return
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// hold keeps the plugin acme-bmc from introducing itself, and letGo ends that.
func (r *rig) hold() {
	r.t.Helper()
	if err := os.WriteFile(filepath.Join(r.cfg.Plugins, "acme-bmc"+heldBy), nil, 0o600); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) letGo() {
	r.t.Helper()
	if err := os.Remove(filepath.Join(r.cfg.Plugins, "acme-bmc"+heldBy)); err != nil {
		r.t.Fatal(err)
	}
}

// variableBMC drives a BMC that is a variable of the plugin.
func variableBMC(id string) driver.Definition {
	bmc := &variable{}
	return driver.Definition{
		ID: id, Version: "1.0.0", RunsOn: driver.RunsOnSite,
		Config: []byte(`{"type":"object","required":["address"],"properties":{"address":{"type":"string"}}}`),
		Implements: map[string]driver.Factory{"power": func(json.RawMessage) (any, error) { return bmc, nil },
			kindCooling: func(json.RawMessage) (any, error) { return fans{}, nil }},
		RetrySafe: map[string][]string{"power": {"getPower"}},
	}
}

type variable struct {
	mu sync.Mutex
	on bool
}

func (v *variable) GetPower(c *driver.Context) (driver.PowerReading, error) {
	if p, err := c.Secret("password"); err != nil || p != bmcPassword {
		return driver.PowerReading{}, driver.Errorf(driver.CodeAuthFailed, "the password is wrong")
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.on {
		return driver.PowerReading{Power: driver.PowerOn}, nil
	}
	return driver.PowerReading{Power: driver.PowerOff}, nil
}

func (v *variable) SetPower(c *driver.Context, a driver.PowerAction) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.on = a != driver.ActionOff && a != driver.ActionSoft
	return nil
}

// withPlugin gives a rig whose appliance has an administrator, and the plugin acme-bmc, and others, in a directory. Nothing
// runs.
func withPlugin(t *testing.T, others ...string) *rig {
	t.Helper()
	r := newRig(t, shortDir(t))
	r.start("")
	var err error
	if r.last.http.Jar, err = cookiejar.New(nil); err != nil {
		t.Fatal(err)
	}
	var who api.Whoami
	r.must(http.MethodPost, "/api/v1/setup", api.SetupInput{Code: r.last.ready.Code, Name: "admin", Password: "a long enough password"}, &who)
	var token api.NewToken
	r.must(http.MethodPost, "/api/v1/tokens", api.TokenInput{Name: "test", Permissions: who.Permissions, ExpiresIn: app.Duration(time.Hour)}, &token)
	r.token = token.Value
	r.stop()
	r.cfg.Plugins = shortDir(t)
	if err := os.Chmod(r.cfg.Plugins, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(others, "acme-bmc") {
		if _, err := host.Add(t.Context(), r.cfg.Plugins, name, os.Args[0]); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

// plugin waits until the plugin is as ok says.
func (r *rig) plugin(ok func(api.Plugin) bool) api.Plugin {
	r.t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		var l api.List[api.Plugin]
		r.must(http.MethodGet, "/api/v1/plugins", nil, &l)
		if len(l.Items) == 1 && ok(l.Items[0]) {
			return l.Items[0]
		}
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatalf("the plugins stand at %+v", l.Items)
		}
	}
}

func running(p api.Plugin) bool { return p.State == "running" && p.Serving }

func (r *rig) warnings() (codes []string) {
	r.t.Helper()
	var l api.List[api.Warning]
	r.must(http.MethodGet, "/api/v1/health", nil, &l)
	for _, w := range l.Items {
		codes = append(codes, w.Code)
	}
	return codes
}

func TestPluginsOfASite(t *testing.T) {
	t.Parallel()
	r := withPlugin(t)
	r.start("")
	r.picksTheDriver()
	p := r.plugin(running)
	if p.PID == 0 || p.UID == nil || p.Memory == 0 || len(p.Drivers) != 1 || p.Drivers[0].ID != "acme" || p.Version != "1" {
		t.Errorf("the plugin is %+v", p)
	}
	var drivers api.List[api.Driver]
	r.must(http.MethodGet, "/api/v1/drivers?kind=power", nil, &drivers)
	if !slices.ContainsFunc(drivers.Items, func(d api.Driver) bool { return d.ID == "acme" && d.Source == "acme-bmc" && d.Down == "" }) {
		t.Errorf("the drivers are %+v", drivers.Items)
	}
	if w := r.warnings(); slices.Contains(w, "plugin-down") || slices.Contains(w, "plugin-refused") {
		t.Errorf("health warns of %v", w)
	}

	r.must(http.MethodPost, "/api/v1/plugins/acme-bmc/restart", nil, nil)
	second := r.plugin(func(q api.Plugin) bool { return running(q) && q.PID != p.PID })
	if second.Restarts != 1 {
		t.Errorf("after a restart it is %+v", second)
	}

	// The file is replaced: what runs goes on, a restart is refused, and Health says so until the new one is pinned.
	file := filepath.Join(r.cfg.Plugins, "acme-bmc")
	f, err := os.OpenFile(file+".new", os.O_CREATE|os.O_WRONLY, 0o755)
	if err != nil {
		t.Fatal(err)
	}
	src, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if _, err := io.Copy(f, src); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString("another build"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+".new", file); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(second.PID, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	r.plugin(func(q api.Plugin) bool { return q.State == "refused" && strings.Contains(q.Reason, "is pinned") })
	if w := r.warnings(); !slices.Contains(w, "plugin-refused") {
		t.Errorf("health warns of %v", w)
	}
	if _, err := host.Repin(t.Context(), r.cfg.Plugins, "acme-bmc"); err != nil {
		t.Fatal(err)
	}
	said, err := site.TakeUpPlugins(t.Context(), r.dir, "acme-bmc")
	if err != nil || said != "the plugin acme-bmc runs and serves acme 1.0.0 (acme-cooling, power)" {
		t.Errorf("taking it up said %q, %v", said, err)
	}
	r.plugin(running)
	if w := r.warnings(); slices.Contains(w, "plugin-refused") {
		t.Errorf("health warns of %v", w)
	}

	if err := host.Remove(r.cfg.Plugins, "acme-bmc"); err != nil {
		t.Fatal(err)
	}
	if _, err := site.TakeUpPlugins(t.Context(), r.dir, ""); err != nil {
		t.Fatal(err)
	}
	var left api.List[api.Plugin]
	r.must(http.MethodGet, "/api/v1/plugins", nil, &left)
	r.must(http.MethodGet, "/api/v1/drivers", nil, &drivers)
	if len(left.Items) != 0 || slices.ContainsFunc(drivers.Items, func(d api.Driver) bool { return d.ID == "acme" }) {
		t.Errorf("after its removal there are %+v and %+v", left.Items, drivers.Items)
	}
	if _, err := site.TakeUpPlugins(t.Context(), shortDir(t), ""); app.CodeOf(err) != app.Unavailable {
		t.Errorf("taking up where nothing runs gave %v", err)
	}
}

// picksTheDriver picks acme's only version, which changes nothing but is kept and recorded. The appliance is started anew,
// so that all is written down.
func (r *rig) picksTheDriver() {
	r.t.Helper()
	r.plugin(running)
	r.must(http.MethodPut, "/api/v1/drivers/acme/active", map[string]string{"version": "1.0.0"}, nil)
	r.stop()
	r.start("")
	r.plugin(running)
	var said api.List[app.Event]
	r.must(http.MethodGet, "/api/v1/events?kind=driver.picked", nil, &said)
	if len(said.Items) != 1 || said.Items[0].Message != "version 1.0.0 of the driver acme was picked" || said.Items[0].Actor == "" {
		r.t.Errorf("the pick was recorded as %+v", said.Items)
	}
	var l api.DriverList
	r.must(http.MethodGet, "/api/v1/drivers", nil, &l)
	if !slices.ContainsFunc(l.Items, func(d api.Driver) bool { return d.ID == "acme" && d.Active }) || l.Labels["bc.dev/driver.acme"] != "1.0.0" {
		r.t.Errorf("after the pick the drivers are %+v, the labels %v", l.Items, l.Labels)
	}
}

// enrollsNode9 enrolls a machine that is driven by the plugin.
func (r *rig) enrollsNode9() { r.t.Helper(); r.enrolls(9, "acme") }

// enrolls enrolls the machine of a digit, with a BMC that a driver drives.
func (r *rig) enrolls(n int, by string) {
	r.t.Helper()
	in := api.EnrollInput{Name: fmt.Sprintf("node%d", n), MACs: []app.MAC{app.MAC(fmt.Sprintf("00:00:5e:00:53:9%d", n))}, BMC: &api.BMCInput{Driver: by,
		Address: fmt.Sprintf("192.0.2.9%d", n), Credentials: &api.Credentials{Username: "admin", Password: bmcPassword}}}
	r.must(http.MethodPost, "/api/v1/machines", in, nil)
}

// The appliance dies before a plugin's driver powers a machine on. The next one waits for the plugin, which is late, and the
// workflow goes on.
func TestWorkflowWaitsForItsMachinesPlugin(t *testing.T) {
	for name, forgotten := range map[string]bool{"that is known": false, "that is new": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := withPlugin(t)
			r.start("before intent on")
			r.plugin(running)
			r.enrollsNode9()
			id := r.verb("node9", api.Power, api.PowerOptions{Action: "on"})
			r.await(newsAt)
			r.kill()
			if forgotten { // what it serves, so that any plugin may serve it
				if err := os.Remove(filepath.Join(r.dir, "plugins.json")); err != nil {
					t.Fatal(err)
				}
			}
			r.hold()
			r.start("")
			if w := r.workflow(id); !w.State.Active() {
				t.Errorf("before its plugin answered the workflow is %s: %v", w.State, w.Error)
			}
			r.letGo()
			r.await(newsOver)
			w := r.workflow(id)
			if w.State != "done" {
				t.Errorf("the workflow is %s: %v\n%s", w.State, w.Error, r.journal(id))
			}
			if m := r.machine("node9"); m.Power != app.PowerOn {
				t.Errorf("the machine is %s", m.Power)
			}
		})
	}
}

// A plugin that hangs holds up its own machine alone: another's workflow goes on at once. When the hung one was given all the
// time that a start may take, its machine's workflow ends and says what is wrong.
func TestAHungPluginHoldsUpItsOwnMachineAlone(t *testing.T) {
	t.Parallel()
	r := withPlugin(t, "other-bmc")
	r.start("before intent on")
	r.eventually("both plugins run", func() bool {
		var l api.List[api.Plugin]
		r.must(http.MethodGet, "/api/v1/plugins", nil, &l)
		return len(l.Items) == 2 && running(l.Items[0]) && running(l.Items[1])
	})
	r.enrollsNode9()
	r.enrolls(8, "other")
	hung := r.verb("node9", api.Power, api.PowerOptions{Action: "on"})
	r.await(newsAt)
	free := r.verb("node8", api.Power, api.PowerOptions{Action: "on"})
	r.await(newsAt)
	r.kill()

	r.hold()
	r.start("")
	r.await(newsOver)
	if w := r.workflow(free); w.State != "done" || r.machine("node8").Power != app.PowerOn {
		t.Errorf("the workflow of the other plugin's machine is %s: %v\n%s", w.State, w.Error, r.journal(free))
	}
	if w := r.workflow(hung); !w.State.Active() || strings.Contains(r.journal(hung), "intent on") {
		t.Errorf("the workflow of the hung plugin's machine is %s: %v\n%s", w.State, w.Error, r.journal(hung))
	}
	r.kill()

	r.cfg.Patience = 2 * time.Second
	r.start("")
	r.await(newsOver)
	w := r.workflow(hung)
	if w.State != "failed" || w.Error == nil || !strings.Contains(w.Error.Message, "the driver acme is unavailable: the plugin did not introduce itself in time") || w.Error.WayOut == "" {
		t.Errorf("the workflow of the hung plugin's machine is %s: %v\n%s", w.State, w.Error, r.journal(hung))
	}
}

// A machine whose driver the site does not have, for now or for good, is refused its verbs before they start, and its page,
// the API and Health say why.
func TestADriverThatTheSiteDoesNotHave(t *testing.T) {
	t.Parallel()
	r := withPlugin(t)
	r.start("")
	r.plugin(running)
	r.enrollsNode9()
	r.stop()

	r.hold()
	r.start("")
	refused := func(code app.Code, reason string, again bool) {
		t.Helper()
		err := r.call(http.MethodPost, "/api/v1/machines/node9/power", api.PowerOptions{Action: "on"}, nil)
		if e, _ := app.AsError(err); e == nil || e.Code != code || e.Reason != reason || e.Retry != again || e.WayOut == "" {
			t.Errorf("the verb gave %+v, want %s %s", err, code, reason)
		}
		var l api.List[api.DriverProblem]
		r.must(http.MethodGet, "/api/v1/machines/node9/driver-problems", nil, &l)
		if !slices.ContainsFunc(l.Items, func(p api.DriverProblem) bool { return p.Driver == "acme" && p.Error.Reason == reason }) {
			t.Errorf("the machine's problems are %+v", l.Items)
		}
		if w := r.warnings(); !slices.Contains(w, "driver-not-here") {
			t.Errorf("Health warns of %v", w)
		}
	}
	refused(app.Unavailable, "unavailable", true)
	r.letGo()
	r.plugin(running)
	if w := r.warnings(); slices.Contains(w, "driver-not-here") {
		t.Errorf("Health warns of %v", w)
	}
	r.verb("node9", api.Power, api.PowerOptions{Action: "on"})
	if n := r.await(newsOver); n.State != "done" {
		t.Errorf("with its driver the verb is %s", n.State)
	}
	r.stop()

	r.cfg.Plugins = ""
	r.start("")
	refused(app.Unsupported, "bmc-driver-unsupported", false)
}
