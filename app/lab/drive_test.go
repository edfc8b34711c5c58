package lab

import (
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/problem"
)

// appliance answers the API as the real one does for a machine that goes its way at once. What the driver sends is decoded
// into the API's own types, unknown members refused.
type appliance struct {
	t        *testing.T
	mu       sync.Mutex // protects what follows
	state    app.State
	firmware bool                    // the last deploy was by firmware
	fail     map[api.Verb]*app.Error // workflows of these verbs fail so
	calls    []string
	image    string
}

func newAppliance(t *testing.T) (*appliance, *Client) {
	a := &appliance{t: t, fail: map[api.Verb]*app.Error{}}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /api/v1/setup", a.setup)
	mux.HandleFunc("POST /api/v1/subnets", a.subnet)
	mux.HandleFunc("POST /api/v1/subnets/{id}/mode", a.mode)
	mux.HandleFunc("POST /api/v1/images", a.importImage)
	mux.HandleFunc("GET /api/v1/images/{id}", a.showImage)
	mux.HandleFunc("POST /api/v1/machines", a.enroll)
	mux.HandleFunc("GET /api/v1/machines/{id}", a.machine)
	mux.HandleFunc("POST /api/v1/machines/{id}/{verb}", a.verb)
	mux.HandleFunc("GET /api/v1/workflows/{id}", a.workflow)
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a.mu.Lock()
		defer a.mu.Unlock()
		a.calls = append(a.calls, r.Method+" "+r.URL.Path)
		if _, err := r.Cookie(api.CookieName); err != nil && r.URL.Path != "/api/v1/setup" {
			a.refuse(w, 401, app.Errorf(app.Unauthenticated, "not-logged-in", "this needs a login"))
			return
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(srv.Close)
	srv.TLS.MinVersion = tls.VersionTLS12
	sum := sha256.Sum256(srv.Certificate().RawSubjectPublicKeyInfo)
	c := NewClient(srv.URL, hex.EncodeToString(sum[:]))
	t.Cleanup(c.Close)
	return a, c
}

func (a *appliance) decode(r *http.Request, v any) {
	d := json.NewDecoder(r.Body)
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil || r.Header.Get("Content-Type") != "application/json" {
		a.t.Errorf("%s %s: %v, %s", r.Method, r.URL.Path, err, r.Header.Get("Content-Type"))
	}
}

func (a *appliance) reply(w http.ResponseWriter, v any) { _ = json.NewEncoder(w).Encode(v) }

func (a *appliance) refuse(w http.ResponseWriter, status int, e *app.Error) {
	w.WriteHeader(status)
	a.reply(w, problem.Body{Error: problem.Detail{Error: *e, RequestID: "r"}})
}

func (a *appliance) setup(w http.ResponseWriter, r *http.Request) {
	var in api.SetupInput
	a.decode(r, &in)
	if in.Code != "code" {
		a.refuse(w, 403, app.Errorf(app.Forbidden, "wrong-code", "the code is wrong").Do("read it from the terminal"))
		return
	}
	http.SetCookie(w, &http.Cookie{Name: api.CookieName, Value: "session", Path: "/", Secure: true, HttpOnly: true})
}

func (a *appliance) subnet(w http.ResponseWriter, r *http.Request) {
	var in api.SubnetInput
	a.decode(r, &in)
	s := app.Subnet{ID: "net-1", CIDR: in.CIDR, Interface: in.Interface, PoolStart: in.PoolStart, PoolEnd: in.PoolEnd, DNS: in.DNS, NTP: in.NTP, Domain: in.Domain, Mode: app.SubnetFull, LeaseTime: app.Duration(time.Hour)}
	if err := s.Validate(); err != nil {
		a.t.Errorf("subnet: %v", err)
	}
	a.reply(w, api.SubnetView{Subnet: s})
}

func (a *appliance) mode(w http.ResponseWriter, r *http.Request) {
	var in api.ModeInput
	a.decode(r, &in)
	if in.Mode != app.SubnetFull || r.PathValue("id") != "net-1" {
		a.t.Errorf("mode %+v of %s", in, r.PathValue("id"))
	}
	a.reply(w, api.SubnetView{})
}

func (a *appliance) importImage(w http.ResponseWriter, r *http.Request) {
	var in api.FetchInput
	a.decode(r, &in)
	a.image = "importing"
	a.reply(w, app.Image{ID: "img-1", Name: in.Name, State: a.image})
}

func (a *appliance) showImage(w http.ResponseWriter, _ *http.Request) {
	a.reply(w, app.Image{ID: "img-1", Name: ImageName, State: a.image, Reason: "the disk is full"})
	if a.image == "importing" {
		a.image = "ready"
	}
}

func (a *appliance) enroll(w http.ResponseWriter, r *http.Request) {
	var in api.EnrollInput
	a.decode(r, &in)
	if in.BMC.Driver != "redfish" || !strings.HasPrefix(in.BMC.Address, "https://127.0.0.1:") || len(in.BMC.SPKI) != 64 || in.BMC.Credentials.Password != BMCPassword {
		a.t.Errorf("enroll %+v", in.BMC)
	}
	a.state = app.StateEnrolled
	a.reply(w, app.Machine{Name: in.Name, State: a.state})
}

func (a *appliance) machine(w http.ResponseWriter, r *http.Request) {
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	m := app.Machine{Name: r.PathValue("id"), State: a.state}
	if a.state == app.StateDeployed {
		m.Deployment = &app.Deployment{Hostname: m.Name, Started: at, PhonedHome: at.Add(time.Minute), Confirmed: true}
		if !a.firmware {
			m.Deployment.ColdBoot = at.Add(2 * time.Minute)
		}
	}
	a.reply(w, m)
}

func (a *appliance) verb(w http.ResponseWriter, r *http.Request) {
	v := api.Verb(r.PathValue("verb"))
	a.state = map[api.Verb]app.State{api.Commission: app.StateReady, api.Deploy: app.StateDeployed, api.Release: app.StateReady}[v]
	if v == api.Deploy {
		var in app.DeploySpec
		a.decode(r, &in)
		a.firmware = in.Boot != app.BootKexec
		if in.Image != ImageName || in.ColdProof == a.firmware {
			a.t.Errorf("deploy %+v", in)
		}
	}
	w.WriteHeader(http.StatusAccepted)
	a.reply(w, api.VerbResult{WorkflowID: "wf-" + string(v)})
}

func (a *appliance) workflow(w http.ResponseWriter, r *http.Request) {
	v := api.Verb(strings.TrimPrefix(r.PathValue("id"), "wf-"))
	at := time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)
	wf := workflow.Workflow{ID: r.PathValue("id"), Verb: string(v), State: workflow.Done, Steps: []workflow.Step{
		{ID: "one", Title: "first step of " + string(v), State: workflow.StepDone, Started: at, Ended: at.Add(1500 * time.Millisecond)},
	}}
	if e := a.fail[v]; e != nil {
		wf.State, wf.Error = workflow.Failed, e
	}
	a.reply(w, wf)
}

// fakeRack is a rack whose machines have no guests and whose network does not exist.
func fakeRack(t *testing.T) *Rack {
	t.Helper()
	m, err := virtual.New(virtual.Config{Name: "bios-1", UUID: "a0a1a2a3-b0b1-c0c1-d0d1-e0e1e2e3e4e5", Password: BMCPassword, Hypervisor: &virtual.Fake{}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(m.Close)
	return &Rack{Network: &Network{cfg: NetworkConfig{Address: netip.MustParsePrefix("10.77.0.1/24")}}, Machines: []*virtual.Machine{m}, Specs: []MachineSpec{{Name: "bios-1"}}}
}

func drive(t *testing.T, a *appliance, c *Client, p Plan) (said string, deployed, released int, err error) {
	t.Helper()
	if err := c.Setup(t.Context(), "code", AdminUser, "password"); err != nil {
		t.Fatal(err)
	}
	var mu sync.Mutex
	var out strings.Builder
	d := &Driver{API: c, Rack: fakeRack(t), Say: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		fmt.Fprintf(&out, format+"\n", args...)
	}}
	deployed, released, err = d.Run(t.Context(), "/images/image.raw", []Plan{p})
	return out.String(), deployed, released, err
}

func TestDrive(t *testing.T) {
	for _, kexec := range []bool{false, true} {
		a, c := newAppliance(t)
		said, deployed, released, err := drive(t, a, c, Plan{Machine: "bios-1", Kexec: kexec, Release: true})
		if err != nil || deployed != 1 || released != 1 {
			t.Fatalf("%d deployed, %d released, %v\n%s", deployed, released, err, said)
		}
		at := 0
		for _, want := range []string{"subnet 10.77.0.0/24", "image debian-12 imported", "enrolled", "commission: first step of commission 1.5 s", "ready", "deployed", "heartbeat from bios-1", "60.0 s", "release done", "ready"} {
			i := strings.Index(said[at:], want)
			if i < 0 {
				t.Fatalf("%q is not said, or not in order:\n%s", want, said)
			}
			at += i
		}
	}
}

// A failure is told with its own words, the verb, the machine, and what the console showed.
func TestDriveTellsAFailure(t *testing.T) {
	a, c := newAppliance(t)
	a.fail[api.Deploy] = app.Errorf(app.Timeout, "os-silent", "the installed system never showed a sign of life").Do("look at its console")
	_, deployed, released, err := drive(t, a, c, Plan{Machine: "bios-1", Release: true})
	if deployed != 0 || released != 0 || err == nil {
		t.Fatalf("%d deployed, %d released, %v", deployed, released, err)
	}
	if e, ok := app.AsError(err); !ok || e.Reason != "os-silent" {
		t.Errorf("the cause is lost: %v", err)
	}
	for _, want := range []string{"machine bios-1", "running deploy", "never showed a sign of life (look at its console)", "console of bios-1"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %q", want, err)
		}
	}
}

func TestClientRefusals(t *testing.T) {
	_, c := newAppliance(t)
	err := c.Setup(t.Context(), "wrong", AdminUser, "password")
	if e, ok := app.AsError(err); !ok || e.Code != app.Forbidden || e.Reason != "wrong-code" || e.WayOut == "" {
		t.Errorf("%v", err)
	}
	if err := c.Call(t.Context(), http.MethodGet, "/nowhere", nil, nil); err == nil {
		t.Error("a 401 was taken for success")
	}
	other := NewClient(c.url, strings.Repeat("0", 64))
	defer other.Close()
	if err := other.Setup(t.Context(), "code", AdminUser, "password"); err == nil || !strings.Contains(err.Error(), "key") {
		t.Errorf("another key: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := poll(ctx, time.Hour, func() (bool, error) { return false, nil }); err == nil {
		t.Error("a poll outlived its context")
	}
}
