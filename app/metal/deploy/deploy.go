// Package deploy writes an image to a machine's disk and waits until the installed operating system says that it runs.
//
// That the agent wrote the disk is not success: the deploy is done when the operating system phones home. A system that only
// shows signs of life, such as a lease or a login prompt, leaves the machine as "deployed, not confirmed". A machine that
// shows none, after kexec or after a boot through the firmware, is power-cycled into its disk, once, and how kexec went is
// remembered for its make. A machine that shows any sign is never reset.
package deploy

import (
	"context"
	"encoding/json"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Verb is the name of the workflow.
const Verb = "deploy"

// Config is what deploy needs beyond the shared ports.
type Config struct {
	Images app.ImageStore
	// IndexPath is where the boot-file listener serves an image's chunk index.
	IndexPath func(img *app.Image) string
	// PhoneHome makes the one-time address of a workflow: the same for every call.
	PhoneHome func(ctx context.Context, m *app.Machine, workflowID string) (url string, err error)
	// Trials remembers how kexec went.
	Trials app.KexecStore
	// Silence is how long nothing may be heard of a system before its machine is reset; 0 is the constant Silence.
	Silence time.Duration
}

// Verbs deploys machines.
type Verbs struct {
	p   *metal.Ports
	cfg Config
}

// plan is the workflow's input: what was decided before anything happened.
type plan struct {
	Spec     app.DeploySpec     `json:"spec"`
	Target   agentv1.DiskTarget `json:"target"`
	Disk     app.DiskID         `json:"disk"`
	ImageID  string             `json:"imageId"`
	Image    string             `json:"imageName"`
	Index    string             `json:"indexSha256"`
	Kexec    bool               `json:"kexec"`
	Why      string             `json:"bootPathReason,omitempty"` // why kexec, or why not
	Hearing  hearing            `json:"hearing,omitempty"`
	Args     string             `json:"kernelArgs,omitempty"` // of the profile and the spec
	Hostname string             `json:"hostname"`
	Network  *app.SystemNetwork `json:"network,omitempty"`
	Seeds    []agentv1.Seed     `json:"seeds,omitempty"` // what the disk may hold
}

// New registers the verb and its steps.
func New(p *metal.Ports, cfg Config) *Verbs {
	if cfg.Silence == 0 {
		cfg.Silence = Silence
	}
	v := &Verbs{p, cfg}
	v.register()
	p.Complete(operation, metal.Arguments{Plan: v.planStep, Deliver: v.deliverStep})
	p.Flows.RegisterVerb(workflow.Verb{
		Name: Verb, Version: 2,
		Begin: func(m *app.Machine, w *workflow.Workflow) error {
			var pl plan
			if err := decode(w.Input, &pl); err != nil {
				return err
			}
			if err := metal.From(m, Verb, true, from(&pl.Spec)...); err != nil {
				return err
			}
			metal.Enter(m, w, app.StateDeploying, p.Now().UTC())
			return nil
		},
		End:     v.end,
		Cleanup: v.cleanup,
		Skip:    unneeded,
		RetryFrom: func(w *workflow.Workflow) int {
			if metal.Reached(w, stepAlive) {
				return w.Cursor // the machine was left running
			}
			return 0 // it was powered off, and its agent with it
		},
	})
	return v
}

// Start checks everything that can be checked before the first byte and starts the workflow.
func (v *Verbs) Start(ctx context.Context, actor, machineID string, spec app.DeploySpec) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if err := metal.From(m, Verb, true, from(&spec)...); err != nil {
		return nil, err
	}
	profile, err := v.p.Drivers.ProfileFor(ctx, m)
	if err != nil {
		return nil, err
	}
	pl, img, err := v.plan(ctx, m, profile, spec)
	if err != nil {
		return nil, err
	}
	own, err := v.own(ctx, m, profile)
	if err != nil {
		return nil, err
	}
	if err := v.p.CanNetboot(ctx, m); err != nil {
		return nil, err
	}
	return v.p.Flows.Start(ctx, workflow.New{Verb: Verb, MachineID: m.ID, Actor: actor, Steps: v.steps(m, pl, img, own), Input: pl})
}

// from lists the states that a deploy starts from.
func from(s *app.DeploySpec) []app.State {
	if s.Redeploy {
		return []app.State{app.StateReady, app.StateDeployed}
	}
	return []app.State{app.StateReady}
}

// still refuses to go on when the image was deleted, or imported anew, since the deploy was asked for. From the first
// step on the catalog keeps it: a deploy is running.
func (v *Verbs) still(ctx context.Context, pl *plan) error {
	img, err := v.cfg.Images.Image(ctx, pl.ImageID)
	if err == nil && img.State == "ready" && img.Index == pl.Index {
		return nil
	}
	if err != nil && app.CodeOf(err) != app.NotFound {
		return err
	}
	return app.Errorf(app.Conflict, "image-gone", "image %s was deleted before it was written to %s", pl.Image, pl.Disk.Name).
		Do("nothing was changed: abort this deploy, and start another with an image that there is")
}

// seeds names the image that the machine's last deploy wrote to the same disk, for as long as it can be had. The agent
// compares every chunk, so nothing depends on what became of the disk.
func (v *Verbs) seeds(ctx context.Context, m *app.Machine, disk app.DiskID) []agentv1.Seed {
	d := m.Deployment
	if d == nil || d.Written.IsZero() || !disk.Is(d.Disk.Serial, d.Disk.WWN, d.Disk.Name) {
		return nil
	}
	img, err := v.cfg.Images.Image(ctx, d.ImageID)
	if err != nil || img.State != "ready" {
		return nil
	}
	return []agentv1.Seed{{IndexURL: v.cfg.IndexPath(img), IndexSHA256: img.Index}}
}

// ownSteps are the steps in a deploy that a hardware profile has a say in: its own, and those that keep the boot order.
type ownSteps struct{ before, after, order []workflow.Step }

func (v *Verbs) own(ctx context.Context, m *app.Machine, p *app.Profile) (own ownSteps, err error) {
	own.order = v.p.BootOrderSteps(m, p, metal.BootOrderUse{Title: "Keep the boot order"})
	if p == nil {
		return own, nil
	}
	if own.before, err = v.p.ProfileSteps(ctx, m, "before", p.Steps.BeforeWrite); err == nil {
		own.after, err = v.p.ProfileSteps(ctx, m, "after", p.Steps.AfterWrite)
	}
	return own, err
}

// plan resolves image, disk, host name, kernel arguments and the way the system is first entered.
func (v *Verbs) plan(ctx context.Context, m *app.Machine, profile *app.Profile, spec app.DeploySpec) (plan, *app.Image, error) {
	img, err := v.image(ctx, m, spec.Image)
	if err != nil {
		return plan{}, nil, err
	}
	raw, _, err := v.p.Machines.Inventory(ctx, m.ID)
	if err != nil {
		return plan{}, nil, err
	}
	var inv agentv1.Inventory
	if err := json.Unmarshal(raw, &inv); err != nil {
		return plan{}, nil, app.Errorf(app.Conflict, "bad-inventory", "the stored inventory cannot be read: %w", err).Do("commission %s again", m.Name)
	}
	d, err := PickDisk(&inv, spec.Disk, img)
	if err != nil {
		return plan{}, nil, err
	}
	if err := checkSpec(&spec, m); err != nil {
		return plan{}, nil, err
	}
	if err := roomToGrow(img, &d, &spec); err != nil {
		return plan{}, nil, err
	}
	if m.Network != nil {
		if err := m.Network.CheckMachine("network", m.NICs); err != nil {
			return plan{}, nil, err
		}
	}
	pl := plan{Spec: spec, Target: metal.Target(d), Disk: metal.Identity(d), ImageID: img.ID, Image: img.Name, Index: img.Index, Hostname: spec.Hostname, Args: spec.KernelArgs, Network: m.Network}
	pl.Seeds = v.seeds(ctx, m, pl.Disk)
	if profile != nil {
		pl.Args = join(profile.KernelArgs, spec.KernelArgs)
	}
	if pl.Hearing, err = v.hearingOf(ctx, m); err != nil {
		return plan{}, nil, err
	}
	return pl, img, v.enter(ctx, m, profile, &pl)
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + " " + b
}

func (v *Verbs) image(ctx context.Context, m *app.Machine, id string) (*app.Image, error) {
	img, err := v.cfg.Images.Image(ctx, id)
	if err != nil {
		return nil, err
	}
	if img.State != "ready" {
		return nil, app.Errorf(app.Conflict, "image-not-ready", "image %s is %s", img.Name, img.State).At("image").Do("wait for its import, or choose another")
	}
	if img.ISO() {
		return nil, app.Errorf(app.InvalidInput, "image-is-medium", "image %s is a CD or DVD: a medium to boot from, which no disk is made of", img.Name).
			At("image").Do("use a disk image, or start the machine from it by boot-iso")
	}
	if m.Firmware == app.FirmwareUEFI && !img.Layout.UEFI {
		return nil, app.Errorf(app.InvalidInput, "no-esp", "%s boots by UEFI and image %s has no EFI system partition with a loader", m.Name, img.Name).
			At("image").Do("use an image with an ESP, or set the machine to BIOS boot and commission it again")
	}
	if m.Firmware == app.FirmwareBIOS && !img.Layout.BIOS {
		return nil, app.Errorf(app.InvalidInput, "no-bios-boot", "%s boots by BIOS and image %s has no BIOS boot code", m.Name, img.Name).
			At("image").Do("use an image that boots by BIOS, or set the machine to UEFI boot and commission it again")
	}
	return img, nil
}

func checkSpec(spec *app.DeploySpec, m *app.Machine) error {
	if spec.Hostname == "" {
		spec.Hostname = m.Name
	}
	if err := app.ValidName("hostname", spec.Hostname); err != nil {
		return err
	}
	if err := app.ValidBootPath("boot", spec.Boot); err != nil {
		return err
	}
	if err := app.ValidKernelArgs("kernelArgs", spec.KernelArgs); err != nil {
		return err
	}
	if len(spec.UserData) > 64<<10 {
		return app.Invalid("userData", "is %d bytes long, the limit is %d", len(spec.UserData), 64<<10)
	}
	if len(spec.SSHKeys) > 64 {
		return app.Invalid("sshKeys", "holds %d keys, the limit is 64", len(spec.SSHKeys))
	}
	for _, k := range spec.SSHKeys {
		if err := app.ValidLine("sshKeys", k, 16<<10); err != nil {
			return err
		}
	}
	return nil
}

// steps is the workflow for a plan: a hardware profile's own steps stand before the disk is touched, and after the system
// on it is configured.
func (v *Verbs) steps(m *app.Machine, pl plan, img *app.Image, own ownSteps) []workflow.Step {
	write := metal.OnAgent("write", "Write and read back "+img.Name, agentv1.KindWrite, v.order(img, pl.Target, pl.Spec.WipeOthers, pl.Seeds))
	write.RetrySafe, write.Destructive, write.Rewrites = false, true, true
	write.Stall = app.Duration(metal.WriteStall)
	steps := append(append(v.p.Ramdisk(m), own.before...),
		site("claim", "Note which disk will be written", kindClaim, time.Minute),
		write,
		site("written", "Note that the image was read back", kindWritten, time.Minute),
		metal.OnAgent("configure", "Write the seed and kernel arguments", agentv1.KindConfigure, nil),
	)
	steps = append(append(steps, own.after...), own.order...)
	if pl.Kexec {
		steps = append(steps,
			site("revoke", "Withdraw the permission to netboot", kindExpectOS, time.Minute),
			metal.OnAgent(stepKexec, "Jump into the installed system", agentv1.KindKexecLoad, agentv1.Kexec{Disk: pl.Target, KernelArgs: pl.Args}),
		)
		steps[len(steps)-1].RetrySafe = false
	} else {
		steps = append(steps, coldBoot("")...)
	}
	steps = append(steps, deadMan()...)
	if pl.Kexec && pl.Spec.ColdProof {
		steps = append(steps, metal.Shutdown("proof-off", "Power off, to prove a cold boot"),
			metal.BootDevice("proof-disk", "Boot from the disk from now on", "disk", true),
			metal.Power("proof-on", "Power on", "on"),
			site("proof", "Wait for the cold-booted system", kindProof, waitMargin*metal.OSPhonedHome))
	}
	return steps
}

// order is the agent's order to write an image to a disk.
func (v *Verbs) order(img *app.Image, to agentv1.DiskTarget, wipeOthers bool, seeds []agentv1.Seed) agentv1.Write {
	w := agentv1.Write{Disk: to, ImageID: img.ID, Image: img.Name, IndexURL: v.cfg.IndexPath(img), IndexSHA256: img.Index, RawBytes: img.RawBytes,
		SectorSize: img.Layout.SectorSize, WipeOthers: wipeOthers, Seeds: seeds}
	for _, p := range img.Layout.Partitions {
		if p.FSUUID != "" {
			w.FSUUIDs = append(w.FSUUIDs, p.FSUUID)
		}
	}
	return w
}

// coldBoot is off, disk, on: a reset cannot be checked.
func coldBoot(prefix string) []workflow.Step {
	return []workflow.Step{
		site(prefix+"revoke", "Withdraw the permission to netboot", kindExpectOS, time.Minute),
		metal.Power(prefix+"disk-off", "Power off", "off"),
		metal.BootDevice(prefix+"boot-disk", "Boot from the disk from now on", "disk", true),
		metal.Power(prefix+"disk-on", "Power on", "on"),
	}
}

func site(id, title, kind string, budget time.Duration) workflow.Step {
	return workflow.Step{ID: id, Title: title, Kind: kind, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true, Budget: app.Duration(budget)}
}

func (v *Verbs) end(m *app.Machine, w *workflow.Workflow) error {
	metal.Leave(m, w, app.StateDeployed, metal.Reached(w, "write"), v.p.Now().UTC())
	if w.State != workflow.Done {
		return nil
	}
	d := m.Deployment
	if d == nil {
		return nil
	}
	var pl plan
	if err := decode(w.Input, &pl); err != nil {
		return err
	}
	m.StateReason = left(d, w, &pl)
	if pl.Kexec && (d.Confirmed || d.Retreat != "") {
		m.KexecOK = d.Retreat == ""
	}
	return nil
}

// cleanup leaves a machine whose system was already entered running: it may be somebody's evidence.
func (v *Verbs) cleanup(ctx context.Context, s workflow.StepContext) error {
	w := s.Workflow()
	if metal.Reached(&w, stepAlive) {
		return v.p.Boots.Revoke(ctx, s.Command().MachineID)
	}
	return v.p.PowerDown(ctx, s)
}
