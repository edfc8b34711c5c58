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

// Profile is a hardware profile: what machines of one make share.
type Profile struct {
	Name        string             `json:"name"`
	Description string             `json:"description,omitempty"`
	Drivers     map[string]Binding `json:"drivers,omitempty"` // by kind; Layer is filled in on resolution
	KernelArgs  string             `json:"kernelArgs,omitempty"`
	KexecOK     bool               `json:"kexecProven,omitempty"`
	Updated     time.Time          `json:"updated"`
}

// Pool is a named group of machines with a policy.
type Pool struct {
	Name            string    `json:"name"`
	Description     string    `json:"description,omitempty"`
	HardwareProfile string    `json:"hardwareProfile,omitempty"` // policy.hardwareProfile
	Updated         time.Time `json:"updated"`
}

// ProfileStore keeps profiles and pools.
type ProfileStore interface {
	PutProfile(ctx context.Context, p *Profile) error
	Profile(ctx context.Context, name string) (*Profile, error)
	ListProfiles(ctx context.Context) ([]Profile, error)
	DeleteProfile(ctx context.Context, name string) error // Conflict while a machine or pool uses it
	PutPool(ctx context.Context, p *Pool) error
	Pool(ctx context.Context, name string) (*Pool, error)
	ListPools(ctx context.Context) ([]Pool, error)
	DeletePool(ctx context.Context, name string) error
}

// SettingStore keeps small values by key: the instance id, the setup code's hash, keys' fingerprints.
type SettingStore interface {
	Setting(ctx context.Context, key string) (string, error) // "" when unset
	SetSetting(ctx context.Context, key, value string) error
}
