package lab

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/netip"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/web/api"
)

// ImageName is what the lab calls its image in the appliance.
const ImageName = "debian-12"

// pollInterval is how often the driver looks at a workflow.
const pollInterval = 500 * time.Millisecond

// Driver takes a rack's machines through their life by the public API, and says each step with its time.
type Driver struct {
	API    *Client
	Rack   *Rack
	Say    func(format string, args ...any) // one line for a person; safe for concurrent use
	SSHKey string                           // public key for the installed systems, "" for none
}

// Plan is what happens to one machine.
type Plan struct {
	Machine string
	Kexec   bool // enter the system by kexec, then cold-boot it as proof; else by a firmware reboot
	Release bool // wipe it at the end
}

// PrepareNetwork turns answering on for the lab's subnet.
func (d *Driver) PrepareNetwork(ctx context.Context) error {
	p := d.Rack.Network.Address().Masked()
	in := api.SubnetInput{
		CIDR: p, Interface: Bridge, PoolStart: offset(p.Addr(), 100), PoolEnd: offset(p.Addr(), 199), Discover: true,
		Domain: "lab.example", DNS: []netip.Addr{d.Rack.Network.Address().Addr()}, NTP: []netip.Addr{d.Rack.Network.Address().Addr()},
	}
	var s api.SubnetView
	if err := d.API.Call(ctx, http.MethodPost, "/api/v1/subnets", in, &s); err != nil {
		return fmt.Errorf("adding subnet %s: %w", p, err)
	}
	if err := d.API.Call(ctx, http.MethodPost, "/api/v1/subnets/"+s.ID+"/mode", api.ModeInput{Mode: app.SubnetFull}, nil); err != nil {
		return fmt.Errorf("turning subnet %s on: %w", p, err)
	}
	d.Say("subnet %s is answered on %s", p, Bridge)
	return nil
}

// offset is the n-th address of a /24 or larger.
func offset(a netip.Addr, n byte) netip.Addr {
	b := a.As4()
	b[3] += n
	return netip.AddrFrom4(b)
}

// ImportImage imports a file that the appliance can read, and waits until it is ready.
func (d *Driver) ImportImage(ctx context.Context, path string) (*app.Image, error) {
	begun := time.Now()
	var img app.Image
	if err := d.API.Call(ctx, http.MethodPost, "/api/v1/images", api.FetchInput{Name: ImageName, Path: path}, &img); err != nil {
		return nil, fmt.Errorf("importing the image: %w", err)
	}
	id := img.ID
	err := poll(ctx, pollInterval, func() (bool, error) {
		if err := d.API.Call(ctx, http.MethodGet, "/api/v1/images/"+id, nil, &img); err != nil {
			return false, err
		}
		if img.State == "failed" {
			return false, app.Errorf(app.Unavailable, "import-failed", "the image was not imported: %s", img.Reason)
		}
		return img.State == "ready", nil
	})
	if err != nil {
		return nil, fmt.Errorf("importing the image: %w", err)
	}
	d.Say("image %s imported in %.1f s: %d MiB of %d MiB used", img.Name, time.Since(begun).Seconds(), img.UsedBytes>>20, img.RawBytes>>20)
	return &img, nil
}

// Machine takes one machine through its plan, from enrolment on.
func (d *Driver) Machine(ctx context.Context, p Plan) error {
	steps := []func(context.Context, Plan) error{
		func(ctx context.Context, p Plan) error { return d.Enroll(ctx, p.Machine) }, d.commission, d.deploy, d.heartbeat,
	}
	for _, step := range steps {
		if err := step(ctx, p); err != nil {
			return fmt.Errorf("machine %s: %w", p.Machine, err)
		}
	}
	return nil
}

// Enroll tells the appliance of a machine of the rack.
func (d *Driver) Enroll(ctx context.Context, machine string) error {
	m := d.Rack.Machine(machine)
	if m == nil {
		return app.Missing("machine", machine)
	}
	in := api.EnrollInput{Name: machine, Note: "virtual machine of the lab", BMC: &api.BMCInput{
		Driver: "redfish", Address: m.URL(), SPKI: m.SPKI(), Credentials: &api.Credentials{Username: BMCUser, Password: BMCPassword},
	}}
	if d.Rack.spec(machine).HTTPBoot {
		in.BMC.Options = []byte(`{"networkBoot":"http"}`)
	}
	var out app.Machine
	if err := d.API.Call(ctx, http.MethodPost, "/api/v1/machines", in, &out); err != nil {
		return fmt.Errorf("enrolling: %w", err)
	}
	return d.expect(ctx, machine, app.StateEnrolled)
}

func (d *Driver) commission(ctx context.Context, p Plan) error {
	if _, err := d.Verb(ctx, p.Machine, api.Commission, nil); err != nil {
		return err
	}
	return d.expect(ctx, p.Machine, app.StateReady)
}

func (d *Driver) deploy(ctx context.Context, p Plan) error {
	spec := app.DeploySpec{Image: ImageName, Boot: app.BootReboot, ColdProof: p.Kexec}
	if p.Kexec {
		spec.Boot = app.BootKexec
	}
	if d.SSHKey != "" {
		spec.SSHKeys = []string{d.SSHKey}
	}
	if _, err := d.Verb(ctx, p.Machine, api.Deploy, spec); err != nil {
		return err
	}
	return d.expect(ctx, p.Machine, app.StateDeployed)
}

// heartbeat checks that the installed system itself has said that it runs, and for a kexec that its disk boots cold.
func (d *Driver) heartbeat(ctx context.Context, p Plan) error {
	m, err := d.machine(ctx, p.Machine)
	if err != nil {
		return err
	}
	dep := m.Deployment
	switch {
	case dep == nil || !dep.Confirmed || dep.PhonedHome.IsZero():
		return app.Errorf(app.Conflict, "no-heartbeat", "the installed system never called home: %s", m.StateReason)
	case p.Kexec && dep.ColdBoot.IsZero():
		return app.Errorf(app.Conflict, "no-cold-boot", "the disk was not proven to boot cold")
	}
	d.Say("%-10s heartbeat from %s, entered by %s, %.1f s after the deploy began", p.Machine, dep.Hostname, dep.BootPath, dep.PhonedHome.Sub(dep.Started).Seconds())
	return nil
}

// Release wipes one machine and waits until it is ready again.
func (d *Driver) Release(ctx context.Context, machine string) error {
	_, err := d.Verb(ctx, machine, api.Release, nil)
	if err == nil {
		err = d.expect(ctx, machine, app.StateReady)
	}
	if err != nil {
		return fmt.Errorf("machine %s: %w", machine, err)
	}
	return nil
}

func (d *Driver) machine(ctx context.Context, name string) (*app.Machine, error) {
	var m app.Machine
	err := d.API.Call(ctx, http.MethodGet, "/api/v1/machines/"+name, nil, &m)
	return &m, err
}

// expect checks the state a machine has come to.
func (d *Driver) expect(ctx context.Context, name string, want app.State) error {
	m, err := d.machine(ctx, name)
	if err != nil {
		return err
	}
	if m.State != want {
		return app.Errorf(app.Conflict, "unexpected-state", "the machine is %s, not %s: %s", m.State, want, m.StateReason)
	}
	d.Say("%-10s %s", name, want)
	return nil
}

// Verb starts a verb on one machine, follows its workflow to a good end and gives it as it ended. options may be nil.
func (d *Driver) Verb(ctx context.Context, name string, v api.Verb, options any) (*workflow.Workflow, error) {
	begun := time.Now()
	if options == nil {
		options = struct{}{}
	}
	var res api.VerbResult
	if err := d.API.Call(ctx, http.MethodPost, "/api/v1/machines/"+name+"/"+string(v), options, &res); err != nil {
		return nil, fmt.Errorf("starting %s: %w", v, err)
	}
	f := follower{driver: d, machine: name, verb: v, told: map[string]bool{}}
	var w workflow.Workflow
	err := poll(ctx, pollInterval, func() (bool, error) {
		w = workflow.Workflow{}
		if err := d.API.Call(ctx, http.MethodGet, "/api/v1/workflows/"+res.WorkflowID, nil, &w); err != nil {
			return false, err
		}
		return f.look(&w)
	})
	if err != nil {
		return nil, fmt.Errorf("running %s: %w", v, err)
	}
	d.Say("%-10s %s done in %.1f s", name, v, time.Since(begun).Seconds())
	return &w, nil
}

// follower tells the steps of one workflow as they end.
type follower struct {
	driver  *Driver
	machine string
	verb    api.Verb
	told    map[string]bool
}

// look tells what is new, and whether the workflow has ended; a bad end is an error.
func (f *follower) look(w *workflow.Workflow) (done bool, err error) {
	for _, s := range w.Steps {
		if s.Ended.IsZero() || f.told[s.ID] || s.State != workflow.StepDone {
			continue
		}
		f.told[s.ID] = true
		f.driver.Say("%-10s %s: %s %.1f s", f.machine, f.verb, s.Title, s.Ended.Sub(s.Started).Seconds())
	}
	switch w.State {
	case workflow.Done:
		return true, nil
	case workflow.Failed, workflow.Aborted, workflow.Interrupted:
		if w.Error == nil {
			return false, app.Errorf(app.Conflict, "workflow-"+string(w.State), "the workflow ended %s", w.State)
		}
		return false, w.Error
	}
	return false, nil
}

// explain adds to a machine's failure what its console printed last.
func (d *Driver) explain(name string, err error) error {
	if err == nil || errors.Is(err, context.Canceled) {
		return err
	}
	return fmt.Errorf("%w\nlast lines on the console of %s:\n%s", err, name, d.Rack.Tail(name, 25))
}
