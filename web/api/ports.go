package api

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/netip"

	"github.com/better-compute/bcd/app"
)

// BMCInput says how to reach a management controller. Either CredentialsRef names a secret, or Credentials carries the
// values, which the use case seals and which never come back.
type BMCInput struct {
	Driver         string          `json:"driver" doc:"driver of the BMC: redfish, ipmi, or one of a plugin"`
	Address        string          `json:"address" doc:"host name, IP address or https URL of the BMC"`
	CredentialsRef string          `json:"credentialsRef,omitempty" doc:"stored secret that holds the login, instead of credentials"`
	Credentials    *Credentials    `json:"credentials,omitempty"`
	SPKI           string          `json:"tlsSpkiSha256,omitempty" doc:"SHA-256 of the BMC's TLS key, 64 hex digits; absent: the first key seen is pinned"`
	Options        json.RawMessage `json:"driverOptions,omitempty" doc:"options of the driver"`
}

// Credentials is a BMC login as typed. Printed or logged it shows the user name only.
type Credentials struct {
	Username string `json:"username" doc:"user name on the BMC"`
	Password string `json:"password" doc:"password on the BMC" secret:"true"`
}

// EnrollInput is a machine as an operator describes it.
type EnrollInput struct {
	Name        string                 `json:"name" doc:"name of the machine, and its host name when deployed"`
	BMC         *BMCInput              `json:"bmc,omitempty"`
	Pool        string                 `json:"pool,omitempty" doc:"pool to put it in"`
	Profile     string                 `json:"hardwareProfile,omitempty" doc:"hardware profile to use"`
	Drivers     map[string]app.Binding `json:"drivers,omitempty" doc:"drivers by kind, where another than the default is wanted"`
	MACs        []app.MAC              `json:"macs,omitempty" doc:"MAC address of a network port"`
	ProductUUID app.UUID               `json:"productUuid,omitempty" doc:"SMBIOS system UUID; absent: as the BMC says"`
	Firmware    app.Firmware           `json:"firmware,omitempty" doc:"how it boots: bios or uefi; absent: not known before its first ramdisk"`
	Labels      map[string]string      `json:"labels,omitempty" doc:"labels to find it by"`
	Note        string                 `json:"note,omitempty" doc:"text for people"`
	Force       bool                   `json:"force,omitempty" doc:"accept a driver's own check that fails"`
}

// Card is what a BMC said when it was asked. Nothing was changed on it.
type Card struct {
	OK        bool            `json:"ok"`
	SPKI      string          `json:"tlsSpkiSha256,omitempty"` // the pin it showed, hex
	PinStatus string          `json:"pinStatus,omitempty"`     // "first-use", "matches", "differs", "none"
	Vendor    string          `json:"vendor,omitempty"`
	Model     string          `json:"model,omitempty"`
	Serial    string          `json:"serial,omitempty"`
	UUID      string          `json:"productUuid,omitempty"`
	Firmware  string          `json:"bmcFirmware,omitempty"`
	Power     app.Power       `json:"power,omitempty"`
	MACs      []string        `json:"macs,omitempty"`
	Notes     []string        `json:"notes,omitempty"` // sentences worth reading: clock skew, quirks in use
	Card      json.RawMessage `json:"capabilityCard,omitempty"`
	Error     *app.Error      `json:"error,omitempty"` // why not OK
}

// Verb is something that is done to machines.
type Verb string

// The verbs.
const (
	Commission Verb = "commission"
	Deploy     Verb = "deploy"
	Release    Verb = "release"
	Rescue     Verb = "rescue"
	ExitRescue Verb = "exit-rescue"
	BootISO    Verb = "boot-iso"
	ExitISO    Verb = "exit-iso"
	Adopt      Verb = "adopt"
	Power      Verb = "power"
	Abort      Verb = "abort"
	Retry      Verb = "retry"
	Override   Verb = "override"
	Lock       Verb = "lock"
	Unlock     Verb = "unlock"
	Retire     Verb = "retire"
	Delete     Verb = "delete"

	RotateCredential Verb = "rotate-credential"
)

// VerbOptions are the options of all verbs; each verb reads its own.
type VerbOptions struct {
	Deploy         *app.DeploySpec // deploy
	ISO            *app.ISOSpec    // boot-iso
	Installed      bool            // exit-iso
	Power          string          // power: "on", "off", "soft", "cycle", "reset"
	Reason         string          // abort, override, lock, retire, delete
	State          app.State       // override: "ready" or "deployed"
	AuthorizedKeys []string        // rescue
	Tests          []string        // commission: those to make instead of the profile's
	Disks          []app.DiskID    // release: further disks to wipe
	Force          bool            // delete, retire: in every state
	PowerOff       bool            // retire
}

// VerbResult says what became of a verb on one machine.
type VerbResult struct {
	MachineID  string     `json:"machineId"`
	WorkflowID string     `json:"workflowId,omitempty"`
	Error      *app.Error `json:"error,omitempty"`
}

// AcceptInput turns a discovered machine into an enrolled one.
type AcceptInput struct {
	Name    string    `json:"name" doc:"name of the machine"`
	BMC     *BMCInput `json:"bmc,omitempty"`
	Pool    string    `json:"pool,omitempty" doc:"pool to put it in"`
	Profile string    `json:"hardwareProfile,omitempty" doc:"hardware profile to use"`
}

// Service is what the faces ask of machines. Every method does its own checks on state; permissions and the form of each
// field were checked before.
type Service interface {
	Enroll(ctx context.Context, actor string, in EnrollInput) (*app.Machine, error)
	TestBMC(ctx context.Context, actor string, in BMCInput) (*Card, error)
	// SetBMC changes how a machine's BMC is reached, after it was seen to answer so; with Test nothing is changed.
	SetBMC(ctx context.Context, actor, machineID string, in BMCChange) (*BMCChanged, error)
	// Do starts a verb on machines, by id. A refusal of one machine is in its result; an error means none was touched.
	Do(ctx context.Context, actor string, v Verb, ids []string, o VerbOptions) ([]VerbResult, error)
	AcceptDiscovery(ctx context.Context, actor string, mac app.MAC, in AcceptInput) (*app.Machine, error)
	ConfirmMAC(ctx context.Context, actor, machineID string, mac app.MAC) (*app.Machine, error)
	// PortQuestions lists what only a person can say of ports that were seen, the open ones first.
	PortQuestions(ctx context.Context) ([]app.PortQuestion, error)
	// AnswerPort accepts that the port is the machine's that it was seen in, or refuses that; another answer than was given
	// is a Conflict.
	AnswerPort(ctx context.Context, actor, id string, accept bool) (*app.PortQuestion, error)
	// ForgetPortQuestion takes an answer back: the question is asked again when the port is seen again.
	ForgetPortQuestion(ctx context.Context, actor, id string) error
	// Query asks a machine's BMC by an operation that only looks, such as "bios.getSettings".
	Query(ctx context.Context, actor string, m *app.Machine, operation string) (json.RawMessage, error)
}

// ImportInput says what image comes, and how it can be told that it came whole.
type ImportInput struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256,omitempty"` // hex, of the bytes as delivered
	SHA512 string `json:"sha512,omitempty"` // the same; at most one of the two is set
	Format string `json:"format,omitempty"` // one of Formats; empty: told by its content
}

// Catalog is the image store.
type Catalog interface {
	// Upload reads the image from body, size bytes or to the end when size is negative, and returns when it is ready.
	Upload(ctx context.Context, actor string, in ImportInput, body io.Reader, size int64) (*app.Image, error)
	// Fetch starts an import from an http(s) URL, whose digest is required, and returns the image in state "importing".
	Fetch(ctx context.Context, actor string, in ImportInput, url string) (*app.Image, error)
	// ImportPath starts an import from a file on the appliance.
	ImportPath(ctx context.Context, actor string, in ImportInput, path string) (*app.Image, error)
	// Delete removes an image and the chunks only it used; a Conflict while a deploy uses it.
	Delete(ctx context.Context, actor, id string) error
}

// Driver is one registered driver. It never carries configuration or credentials.
type Driver struct {
	ID           string              `json:"id"`
	Version      string              `json:"version"`
	RunsOn       string              `json:"runsOn"`
	Kinds        []string            `json:"kinds"`
	Capabilities []string            `json:"capabilities"`
	Operations   map[string][]string `json:"operations,omitempty"` // by kind, sorted
	RetrySafe    map[string][]string `json:"retrySafe,omitempty"`
	ConfigSchema json.RawMessage     `json:"configSchema,omitempty"`
	Active       bool                `json:"active"`           // calls go to this version
	Picked       bool                `json:"picked,omitempty"` // by an operator: it stays when a higher version comes
	Source       string              `json:"source,omitempty"` // "built-in" or the plugin's name
	Down         string              `json:"down,omitempty"`   // why it cannot be called now
}

// Drivers lists what is registered, sorted by id and version.
type Drivers interface {
	ListDrivers(ctx context.Context, kind string) ([]Driver, error)
	// SiteLabels are the labels of the active drivers that run on the appliance and are up.
	SiteLabels(ctx context.Context) map[string]string
	// PickDriver makes a version of a driver the active one, for good; "" goes back to the highest.
	PickDriver(ctx context.Context, actor, id, version string) error
}

// Wire is the netboot service behind the subnets. Its methods are quick, but for SeekRivals.
type Wire interface {
	// SubnetsChanged makes it take up what was stored or deleted.
	SubnetsChanged()
	// Free makes it forget a lease that was deleted.
	Free(mac app.MAC, a netip.Addr)
	// Rivals lists the other DHCP servers that were last found.
	Rivals() []app.Rival
	// SeekRivals looks for other DHCP servers on an interface now, for some seconds. An Unavailable error: it cannot.
	SeekRivals(ctx context.Context, iface string) ([]app.Rival, error)
	// Notes are sentences about how a subnet is served that a person should read.
	Notes(s app.Subnet) []string
	// KeepYours gives the lines for an operator who keeps another DHCP server; none while we have no address there.
	KeepYours(s app.Subnet) []app.ServerLines
}

// Warning is something about the appliance that a person should know.
type Warning struct {
	Code    string `json:"code"`  // kebab-case, stable
	Level   string `json:"level"` // "info", "warn", "error"
	Message string `json:"message"`
	WayOut  string `json:"wayOut,omitempty"`
}

// Health tells what is not as it should be.
type Health interface {
	Warnings(ctx context.Context) ([]Warning, error)
}

// Format hides the password from every verb.
func (c Credentials) Format(f fmt.State, _ rune) { _, _ = fmt.Fprintf(f, "%q:[secret]", c.Username) }

// LogValue hides the password.
func (c Credentials) LogValue() slog.Value { return slog.StringValue(c.Username + ":[secret]") }
