// Package netboot answers machines that boot from the network: DHCP, TFTP, HTTP, iPXE scripts, time, and the one
// router advertisement that iPXE waits for.
//
// It knows no machines: the Port, which the site fills in, says who a client is and what it should boot. It starts in
// listen mode: nothing but the HTTP listener answers anyone until a subnet's mode is another than "off". It looks for other
// DHCP servers on the networks that it listens to, and says so in two DISCOVERs every ten minutes.
package netboot

import (
	"context"
	"net/netip"

	"github.com/better-compute/bcd/app"
)

// Kind is what a machine should boot.
type Kind string

// The kinds of boot.
const (
	KindNone    Kind = "none"    // nobody's machine: no boot file; an iPXE goes on to the disk
	KindDisk    Kind = "disk"    // a machine of ours with nothing to load: it is chained to its disk
	KindRamdisk Kind = "ramdisk" // the ramdisk
	KindISO     Kind = "iso"     // a CD image, which iPXE reads in place
)

// loads reports that a machine has more to load than a script.
func (k Kind) loads() bool { return k == KindRamdisk || k == KindISO }

// Client is what is known of whoever asks. UUID may be in either byte order, or "".
type Client struct {
	MACs []app.MAC // at least one from DHCP; the first is the port that asks
	UUID app.UUID
}

// Target says what a client should boot now. Kernel, Initrds and ISO are absolute URLs, or paths on the HTTP listener that
// become URLs at the address which the client sees.
type Target struct {
	MachineID string // "" when the client is nobody's machine
	Name      string // the machine's name
	Kind      Kind
	Kernel    string
	Initrds   []string // the boot data first
	Cmdline   string   // kernel arguments on one line, without initrd=
	Program   string   // EFI program that boots the machine without a loader, as BootPath; "" for none
	ISO       string   // of KindISO
}

// Reservation says whose a MAC is. Machines of ours keep their address for good.
type Reservation struct {
	MachineID string     // "" when it is nobody's
	Addr      netip.Addr // the address it must have; invalid: any of the pool
}

// Port is what the site knows of machines. Its methods are called for nearly every packet, by several goroutines:
// they must be quick. An error of Target makes the client wait and ask again.
type Port interface {
	Target(ctx context.Context, c Client) (Target, error)
	Reservation(ctx context.Context, mac app.MAC) (Reservation, error)
	// Discovered reports a netbooting machine that is nobody's, on a subnet whose Discover is set.
	Discovered(ctx context.Context, d app.Discovery)
	// BootData gives the cpio behind /boot/KEY/bootdata.cpio: the same bytes each time. NotFound for an unknown key,
	// Conflict or Forbidden for one that is spent or revoked.
	BootData(ctx context.Context, key string) ([]byte, error)
	// BootImage gives a file of one boot, ProgramFile or CDFile: the same bytes for as long as BootData gives them.
	BootImage(ctx context.Context, key, file string) (BootImage, error)
}
