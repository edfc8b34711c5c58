package virtual

import (
	"context"

	"github.com/better-compute/bcd/app"
)

// Hypervisor is the hardware behind a BMC: it can be given power. One guest runs at a time.
type Hypervisor interface {
	// Start powers the hardware on and returns once it runs, or says why it cannot. ctx bounds the start only.
	Start(ctx context.Context, boot Boot) (Guest, error)
}

// Guest is one power-on period. It ends by itself (Done closes) or by Stop.
type Guest interface {
	// Stop cuts the power and returns when nothing of the guest is left. It may be called more than once.
	Stop()
	// PowerButton presses the ACPI power key. The guest may ignore it.
	PowerButton() error
	// NMI raises a non-maskable interrupt.
	NMI() error
	// SetMedium changes what a virtual drive that was filled at the start holds, to a file or, with "", to nothing.
	SetMedium(drive int, file string) error
	// Done is closed when the guest has ended.
	Done() <-chan struct{}
	// End tells how it ended; valid once Done is closed.
	End() End
}

// Boot says how a power-on period starts.
type Boot struct {
	Firmware app.Firmware
	Target   Target // device kind tried first; the others follow
	Override bool   // the BMC's override chose Target, not the machine's own order
	Again    bool   // the guest rebooted itself: the power never went off
	CD       string // file in the virtual CD drive; "" for none
	Stick    string // file behind the virtual USB stick; "" for none
}

// EndKind is how a power-on period ended.
type EndKind string

// The ways a guest ends.
const (
	EndPowerOff EndKind = "power-off" // the guest switched itself off
	EndReset    EndKind = "reset"     // the guest asked for a reset; it goes on with a new Start
	EndStopped  EndKind = "stopped"   // by Stop
	EndDied     EndKind = "died"      // the emulator or the hardware failed; Err says why
)

// End is how and why a guest ended.
type End struct {
	Kind EndKind
	Err  error // for EndDied
}
