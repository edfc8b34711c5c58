package bootfile

import (
	"encoding/binary"
	"strconv"
	"strings"

	"github.com/better-compute/bcd/app"
)

// Arch is a client architecture of the IANA list "Processor Architecture Types" (option 93).
type Arch uint16

// The architectures that netbooting machines announce.
const (
	ArchBIOS      Arch = 0x00
	ArchX86       Arch = 0x06
	ArchX64       Arch = 0x07
	ArchEBC       Arch = 0x09 // announced by x64 firmware that read RFC 4578 before its erratum
	ArchARM32     Arch = 0x0a
	ArchARM64     Arch = 0x0b
	ArchX86HTTP   Arch = 0x0f
	ArchX64HTTP   Arch = 0x10
	ArchARM32HTTP Arch = 0x12
	ArchARM64HTTP Arch = 0x13
	ArchBIOSHTTP  Arch = 0x14
)

// Family names the machine kind behind an architecture: "bios", "x64", "x86", "arm64", "arm32", or "" for others.
func (a Arch) Family() string {
	switch a {
	case ArchBIOS, ArchBIOSHTTP:
		return "bios"
	case ArchX64, ArchEBC, ArchX64HTTP:
		return "x64"
	case ArchX86, ArchX86HTTP:
		return "x86"
	case ArchARM64, ArchARM64HTTP:
		return "arm64"
	case ArchARM32, ArchARM32HTTP:
		return "arm32"
	}
	return ""
}

// Boot is what the machine behind a client should do now.
type Boot string

// The kinds of boot.
const (
	BootNone    Boot = "none"    // not ours, or nothing is known: hand out no boot file
	BootDisk    Boot = "disk"    // start what is installed
	BootRamdisk Boot = "ramdisk" // start the ramdisk
	BootISO     Boot = "iso"     // start a CD image
	BootAsk     Boot = "ask"     // not known now: a loader's script can ask again
)

// known reports a machine of ours.
func (b Boot) known() bool { return b == BootDisk || b == BootAsk || b.loads() }

// loads reports that there is more to load than a script.
func (b Boot) loads() bool { return b == BootRamdisk || b == BootISO }

// Facts are what is known when a client asks for an address. Byte fields are as they came from the wire: hostile.
type Facts struct {
	MAC         app.MAC
	Archs       []Arch // option 93, in the client's order
	VendorClass string // option 60
	UserClass   []byte // option 77, in any of its encodings
	Encap       []byte // option 175, iPXE's encapsulated options
	GUID        []byte // option 97, type octet included
	Relayed     bool   // came through a relay agent (giaddr set)
	Boot        Boot   // what the machine should do
	Chained     bool   // the client's own iPXE was just given our loader
	NoTFTP      bool   // only what comes by HTTP may be handed out
	HTTPBase    string // "http://192.0.2.1:8080", our address as this client sees it
	Program     string // absolute URL of an EFI program that boots this machine without a loader; "" when there is none
}

// ArchsFromOption decodes option 93. A trailing odd octet is dropped.
func ArchsFromOption(b []byte) []Arch {
	var out []Arch
	for ; len(b) >= 2 && len(out) < 16; b = b[2:] {
		out = append(out, Arch(binary.BigEndian.Uint16(b)))
	}
	return out
}

// UUID reads option 97. Anything but a type-0 GUID of 16 octets gives "".
func (f Facts) UUID() app.UUID {
	if len(f.GUID) != 17 || f.GUID[0] != 0 {
		return ""
	}
	return app.UUIDFromBytes([16]byte(f.GUID[1:]))
}

// Arch is the first announced architecture that is known, else what the vendor class says, else BIOS for a PXE client:
// ROMs older than RFC 4578 announce nothing. It reports false for a client that is no netboot firmware.
func (f Facts) Arch() (Arch, bool) {
	for _, a := range f.Archs {
		if a.Family() != "" {
			return a, true
		}
	}
	if len(f.Archs) > 0 {
		return f.Archs[0], true
	}
	if _, rest, ok := strings.Cut(f.VendorClass, "Client:Arch:"); ok {
		digits, _, _ := strings.Cut(rest, ":")
		if n, err := strconv.ParseUint(digits, 10, 16); err == nil {
			return Arch(n), true
		}
	}
	return ArchBIOS, f.PXE() || f.IPXE()
}

// PXE reports a PXE ROM or UEFI PXE.
func (f Facts) PXE() bool { return strings.HasPrefix(f.VendorClass, "PXEClient") }

// HTTP reports UEFI HTTP Boot.
func (f Facts) HTTP() bool { return strings.HasPrefix(f.VendorClass, "HTTPClient") }

// IPXE reports an iPXE of any origin by its user class. iPXE writes the bare text, others the length-prefixed list of
// RFC 3004, and some builds end the text with a NUL.
func (f Facts) IPXE() bool {
	if isIPXE(f.UserClass) {
		return true
	}
	for b := f.UserClass; len(b) > 0; {
		n := int(b[0])
		if n == 0 || n > len(b)-1 {
			return false
		}
		if isIPXE(b[1 : 1+n]) {
			return true
		}
		b = b[1+n:]
	}
	return false
}

func isIPXE(b []byte) bool { return strings.TrimRight(string(b), "\x00 ") == "iPXE" }

// Features of iPXE that option 175 announces, by sub-option.
const (
	featureHTTP    = 0x13
	featureBzImage = 0x18
	featureEFI     = 0x24
)

// weakROM reports a NIC's own iPXE that cannot run our script: built without HTTP, or without the format our kernel
// has on this platform. An iPXE that announces nothing at all is trusted.
func (f Facts) weakROM(family string) bool {
	have := encapFeatures(f.Encap)
	if len(have) == 0 {
		return false
	}
	kernel := byte(featureEFI)
	if family == "bios" {
		kernel = featureBzImage
	}
	return !have[featureHTTP] || !have[kernel]
}

// encapFeatures lists the sub-options of option 175 whose value is not zero.
func encapFeatures(b []byte) map[byte]bool {
	out := map[byte]bool{}
	for len(b) >= 2 {
		code, n := b[0], int(b[1])
		if code == 0xff || n > len(b)-2 {
			break
		}
		if n > 0 && b[2] != 0 {
			out[code] = true
		}
		b = b[2+n:]
	}
	return out
}
