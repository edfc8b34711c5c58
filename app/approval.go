package app

import (
	"context"
	"encoding/json"
	"time"
)

// ApprovalState is where an approval stands.
type ApprovalState string

// The states. Only a pending one can be decided.
const (
	ApprovalPending  ApprovalState = "pending"
	ApprovalApproved ApprovalState = "approved" // and carried out: Results says how it went
	ApprovalDenied   ApprovalState = "denied"
	ApprovalExpired  ApprovalState = "expired"
)

// Approval is a batch that waits for a second operator.
type Approval struct {
	ID        string          `json:"id"`
	Operation string          `json:"operation"` // "release", "power off"
	Verb      string          `json:"verb"`
	Options   json.RawMessage `json:"options,omitempty"` // of the verb
	Machines  []ApprovalItem  `json:"machines"`
	Reason    string          `json:"reason"`
	UserID    string          `json:"userId"` // who asked
	Actor     string          `json:"actor"`
	State     ApprovalState   `json:"state"`
	Created   time.Time       `json:"created"`
	Expires   time.Time       `json:"expires"`
	DecidedBy string          `json:"decidedBy,omitempty"`
	Decided   time.Time       `json:"decided,omitzero"`
}

// ApprovalItem is one machine of a batch, and what became of it.
type ApprovalItem struct {
	ID         string `json:"id"`
	Name       string `json:"name"`
	WorkflowID string `json:"workflowId,omitempty"`
	Error      *Error `json:"error,omitempty"`
}

// ApprovalStore keeps approvals, a bounded number: old ones that were decided go first.
type ApprovalStore interface {
	CreateApproval(ctx context.Context, a *Approval) error
	Approval(ctx context.Context, id string) (*Approval, error)
	ListApprovals(ctx context.Context) ([]Approval, error) // newest first
	// UpdateApproval reads, changes and writes an approval in one transaction, so that it is decided once.
	UpdateApproval(ctx context.Context, id string, change func(*Approval) error) (*Approval, error)
}
