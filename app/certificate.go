package app

import (
	"context"
	"time"
)

// Certificate says what became of each disk that a release was to erase, and how that was seen. It is written whether all of
// them were erased or not: a disk without proof stands in it as not erased.
type Certificate struct {
	WorkflowID string       `json:"workflowId"`
	MachineID  string       `json:"machineId"`
	Machine    string       `json:"machine"` // its name then
	UUID       UUID         `json:"productUuid,omitempty"`
	Serial     string       `json:"serial,omitempty"`
	Vendor     string       `json:"vendor,omitempty"`
	Model      string       `json:"model,omitempty"`
	Operator   string       `json:"operator"` // who ordered the release
	Issued     time.Time    `json:"issued"`
	Disks      []ErasedDisk `json:"disks"`
}

// ErasedDisk is one disk of a certificate.
type ErasedDisk struct {
	Disk      DiskID    `json:"disk"`
	Erased    bool      `json:"erased"`
	Method    string    `json:"method,omitempty"` // "nvme-sanitize-crypto", …, "discard+zero", "overwrite"
	Sentinels int       `json:"sentinels"`        // random blocks of 4 KiB planted before; Erased means that none was found after
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Note      string    `json:"note,omitempty"` // what failed or was not possible
}

// Erased reports whether every disk was erased.
func (c *Certificate) Erased() bool {
	for _, d := range c.Disks {
		if !d.Erased {
			return false
		}
	}
	return len(c.Disks) > 0
}

// CertificateStore keeps certificates for longer than the workflows and machines that they are of.
type CertificateStore interface {
	// PutCertificate writes a certificate in place of an earlier one of the same workflow. It is on the disk when it returns.
	PutCertificate(ctx context.Context, c *Certificate) error
	Certificate(ctx context.Context, workflowID string) (*Certificate, error)
	// ListCertificates gives up to limit certificates that were issued before a time, newest first; the zero time is no bound.
	// machine is an id, a name or a serial number, "" for all: a machine that was deleted is found by what stands in them.
	ListCertificates(ctx context.Context, machine string, before time.Time, limit int) ([]Certificate, error)
}
