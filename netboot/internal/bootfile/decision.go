// Package bootfile decides what file a netbooting client is told to load: facts first, then one pure function.
//
// It knows the clients' dialects (option 93 codes, the encodings of option 77, iPXE's option 175) and nothing of
// sockets, leases or machines.
package bootfile

import "fmt"

// The loaders that DHCP hands out, by name. Each is served over TFTP and HTTP.
const (
	LoaderBIOS = "undionly.kpxe" // iPXE on the ROM's own UNDI driver
	LoaderX64  = "snponly.efi"   // iPXE on the firmware's own network driver
)

// Loaders lists every file name that Decide can hand out over TFTP.
func Loaders() []string { return []string{LoaderBIOS, LoaderX64} }

// LoaderPath is the folder of the HTTP listener that holds the loaders.
const LoaderPath = "/ipxe/"

// ExitPath is the path of the EFI program that sends a machine on to its disk, on the HTTP listener.
const ExitPath = "/boot/disk.efi"

// Stage says what kind of program sent the request.
type Stage string

// The stages of a boot.
const (
	StageOS       Stage = "os"       // an operating system or ramdisk: no boot file is its business
	StageFirmware Stage = "firmware" // PXE ROM or UEFI PXE
	StageHTTP     Stage = "http"     // UEFI HTTP Boot
	StageIPXE     Stage = "ipxe"
)

// Decision is the answer.
type Decision struct {
	Stage       Stage
	Arch        string // Family of the client's architecture, "" for an OS
	File        string // a TFTP name or an absolute URL; "" for none
	VendorClass string // option 60 of the reply; "" for none
	Loader      bool   // File is one of our loaders
	Reason      string // why, for the machine's timeline
}

// Decide chooses the boot file for a client. It never hands an URL to a PXE client that is no iPXE, and hands out no
// file rather than one the client cannot run.
//
// VendorClass is for a reply that gives an address too. It is empty for PXE: with option 60 but without option 43, EDK2
// takes such an offer for a boot server's and asks port 4011.
func Decide(f Facts) Decision {
	arch, netboot := f.Arch()
	d := Decision{Arch: arch.Family()}
	switch {
	case f.IPXE():
		d.Stage = StageIPXE
	case f.HTTP():
		d.Stage, d.VendorClass = StageHTTP, "HTTPClient"
	case f.PXE() || netboot:
		d.Stage = StageFirmware
	default:
		return Decision{Stage: StageOS, Reason: "not a netboot client"}
	}
	if d.Stage == StageIPXE {
		return script(f, d)
	}
	if !f.Boot.known() {
		d.Reason = "nothing is to be booted on this machine"
		return d
	}
	return loader(f, d, arch)
}

// loader answers firmware: a loader of ours in the form the firmware can fetch.
func loader(f Facts, d Decision, arch Arch) Decision {
	name, ok := loaderFor(d.Arch)
	switch {
	case !ok:
		d.Reason = fmt.Sprintf("this build has no loader for architecture 0x%04x%s", uint16(arch), named(d.Arch))
		return d
	case d.Stage == StageFirmware && f.NoTFTP:
		d.Reason = "the subnet boots by HTTP only, and this firmware asks for TFTP"
		return d
	case d.Stage == StageHTTP && d.Arch == "bios":
		d.Reason = "HTTP boot of a BIOS machine is not supported"
		return d
	case d.Stage == StageHTTP && f.Boot == BootDisk:
		d.File = f.HTTPBase + ExitPath
		d.Reason = "http boot of a machine with nothing to load: it is sent on to its disk"
		return d
	case d.Stage == StageHTTP && f.Program != "":
		d.File = f.Program
		d.Reason = "http boot gets the machine's own boot program"
		return d
	case d.Stage == StageHTTP:
		d.File = f.HTTPBase + LoaderPath + name
	default:
		d.File = name
	}
	d.Loader = true
	d.Reason = string(d.Stage) + named(d.Arch) + " gets our iPXE"
	return d
}

// script answers iPXE: the script's address, which serves every machine, idle and unknown ones too. A NIC's own iPXE
// that could not run the script gets our loader first, once.
func script(f Facts, d Decision) Decision {
	name, ok := loaderFor(d.Arch)
	if !ok {
		d.Reason = fmt.Sprintf("this build has no ramdisk for%s", named(d.Arch))
		return d
	}
	if f.weakROM(d.Arch) && !f.Chained && !f.NoTFTP && f.Boot.loads() {
		d.File, d.Loader = name, true
		d.Reason = "the NIC's own iPXE lacks a feature that the script needs: it gets ours"
		return d
	}
	d.File = f.HTTPBase + "/boot/script?mac=" + f.MAC.Hyphen()
	d.Reason = "iPXE gets its script"
	return d
}

func loaderFor(family string) (string, bool) {
	switch family {
	case "bios":
		return LoaderBIOS, true
	case "x64":
		return LoaderX64, true
	}
	return "", false
}

func named(family string) string {
	if family == "" {
		return ""
	}
	return " " + family
}
