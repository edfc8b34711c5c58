package virtual

import (
	"slices"

	"github.com/better-compute/bcd/app"
)

// Target is a Redfish BootSourceOverrideTarget.
type Target string

// The targets this BMC offers.
const (
	NoTarget Target = "None"
	Pxe      Target = "Pxe"
	Hdd      Target = "Hdd"
	Cd       Target = "Cd"
	Usb      Target = "Usb"
	UefiHTTP Target = "UefiHttp" // the network by HTTP and not by PXE
)

// Enabled is a Redfish BootSourceOverrideEnabled.
type Enabled string

// How long an override holds.
const (
	Disabled   Enabled = "Disabled"
	Once       Enabled = "Once"
	Continuous Enabled = "Continuous"
)

// Mode is a Redfish BootSourceOverrideMode.
type Mode string

// The firmware modes of an override.
const (
	UEFI   Mode = "UEFI"
	Legacy Mode = "Legacy"
)

var (
	targets  = []Target{NoTarget, Pxe, Hdd, Cd, Usb, UefiHTTP}
	enablers = []Enabled{Disabled, Once, Continuous}
	modes    = []Mode{Legacy, UEFI}
)

// Override is the boot override as the BMC stores it.
type Override struct {
	Target  Target
	Enabled Enabled
	Mode    Mode
}

// modeOf gives the override mode that equals a firmware.
func modeOf(f app.Firmware) Mode {
	if f == app.FirmwareUEFI {
		return UEFI
	}
	return Legacy
}

// firmware gives the firmware that a mode boots with.
func (m Mode) firmware() app.Firmware {
	if m == UEFI {
		return app.FirmwareUEFI
	}
	return app.FirmwareBIOS
}

// boot decides the next boot of a machine, without consuming anything.
func (o Override) boot(firmware app.Firmware, first Target) Boot {
	if o.Enabled == Disabled || o.Target == NoTarget {
		return Boot{Firmware: firmware, Target: first}
	}
	return Boot{Firmware: o.Mode.firmware(), Target: o.Target, Override: true}
}

// consumed is the override after one boot: a one-shot one is spent, its mode is kept.
func (o Override) consumed() Override {
	if o.Enabled == Once {
		o.Enabled, o.Target = Disabled, NoTarget
	}
	return o
}

// valid reports whether every member has a value this BMC offers, and the mode knows the target.
func (o Override) valid() bool {
	return (o.Target != UefiHTTP || o.Mode == UEFI) && slices.Contains(targets, o.Target) && slices.Contains(enablers, o.Enabled) && slices.Contains(modes, o.Mode)
}
