package deploy

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Signals of the installed system.
const (
	SignalAlive = "os.alive" // a frame, a lease or a login prompt that is not firmware's or the ramdisk's
	SignalHome  = "os.home"  // the system called its one-time address
)

const (
	kindClaim    = "deploy.claim"
	kindWritten  = "deploy.written"
	kindExpectOS = "deploy.expect-os"
	kindAlive    = "deploy.await-alive"
	kindHome     = "deploy.await-home"
	kindProof    = "deploy.await-proof"
)

// silence is how long a system may show no sign of life before the machine is power-cycled, once.
const silence = 8 * time.Minute

func (v *Verbs) register() {
	f := v.p.Flows
	f.Register(workflow.Kind{Name: kindClaim, Budget: time.Minute, Run: v.claim})
	f.Register(workflow.Kind{Name: kindWritten, Budget: time.Minute, Run: v.written})
	f.Register(workflow.Kind{Name: kindExpectOS, Budget: time.Minute, Run: v.expectOS})
	f.Register(workflow.Kind{Name: kindAlive, Budget: metal.OSAlive, Run: v.awaitAlive})
	f.Register(workflow.Kind{Name: kindHome, Budget: metal.OSPhonedHome, Run: v.awaitHome})
	f.Register(workflow.Kind{Name: kindProof, Budget: metal.OSPhonedHome, Run: v.awaitProof})
	f.Register(workflow.Kind{Name: agentv1.KindConfigure, Budget: 5 * time.Minute, Prepare: v.configure})
	f.Register(workflow.Kind{Name: agentv1.KindKexecLoad, Budget: 5 * time.Minute, Check: v.checkKexec})
}

func input(s workflow.StepContext) (plan, error) {
	var pl plan
	w := s.Workflow()
	return pl, decode(w.Input, &pl)
}

// claim records the disk as ours and the deployment as begun before its first byte changes, so that a release can always
// find what a failed deploy touched.
func (v *Verbs) claim(ctx context.Context, s workflow.StepContext) (any, error) {
	pl, err := input(s)
	if err != nil {
		return nil, err
	}
	if err := v.still(ctx, &pl); err != nil {
		return nil, err
	}
	path := "firmware"
	if pl.Kexec {
		path = "kexec"
	}
	_, err = v.p.Machines.UpdateMachine(ctx, s.Command().MachineID, func(m *app.Machine) error {
		m.OwnDisks = own(m.OwnDisks, pl.Disk)
		m.Deployment = &app.Deployment{WorkflowID: s.Command().WorkflowID, ImageID: pl.ImageID, ImageName: pl.Image, Hostname: pl.Hostname, Disk: pl.Disk, BootPath: path, Started: v.p.Now().UTC()}
		return nil
	})
	return nil, err
}

func own(disks []app.DiskID, d app.DiskID) []app.DiskID {
	for i, o := range disks {
		if o.Is(d.Serial, d.WWN, d.Name) {
			disks[i] = d
			return disks
		}
	}
	return append(disks, d)
}

func (v *Verbs) deployment(ctx context.Context, s workflow.StepContext, change func(*app.Deployment)) error {
	_, err := v.p.Machines.UpdateMachine(ctx, s.Command().MachineID, func(m *app.Machine) error {
		if m.Deployment == nil {
			return app.Errorf(app.Conflict, "no-deployment", "%s has no deployment any more", m.Name)
		}
		change(m.Deployment)
		return nil
	})
	return err
}

// written checks what the agent read back before the workflow goes on.
func (v *Verbs) written(ctx context.Context, s workflow.StepContext) (any, error) {
	var r agentv1.WriteResult
	if !s.Result("write", &r) || r.BytesVerified <= 0 {
		return nil, app.Errorf(app.Conflict, "not-verified", "the agent did not read the image back").Do("retry the write")
	}
	s.Log("%d bytes fetched; %d written, %d of them moved on the disk, %d left in place, %d zeroed; %d read back, in %.1f s",
		r.BytesFetched, r.BytesWritten, r.BytesMoved, r.BytesKept, r.BytesZeroed, r.BytesVerified, r.Seconds)
	return nil, v.deployment(ctx, s, func(d *app.Deployment) { d.Written = v.p.Now().UTC() })
}

// configure completes the seed at delivery. It is a function of the workflow alone, so every delivery has the same bytes.
func (v *Verbs) configure(ctx context.Context, s workflow.StepContext) (any, error) {
	pl, err := input(s)
	if err != nil {
		return nil, err
	}
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	url, err := v.cfg.PhoneHome(ctx, m, s.Command().WorkflowID)
	if err != nil {
		return nil, err
	}
	return agentv1.Configure{Disk: pl.Target, KernelArgs: pl.Args, Seed: Seed(SeedInput{
		InstanceID: m.ID + "-" + s.Command().WorkflowID, Hostname: pl.Hostname, SSHKeys: pl.Spec.SSHKeys, UserData: pl.Spec.UserData, PhoneHome: url, Network: pl.Network,
	})}, nil
}

// expectOS revokes the boot permission. A kexec needs the agent a little longer, so its session is ended only when the
// system shows itself; what is revoked at once is the netboot.
func (v *Verbs) expectOS(ctx context.Context, s workflow.StepContext) (any, error) {
	pl, err := input(s)
	if err != nil {
		return nil, err
	}
	if pl.Kexec {
		return nil, nil
	}
	return nil, v.p.Boots.Revoke(ctx, s.Command().MachineID)
}

// checkKexec tells whether the machine jumped. The agent that could say so is gone when it did; the system that was jumped
// into says it by a call. Without one it cannot be told, and a person decides.
func (v *Verbs) checkKexec(ctx context.Context, s workflow.StepContext) (workflow.Verdict, any, error) {
	limit := max(s.Command().NotAfter.Sub(v.p.Now())-10*time.Second, time.Second) // ends before the engine's deadline does
	ok, err := v.await(ctx, s, limit, "the agent is gone; waiting for the installed system to call", func(d *app.Deployment) bool { return !d.Alive.IsZero() })
	if err != nil || !ok {
		return workflow.Unknown, nil, err
	}
	return workflow.Happened, agentv1.KexecResult{}, nil
}

// awaitAlive waits for a sign of the system and power-cycles a silent machine to its disk, once, after asking the store
// whether it did so before.
func (v *Verbs) awaitAlive(ctx context.Context, s workflow.StepContext) (any, error) {
	if err := v.p.Boots.Revoke(ctx, s.Command().MachineID); err != nil {
		return nil, err
	}
	ok, err := v.await(ctx, s, silence, "waiting for the first sign of the installed system", func(d *app.Deployment) bool { return !d.Alive.IsZero() })
	if err != nil || ok {
		return map[string]bool{"alive": ok}, err
	}
	var did struct {
		Cycled bool `json:"cycled"`
	}
	s.Data(&did)
	if !did.Cycled {
		did.Cycled = true
		if err := s.SetData(did); err != nil {
			return nil, err
		}
		s.Log("no sign of the system for %s: cutting the power and booting from the disk, once", silence)
		if err := v.cycle(ctx, s); err != nil {
			return nil, err
		}
	}
	ok, err = v.await(ctx, s, 0, "waiting for the first sign of the system after a power cycle", func(d *app.Deployment) bool { return !d.Alive.IsZero() })
	if err == nil && !ok {
		err = app.Errorf(app.Timeout, "os-silent", "the image was written and read back, but the installed system never showed a sign of life").
			Do("look at the machine's console: firmware may not find the disk's loader; then retry or release")
	}
	return map[string]bool{"alive": ok, "cycled": true}, err
}

func (v *Verbs) cycle(ctx context.Context, s workflow.StepContext) error {
	m, err := v.p.Machine(ctx, s)
	if err != nil {
		return err
	}
	h, err := v.p.Hardware(ctx, m, metal.CallOf(s.Command()))
	if err != nil {
		return err
	}
	if err := h.SetPower(ctx, "off"); err != nil {
		return err
	}
	if err := h.SetBootDevice(ctx, "disk", true, m.Firmware); err != nil {
		return err
	}
	return h.SetPower(ctx, "on")
}

// awaitHome waits for the call. A system that lives but never calls is deployed, not confirmed.
func (v *Verbs) awaitHome(ctx context.Context, s workflow.StepContext) (any, error) {
	budget := metal.OSPhonedHome - 30*time.Second // ends before the engine's deadline does
	ok, err := v.await(ctx, s, budget, "the system shows signs of life; waiting for it to call home", func(d *app.Deployment) bool { return d.Confirmed })
	if err == nil && !ok {
		s.Log("the system never called home: deployed, not confirmed")
	}
	return map[string]bool{"confirmed": ok}, err
}

// awaitProof waits for a call from another boot than the first: the disk boots by itself.
func (v *Verbs) awaitProof(ctx context.Context, s workflow.StepContext) (any, error) {
	after := s.Workflow().Steps[s.Workflow().Cursor-1].Started
	ok, err := v.await(ctx, s, metal.OSPhonedHome-30*time.Second, "waiting for the system to call home after a cold boot", func(d *app.Deployment) bool { return d.Heartbeat.After(after) })
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, app.Errorf(app.Timeout, "cold-boot-silent", "the system ran after kexec but did not call home after a cold boot from its disk").
			Do("look at the machine's console: firmware may not find the disk's loader")
	}
	return nil, v.deployment(ctx, s, func(d *app.Deployment) { d.ColdBoot = v.p.Now().UTC() })
}

// await waits until the deployment satisfies seen; false after limit (0: until the context's deadline).
func (v *Verbs) await(ctx context.Context, s workflow.StepContext, limit time.Duration, what string, seen func(*app.Deployment) bool) (bool, error) {
	id := s.Command().MachineID
	alive, stop := v.p.Flows.Await(ctx, id, SignalAlive)
	defer stop()
	home, stopHome := v.p.Flows.Await(ctx, id, SignalHome)
	defer stopHome()
	var timer <-chan time.Time
	if limit > 0 {
		t := time.NewTimer(limit)
		defer t.Stop()
		timer = t.C
	}
	s.Progress(workflow.Progress{Phase: "os", Message: what})
	for {
		m, err := v.p.Machines.Machine(ctx, id)
		if err != nil {
			return false, err
		}
		if m.Deployment != nil && seen(m.Deployment) {
			return true, nil
		}
		select {
		case <-alive:
		case <-home:
		case <-timer:
			return false, nil
		case <-ctx.Done():
			if errors.Is(context.Cause(ctx), context.DeadlineExceeded) {
				return false, nil
			}
			return false, fmt.Errorf("waiting for the system: %w", context.Cause(ctx))
		}
	}
}
