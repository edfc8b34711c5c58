package metal

import (
	"context"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/workflow"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Step kinds of a machine whose boot driver is virtual-media-boot: it loads the ramdisk from a CD that its BMC fetches from
// this site, and needs no DHCP or TFTP of ours.
const (
	KindInsertCD = "boot.insertCD" // nothing: puts the machine's boot CD into its virtual drive
	KindFromCD   = "boot.fromCD"   // nothing: the next boot is from that drive
	KindEjectCD  = "boot.ejectCD"  // nothing: empties the drive
	StepInsertCD = "boot-cd"       // the step that puts a CD in: a workflow that ends early after it takes the CD out again
)

// insertBudget bounds an insertion: a BMC may look at the image for minutes, and empties the drive first.
const insertBudget = 6 * time.Minute

// cdOperations are those that a boot from a CD needs beyond NetbootOperations.
var cdOperations = []string{"virtual-media.insert", "virtual-media.eject"}

// BootsFromCD reports whether a machine loads the ramdisk from a virtual CD: its binding of the kind boot says so.
func BootsFromCD(m *app.Machine) bool { return m.Drivers["boot"].Driver == drivers.IDVirtualMediaBoot }

func (p *Ports) registerBootCD() {
	p.Flows.Register(workflow.Kind{Name: KindInsertCD, Budget: insertBudget, Run: p.runInsertCD})
	p.Flows.Register(workflow.Kind{Name: KindFromCD, Budget: BMCCall, Run: p.runFromCD})
	p.Flows.Register(workflow.Kind{Name: KindEjectCD, Budget: insertBudget, Run: p.runEjectCD})
}

// canBootCD refuses a machine that a boot CD cannot bring into the ramdisk.
func (p *Ports) canBootCD(ctx context.Context, m *app.Machine) error {
	if m.Firmware == app.FirmwareBIOS {
		return app.Errorf(app.Unsupported, "boot-cd-needs-uefi", "%s boots by BIOS, and the boot CD is one for UEFI", m.Name).
			Do("turn UEFI on in the machine's firmware, or bind ipxe for boot")
	}
	if err := p.Supports(ctx, m, cdOperations...); err != nil {
		return err
	}
	_, err := p.CD.Address(ctx, m)
	if e, ok := app.AsError(err); ok && e.Reason == ReasonNoBoot {
		return nil // not yet
	}
	return err
}

// ReasonNoBoot is the reason of BootCD.Address's error while no workflow has permitted a boot.
const ReasonNoBoot = "no-boot-permitted"

// BootCD is the CD that boots a machine into the ramdisk, and the virtual drive for it.
type BootCD interface {
	// Address is where the machine's BMC fetches the CD. It opens what the boot opens and belongs in no log.
	Address(ctx context.Context, m *app.Machine) (string, error)
	// Insert returns when the BMC shows the CD in the drive.
	Insert(ctx context.Context, m *app.Machine, call drivers.Options, address string) error
	// Eject returns when the BMC shows the drive empty.
	Eject(ctx context.Context, m *app.Machine, call drivers.Options) error
}

// Ramdisk is the run of steps that ends with a live agent on a machine, by its boot driver.
func (p *Ports) Ramdisk(m *app.Machine) []workflow.Step { return ramdisk(m, permit{}) }

// RamdiskRescue is Ramdisk into the rescue shell.
func (p *Ports) RamdiskRescue(m *app.Machine, keys []string) []workflow.Step {
	return ramdisk(m, permit{Rescue: true, Keys: keys})
}

// EjectCD is a step that empties the machine's virtual drive, if its BMC does.
func EjectCD() workflow.Step {
	return workflow.Step{ID: "eject-cd", Title: "Eject the boot CD", Kind: KindEjectCD, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true}
}

func ramdisk(m *app.Machine, pm permit) []workflow.Step {
	if !BootsFromCD(m) {
		return netboot(pm)
	}
	onBMC := func(id, title, kind string) workflow.Step {
		return workflow.Step{ID: id, Title: title, Kind: kind, On: workflow.OnSite, Lane: workflow.LaneBMC, RetrySafe: true}
	}
	return []workflow.Step{
		Power("off", "Power off", "off"),
		{ID: "permit", Title: "Permit one boot into the ramdisk", Kind: KindPermit, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true, Payload: payload(pm)},
		onBMC(StepInsertCD, "Insert the boot CD", KindInsertCD),
		onBMC("boot-from-cd", "Boot from the CD once", KindFromCD),
		Power("on", "Power on", "on"),
		{ID: "agent", Title: "Wait for the ramdisk", Kind: KindAwaitUp, On: workflow.OnSite, Lane: workflow.LaneQuery, RetrySafe: true},
		EjectCD(),
		OnAgent("clock", "Set the machine's clock", agentv1.KindSetClock, nil),
	}
}

// runInsertCD puts the machine's boot CD in. Its address, which holds the boot's key, is in no payload and no result.
func (p *Ports) runInsertCD(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	address, err := p.CD.Address(ctx, m)
	if err != nil {
		return nil, err
	}
	s.Progress(workflow.Progress{Phase: "media", Message: "asking the BMC to insert the boot CD"})
	return nil, p.CD.Insert(ctx, m, CallOf(s.Command()), address)
}

// runFromCD sets the boot device. The CD is one for UEFI, whatever mode the machine was in.
func (p *Ports) runFromCD(ctx context.Context, s workflow.StepContext) (any, error) {
	_, h, err := p.hardware(ctx, s)
	if err != nil {
		return nil, err
	}
	return nil, h.SetBootDevice(ctx, "cdrom", false, app.FirmwareUEFI)
}

// runEjectCD empties the drive. The ramdisk is in memory and does not need the CD; nor does what follows need it gone, so a
// BMC that keeps it is told and does not fail the workflow.
func (p *Ports) runEjectCD(ctx context.Context, s workflow.StepContext) (any, error) {
	m, err := p.Machine(ctx, s)
	if err != nil {
		return nil, err
	}
	if err := p.CD.Eject(ctx, m, CallOf(s.Command())); err != nil {
		if ctx.Err() != nil {
			return nil, err
		}
		s.Log("the BMC keeps the boot CD in its drive: %v", err)
		return map[string]bool{"ejected": false}, nil
	}
	return map[string]bool{"ejected": true}, nil
}

// takeOut empties the drive of a machine whose workflow ends before it did so itself.
func (p *Ports) takeOut(ctx context.Context, s workflow.StepContext) error {
	w := s.Workflow()
	if !Reached(&w, StepInsertCD) {
		return nil
	}
	m, err := p.Machine(ctx, s)
	if err != nil {
		return err
	}
	return p.CD.Eject(ctx, m, CallOf(s.Command()))
}
