package deploy

import (
	"context"
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/app/workflow/workflowtest"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// shown is something that a system shows some time after it was entered: "alive", "home", or a line of its console.
type shown struct {
	after time.Duration
	what  string
}

// lab is the real engine over a machine that is simulated on the bubble's clock.
type lab struct {
	t      *testing.T
	memory *workflowtest.Memory
	fleet  *workflowtest.Fleet
	engine *workflow.Engine
	stop   func()
	// systems is what each boot shows, the kexec first when there is one.
	systems [][]shown
	refused *agentv1.Error // the agent's answer
	lost    bool           // the answer never came

	app.MachineStore
	mu     sync.Mutex
	boots  []string // "kexec", "disk"
	power  app.Power
	device string
	timers []*time.Timer
	trials map[string]app.KexecTrial
	revoke int
}

const machine = "m-1"

func newLab(t *testing.T, systems ...[]shown) *lab {
	l := &lab{t: t, memory: workflowtest.NewMemory(), fleet: &workflowtest.Fleet{}, systems: systems, power: app.PowerOn, trials: map[string]app.KexecTrial{}}
	m := &app.Machine{ID: machine, Name: "node1", Vendor: "Acme", Model: "R1", State: app.StateReady, Deployment: &app.Deployment{BootPath: "kexec", Written: time.Now()}}
	if err := l.memory.CreateMachine(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	l.fleet.Handle = func(context.Context, workflow.Command, func(workflow.Progress)) (json.RawMessage, error) {
		if l.refused == nil {
			l.enter("kexec")
		}
		if l.lost {
			go l.fleet.Reboot(machine)
		}
		out, err := json.Marshal(agentv1.KexecResult{Kernel: "/vmlinuz", Refused: l.refused})
		return out, err
	}
	l.start()
	return l
}

// start begins a process of the appliance.
func (l *lab) start() {
	l.engine = workflow.NewEngine(workflow.Config{Store: l.memory, Agents: l.fleet})
	p := &metal.Ports{Machines: l, Boots: revoked{l}, Flows: l.engine, Now: time.Now,
		Hardware: func(context.Context, *app.Machine, drivers.Options) (metal.Hardware, error) { return l, nil }}
	p.Register()
	New(p, Config{Trials: l})
	ctx, cancel := context.WithCancel(l.t.Context())
	ended := make(chan error, 1)
	go func() { ended <- l.engine.Run(ctx) }()
	synctest.Wait()
	l.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			l.t.Error(err)
		}
	}
}

// deploy runs what follows a written image to its end.
func (l *lab) deploy(pl plan) *workflow.Workflow {
	l.t.Helper()
	w := l.begin(pl)
	w, err := l.engine.Wait(l.t.Context(), w.ID)
	if err != nil {
		l.t.Fatal(err)
	}
	return w
}

func (l *lab) begin(pl plan) *workflow.Workflow {
	l.t.Helper()
	pl.Image = "debian"
	var steps []workflow.Step
	if pl.Kexec {
		steps = append(steps, metal.OnAgent(stepKexec, "Jump", agentv1.KindKexecLoad, agentv1.Kexec{}))
		steps[0].RetrySafe = false
	} else {
		l.enter("disk")
	}
	w, err := l.engine.Start(l.t.Context(), workflow.New{Verb: Verb, MachineID: machine, Steps: append(steps, deadMan()...), Input: pl})
	if err != nil {
		l.t.Fatal(err)
	}
	return w
}

// enter starts the next system.
func (l *lab) enter(how string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var now []shown
	if n := len(l.boots); n < len(l.systems) {
		now = l.systems[n]
	}
	l.boots = append(l.boots, how)
	for _, s := range now {
		l.timers = append(l.timers, time.AfterFunc(s.after, func() { l.show(s.what) }))
	}
}

func (l *lab) show(what string) {
	change := func(f func(*app.Deployment)) {
		if _, err := l.UpdateMachine(context.Background(), machine, func(m *app.Machine) error { f(m.Deployment); return nil }); err != nil {
			l.t.Error(err)
		}
	}
	switch what {
	case "alive":
		change(func(d *app.Deployment) { d.Alive = time.Now() })
		l.engine.Signal(machine, SignalAlive, nil)
	case "home":
		change(func(d *app.Deployment) {
			d.Alive, d.PhonedHome, d.Heartbeat, d.Confirmed = time.Now(), time.Now(), time.Now(), true
		})
		l.engine.Signal(machine, SignalHome, nil)
	default:
		l.engine.Signal(machine, SignalConsole, what)
	}
}

func (l *lab) machine() *app.Machine {
	m, err := l.Machine(l.t.Context(), machine)
	if err != nil {
		l.t.Fatal(err)
	}
	return m
}

// Machine implements app.MachineStore.
func (l *lab) Machine(ctx context.Context, id string) (*app.Machine, error) {
	return l.memory.Machine(ctx, id)
}

// UpdateMachine implements app.MachineStore.
func (l *lab) UpdateMachine(ctx context.Context, id string, change func(*app.Machine) error) (*app.Machine, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	m, err := l.memory.Machine(ctx, id)
	if err == nil {
		err = change(m)
	}
	if err == nil {
		err = l.memory.CreateMachine(ctx, m)
	}
	return m, err
}

// Power implements metal.Hardware.
func (l *lab) Power(context.Context) (app.Power, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.power, nil
}

// SetPower implements metal.Hardware.
func (l *lab) SetPower(_ context.Context, action string) error {
	l.mu.Lock()
	was := l.power
	l.power = app.Power(action)
	if action == "off" {
		for _, t := range l.timers {
			t.Stop()
		}
		l.timers = nil
	}
	l.mu.Unlock()
	if action == "on" && was == app.PowerOff {
		l.enter(l.device)
	}
	return nil
}

// SetBootDevice implements metal.Hardware.
func (l *lab) SetBootDevice(_ context.Context, device string, persistent bool, _ app.Firmware) error {
	if l.device = device; !persistent {
		l.t.Error("the disk is booted once only")
	}
	return nil
}

// PutKexecTrial implements app.KexecStore.
func (l *lab) PutKexecTrial(_ context.Context, t *app.KexecTrial) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.trials[t.Attempt] = *t
	return nil
}

// ForgetKexecTrial implements app.KexecStore.
func (l *lab) ForgetKexecTrial(_ context.Context, attempt string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.trials, attempt)
	return nil
}

// ListKexecTrials implements app.KexecStore.
func (l *lab) ListKexecTrials(context.Context, string) (out []app.KexecTrial, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, t := range l.trials {
		out = append(out, t)
	}
	return out, nil
}

// ForgetKexecTrials implements app.KexecStore.
func (l *lab) ForgetKexecTrials(context.Context, string) (int, error) { return 0, nil }

// revoked counts withdrawn permissions.
type revoked struct{ l *lab }

func (r revoked) Mint(context.Context, app.Boot) (*app.Boot, error) { return &app.Boot{}, nil }
func (r revoked) Revoke(context.Context, string) error {
	r.l.mu.Lock()
	defer r.l.mu.Unlock()
	r.l.revoke++
	return nil
}

// lines are lines of one kind, one each pause up to an end.
func lines(text string, pause, until time.Duration) (out []shown) {
	for at := pause; at <= until; at += pause {
		out = append(out, shown{at, text})
	}
	return out
}

const (
	kernelLine = "[    1.234567] EXT4-fs (vda2): mounted filesystem"
	fsckLine   = "[  OK  ] Started systemd-fsckd.service - File System Check Daemon"
	cloudLine  = "[  312.000001] cloud-init[512]: Get:12 packages"
	panicLine  = "[    2.000001] Kernel panic - not syncing: VFS: Unable to mount root fs on unknown-block(0,0)"
)

func TestDeadMan(t *testing.T) {
	min := time.Minute
	up := []shown{{time.Minute, "alive"}, {2 * time.Minute, "home"}}
	static := &app.SystemNetwork{Links: []app.Link{{Name: "lan", Addresses: []netip.Prefix{netip.MustParsePrefix("198.51.100.7/24")}}}}
	tests := []struct {
		name      string
		plan      plan
		systems   [][]shown
		refused   *agentv1.Error
		lost      bool
		boots     string
		state     workflow.State
		reason    string // of the workflow's error
		confirmed bool
		says      string // the machine's reason
		trial     app.KexecOutcome
		why       string // of the trial
		least     time.Duration
		most      time.Duration
	}{
		{name: "it runs", plan: plan{Kexec: true}, systems: [][]shown{up}, boots: "kexec", state: workflow.Done, confirmed: true, trial: app.KexecWorked, least: 2 * min, most: 3 * min},
		{name: "the answer is lost with the ramdisk", plan: plan{Kexec: true}, systems: [][]shown{up}, lost: true, boots: "kexec", state: workflow.Done, confirmed: true, trial: app.KexecWorked, most: 5 * min},
		{name: "a first boot that is slow", plan: plan{Kexec: true}, systems: [][]shown{{{7 * min, "alive"}, {50 * min, "home"}}}, boots: "kexec", state: workflow.Done, confirmed: true, trial: app.KexecWorked, least: 50 * min},
		{name: "a file system check of a quarter of an hour, then cloud-init", plan: plan{Kexec: true}, systems: [][]shown{append(append(lines(fsckLine, 3*min, 18*min), lines(cloudLine, 2*min, 50*min)...), shown{19 * min, "alive"}, shown{55 * min, "home"})},
			boots: "kexec", state: workflow.Done, confirmed: true, trial: app.KexecWorked, least: 55 * min},
		{name: "at work on its console alone, and never home", plan: plan{Kexec: true}, systems: [][]shown{lines(cloudLine, 5*min, 3*time.Hour)}, boots: "kexec", state: workflow.Done, says: "deployed, not confirmed", least: 60 * min, most: 70 * min},
		{name: "a login prompt, and never home", plan: plan{Kexec: true}, systems: [][]shown{{{min, kernelLine}, {2 * min, "node1 login: "}}}, boots: "kexec", state: workflow.Done, says: "deployed, not confirmed", most: 50 * min},
		{name: "alive, and never home", plan: plan{Kexec: true}, systems: [][]shown{{{min, "alive"}}}, boots: "kexec", state: workflow.Done, says: "deployed, not confirmed", most: 50 * min},
		{name: "a kernel that hangs", plan: plan{Kexec: true}, systems: [][]shown{{{time.Second, kernelLine}, {2 * time.Second, kernelLine}}, up}, boots: "kexec disk", state: workflow.Done, confirmed: true,
			trial: app.KexecSilent, why: "os-silent", least: 10 * min, most: 11 * min},
		{name: "a kernel that hangs before its first word", plan: plan{Kexec: true}, systems: [][]shown{nil, up}, boots: "kexec disk", state: workflow.Done, confirmed: true, trial: app.KexecSilent, why: "os-silent", least: 10 * min, most: 11 * min},
		{name: "a kernel that panics", plan: plan{Kexec: true}, systems: [][]shown{{{10 * time.Second, panicLine}}, up}, boots: "kexec disk", state: workflow.Done, confirmed: true, trial: app.KexecPanicked, why: "os-panicked", most: 4 * min},
		{name: "a kernel that is not let in", plan: plan{Kexec: true}, refused: &agentv1.Error{Code: "UNSUPPORTED", Reason: "kexec-lockdown", Message: "the ramdisk's kernel is locked down"}, systems: [][]shown{up}, boots: "disk",
			state: workflow.Done, confirmed: true, trial: app.KexecRefused, why: "kexec-lockdown", most: 3 * min},
		{name: "a kernel that hangs, and a disk that does not boot", plan: plan{Kexec: true}, systems: [][]shown{nil, nil, up}, boots: "kexec disk", state: workflow.Failed, reason: "os-silent", trial: app.KexecSilent, why: "os-silent", most: 30 * min},
		{name: "a disk whose kernel panics, too", plan: plan{Kexec: true}, systems: [][]shown{nil, {{min, panicLine}}}, boots: "kexec disk", state: workflow.Failed, reason: "os-panicked", trial: app.KexecSilent, why: "os-silent", most: 12 * min},
		{name: "a static VLAN without a route to us", plan: plan{Kexec: true, Hearing: hearsNothing, Network: static}, boots: "kexec", state: workflow.Done, says: "not heard from", most: 9 * min},
		{name: "the same through the firmware", plan: plan{Hearing: hearsNothing, Network: static}, boots: "disk", state: workflow.Done, says: "198.51.100.7", most: 9 * min},
		{name: "the same, and it calls all the same", plan: plan{Kexec: true, Hearing: hearsNothing, Network: static}, systems: [][]shown{{{5 * min, "home"}}}, boots: "kexec", state: workflow.Done, confirmed: true, trial: app.KexecWorked},
		{name: "the same, and its kernel is not let in", plan: plan{Kexec: true, Hearing: hearsNothing, Network: static}, refused: &agentv1.Error{Code: "UNSUPPORTED", Reason: "no-boot-entry", Message: "no entry"}, boots: "disk",
			state: workflow.Done, says: "not heard from", trial: app.KexecRefused, why: "no-boot-entry", most: 9 * min},
		{name: "static addresses with a route, and a slow call", plan: plan{Kexec: true, Hearing: hearsCall, Network: static}, systems: [][]shown{{{19 * min, "home"}}}, boots: "kexec", state: workflow.Done, confirmed: true, trial: app.KexecWorked},
		{name: "static addresses with a route that leads nowhere", plan: plan{Kexec: true, Hearing: hearsCall, Network: static}, boots: "kexec disk", state: workflow.Done, says: "after a reset either", trial: app.KexecSilent, why: "os-silent", least: 40 * min, most: 41 * min},
		{name: "through the firmware, silent once", plan: plan{}, systems: [][]shown{nil, up}, boots: "disk disk", state: workflow.Done, confirmed: true, most: 11 * min},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newLab(t, tt.systems...)
				defer l.end()
				l.refused, l.lost = tt.refused, tt.lost
				begun := time.Now()
				w := l.deploy(tt.plan)
				m, took := l.machine(), time.Since(begun)
				if w.State != tt.state || tt.reason != "" && (w.Error == nil || w.Error.Reason != tt.reason || w.Error.WayOut == "") {
					t.Errorf("the workflow is %s: %v", w.State, w.Error)
				}
				if got := strings.Join(l.boots, " "); got != tt.boots || l.power != app.PowerOn {
					t.Errorf("booted %q, power %s", got, l.power)
				}
				if m.Deployment.Confirmed != tt.confirmed || !strings.Contains(m.StateReason, tt.says) || tt.confirmed && m.StateReason != "" {
					t.Errorf("confirmed %t, %q", m.Deployment.Confirmed, m.StateReason)
				}
				if took < tt.least || tt.most > 0 && took > tt.most {
					t.Errorf("it took %s", took)
				}
				l.remembered(tt.trial, tt.why)
				if again := strings.Contains(tt.boots, "kexec disk") || tt.refused != nil; again != (m.Deployment.Retreat != "") && tt.plan.Kexec || again && m.Deployment.BootPath != "firmware" {
					t.Errorf("entered by %s, reset because %q", m.Deployment.BootPath, m.Deployment.Retreat)
				}
			})
		})
	}
}

// remembered checks the one trial that was kept.
func (l *lab) remembered(want app.KexecOutcome, why string) {
	l.t.Helper()
	if want == "" {
		if len(l.trials) > 0 {
			l.t.Errorf("remembered %+v", l.trials)
		}
		return
	}
	for _, t := range l.trials {
		if len(l.trials) != 1 || t.Outcome != want || t.Reason != why || t.Make != "Acme R1" || t.Image != "debian" || t.Machine != "node1" {
			l.t.Errorf("remembered %+v", l.trials)
		}
		return
	}
	l.t.Error("nothing is remembered")
}

// end stops everything in the bubble.
func (l *lab) end() {
	l.stop()
	l.fleet.Gone()
	for _, t := range l.timers {
		t.Stop()
	}
}

// An appliance that was down heard nothing meanwhile: it waits the whole time again before it resets a machine.
func TestSilenceBeginsAnewWithTheAppliance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, []shown{{14 * time.Minute, "alive"}, {15 * time.Minute, "home"}})
		defer l.end()
		w := l.begin(plan{Kexec: true})
		time.Sleep(7 * time.Minute)
		l.stop()
		l.start()
		got, err := l.engine.Wait(t.Context(), w.ID)
		if err != nil || got.State != workflow.Done || !l.machine().Deployment.Confirmed || !slices.Equal(l.boots, []string{"kexec"}) {
			t.Errorf("%+v %v, booted %v", got.Error, err, l.boots)
		}
	})
}

// An appliance that was down for longer than the whole wait leaves the machine alone and asks a person.
func TestAMachineIsNotResetAfterALongOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t)
		defer l.end()
		w := l.begin(plan{Kexec: true})
		time.Sleep(time.Minute)
		l.stop()
		time.Sleep(10 * time.Hour)
		l.start()
		got, err := l.engine.Wait(t.Context(), w.ID)
		if err != nil || got.State != workflow.Failed || got.Error.Reason != "os-not-waited-for" || !slices.Equal(l.boots, []string{"kexec"}) || l.power != app.PowerOn {
			t.Errorf("%s %v %v, booted %v", got.State, got.Error, err, l.boots)
		}
	})
}

// An appliance may end after it decided on a reset and before that is the step's result. A system that is heard then stays, and
// nothing says that it was reset, nor that kexec failed: it is remembered as good once the system called, and else not at all.
func TestAResetThatDidNotBegin(t *testing.T) {
	for _, c := range []struct {
		kexec, calls bool
		trial        app.KexecOutcome
	}{
		{true, true, app.KexecWorked},
		{true, false, ""},
		{false, true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			shows := []shown{{time.Minute, "alive"}}
			if c.calls {
				shows = append(shows, shown{2 * time.Minute, "home"})
			}
			l := newLab(t, shows)
			defer l.end()
			w := l.begin(plan{Kexec: c.kexec})
			synctest.Wait()
			if _, err := l.UpdateMachine(t.Context(), machine, func(m *app.Machine) error {
				m.Deployment.BootPath, m.Deployment.Retreat = "firmware", "nothing was heard of the system"
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			if c.kexec {
				l.trials["wf:"+w.ID+":kexec#0"] = app.KexecTrial{Outcome: app.KexecSilent}
			}
			w, err := l.engine.Wait(t.Context(), w.ID)
			if err != nil {
				t.Fatal(err)
			}
			m := l.machine()
			if want := bootPath(&plan{Kexec: c.kexec}); w.State != workflow.Done || len(l.boots) != 1 || m.Deployment.Retreat != "" || m.Deployment.BootPath != want || m.KexecOK != (c.kexec && c.calls) {
				t.Errorf("%s, booted %v, entered by %s, reset because %q, kexec proven: %t", w.State, l.boots, m.Deployment.BootPath, m.Deployment.Retreat, m.KexecOK)
			}
			l.remembered(c.trial, "")
		})
	}
}

// What the boot that was given up says while its power is cut is not taken for the next one's.
func TestSignsOfTheBootThatWasGivenUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newLab(t, nil, nil)
		defer l.end()
		w := l.begin(plan{Kexec: true})
		time.Sleep(Silence + time.Second)
		synctest.Wait()
		if m := l.machine(); m.Deployment.Retreat == "" || m.Deployment.Confirmed {
			t.Fatalf("%+v", m.Deployment)
		}
		v := &Verbs{p: &metal.Ports{Machines: l, Now: time.Now}}
		l.show("home")
		if _, err := v.forget(t.Context(), forgetting{id: machine}); err != nil {
			t.Fatal(err)
		}
		if d := l.machine().Deployment; d.Confirmed || isAlive(d) || !d.Heartbeat.IsZero() || d.Written.IsZero() {
			t.Errorf("%+v", d)
		}
		if err := l.engine.Abort(t.Context(), w.ID, "alice", "enough"); err != nil {
			t.Fatal(err)
		}
		if _, err := l.engine.Wait(t.Context(), w.ID); err != nil {
			t.Fatal(err)
		}
	})
}

type forgetting struct {
	workflow.StepContext
	id string
}

func (f forgetting) Command() workflow.Command { return workflow.Command{MachineID: f.id} }

func TestHearing(t *testing.T) {
	us := netip.MustParseAddr("192.0.2.1")
	addr := func(s string) []netip.Prefix { return []netip.Prefix{netip.MustParsePrefix(s)} }
	via := func(s string) []app.Route {
		return []app.Route{{To: netip.MustParsePrefix(s), Via: netip.MustParseAddr("198.51.100.1")}}
	}
	for _, tt := range []struct {
		name  string
		links []app.Link
		want  hearing
	}{
		{"DHCP on a port", []app.Link{{Name: "a", Kind: app.LinkPort, DHCP: true}}, hearsAll},
		{"DHCP beside a static VLAN", []app.Link{{Name: "a", DHCP: true}, {Name: "v", Kind: app.LinkVLAN, Addresses: addr("198.51.100.7/24")}}, hearsAll},
		{"an address of ours", []app.Link{{Name: "a", Addresses: addr("192.0.2.7/24")}}, hearsCall},
		{"a default route", []app.Link{{Name: "v", Kind: app.LinkVLAN, Addresses: addr("198.51.100.7/24"), Routes: via("0.0.0.0/0")}}, hearsCall},
		{"a route to us", []app.Link{{Name: "v", Addresses: addr("198.51.100.7/24"), Routes: via("192.0.2.0/25")}}, hearsCall},
		{"a static VLAN alone", []app.Link{{Name: "p", Kind: app.LinkPort}, {Name: "v", Kind: app.LinkVLAN, VLAN: 20, Parent: "p", Addresses: addr("198.51.100.7/24")}}, hearsNothing},
		{"a route elsewhere", []app.Link{{Name: "v", Addresses: addr("198.51.100.7/24"), Routes: via("203.0.113.0/24")}}, hearsNothing},
	} {
		if got := hear(&app.SystemNetwork{Links: tt.links}, us); got != tt.want {
			t.Errorf("%s: %q, want %q", tt.name, got, tt.want)
		}
	}
	if hear(nil, us) != hearsAll {
		t.Error("the image's own network is DHCP")
	}
}

func TestChoose(t *testing.T) {
	good, bad, unknown := app.KexecMemory{Verdict: app.KexecKnownGood}, app.KexecMemory{Verdict: app.KexecKnownBad}, app.KexecMemory{Verdict: app.KexecUnknown}
	for _, tt := range []struct {
		asked   app.BootPath
		h       hearing
		known   app.KexecMemory
		trusted bool
		want    bool
	}{
		{app.BootAuto, hearsAll, good, false, true}, {"", hearsAll, good, false, true}, {"", hearsCall, good, false, true},
		{"", hearsAll, bad, true, false}, {"", hearsAll, unknown, true, true}, {"", hearsAll, unknown, false, false},
		{"", hearsNothing, good, true, false},
		{app.BootKexec, hearsNothing, bad, false, true}, {app.BootReboot, hearsAll, good, true, false},
	} {
		if got, why := choose(tt.asked, tt.h, tt.known, tt.trusted); got != tt.want || got == false && why == "" && tt.known.Sentence != "" {
			t.Errorf("%+v: %t %q", tt, got, why)
		}
	}
}

func TestReadConsole(t *testing.T) {
	for text, want := range map[string]line{
		kernelLine: lineWorks, fsckLine: lineWorks, cloudLine: lineWorks, panicLine: linePanic, "debian login: ": lineLogin, "Linux version 6.1.0-50-amd64 (debian)": lineWorks,
		"": lineOther, "Booting from Hard Disk...": lineOther, "GRUB loading.": lineOther, ">>Start PXE over IPv4.": lineOther, "Memory test 40% [12.5]": lineOther,
		"[    0.000000] Command line: root=UUID": lineWorks, "systemd[1]: Reached target multi-user.target": lineWorks,
	} {
		if got := read(text); got != want {
			t.Errorf("%q: %d, want %d", text, got, want)
		}
	}
}
