package app

import (
	"context"
	"encoding/json"
	"regexp"
	"strings"
	"time"
)

// State is where a machine stands in its life (design: Machine life).
type State string

// The states. A transient one always has an active workflow behind it.
const (
	StateNew           State = "new"           // discovered, not accepted
	StateEnrolled      State = "enrolled"      // known and reachable, never commissioned
	StateCommissioning State = "commissioning" //
	StateReady         State = "ready"         // inventoried, powered off, free
	StateDeploying     State = "deploying"     //
	StateDeployed      State = "deployed"      // an operating system of ours (or an adopted one) runs
	StateReleasing     State = "releasing"     //
	StateRescue        State = "rescue"        // the rescue ramdisk runs
	StateISO           State = "iso"           // what an operator's CD image started runs
	StateFailed        State = "failed"        // a verb failed: FailedVerb and StateReason say which and why
	StateRetired       State = "retired"       //
)

// Power is what a BMC last said.
type Power string

// The power values. A transitional or unreadable state is PowerUnknown with a reason.
const (
	PowerOn      Power = "on"
	PowerOff     Power = "off"
	PowerUnknown Power = "unknown"
)

// Firmware is how the machine boots.
type Firmware string

// The firmware kinds; "" is not known yet.
const (
	FirmwareBIOS Firmware = "bios"
	FirmwareUEFI Firmware = "uefi"
)

// Machine is one server.
type Machine struct {
	ID          string     `json:"id"`
	Name        string     `json:"name"` // RFC 1123 label, unique
	State       State      `json:"state"`
	StateSince  time.Time  `json:"stateSince"`
	StateReason string     `json:"stateReason,omitempty"` // a sentence, for failed and for "deployed, not confirmed"
	FailedVerb  string     `json:"failedVerb,omitempty"`
	Before      State      `json:"before,omitempty"` // the state an active verb or rescue returns to
	Locked      bool       `json:"locked,omitempty"`
	LockReason  string     `json:"lockReason,omitempty"`
	Pool        string     `json:"pool,omitempty"`
	Profile     string     `json:"hardwareProfile,omitempty"`
	BootOrder   BootPolicy `json:"bootOrder,omitempty"` // "": its profile's, else chosen
	Note        string     `json:"note,omitempty"`

	Labels   map[string]string  `json:"labels,omitempty"`        // its operator's, and below bc.dev/ what its drivers, ramdisk and BMC advertise
	Ramdisk  map[string]string  `json:"ramdiskLabels,omitempty"` // what the ramdisk that it ran last advertised
	UUID     UUID               `json:"productUuid,omitempty"`
	Serial   string             `json:"serial,omitempty"`
	Sources  map[string]string  `json:"sources,omitempty"` // by member, who said it: "ramdisk", or the driver of its BMC
	Vendor   string             `json:"vendor,omitempty"`
	Model    string             `json:"model,omitempty"`
	NICs     []NIC              `json:"nics,omitempty"`
	Firmware Firmware           `json:"firmware,omitempty"`
	BMC      *BMC               `json:"bmc,omitempty"`
	Drivers  map[string]Binding `json:"drivers,omitempty"` // by driver kind

	Power       Power     `json:"power"`
	PowerSeen   time.Time `json:"powerSeen,omitzero"`
	PowerReason string    `json:"powerReason,omitempty"`

	Card       json.RawMessage `json:"capabilityCard,omitempty"` // written by the enrolment probe of the BMC driver
	Network    *SystemNetwork  `json:"network,omitempty"`        // of the system that the next deploy installs; nil: DHCP on every port
	Deployment *Deployment     `json:"deployment,omitempty"`
	ISO        *ISORun         `json:"iso,omitempty"`      // in the state iso
	OwnDisks   []DiskID        `json:"ownDisks,omitempty"` // disks that deploys of this machine wrote, so release may wipe them
	KexecOK    bool            `json:"kexecProven,omitempty"`
	Summary    HardwareSummary `json:"summary"`

	WorkflowID string    `json:"workflowId,omitempty"` // the active one, else ""
	Version    int64     `json:"version"`              // raised by every update
	Created    time.Time `json:"created"`
	Updated    time.Time `json:"updated"`
}

// From notes who said what a member holds.
func (m *Machine) From(member, source string) {
	if m.Sources == nil {
		m.Sources = map[string]string{}
	}
	m.Sources[member] = source
}

// NIC is one network port of a machine, found by enrolment input, netboot or inventory.
type NIC struct {
	MAC       MAC    `json:"mac"`
	Name      string `json:"name,omitempty"`
	Confirmed bool   `json:"confirmed"`        // entered by an operator, or seen by the agent; else only proposed
	Boot      bool   `json:"boot,omitempty"`   // the port that netbooted last
	Source    string `json:"source,omitempty"` // "operator", "netboot", "inventory", "bmc"
}

// BMC is how a machine's management controller is reached. The credential is a reference, never a value.
type BMC struct {
	Driver        string          `json:"driver"`
	Address       string          `json:"address"`
	CredentialRef string          `json:"credentialsRef"`
	SPKI          string          `json:"tlsSpkiSha256,omitempty"` // lower-case hex SHA-256 of the certificate's SubjectPublicKeyInfo
	Options       json.RawMessage `json:"options,omitempty"`
}

// Binding says which driver serves one kind for a machine and which layer said so.
type Binding struct {
	Driver string          `json:"driver"`
	Config json.RawMessage `json:"config,omitempty"` // never a credential value
	Layer  string          `json:"layer"`            // "bmc", "profile", "machine"
}

// HardwareSummary is what a list shows of an inventory.
type HardwareSummary struct {
	CPUs        int    `json:"cpus,omitempty"` // logical
	CPUModel    string `json:"cpuModel,omitempty"`
	MemoryBytes int64  `json:"memoryBytes,omitempty"`
	Disks       int    `json:"disks,omitempty"`
	DiskBytes   int64  `json:"diskBytes,omitempty"`
}

// DiskID identifies a disk across boots. At least one of Serial, WWN is set for a disk that has one.
type DiskID struct {
	Serial string `json:"serial,omitempty"`
	WWN    string `json:"wwn,omitempty"`
	Model  string `json:"model,omitempty"`
	Name   string `json:"name,omitempty"` // kernel name when last seen, a hint only
	Bytes  int64  `json:"bytes,omitempty"`
}

// Deployment is what was, or is being, put on a machine.
type Deployment struct {
	WorkflowID string    `json:"workflowId"` // whose image it is: only its address speaks for this system
	ImageID    string    `json:"imageId"`
	ImageName  string    `json:"imageName"`
	Hostname   string    `json:"hostname"`
	Disk       DiskID    `json:"disk"`
	BootPath   string    `json:"bootPath,omitempty"` // "firmware" or "kexec": how the OS was first entered
	Retreat    string    `json:"retreat,omitempty"`  // why the machine was reset into its disk after the way that was tried first; a sentence
	Started    time.Time `json:"started"`
	Written    time.Time `json:"written,omitzero"`
	Alive      time.Time `json:"alive,omitzero"`      // first sign of the OS
	PhonedHome time.Time `json:"phonedHome,omitzero"` // the installed OS called its one-time address
	Heartbeat  time.Time `json:"heartbeat,omitzero"`  // last call
	BootID     string    `json:"bootId,omitempty"`    // the kernel's boot id in the last call
	ColdBoot   time.Time `json:"coldBootProven,omitzero"`
	Confirmed  bool      `json:"confirmed"`
}

// DeploySpec is what a deploy is asked to do.
type DeploySpec struct {
	Image      string   `json:"image" doc:"id or name of the image"`
	Disk       DiskRule `json:"disk"`
	Hostname   string   `json:"hostname,omitempty" doc:"host name of the system; absent: the machine's name"`
	SSHKeys    []string `json:"sshKeys,omitempty" doc:"SSH public key that may log in" file:"true"`
	UserData   string   `json:"userData,omitempty" doc:"cloud-init user-data, passed on byte for byte" file:"true"`
	KernelArgs string   `json:"kernelArgs,omitempty" doc:"kernel arguments for ramdisk, first boot and installed loader"`
	Boot       BootPath `json:"boot,omitempty" doc:"how the system is started first: kexec, reboot (through the firmware) or auto; absent: auto, which is kexec where it is known to work on the model"`
	ColdProof  bool     `json:"coldProof,omitempty" doc:"after kexec, boot from the disk once more as proof"`
	WipeOthers bool     `json:"wipeOthers,omitempty" doc:"clear another disk that carries the image's filesystem UUIDs"`
	SkipChecks bool     `json:"skipChecks,omitempty" doc:"deploy although the root file system cannot grow, or no boot entry is found that could start: for systems of a kind that the checks do not know"`
	Redeploy   bool     `json:"redeploy,omitempty" doc:"overwrite the system of a deployed machine, without a release before: only what its disk does not hold is fetched"`
}

// DiskRule chooses one disk of an inventory. Empty means: the smallest disk that is fixed, local and large enough,
// refused when two are equal.
type DiskRule struct {
	Serial   string `json:"serial,omitempty" doc:"serial number of the disk"`
	WWN      string `json:"wwn,omitempty" doc:"WWN of the disk"`
	Name     string `json:"name,omitempty" doc:"kernel name of the disk, such as nvme0n1: for people who know"`
	MinBytes int64  `json:"minBytes,omitempty" doc:"smallest size, in bytes"`
	MaxBytes int64  `json:"maxBytes,omitempty" doc:"largest size, in bytes"`
	Kind     string `json:"kind,omitempty" doc:"ssd, hdd or nvme"`
}

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$`)

// ValidName checks an RFC 1123 label, the form of machine, image-tag, pool and profile names and of host names.
func ValidName(field, s string) error {
	if !nameRE.MatchString(s) {
		return Invalid(field, "%q is not a valid name", clip(s, 80)).
			Do("use 1 to 63 lower-case letters, digits and hyphens, starting and ending with a letter or digit")
	}
	return nil
}

// ValidLine refuses text that could break out of a boot script or a kernel line: control characters, newlines, "${".
func ValidLine(field, s string, limit int) error {
	if len(s) > limit {
		return Invalid(field, "is %d bytes long, the limit is %d", len(s), limit)
	}
	for _, r := range s {
		if r < 0x20 || r == 0x7f || r == 0x2028 || r == 0x2029 || r == 0xfffd {
			return Invalid(field, "holds a control character or line break").Do("write it on one line of plain text")
		}
	}
	if strings.Contains(s, "${") {
		return Invalid(field, `holds "${", which boot scripts would expand`).Do("remove it")
	}
	return nil
}

// ValidKernelArgs refuses, besides what ValidLine does, words that boot scripts do not take as text: "&&", "||" and ";" end a
// command of theirs, "#" starts a comment. A machine whose script cannot be written would wait for ever.
func ValidKernelArgs(field, s string) error {
	if err := ValidLine(field, s, maxKernelArgs); err != nil {
		return err
	}
	for _, w := range strings.Fields(s) {
		if w == "&&" || w == "||" || w == ";" || strings.HasPrefix(w, "#") {
			return Invalid(field, "holds the word %q, which boot scripts do not take as text", clip(w, 40)).Do("remove it, or write it without the spaces around it")
		}
	}
	return nil
}

// maxKernelArgs is in bytes.
const maxKernelArgs = 1024

// MachineFilter selects machines for a list. Zero fields select all.
type MachineFilter struct {
	Text   string            // substring of name, MAC, serial, model, BMC address or id
	States []State           //
	Pool   string            //
	Labels map[string]string // value "*" matches any
	IDs    []string          //
	After  string            // name of the last row of the page before
	Limit  int               // default 100, at most 1000
}

// MachinePage is one page of a list, ordered by name.
type MachinePage struct {
	Items []Machine     `json:"items"`
	Next  string        `json:"next,omitempty"` // pass as After
	Total int           `json:"total"`          // all that match the filter
	Count map[State]int `json:"count"`          // by state, over all machines
}

// MachineStore keeps machines. MACs and names are unique; a clash is a Conflict that names the other machine.
type MachineStore interface {
	CreateMachine(ctx context.Context, m *Machine) error
	Machine(ctx context.Context, id string) (*Machine, error) // by id or name; NotFound
	MachineByMAC(ctx context.Context, mac MAC) (*Machine, error)
	MachinesByUUID(ctx context.Context, u UUID) ([]Machine, error) // either byte order
	ListMachines(ctx context.Context, f MachineFilter) (MachinePage, error)
	// UpdateMachine reads, changes and writes a machine in one transaction and raises its Version.
	UpdateMachine(ctx context.Context, id string, change func(*Machine) error) (*Machine, error)
	DeleteMachine(ctx context.Context, id string) error

	Inventory(ctx context.Context, machineID string) (json.RawMessage, time.Time, error) // NotFound when never taken
	SetInventory(ctx context.Context, machineID string, inv json.RawMessage) error
}
