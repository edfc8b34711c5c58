// Package agentv1 is the contract between the appliance and the agent in its ramdisk: messages, paths, signing.
//
// Messages are JSON over HTTPS (the agent pins the agent listener's key, not a CA). It is not protobuf on purpose: the
// signature covers the exact bytes of the command that travelled, and protobuf has no canonical form.
package agentv1

import (
	"encoding/json"
	"time"
)

// BootDataPath is where the first cpio of the initrd puts the BootData document.
const BootDataPath = "bcd/boot.json"

// SessionPath is where the agent keeps its session, mode 0600, so that a restarted agent resumes.
const SessionPath = "/run/bcd/session.json"

// Paths on the agent listener. All are POST with a JSON body unless said.
const (
	PathSession  = "/agent/v1/session"  // SessionRequest → SessionResponse, authenticated by the boot token
	PathPoll     = "/agent/v1/poll"     // PollRequest → PollResponse, long poll
	PathProgress = "/agent/v1/progress" // ProgressReport → Ack
	PathResult   = "/agent/v1/result"   // ResultReport → Ack
	PathLog      = "/agent/v1/log"      // LogReport → Ack
)

// Limits, in bytes and seconds.
const (
	MaxBody      = 1 << 20 // of any request or response
	MaxInventory = 1 << 20
	PollSeconds  = 25
)

// BootData is the trust that one boot of one machine is given. It is secret only until the token is spent.
type BootData struct {
	MachineID  string    `json:"machineId,omitempty"` // empty for a machine nobody enrolled
	WorkflowID string    `json:"workflowId,omitempty"`
	SiteURLs   []string  `json:"siteUrls"`   // https base URLs of the agent listener, as this machine's network sees them
	BootURLs   []string  `json:"bootUrls"`   // http base URLs of the boot-file listener
	AgentPin   string    `json:"agentPin"`   // hex SHA-256 of the agent listener's SubjectPublicKeyInfo
	CommandKey string    `json:"commandKey"` // base64 Ed25519 public key that signs commands
	Token      string    `json:"token"`      // one use
	ServerTime time.Time `json:"serverTime"`
	Rescue     *Rescue   `json:"rescue,omitempty"`
	BootMAC    string    `json:"bootMac,omitempty"` // the port that netbooted, colon form
	Console    string    `json:"console,omitempty"` // kernel console of the machine, e.g. "ttyS0,115200"
}

// Rescue asks the agent to open a shell for people.
type Rescue struct {
	AuthorizedKeys []string `json:"authorizedKeys,omitempty"`
}

// SessionRequest trades the token for a session.
type SessionRequest struct {
	Token string `json:"token"`
	// Nonce is 32 random bytes in hex, made once per boot before the first trade and kept by the agent. The same token with
	// the same nonce and boot id gets the same session again, so that a lost answer is not taken for a second trade.
	Nonce    string   `json:"nonce,omitempty"`
	BootID   string   `json:"bootId"` // /proc/sys/kernel/random/boot_id
	MACs     []string `json:"macs"`
	UUID     string   `json:"uuid,omitempty"` // as /sys/class/dmi/id/product_uuid spells it
	Version  string   `json:"version"`        // of the agent
	Firmware string   `json:"firmware"`       // "bios", "uefi"
	// Discovery carries the one inventory of a machine nobody enrolled; no session follows.
	Discovery *Inventory `json:"discovery,omitempty"`
	// Drivers are those that the agent carries; each becomes labels of its machine.
	Drivers []Advertised `json:"drivers,omitempty"`
}

// SessionResponse is the session. Secret authenticates every later call, as "Authorization: Bearer <secret>".
type SessionResponse struct {
	SessionID  string    `json:"sessionId"`
	Secret     string    `json:"secret"`
	MachineID  string    `json:"machineId"`
	WorkflowID string    `json:"workflowId"`
	ServerTime time.Time `json:"serverTime"`
}

// PollRequest asks for commands and tells what the agent knows.
type PollRequest struct {
	SessionID string         `json:"sessionId"`
	BootID    string         `json:"bootId"`
	Attempts  []AttemptState `json:"attempts,omitempty"` // the agent's whole table of this session
}

// AttemptState is one row of the agent's table of attempts.
type AttemptState struct {
	Key    string          `json:"key"`
	State  string          `json:"state"` // "running", "done", "failed"
	Result json.RawMessage `json:"result,omitempty"`
	Error  *Error          `json:"error,omitempty"`
	// Unreported says that the end was not acknowledged yet: a ResultReport follows, and what the agent does after its
	// acknowledgement has not begun.
	Unreported bool `json:"unreported,omitempty"`
}

// PollResponse carries commands and cancellations. Empty after PollSeconds without any.
type PollResponse struct {
	ServerTime time.Time       `json:"serverTime"`
	Commands   []SignedCommand `json:"commands,omitempty"`
	Cancel     []string        `json:"cancel,omitempty"` // keys
	Bye        bool            `json:"bye,omitempty"`    // the session is over: do nothing more
}

// SignedCommand is a Command's exact JSON bytes with the Ed25519 signature over SigningContext + bytes.
type SignedCommand struct {
	Command   []byte `json:"command"`
	Signature []byte `json:"signature"`
}

// SigningContext precedes the signed bytes, so that the key signs nothing else.
const SigningContext = "bcd-agent-command-v1\x00"

// Command is an order to the agent. The agent refuses one of another machine, session or workflow, one past NotAfter by
// server time, one whose PayloadSHA256 is not the payload's, and never runs a Key twice.
type Command struct {
	Key        string `json:"key"`
	Kind       string `json:"kind"`
	MachineID  string `json:"machineId"`
	SessionID  string `json:"sessionId"`
	WorkflowID string `json:"workflowId"`
	StepID     string `json:"stepId"`
	Attempt    int    `json:"attempt"`
	// Run counts from 0 and is raised by the site only after it settled that an attempt which ended with
	// ReasonAgentRestarted may run again under its key. The agent runs a known Key again in no other case.
	Run           int             `json:"run,omitempty"`
	NotAfter      time.Time       `json:"notAfter"`
	TraceParent   string          `json:"traceparent,omitempty"`
	Payload       json.RawMessage `json:"payload,omitempty"`
	PayloadSHA256 string          `json:"payloadSha256"` // hex
}

// ReasonAgentRestarted is the reason of an attempt that was running when the agent died: its end is unknown.
const ReasonAgentRestarted = "agent-restarted"

// Error is a failure on the agent, in the words of app.Error.
type Error struct {
	Code      string `json:"code"`   // app.Code
	Reason    string `json:"reason"` // kebab-case
	Message   string `json:"message"`
	WayOut    string `json:"wayOut,omitempty"`
	Retryable bool   `json:"retryable,omitempty"`
}

// ProgressReport is sent about once a second while an attempt runs.
type ProgressReport struct {
	SessionID string `json:"sessionId"`
	Key       string `json:"key"`
	Phase     string `json:"phase"`
	Message   string `json:"message,omitempty"`
	Done      int64  `json:"done,omitempty"`
	Total     int64  `json:"total,omitempty"`
	Unit      string `json:"unit,omitempty"`
}

// ResultReport ends an attempt. The agent repeats it until it is acknowledged.
type ResultReport struct {
	SessionID string       `json:"sessionId"`
	Attempt   AttemptState `json:"attempt"`
}

// LogReport carries lines for the machine's timeline.
type LogReport struct {
	SessionID string   `json:"sessionId"`
	Lines     []string `json:"lines"`
}

// Ack answers a report.
type Ack struct {
	OK bool `json:"ok"`
}

// Command kinds the agent serves.
const (
	KindInventory = "agent.inventory" // no payload → Inventory
	KindSetClock  = "agent.set-clock" // SetClock → SetClockResult
	KindWrite     = "agent.write"     // Write → WriteResult
	KindVerify    = "agent.verify"    // Write → WriteResult: reads back without writing
	KindConfigure = "agent.configure" // Configure → ConfigureResult: seed partition, kernel arguments of the installed loader
	KindKexecLoad = "agent.kexec"     // Kexec → KexecResult: loads, answers, then jumps
	KindReboot    = "agent.reboot"    // {} : answers, then restarts
	KindPowerOff  = "agent.poweroff"  // {} : answers, then powers off
	KindWipe      = "agent.wipe"      // Wipe → WipeResult
)

// SetClock carries nothing: the agent uses the server-time offset it keeps.
type SetClock struct{}

// SetClockResult is the time that was read back from the system clock.
type SetClockResult struct {
	Time time.Time `json:"time"`
	RTC  bool      `json:"rtc"` // the hardware clock holds it too; false on machines without one
}

// DiskTarget names the one disk an order is for. Every field that is set must match, and exactly one disk may match.
type DiskTarget struct {
	Serial     string `json:"serial,omitempty"`
	WWN        string `json:"wwn,omitempty"`
	Name       string `json:"name,omitempty"` // kernel name, only for disks with neither
	Bytes      int64  `json:"bytes"`
	SectorSize int    `json:"sectorSize"`
}

// Write puts an image on a disk.
type Write struct {
	Disk        DiskTarget `json:"disk"`
	ImageID     string     `json:"imageId"`
	Image       string     `json:"image,omitempty"` // its name, for errors
	IndexURL    string     `json:"indexUrl"`        // path below a boot URL
	IndexSHA256 string     `json:"indexSha256"`     // hex
	RawBytes    int64      `json:"rawBytes"`
	SectorSize  int        `json:"sectorSize"`        // the image's
	FSUUIDs     []string   `json:"fsUuids,omitempty"` // of the image, looked for on other disks
	WipeOthers  bool       `json:"wipeOthers,omitempty"`
	Seeds       []Seed     `json:"seeds,omitempty"` // images that the disk may still hold, the latest first
}

// Seed names an image of which chunks may lie on the disk. An agent trusts none before its hash was compared, and does
// without a seed that cannot be had.
type Seed struct {
	IndexURL    string `json:"indexUrl"` // as in Write
	IndexSHA256 string `json:"indexSha256"`
}

// WriteResult is what was written and read back.
type WriteResult struct {
	Disk          DiskTarget `json:"disk"`
	BytesWritten  int64      `json:"bytesWritten"`
	BytesZeroed   int64      `json:"bytesZeroed"`
	BytesKept     int64      `json:"bytesKept,omitempty"`  // lay where they belong already
	BytesMoved    int64      `json:"bytesMoved,omitempty"` // from elsewhere on the disk; part of BytesWritten
	BytesFetched  int64      `json:"bytesFetched"`
	BytesVerified int64      `json:"bytesVerified"`
	Seconds       float64    `json:"seconds"`
	PeakRSS       int64      `json:"peakRss"` // bytes, VmHWM
}

// Configure prepares the written disk for its first boot.
type Configure struct {
	Disk       DiskTarget        `json:"disk"`
	Seed       map[string][]byte `json:"seed"` // file name → bytes on the CIDATA partition: meta-data, user-data, vendor-data, network-config
	KernelArgs string            `json:"kernelArgs,omitempty"`
	Image      string            `json:"image,omitempty"`      // the name of what was written, for errors
	Boots      bool              `json:"boots,omitempty"`      // the machine is to boot from the disk: without a loader for its firmware it is refused
	Look       bool              `json:"look,omitempty"`       // tell what the disk starts by default, and refuse it when that is certainly nothing
	SkipChecks bool              `json:"skipChecks,omitempty"` // what Look refuses is a note
}

// ConfigureResult is how a disk stands before its first boot.
type ConfigureResult struct {
	Entry  string   `json:"entry,omitempty"`  // title of the default boot entry, when it was looked for
	Kernel string   `json:"kernel,omitempty"` // and its kernel
	Notes  []string `json:"notes,omitempty"`  // sentences on what a person may not want so
}

// Kexec jumps into the written disk's own default boot entry.
type Kexec struct {
	Disk       DiskTarget `json:"disk"`
	KernelArgs string     `json:"kernelArgs,omitempty"` // appended
	DryRun     bool       `json:"dryRun,omitempty"`     // load and unload
}

// KexecResult is the entry that was chosen, or why the machine stays in the ramdisk: Refused names what a boot through the
// firmware gets round.
type KexecResult struct {
	Kernel  string   `json:"kernel"`
	Initrds []string `json:"initrds"`
	Cmdline string   `json:"cmdline"`
	Refused *Error   `json:"refused,omitempty"`
}

// Wipe clears disks. Only disks listed are touched.
type Wipe struct {
	Disks []DiskTarget `json:"disks"`
	// Method is where to begin: "" or "secure" with the disk's own ways to erase itself, "discard" with discarding and zeroing,
	// "overwrite" with overwriting every byte. What is not proven is followed by what is stronger among the last two.
	Method string `json:"method,omitempty"`
}

// WipeResult is the outcome per disk.
type WipeResult struct {
	Disks []WipedDisk `json:"disks"`
}

// WipedDisk is what became of one disk. Erased is true only when every sentinel was gone.
type WipedDisk struct {
	Disk      DiskTarget `json:"disk"`
	Model     string     `json:"model,omitempty"`
	Method    string     `json:"method"` // "nvme-sanitize-crypto", …, "discard+zero", "overwrite"; "" when none was proven
	Erased    bool       `json:"erased"`
	Sentinels int        `json:"sentinels"` // random blocks planted before and looked for after
	Bytes     int64      `json:"bytes"`
	Started   time.Time  `json:"started"`
	Ended     time.Time  `json:"ended"`
	Note      string     `json:"note,omitempty"` // what failed or is not possible on this disk, and why
}
