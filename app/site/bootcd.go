package site

import (
	"context"
	"net/netip"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/plugins/driver"
)

// bootCDs puts boot CDs into virtual drives, and into timelines that it did.
type bootCDs struct{ s *Site }

var _ metal.BootCD = bootCDs{}

// Address implements metal.BootCD.
func (b bootCDs) Address(ctx context.Context, m *app.Machine) (string, error) {
	return b.s.bootCD(ctx, m)
}

// Insert implements metal.BootCD.
func (b bootCDs) Insert(ctx context.Context, m *app.Machine, call drivers.Options, address string) error {
	return b.timed(m).do(kindMedia, "insert the boot CD", told{Action: "insert"}, func() error { return b.s.registry.For(m, call).VirtualMedia().Insert(ctx, address) })
}

// Eject implements metal.BootCD.
func (b bootCDs) Eject(ctx context.Context, m *app.Machine, call drivers.Options) error {
	return b.timed(m).do(kindMedia, "eject the boot CD", told{Action: "eject"}, func() error { return b.s.registry.For(m, call).VirtualMedia().Eject(ctx) })
}

// kindMedia is the kind of what happens to a virtual drive on a timeline.
const kindMedia = "bmc.media"

func (b bootCDs) timed(m *app.Machine) timed { return timed{record: b.s.recorder.Record, machine: m} }

// cdBoots is the virtual-media-boot driver: a machine boots from a CD that its BMC fetches here, and needs no DHCP or TFTP of
// ours. Its agent finds this site by what is on the CD, with any address that the network gives it.
type cdBoots struct{ s *Site }

// PrepareRamdisk permits the boot, inserts the CD and sets the next boot to it.
func (c cdBoots) PrepareRamdisk(ctx *driver.Context, spec driver.RamdiskSpec) error {
	m, err := c.s.db.Machine(ctx, spec.Machine)
	if err != nil {
		return err
	}
	workflow, _, ok := strings.Cut(strings.TrimPrefix(ctx.IdempotencyKey, "wf:"), ":")
	if !ok {
		return driver.Errorf(driver.CodeInvalidArgs, "a boot is permitted only as a step of a workflow")
	}
	ours, err := c.s.addressForRamdisk(ctx, m)
	if err != nil {
		return err
	}
	if _, err := (boots{c.s.agents, c.s.recorder.Record}).Mint(ctx, app.Boot{MachineID: m.ID, WorkflowID: workflow, Address: ours.String()}); err != nil {
		return err
	}
	cd, call := bootCDs(c), drivers.Options{Key: ctx.IdempotencyKey, TraceParent: ctx.TraceParent}
	address, err := cd.Address(ctx, m)
	if err != nil {
		return err
	}
	if err := cd.Insert(ctx, m, call, address); err != nil {
		return err
	}
	return timed{c.s.registry.For(m, call).Hardware(), c.s.recorder.Record, m}.SetBootDevice(ctx, "cdrom", false, app.FirmwareUEFI)
}

// PrepareInstance withdraws the permission and takes the CD out: the next boot goes to the disk.
func (c cdBoots) PrepareInstance(ctx *driver.Context, boot driver.InstanceBoot) error {
	if err := (boots{c.s.agents, c.s.recorder.Record}).Revoke(ctx, boot.Machine); err != nil {
		return err
	}
	m, err := c.s.db.Machine(ctx, boot.Machine)
	if err != nil {
		return err
	}
	return bootCDs(c).Eject(ctx, m, drivers.Options{Key: ctx.IdempotencyKey, TraceParent: ctx.TraceParent})
}

// CleanUp has nothing of its own to remove: a permission belongs to a machine and ends with its workflow, and so does the CD.
func (cdBoots) CleanUp(*driver.Context) error { return nil }

// addressForRamdisk is our own address as a machine's ramdisk sees it. One that boots from a CD needs no subnet that is
// answered: a subnet that is only known will do, else the way to its BMC.
func (s *Site) addressForRamdisk(ctx context.Context, m *app.Machine) (netip.Addr, error) {
	a, err := s.address(m)
	if err == nil || !metal.BootsFromCD(m) {
		return a, err
	}
	if a, ok := s.netboot.Unanswered(); ok {
		return a, nil
	}
	if a, err := s.addressForBMC(ctx, m); err == nil && !a.IsLoopback() {
		return a, nil
	}
	return netip.Addr{}, app.Errorf(app.Conflict, "no-subnet-known", "no subnet is known in which %s would reach this site", m.Name).
		Do("add its network under Network; it may stay turned off")
}
