package site_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/bmc/bmctest"
	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/web/api"
)

// ipmiPlugin is the plugin that drives BMCs over IPMI, in this test binary.
const ipmiPlugin = "bcx-ipmi"

func playIPMI() {
	d := ipmi.New(ipmi.Config{})
	bcx.Main(bcx.Options{PluginVersion: ipmi.Version, Health: d.Health}, d.Definition())
}

// over is an open serial console.
type over struct {
	t    *testing.T
	resp *http.Response
	keys *io.PipeWriter
}

func (r *rig) console(name string) *over {
	r.t.Helper()
	typed, keys := io.Pipe()
	req, err := http.NewRequestWithContext(r.t.Context(), http.MethodPost, r.last.ready.URL+"/api/v1/machines/"+name+"/console", typed)
	if err != nil {
		r.t.Fatal(err)
	}
	req.Header.Set("Authorization", "Bearer "+r.token)
	resp, err := r.last.http.Do(req)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { _ = resp.Body.Close(); _ = keys.Close() })
	if resp.StatusCode != http.StatusOK {
		b, _ := io.ReadAll(resp.Body)
		r.t.Fatalf("opening the console: %s %s", resp.Status, b)
	}
	return &over{r.t, resp, keys}
}

// talk types, and has the machine print.
func (o *over) talk(line *bmctest.Line, typed, printed string) {
	o.t.Helper()
	if _, err := io.WriteString(o.keys, typed); err != nil {
		o.t.Fatal(err)
	}
	line.Await(o.t, []byte(typed))
	line.Print([]byte(printed))
	b := make([]byte, len(printed))
	if _, err := io.ReadFull(o.resp.Body, b); err != nil || string(b) != printed {
		o.t.Fatalf("it printed %q, %v", b, err)
	}
}

// end waits for the end and gives its reason.
func (o *over) end() string {
	o.t.Helper()
	if _, err := io.ReadAll(o.resp.Body); err != nil {
		o.t.Fatalf("it broke off: %v", err)
	}
	var e app.Error
	if err := json.Unmarshal([]byte(o.resp.Trailer.Get(api.ConsoleEnd)), &e); err != nil {
		o.t.Fatal(err)
	}
	return e.Reason
}

// enrollOverIPMI enrolls a machine as soon as the plugin is there.
func (r *rig) enrollOverIPMI(b *bmctest.IPMI, name string) {
	r.t.Helper()
	in := api.EnrollInput{Name: name, BMC: &api.BMCInput{Driver: ipmi.ID, Address: b.Address(), Credentials: &api.Credentials{Username: bmctest.User, Password: bmctest.IPMIPassword}}}
	r.until(func() bool {
		err := r.call(http.MethodPost, "/api/v1/machines", in, nil)
		if err != nil && !strings.Contains(err.Error(), "there is no driver") {
			r.t.Fatal(err)
		}
		return err == nil
	})
}

// until waits for what the appliance tells nobody of.
func (r *rig) until(ok func() bool) {
	r.t.Helper()
	late := time.After(patience)
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-late:
			r.t.Fatal("it did not come")
		}
	}
}

// consoleState shows a machine's console, once the plugin that serves it is up.
func (r *rig) consoleState(name string) (s api.ConsoleState) {
	r.t.Helper()
	r.until(func() bool {
		s = api.ConsoleState{}
		r.must(http.MethodGet, "/api/v1/machines/"+name+"/console", nil, &s)
		return s.Lacks == nil || s.Lacks.Code != app.Unavailable
	})
	return s
}

// A person's keys reach a machine through API, plugin host, sandboxed plugin, ipmitool and serial over LAN, and its text comes
// back, onto its timeline too. What ends it is said, and leaves no session on the BMC.
func TestSerialConsoleOverIPMI(t *testing.T) {
	t.Parallel()
	if _, err := exec.LookPath("ipmitool"); err != nil {
		t.Skip("left out: ipmitool is not installed")
	}
	r := withPlugin(t, ipmiPlugin)
	r.start("")
	b := bmctest.NewIPMI(t, bmctest.IPMIConfig{Console: true})
	r.enrollOverIPMI(b, "old-1")
	state := r.consoleState("old-1")
	if state.Driver != ipmi.ID || state.BMC != b.Address() || state.Holder != "" || state.Lacks != nil {
		t.Errorf("it stands at %+v", state)
	}

	o := r.console("old-1")
	o.talk(b.Line, "root\r\x03~.\xff", "Debian GNU/Linux 12 old-1 ttyS1\r\n\r\nlogin: ")
	if state = r.consoleState("old-1"); state.Holder != "admin" {
		t.Errorf("it is held by %+v", state)
	}
	r.stop()
	if why := o.end(); why != "stopping" {
		t.Errorf("a stopping appliance says %s", why)
	}
	if b.SOLSession() != 0 {
		t.Error("a session was left on the BMC")
	}

	r.start("")
	r.seen("old-1", recorder.KindConsole, "Debian GNU/Linux 12 old-1 ttyS1")
	r.seen("old-1", recorder.KindConsole, "login: ")
	r.seen("old-1", "console.opened", "old-1: admin opened the serial console")
	r.seen("old-1", "console.ended", "bcd is being stopped")
	if state = r.consoleState("old-1"); state.Lacks != nil {
		t.Errorf("after a restart, when its plugin is late, the machine's driver is not known: %v", state.Lacks)
	}
	o = r.console("old-1")
	o.talk(b.Line, "again\r", "# ")
	r.must(http.MethodPost, "/api/v1/machines/old-1/delete", map[string]any{"force": true}, nil)
	if why := o.end(); why != "machine-leaves" {
		t.Errorf("the end of a machine says %s", why)
	}
	if b.SOLSession() != 0 {
		t.Error("a session was left on the BMC of a machine that is gone")
	}
}

// seen waits for a record on a machine's timeline.
func (r *rig) seen(machine, kind, text string) {
	r.t.Helper()
	r.until(func() bool {
		var page api.Timeline
		r.must(http.MethodGet, "/api/v1/machines/"+machine+"/timeline?kind="+kind, nil, &page)
		return slices.ContainsFunc(page.Items, func(x app.Record) bool { return strings.Contains(x.Message, text) })
	})
}

func TestAMachineWithoutASerialConsole(t *testing.T) {
	t.Parallel()
	r, _ := ready(t)
	r.start("")
	state := r.consoleState(machineName)
	if state.Lacks == nil || state.Lacks.Reason != "no-console" {
		t.Errorf("it stands at %+v", state)
	}
	err := r.call(http.MethodPost, "/api/v1/machines/"+machineName+"/console", nil, nil)
	if e, _ := app.AsError(err); e == nil || e.Code != app.Unsupported || e.Reason != "no-console" || !strings.Contains(e.WayOut, "bcd machine set-bmc "+machineName+" --driver ipmi") {
		t.Errorf("refused with %+v", err)
	}
}
