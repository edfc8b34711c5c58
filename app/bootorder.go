package app

import (
	"context"
	"time"
)

// BootPolicy is which boot order a machine shall have.
type BootPolicy string

// The policies; "" lets BootPolicyFor choose.
const (
	// BootAsFound keeps the order that commissioning found: what a system adds for itself goes behind it, and a system that
	// was in it stays in its place.
	BootAsFound BootPolicy = "as-found"
	// BootNetworkFirst is BootAsFound with the network entries in front.
	BootNetworkFirst BootPolicy = "network-first"
)

// BootWriter is who writes a machine's boot order: one for each machine, because firmware that is told two orders asks a
// person at its screen which one to keep (Lenovo), or takes neither.
type BootWriter string

// The writers.
const (
	BootByAgent BootWriter = "agent" // the ramdisk's agent, into the firmware's variables
	BootByBMC   BootWriter = "bmc"   // the site, through the BMC
	BootByNone  BootWriter = "none"  // nobody can
)

// What an entry starts.
const (
	BootNetwork  = "network"
	BootSystem   = "system" // a loader on a partition: what an operating system adds for itself
	BootDisk     = "disk"   // a whole disk, by the path for removable media
	BootMedium   = "medium" // CD, USB
	BootFirmware = "firmware"
	BootOther    = "other"
)

// BootEntry is one boot option. All text is firmware's or an operating system's, and hostile.
type BootEntry struct {
	ID        string `json:"id"` // "Boot0003", or the BMC's own word
	Name      string `json:"name"`
	Kind      string `json:"kind"`                // BootNetwork, …
	Protocol  string `json:"protocol,omitempty"`  // of a network entry: "PXE IPv4", "HTTP IPv6"
	MAC       string `json:"mac,omitempty"`       // of a network entry, colon form
	Partition string `json:"partition,omitempty"` // of a system: "gpt:<GUID>" or "mbr:<signature>-<number>", lower case
	File      string `json:"file,omitempty"`      // of a system
	Path      string `json:"path,omitempty"`      // the whole device path as text
	Inactive  bool   `json:"inactive,omitempty"`
}

// Same reports whether two entries are one, whatever number firmware gave it.
func (e BootEntry) Same(o BootEntry) bool {
	return e.Path == o.Path && e.Name == o.Name && e.Path != ""
}

// BootView is a boot order as one reader saw it.
type BootView struct {
	Time    time.Time   `json:"time"`
	During  string      `json:"during"`  // verb of the workflow
	Entries []BootEntry `json:"entries"` // those in the order first, as they are tried
	Order   []string    `json:"order"`   // ids; one that no entry has is dangling
	Current string      `json:"current,omitempty"`
	Next    string      `json:"next,omitempty"`    // of the next boot only
	Timeout *int        `json:"timeout,omitempty"` // seconds before the first is tried; BootWaits: for ever
}

// BootWaits is the timeout of firmware that waits for a person before it boots anything.
const BootWaits = 0xffff

// BootChange says who changed an order.
type BootChange struct {
	Time time.Time `json:"time"`
	By   string    `json:"by"`   // "bcd", "system", "outside": firmware, or a person at it
	What []string  `json:"what"` // a sentence each
}

// OwnPartition is a partition of a disk that deploys of the machine wrote: entries for it may be removed once it is gone.
type OwnPartition struct {
	Partition string `json:"partition"`
	Disk      DiskID `json:"disk"`
}

// BootOrder is what is known of a machine's boot order.
type BootOrder struct {
	MachineID    string         `json:"machineId"`
	Firmware     Firmware       `json:"firmware,omitempty"`
	Policy       BootPolicy     `json:"policy"` // in force when it was last read
	PolicyReason string         `json:"policyReason"`
	Writer       BootWriter     `json:"writer"`
	WriterReason string         `json:"writerReason"`
	Own          []BootEntry    `json:"own"` // the order that is ours: as commissioning found it
	Agent        *BootView      `json:"agent,omitempty"`
	BMC          *BootView      `json:"bmc,omitempty"`
	Changed      *BootChange    `json:"changed,omitempty"`
	Partitions   []OwnPartition `json:"partitions,omitempty"`
	Problem      *Error         `json:"problem,omitempty"` // why ours is not in place, or could not be read
	Notes        []string       `json:"notes,omitempty"`
	Updated      time.Time      `json:"updated"`
}

// View is the order that counts: the writer's, else whichever was read.
func (b *BootOrder) View() *BootView {
	if b.BMC != nil && (b.Writer == BootByBMC || b.Agent == nil) {
		return b.BMC
	}
	return b.Agent
}

// BootReading is one line of a boot order's history.
type BootReading struct {
	ID         int64        `json:"id"`
	MachineID  string       `json:"machineId"`
	WorkflowID string       `json:"workflowId"`
	Time       time.Time    `json:"time"`
	During     string       `json:"during"`
	Order      []string     `json:"order"` // the entries' names, as they are tried after it
	Changes    []BootChange `json:"changes,omitempty"`
	Problem    *Error       `json:"problem,omitempty"`
}

// BootOrderStore keeps boot orders and a bounded number of readings for each machine. A machine's go with it.
type BootOrderStore interface {
	BootOrder(ctx context.Context, machineID string) (*BootOrder, error) // NotFound when never read
	// PutBootOrder writes the state and appends a reading, whose ID it fills in, in one transaction.
	PutBootOrder(ctx context.Context, b *BootOrder, r *BootReading) error
	BootReadings(ctx context.Context, machineID string, limit int) ([]BootReading, error) // newest first
	BootOrderProblems(ctx context.Context) ([]BootOrder, error)                           // those with a Problem
}

// ValidBootPolicy checks a policy; "" is valid.
func ValidBootPolicy(field string, p BootPolicy) error {
	switch p {
	case "", BootAsFound, BootNetworkFirst:
		return nil
	}
	return Invalid(field, "%q is no boot order", clip(string(p), 40)).Do("use %s or %s, or leave it out", BootAsFound, BootNetworkFirst)
}

// Words tells a view as people read it, in the order that is tried: "debian (disk S4NE, \EFI\debian\shimx64.efi)".
func (b *BootOrder) Words(v *BootView) []string {
	out := []string{}
	if v == nil {
		return out
	}
	for _, e := range v.Ordered() {
		s := e.Title()
		for _, p := range b.Partitions {
			if p.Partition == e.Partition && e.Kind == BootSystem && e.File != "" {
				s = e.Name + " (disk " + diskWord(p.Disk) + ", " + e.File + ")"
			}
		}
		if e.Inactive {
			s += ", turned off"
		}
		out = append(out, s)
	}
	return out
}

func diskWord(d DiskID) string {
	for _, s := range []string{d.Serial, d.WWN, d.Name} {
		if s != "" {
			return s
		}
	}
	return "unknown"
}
