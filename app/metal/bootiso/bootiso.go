// Package bootiso boots a CD image of the catalog on a machine, such as an operating system's own installer, and takes the
// machine out of it again.
//
// The image reaches the machine by one of two ways. Where its BMC has virtual media, the BMC fetches the image and shows it
// as a CD drive, which lasts until it is ejected. Everywhere else, on IPMI machines above all, the machine boots from the
// network once and its loader reads the image in place (iPXE's sanboot): a BIOS sees a CD drive and UEFI firmware a block
// device, until an operating system takes over. An image started so must bring what it needs into memory first.
//
// A read of the image is what proves that it was started: it leaves over an address of this one boot.
package bootiso

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
)

// Names of the workflows.
const (
	Verb = "boot-iso"
	Exit = "exit-iso"
)

// Config is what the verbs need besides the ports. Every field is required.
type Config struct {
	Images app.ImageStore
	// MediaURL is where a machine's BMC reads the image of the boot with this key.
	MediaURL func(ctx context.Context, m *app.Machine, key string) (string, error)
	// Answered refuses a machine that netboots nothing of ours, for no subnet that it may be in is turned on.
	Answered func(ctx context.Context, m *app.Machine) error
}

// plan is what a workflow was started with.
type plan struct {
	Spec    app.ISOSpec `json:"spec"`
	ImageID string      `json:"imageId"`
	Image   string      `json:"image"`
	Bytes   int64       `json:"bytes"` // of the image
	Via     app.ISOVia  `json:"via"`
}

// Verbs boots CD images.
type Verbs struct {
	p   *metal.Ports
	cfg Config
}

// New registers both verbs.
func New(p *metal.Ports, cfg Config) *Verbs {
	v := &Verbs{p, cfg}
	p.Flows.Register(workflow.Kind{Name: kindInsert, Budget: insertBudget, Run: v.insert})
	p.Flows.Register(workflow.Kind{Name: kindRead, Budget: metal.AgentUp, Run: v.awaitRead})
	p.Flows.RegisterVerb(workflow.Verb{Name: Verb, Version: 1, Begin: v.begin, End: v.end, Cleanup: p.AsFound,
		RetryFrom: func(*workflow.Workflow) int { return 1 }}) // it was powered off, and its permission withdrawn
	p.Flows.RegisterVerb(workflow.Verb{Name: Exit, Version: 1, Begin: beginExit, End: v.endExit})
	return v
}

func planOf(w *workflow.Workflow) (plan, error) {
	var pl plan
	err := json.Unmarshal(w.Input, &pl)
	return pl, err
}

// from lists the states that a boot starts from.
func from(s *app.ISOSpec) []app.State {
	states := []app.State{app.StateEnrolled, app.StateReady, app.StateFailed}
	if s.OverDeployed {
		states = append(states, app.StateDeployed)
	}
	return states
}

// may refuses a machine that must not be booted so. What an image starts may write to any disk, so a lock holds.
func may(m *app.Machine, s *app.ISOSpec) error {
	if m.State == app.StateDeployed && !s.OverDeployed && m.WorkflowID == "" && !m.Locked {
		return app.Errorf(app.Conflict, "machine-deployed", "%s is deployed, and what the image starts may overwrite its system", m.Name).
			At("overDeployed").Do("release it first, or say that it may be: overDeployed")
	}
	return metal.From(m, Verb, true, from(s)...)
}

func (v *Verbs) begin(m *app.Machine, w *workflow.Workflow) error {
	pl, err := planOf(w)
	if err != nil {
		return err
	}
	if err := may(m, &pl.Spec); err != nil {
		return err
	}
	m.Before, m.WorkflowID = m.State, w.ID
	return nil
}

func (v *Verbs) end(m *app.Machine, w *workflow.Workflow) error {
	m.WorkflowID = ""
	switch {
	case w.State == workflow.Done:
		pl, err := planOf(w)
		if err != nil {
			return err
		}
		now := v.p.Now().UTC()
		m.ISO = &app.ISORun{WorkflowID: w.ID, ImageID: pl.ImageID, ImageName: pl.Image, Via: pl.Via, Before: m.State, Started: now}
		m.State, m.StateSince, m.StateReason, m.Before = app.StateISO, now, "", ""
	case w.State == workflow.Failed && w.Error != nil && m.State != app.StateFailed:
		m.StateReason = "booting an ISO failed, and the machine is left as it was found: " + w.Error.Message
	}
	return nil // the machine is where it was
}

// Start boots an image.
func (v *Verbs) Start(ctx context.Context, actor, machineID string, spec app.ISOSpec) (*workflow.Workflow, error) {
	m, err := v.p.Machines.Machine(ctx, machineID)
	if err != nil {
		return nil, err
	}
	if err := may(m, &spec); err != nil {
		return nil, err
	}
	img, err := v.image(ctx, m, spec.Image)
	if err != nil {
		return nil, err
	}
	via, err := v.way(ctx, m, spec.Via)
	if err != nil {
		return nil, err
	}
	pl := plan{Spec: spec, ImageID: img.ID, Image: img.Name, Bytes: img.RawBytes, Via: via}
	return v.p.Flows.Start(ctx, workflow.New{Verb: Verb, MachineID: m.ID, Actor: actor, Steps: steps(&pl), Input: pl})
}

// image finds an image that this machine can boot as a CD.
func (v *Verbs) image(ctx context.Context, m *app.Machine, name string) (*app.Image, error) {
	i, err := v.cfg.Images.Image(ctx, name)
	switch {
	case app.CodeOf(err) == app.NotFound:
		return nil, app.Errorf(app.NotFound, "image-not-found", "there is no image %q", metal.Clip(name)).At("image").Do("import the ISO first")
	case err != nil:
		return nil, err
	case i.State != "ready":
		return nil, app.Errorf(app.Conflict, "image-not-ready", "image %s is %s", i.Name, i.State).At("image").Do("wait for its import, or import it again")
	case !i.ISO():
		return nil, app.Errorf(app.Unsupported, "image-not-iso", "image %s is no ISO but the image of a disk (%s)", i.Name, i.Format).At("image").Do("deploy it, or name an ISO image")
	case !i.Layout.BIOS && !i.Layout.UEFI:
		return nil, app.Errorf(app.Unsupported, "iso-not-bootable", "image %s has no boot catalog: it is a CD of data", i.Name).At("image").Do("name an ISO that boots")
	case m.Firmware == app.FirmwareUEFI && !i.Layout.UEFI, m.Firmware == app.FirmwareBIOS && !i.Layout.BIOS:
		return nil, app.Errorf(app.Unsupported, "iso-other-firmware", "image %s does not boot on %s firmware, which %s has", i.Name, m.Firmware, m.Name).
			At("image").Do("name an ISO for it, or change the machine's boot mode and commission it again")
	}
	return i, nil
}

// way chooses how the image reaches the machine, and refuses before anything happens what cannot be done.
func (v *Verbs) way(ctx context.Context, m *app.Machine, asked app.ISOVia) (app.ISOVia, error) {
	if m.BMC == nil && m.Drivers["power"].Driver == "" {
		return "", app.Errorf(app.Unsupported, "no-bmc", "%s has no BMC, so nothing can power it on from here", m.Name).Do("give it one with bcd machine set-bmc")
	}
	if asked != app.ISOByNetwork {
		err := v.hasMedia(ctx, m)
		if err == nil || asked == app.ISOByMedia {
			return app.ISOByMedia, err
		}
	}
	if err := v.p.Supports(ctx, m, metal.NetbootOperations...); err != nil {
		return "", err
	}
	return app.ISOByNetwork, v.cfg.Answered(ctx, m)
}

// hasMedia refuses a machine that has no virtual drive for a CD.
func (v *Verbs) hasMedia(ctx context.Context, m *app.Machine) error {
	if err := v.p.Supports(ctx, m, append([]string{"virtual-media.insert", "virtual-media.eject"}, metal.NetbootOperations...)...); err != nil {
		return err
	}
	if !hasDrive(m.Card) {
		return app.Errorf(app.Unsupported, "no-virtual-drive", "the BMC of %s shows no virtual CD drive", m.Name).At("via").
			Do("let it boot by the network, or give the BMC the licence for virtual media and probe it again")
	}
	return nil
}

func steps(pl *plan) []workflow.Step {
	media := pl.Via == app.ISOByMedia
	out := []workflow.Step{metal.Remember(), metal.Power("off", "Power off", "off"), metal.PermitISO(pl.ImageID, media)}
	if media {
		out = append(out,
			workflow.Step{ID: metal.StepInsertCD, Title: "Put the image into the virtual drive", Kind: kindInsert, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true},
			metal.BootDevice("boot-from-cd", "Boot from the virtual CD once", "cdrom", false))
	} else {
		out = append(out, metal.BootNetwork())
	}
	return append(out, metal.Power("on", "Power on", "on"),
		workflow.Step{ID: "read", Title: fmt.Sprintf("See %s being read", pl.Image), Kind: kindRead, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true})
}
