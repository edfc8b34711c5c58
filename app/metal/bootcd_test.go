package metal_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/workflow"
)

// cdDrive is a BMC's virtual drive.
type cdDrive struct {
	address error
	eject   error
	calls   []string
}

func (d *cdDrive) Address(context.Context, *app.Machine) (string, error) {
	return "http://192.0.2.1:8080/boot/k3y/boot.iso", d.address
}

func (d *cdDrive) Insert(_ context.Context, m *app.Machine, call drivers.Options, address string) error {
	d.calls = append(d.calls, "insert "+address+" "+m.ID+" "+call.Key)
	return nil
}

func (d *cdDrive) Eject(_ context.Context, m *app.Machine, _ drivers.Options) error {
	d.calls = append(d.calls, "eject "+m.ID)
	return d.eject
}

// cdShop is shop with a machine that boots from a CD.
func cdShop(t *testing.T) (*metal.Ports, *desk, *rack, *app.Machine, *cdDrive) {
	t.Helper()
	p, d, r, m := shop(t)
	cd := &cdDrive{}
	p.CD = cd
	p.SiteAddress = func(context.Context, *app.Machine) (string, error) { return "192.0.2.1", nil }
	m.Drivers["boot"] = app.Binding{Driver: drivers.IDVirtualMediaBoot}
	return p, d, r, m, cd
}

func kinds(steps []workflow.Step) string {
	var out []string
	for _, s := range steps {
		out = append(out, s.ID)
	}
	return strings.Join(out, " ")
}

func TestTheBootDriverDecidesHowTheRamdiskComes(t *testing.T) {
	p, d, r, m, cd := cdShop(t)
	const fromCD, fromNetwork = "off permit boot-cd boot-from-cd on agent eject-cd clock", "off permit boot-network on agent clock"
	if got := kinds(p.Ramdisk(m)); got != fromCD {
		t.Errorf("from a CD: %s", got)
	}
	if got := kinds(p.RamdiskRescue(m, []string{"ssh-ed25519 AAAA"})); got != fromCD {
		t.Errorf("rescue from a CD: %s", got)
	}
	for _, s := range p.Ramdisk(m) {
		if strings.Contains(string(s.Payload), "k3y") {
			t.Errorf("%s holds the boot's key: %s", s.ID, s.Payload)
		}
		switch s.ID {
		case "boot-cd", "boot-from-cd", "eject-cd":
			if !s.RetrySafe || s.On != workflow.OnSite || s.Lane != workflow.LaneBMC {
				t.Errorf("%+v", s)
			}
			if out, err := d.kinds[s.Kind].Run(t.Context(), command(s)); err != nil {
				t.Errorf("%s: %v, %v", s.ID, out, err)
			}
		}
	}
	if want := []string{"insert http://192.0.2.1:8080/boot/k3y/boot.iso m-1 wf:wf-1:boot-cd#2", "eject m-1"}; !slices.Equal(cd.calls, want) {
		t.Errorf("the drive was asked %q", cd.calls)
	}
	if want := []string{`setBootDevice["cdrom",{"uefi":true}]`}; !slices.Equal(r.calls, want) {
		t.Errorf("the BMC was asked %q", r.calls)
	}
	for _, other := range []string{"", drivers.IDIPXE} {
		if m.Drivers["boot"] = (app.Binding{Driver: other}); kinds(p.Ramdisk(m)) != fromNetwork {
			t.Errorf("bound to %q: %s", other, kinds(p.Ramdisk(m)))
		}
	}
}

// A BMC that keeps the CD does not fail what the machine is there for.
func TestACDThatStaysIsNoFailure(t *testing.T) {
	p, d, _, m, cd := cdShop(t)
	cd.eject = app.Errorf(app.Conflict, "not-applied", "the BMC still shows the medium")
	steps := p.Ramdisk(m)
	s := steps[slices.IndexFunc(steps, func(s workflow.Step) bool { return s.ID == "eject-cd" })]
	out, err := d.kinds[s.Kind].Run(t.Context(), command(s))
	if got, _ := out.(map[string]bool); err != nil || got["ejected"] {
		t.Errorf("%v, %v", out, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.kinds[s.Kind].Run(ctx, command(s)); err == nil {
		t.Error("a call that was cut off is a success")
	}
}

func TestNothingStartsThatCouldNotBootFromACD(t *testing.T) {
	notYet := app.Errorf(app.Conflict, metal.ReasonNoBoot, "it may not boot now")
	noStub := app.Errorf(app.Unsupported, "no-boot-cd", "this ramdisk carries no stub")
	for name, c := range map[string]struct {
		firmware app.Firmware
		address  error
		media    bool
		reason   string
	}{
		"all is there":       {app.FirmwareUEFI, notYet, true, ""},
		"firmware not known": {"", notYet, true, ""},
		"BIOS":               {app.FirmwareBIOS, notYet, true, "boot-cd-needs-uefi"},
		"no virtual drive":   {app.FirmwareUEFI, notYet, false, "bmc-driver-unsupported"},
		"no stub":            {app.FirmwareUEFI, noStub, true, "no-boot-cd"},
	} {
		t.Run(name, func(t *testing.T) {
			p, _, _, m, cd := cdShop(t)
			m.Firmware, cd.address = c.firmware, c.address
			if !c.media {
				delete(m.Drivers, "virtual-media")
			}
			err := p.CanNetboot(t.Context(), m)
			var e *app.Error
			if (c.reason == "") != (err == nil) || err != nil && (!errors.As(err, &e) || e.Reason != c.reason || e.WayOut == "" && c.reason != "no-boot-cd") {
				t.Errorf("%v, want %q", err, c.reason)
			}
		})
	}
}
