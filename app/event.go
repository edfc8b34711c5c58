package app

import (
	"context"
	"encoding/json"
	"time"
)

// Event is one line of the audit trail or of a machine's timeline.
type Event struct {
	ID        int64           `json:"id"` // rises by one
	Time      time.Time       `json:"time"`
	Kind      string          `json:"kind"`  // "machine.state", "workflow.step", "bmc.power", "dhcp.offer", "tftp.get", "http.get", "agent.up", "user.login"
	Level     string          `json:"level"` // "info", "warn", "error"
	MachineID string          `json:"machineId,omitempty"`
	Workflow  string          `json:"workflowId,omitempty"`
	Actor     string          `json:"actor,omitempty"` // user name, "token:NAME", "system", "agent", or "" for the wire
	Message   string          `json:"message"`         // a sentence; may hold hostile text, show it escaped
	Data      json.RawMessage `json:"data,omitempty"`
}

// EventFilter selects events, newest first.
type EventFilter struct {
	MachineID, WorkflowID, Kind string // Kind may end in "." to match a family
	Since                       time.Time
	Before                      int64 // only ids below; 0 from the newest
	Limit                       int   // default 100, at most 1000
}

// EventStore keeps events, bounded per machine and in all.
type EventStore interface {
	AddEvents(ctx context.Context, e []Event) error // fills in ID
	ListEvents(ctx context.Context, f EventFilter) ([]Event, error)
}

// SettingStore keeps small values by key: the instance id, the setup code's hash, keys' fingerprints.
type SettingStore interface {
	Setting(ctx context.Context, key string) (string, error) // "" when unset
	SetSetting(ctx context.Context, key, value string) error
}
