package app

import (
	"context"
	"encoding/json"
	"time"
)

// Record is one line of a flight recorder's timeline: something that was seen of a machine, or of a network port that is
// nobody's yet.
type Record struct {
	ID        int64           `json:"id"` // rises; 0 when it could not be kept
	Time      time.Time       `json:"time"`
	Kind      string          `json:"kind"`  // "dhcp.offer", "tftp.get", "bmc.power", "agent.up", "console.line", "workflow.step"
	Level     string          `json:"level"` // "info", "warn", "error"
	MachineID string          `json:"machineId,omitempty"`
	MAC       MAC             `json:"mac,omitempty"` // the port it was seen at
	Workflow  string          `json:"workflowId,omitempty"`
	Actor     string          `json:"actor,omitempty"`
	Message   string          `json:"message"` // a sentence; may hold hostile text, show it escaped
	Data      json.RawMessage `json:"data,omitempty"`
}

// RecordFilter selects the records of one machine, or of one MAC address that is nobody's. One of the two is set.
type RecordFilter struct {
	MachineID     string
	MAC           MAC
	Kinds         []string  // any of them; one that ends in "." is a family; none: all
	Since         time.Time // inclusive
	Before, After int64     // only ids below, above; 0: no bound
	Limit         int       // default 200, at most 1000
}

// RecordStore keeps records, bounded per machine, per kind of source and in all. It may lose them: nothing but a person's
// view of the past depends on it.
type RecordStore interface {
	AddRecords(ctx context.Context, r []Record) error                  // fills in ID
	ListRecords(ctx context.Context, f RecordFilter) ([]Record, error) // newest first
	ClaimRecords(ctx context.Context, mac MAC, machineID string) error // what was nobody's at this address is the machine's
	ForgetRecords(ctx context.Context, machineID string) error         // all of a machine
	PruneRecords(ctx context.Context, before time.Time) (int64, error) // removes what is older, and says how many
	Close() error
}
