package deploy

import (
	"context"
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
	kindForget   = "deploy.forget-signs"
	kindAgain    = "deploy.await-alive-again"
	kindHome     = "deploy.await-home"
	kindProof    = "deploy.await-proof"
)

// Silence is how long a system may show no sign of life before the machine is power-cycled, once.
const Silence = 8 * time.Minute

func (v *Verbs) register() {
	f := v.p.Flows
	f.Register(workflow.Kind{Name: kindClaim, Budget: time.Minute, Run: v.claim})
	f.Register(workflow.Kind{Name: kindWritten, Budget: time.Minute, Run: v.written})
	f.Register(workflow.Kind{Name: kindExpectOS, Budget: time.Minute, Run: v.expectOS})
	f.Register(workflow.Kind{Name: kindAlive, Budget: metal.OSAlive, Run: v.awaitAlive})
	f.Register(workflow.Kind{Name: kindForget, Budget: time.Minute, Run: v.forget})
	f.Register(workflow.Kind{Name: kindAgain, Budget: metal.OSAlive, Run: v.awaitAgain})
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
	how := "a reboot through the firmware"
	if pl.Kexec {
		how = "kexec"
	}
	s.Log("the system will be entered by %s: %s", how, pl.Why)
	_, err = v.p.Machines.UpdateMachine(ctx, s.Command().MachineID, func(m *app.Machine) error {
		m.OwnDisks = own(m.OwnDisks, pl.Disk)
		m.Deployment = &app.Deployment{WorkflowID: s.Command().WorkflowID, ImageID: pl.ImageID, ImageName: pl.Image, Hostname: pl.Hostname, Disk: pl.Disk, BootPath: bootPath(&pl), Started: v.p.Now().UTC()}
		return nil
	})
	return nil, err
}

// bootPath is how the system is entered first.
func bootPath(pl *plan) string {
	if pl.Kexec {
		return "kexec"
	}
	return "firmware"
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
	s.Log("%d bytes fetched; %d written, %d of them moved on the disk, %d left in place, %d zeroed; %d read back, in %s",
		r.BytesFetched, r.BytesWritten, r.BytesMoved, r.BytesKept, r.BytesZeroed, r.BytesVerified, app.Took(time.Duration(r.Seconds*float64(time.Second))))
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
	return agentv1.Configure{Disk: pl.Target, KernelArgs: pl.Args, Image: pl.Image, Boots: true, Look: true, SkipChecks: pl.Spec.SkipChecks, Seed: Seed(SeedInput{
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
	v.ready(s)
	if pl.Kexec {
		return nil, nil
	}
	return nil, v.p.Boots.Revoke(ctx, s.Command().MachineID)
}

// checkKexec settles a jump whose answer was lost with the agent. Whether the machine jumped is told by what follows: the
// system is heard, or the machine is reset into its disk. Neither does the image any harm, so no person needs to decide.
func (v *Verbs) checkKexec(_ context.Context, s workflow.StepContext) (workflow.Verdict, any, error) {
	s.Log("the ramdisk is gone, and did not say whether it jumped into the system: that shows in what is heard next")
	return workflow.Happened, agentv1.KexecResult{}, nil
}
