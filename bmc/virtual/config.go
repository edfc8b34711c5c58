package virtual

import (
	"crypto/x509"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// Limits of a configuration.
const (
	maxDisks  = 16
	maxNICs   = 8
	maxSerial = 64
	// maxSocketPath is the room for a path in sockaddr_un, less the closing NUL.
	maxSocketPath = 107
)

// Config describes one virtual machine and its BMC. Zero values mean the default named at the field.
type Config struct {
	Name     string       // RFC 1123 label
	Dir      string       // existing directory of this machine: certificate, UEFI variables, console log, virtual media; "" keeps nothing (Fake only)
	Firmware app.Firmware // what the machine boots with when no override says otherwise; default BIOS

	MemoryMiB int // default 1024
	CPUs      int // default 1
	Disks     []Disk
	NICs      []NIC

	UUID   app.UUID // SMBIOS system UUID, required
	Serial string   // SMBIOS system serial number
	Vendor string   // default "Better Compute"
	Model  string   // default "Virtual Machine"

	Netns string // network namespace QEMU runs in: a name below /run/netns or a path; "" for the caller's

	Username string // default "admin"
	Password string // required
	Listen   string // address of the Redfish service, default "127.0.0.1:0"

	Direct      *Direct       // boots this kernel on each power-on, past any boot order; nil for a machine like others
	DefaultBoot Target        // what boots first without an override: Hdd (default), Pxe or UefiHTTP
	OwnOrder    bool          // UEFI boots in the order that its variables hold (see inVariables); of DefaultBoot only the protocol of the network counts then
	Grace       time.Duration // how long PowerState says PoweringOff after an ACPI power key; default 1 minute

	// MediaRoots vouch for https servers of virtual media where VerifyCertificate is on; nil: none can be verified.
	MediaRoots *x509.CertPool

	Hypervisor Hypervisor   // default: QEMU with this configuration
	OnLine     func(Line)   // each line of the serial console, in order; must not block
	Log        *slog.Logger // default: discard
}

// Disk is one drive, kept in a file.
type Disk struct {
	Path   string // file; commas are allowed
	Format string // "raw" (default) or "qcow2"
	Bytes  int64  // size of the raw file to create when Path does not exist; 0 means it must exist
	Bus    Bus    // default VirtIO
	Serial string // as the guest sees it, at most 20 octets
	Faults string // path of a blkdebug configuration, to make the drive fail; "" for a healthy one
}

// Bus is how a disk is attached.
type Bus string

// The buses.
const (
	VirtIO Bus = "virtio"
	NVMe   Bus = "nvme"
	AHCI   Bus = "ahci"
	SCSI   Bus = "scsi" // virtio-scsi
)

// NIC is one network port. Exactly one of Tap and Netdev is set.
type NIC struct {
	MAC    app.MAC
	Tap    string // an existing tap device in Netns
	Netdev string // value of QEMU's -netdev, without id
	Model  string // "virtio-net-pci" (default), "e1000e", "e1000", "vmxnet3"
}

// Direct is a kernel that the emulator loads itself: for measuring a ramdisk without its way over the network.
type Direct struct {
	Kernel  string // file
	Initrd  string // file
	Cmdline string
}

// withDefaults fills in what was left out.
func (c Config) withDefaults() Config {
	def := func(s *string, v string) {
		if *s == "" {
			*s = v
		}
	}
	def(&c.Vendor, "Better Compute")
	def(&c.Model, "Virtual Machine")
	def(&c.Username, "admin")
	def(&c.Listen, "127.0.0.1:0")
	def((*string)(&c.Firmware), string(app.FirmwareBIOS))
	def((*string)(&c.DefaultBoot), string(Hdd))
	if c.MemoryMiB == 0 {
		c.MemoryMiB = 1024
	}
	if c.CPUs == 0 {
		c.CPUs = 1
	}
	if c.Grace == 0 {
		c.Grace = time.Minute
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	c.Disks = append([]Disk(nil), c.Disks...)
	for i := range c.Disks {
		def(&c.Disks[i].Format, "raw")
		def((*string)(&c.Disks[i].Bus), string(VirtIO))
	}
	c.NICs = append([]NIC(nil), c.NICs...)
	for i := range c.NICs {
		def(&c.NICs[i].Model, "virtio-net-pci")
	}
	return c
}

// Validate reports every problem of a configuration with defaults filled in, each with its field.
func (c Config) Validate() error {
	errs := []error{app.ValidName("Name", c.Name), c.validIdentity(), c.validSize()}
	if c.Dir == "" && c.Hypervisor == nil {
		errs = append(errs, app.Invalid("Dir", "a machine that runs in QEMU needs a directory of its own"))
	}
	if c.Dir != "" && len(filepath.Join(c.Dir, consoleSocket)) > maxSocketPath {
		errs = append(errs, app.Invalid("Dir", "is too long for a socket inside: %d octets are the limit",
			maxSocketPath-len(consoleSocket)-1))
	}
	if c.Password == "" {
		errs = append(errs, app.Invalid("Password", "a BMC without a password is not offered"))
	}
	if _, _, err := net.SplitHostPort(c.Listen); err != nil {
		errs = append(errs, app.Invalid("Listen", "%q is not an address such as 127.0.0.1:0", c.Listen))
	}
	for i, d := range c.Disks {
		errs = append(errs, d.validate(fmt.Sprintf("Disks[%d]", i)))
	}
	for i, n := range c.NICs {
		errs = append(errs, n.validate(fmt.Sprintf("NICs[%d]", i)))
	}
	return errors.Join(errs...)
}

func (c Config) validIdentity() error {
	var errs []error
	if id, err := app.ParseUUID(string(c.UUID)); err != nil || id == "" {
		errs = append(errs, app.Invalid("UUID", "a machine needs a UUID that is not a placeholder"))
	}
	for _, f := range []struct{ name, value string }{{"Serial", c.Serial}, {"Vendor", c.Vendor}, {"Model", c.Model}} {
		errs = append(errs, app.ValidLine(f.name, f.value, maxSerial))
	}
	return errors.Join(errs...)
}

func (c Config) validSize() error {
	var errs []error
	if c.Firmware != app.FirmwareBIOS && c.Firmware != app.FirmwareUEFI {
		errs = append(errs, app.Invalid("Firmware", "%q is neither %q nor %q", c.Firmware, app.FirmwareBIOS, app.FirmwareUEFI))
	}
	if c.DefaultBoot != Hdd && c.DefaultBoot != Pxe && (c.DefaultBoot != UefiHTTP || c.Firmware != app.FirmwareUEFI) {
		errs = append(errs, app.Invalid("DefaultBoot", "%q is none of %q, %q and, for UEFI, %q", c.DefaultBoot, Hdd, Pxe, UefiHTTP))
	}
	if c.MemoryMiB < 64 || c.CPUs < 1 || c.CPUs > 64 {
		errs = append(errs, app.Invalid("MemoryMiB", "%d MiB and %d CPUs are not a machine: at least 64 MiB, 1 to 64 CPUs", c.MemoryMiB, c.CPUs))
	}
	if len(c.Disks) > maxDisks || len(c.NICs) > maxNICs {
		errs = append(errs, app.Invalid("Disks", "at most %d disks and %d NICs fit", maxDisks, maxNICs))
	}
	return errors.Join(errs...)
}

func (d Disk) validate(field string) error {
	switch {
	case d.Path == "":
		return app.Invalid(field+".Path", "is missing")
	case d.Format != "raw" && d.Format != "qcow2":
		return app.Invalid(field+".Format", "%q is neither raw nor qcow2", d.Format)
	case d.Bytes != 0 && d.Format != "raw":
		return app.Invalid(field+".Bytes", "only raw files are created here")
	case d.Bytes < 0 || d.Bytes%512 != 0:
		return app.Invalid(field+".Bytes", "%d is not a whole number of 512-byte sectors", d.Bytes)
	case len(d.Serial) > 20 || strings.ContainsAny(d.Serial, " \t"):
		return app.Invalid(field+".Serial", "%q is longer than 20 octets or holds blanks", d.Serial)
	}
	switch d.Bus {
	case VirtIO, NVMe, AHCI, SCSI:
	default:
		return app.Invalid(field+".Bus", "%q is not one of virtio, nvme, ahci, scsi", d.Bus)
	}
	if d.Bus == NVMe && d.Serial == "" {
		return app.Invalid(field+".Serial", "an NVMe disk needs a serial number")
	}
	return app.ValidLine(field+".Serial", d.Serial, 20)
}

func (n NIC) validate(field string) error {
	if _, err := app.ParseMAC(string(n.MAC)); err != nil {
		return app.Invalid(field+".MAC", "%q is not a MAC address", n.MAC)
	}
	if (n.Tap == "") == (n.Netdev == "") {
		return app.Invalid(field, "exactly one of Tap and Netdev is needed")
	}
	if strings.ContainsAny(n.Tap, ",/ ") || len(n.Tap) > 15 {
		return app.Invalid(field+".Tap", "%q is not an interface name", n.Tap)
	}
	switch n.Model {
	case "virtio-net-pci", "e1000e", "e1000", "vmxnet3":
		return nil
	}
	return app.Invalid(field+".Model", "%q is not one of virtio-net-pci, e1000e, e1000, vmxnet3", n.Model)
}
