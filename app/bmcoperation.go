package app

import (
	"context"
	"encoding/json"
	"time"
)

// BMCOperation is one operation on a machine's BMC, as journaled before it is sent.
type BMCOperation struct {
	ID        int64           `json:"id"` // the operation's idempotency key
	MachineID string          `json:"machineId"`
	Command   string          `json:"command"`   // "bmc.query", "bmc.power", "bmc.boot", "bmc.rotate", "bmc.firmware", "bmc.config"
	Operation string          `json:"operation"` // "power.setPower"
	Driver    string          `json:"driver"`
	Args      json.RawMessage `json:"args,omitempty"`    // never a secret
	Attempt   string          `json:"attempt,omitempty"` // key of the workflow's attempt, or ""
	Started   time.Time       `json:"started"`
	Ended     time.Time       `json:"ended,omitzero"` // zero: under way, or its end is unknown
	Reason    string          `json:"reason,omitempty"`
	Error     string          `json:"error,omitempty"` // a sentence, "" when it succeeded
}

// BMCOperationStore journals operations on BMCs, a bounded number for each machine.
type BMCOperationStore interface {
	// BeginBMCOperation writes the row and fills in its ID. With a repeat ("" none) that was written before, the row of that
	// time is taken up again and its ID is given.
	BeginBMCOperation(ctx context.Context, o *BMCOperation, repeat string) error
	EndBMCOperation(ctx context.Context, o *BMCOperation) error
	ListBMCOperations(ctx context.Context, machineID string, before int64, limit int) ([]BMCOperation, error) // newest first
}
