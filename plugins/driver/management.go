package driver

import (
	"encoding/json"
	"strings"
)

// Management changes what a machine boots next.
//
//	setBootDevice(device, {persistent?, uefi?}) -> {} or BootResult
//	    device: "pxe" "disk" "cdrom" "bios" ("hdd" is disk, "cd" is cdrom); "none" removes the override
//
// It returns once reading back shows the setting, else fails with not-applied. Without persistent the setting holds
// for the next boot only. uefi true asks for UEFI, false for legacy boot, absent leaves the machine's mode alone.
type Management interface {
	SetBootDevice(ctx *Context, device BootDevice, options BootOptions) (BootResult, error)
}

// CredentialRotator is the optional half of Management that changes the password of a BMC account.
//
//	rotateCredential(newPassword, {username?}) -> {}
//
// A host that keeps secrets out of arguments sends null and delivers the password as the secret "newPassword". username
// defaults to the account the driver logs in with. It returns once a login with the new password worked.
type CredentialRotator interface {
	RotateCredential(ctx *Context, newPassword string, options RotateOptions) error
}

// Prober is the optional half of Management that looks at a BMC before it is enrolled.
//
//	probe() -> Card
//
// It is the only operation that accepts a BMC's key on first use. It writes nothing except a session and, when
// the BMC allows it without side effect, nothing at all to the boot override.
type Prober interface {
	Probe(ctx *Context) (Card, error)
}

// BootOrderer is the optional half of Management for BMCs that know the order in which firmware tries its boot options.
//
//	getBootOrder()      -> BootOrder
//	setBootOrder(order) -> BootOrder
//	    order: every id of the present order, in another sequence; nothing is added or removed
//
// setBootOrder returns the order as it reads back, else fails with not-applied. A BMC that has no boot order, or only shows
// it, fails with unsupported.
type BootOrderer interface {
	BootOrder(ctx *Context) (BootOrder, error)
	SetBootOrder(ctx *Context, order []string) (BootOrder, error)
}

// BootOrder is the order in which firmware tries its boot options, as a BMC knows it.
type BootOrder struct {
	Order    []string     `json:"order"`             // ids
	Options  []BootOption `json:"options"`           // all that are known
	Writable bool         `json:"writable"`          // as far as the BMC says
	Pending  bool         `json:"pending,omitempty"` // it holds from the next start of the machine on
	Notes    []string     `json:"notes,omitempty"`   // what the operator should know, one sentence each
}

// BootOption is one boot option. All text is hostile.
type BootOption struct {
	ID        string `json:"id"` // as the order names it
	Name      string `json:"name,omitempty"`
	Kind      string `json:"kind"`                // "network", "system", "disk", "medium", "firmware", "other"
	Protocol  string `json:"protocol,omitempty"`  // of a network option: "PXE IPv4"
	MAC       string `json:"mac,omitempty"`       // of a network option, colon form
	Partition string `json:"partition,omitempty"` // of a system: "gpt:<GUID>", lower case
	Path      string `json:"path,omitempty"`      // UEFI device path as text, or whatever names it
	Disabled  bool   `json:"disabled,omitempty"`
}

// BootDevice is where a machine boots from.
type BootDevice string

// The boot devices.
const (
	BootPXE   BootDevice = "pxe"
	BootDisk  BootDevice = "disk"
	BootCDROM BootDevice = "cdrom"
	BootBIOS  BootDevice = "bios" // the setup screen
	BootNone  BootDevice = "none" // no override
)

// UnmarshalJSON reads the device and its other words.
func (d *BootDevice) UnmarshalJSON(b []byte) error {
	var s string
	if err := json.Unmarshal(b, &s); err != nil {
		return err
	}
	switch s = strings.ToLower(s); s {
	case "hdd":
		*d = BootDisk
	case "cd":
		*d = BootCDROM
	default:
		*d = BootDevice(s)
	}
	return nil
}

// BootOptions says how long a boot device holds and in which mode.
type BootOptions struct {
	Persistent bool  `json:"persistent,omitempty"`
	UEFI       *bool `json:"uefi,omitempty"`
}

// BootResult is what the BMC shows after the write, in its own words. Empty fields were not readable.
type BootResult struct {
	Target  string   `json:"target,omitempty"`  // "Pxe"
	Enabled string   `json:"enabled,omitempty"` // "Once"
	Mode    string   `json:"mode,omitempty"`    // "UEFI"
	Form    string   `json:"form,omitempty"`    // which way of writing it stuck, for the capability card
	Notes   []string `json:"notes,omitempty"`   // what the operator should know, one sentence each
}

// RotateOptions names the account.
type RotateOptions struct {
	Username string `json:"username,omitempty"`
}

// Card is the capability card of a BMC: what a probe saw and what later operations choose by.
type Card struct {
	SPKI         string       `json:"tlsSpkiSha256,omitempty"` // lower-case hex SHA-256 of the key that answered
	CertSubject  string       `json:"certSubject,omitempty"`   // hostile text
	CertExpires  string       `json:"certExpires,omitempty"`   // RFC 3339
	CertTrusted  bool         `json:"certTrusted,omitempty"`   // a certificate authority of this host vouches for it
	Vendor       string       `json:"vendor,omitempty"`
	Model        string       `json:"model,omitempty"`
	Serial       string       `json:"serial,omitempty"`
	ProductUUID  string       `json:"productUuid,omitempty"`
	MACs         []string     `json:"macs,omitempty"`
	Power        PowerReading `json:"power"`
	System       string       `json:"system,omitempty"`   // the path or id of the machine inside the BMC
	Firmware     string       `json:"firmware,omitempty"` // of the BMC
	BIOS         string       `json:"biosVersion,omitempty"`
	Protocol     string       `json:"protocol,omitempty"` // "Redfish 1.15.0"
	PowerActions []string     `json:"powerActions,omitempty"`
	Boot         BootCard     `json:"boot"`
	Media        []MediaSlot  `json:"virtualMedia,omitempty"`
	Sessions     SessionCard  `json:"sessions"`
	ClockSkew    *float64     `json:"clockSkewSeconds,omitempty"` // BMC minus us
	Warnings     []string     `json:"warnings,omitempty"`
}

// BootCard is what the BMC offers for the boot override, in its own words, and the form of writing it.
type BootCard struct {
	Targets []string `json:"targets,omitempty"`
	Enabled []string `json:"enabled,omitempty"`
	Modes   []string `json:"modes,omitempty"`
	Mode    string   `json:"mode,omitempty"` // at the time of the probe
	Form    string   `json:"form,omitempty"` // "full", "changed", "settings": how it will be written first
}

// MediaSlot is one virtual drive.
type MediaSlot struct {
	ID    string   `json:"id"`
	Types []string `json:"types,omitempty"` // "CD", "DVD", "USBStick"
	Form  string   `json:"form,omitempty"`  // "action", "patch": how an image is put in; "" for a drive that is no CD
}

// SessionCard says how the BMC lets us in.
type SessionCard struct {
	Auth string `json:"auth"`          // "session" or "basic"
	Open int    `json:"open"`          // sessions seen open, ours included; -1 when not readable
	Max  int    `json:"max,omitempty"` // when the BMC says
}

func managementKind() Kind {
	return Kind{Name: "management", Operations: []Operation{
		spread(op2("setBootDevice", "device", "options", Management.SetBootDevice), "persistent", "uefi"),
		optional(spread(op2("rotateCredential", "newPassword", "options", done2(CredentialRotator.RotateCredential)), "username")),
		optional(op0("probe", Prober.Probe)),
		optional(op0("getBootOrder", BootOrderer.BootOrder)),
		optional(op1("setBootOrder", "order", BootOrderer.SetBootOrder)),
	}}
}
