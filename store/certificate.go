package store

import (
	"context"
	"time"

	"github.com/better-compute/bcd/app"
)

// maxCertificates are kept in all, some 100 MB at most; the oldest go.
const maxCertificates = 50_000

// PutCertificate writes a certificate in place of an earlier one of the same workflow.
func (db *DB) PutCertificate(ctx context.Context, c *app.Certificate) error {
	return db.write(ctx, func(tx *txn) error {
		doc, err := encode(c)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO certificates (workflow_id, machine_id, machine, serial, issued, doc) VALUES (?, ?, ?, ?, ?, ?)
			ON CONFLICT (workflow_id) DO UPDATE SET machine_id = excluded.machine_id, machine = excluded.machine, serial = excluded.serial, issued = excluded.issued, doc = excluded.doc`,
			c.WorkflowID, c.MachineID, c.Machine, c.Serial, micros(c.Issued), doc)
		if err != nil {
			return err
		}
		_, err = tx.Exec("DELETE FROM certificates WHERE workflow_id IN (SELECT workflow_id FROM certificates ORDER BY issued DESC, workflow_id LIMIT -1 OFFSET ?)", maxCertificates)
		return err
	})
}

// Certificate finds the certificate of a workflow.
func (db *DB) Certificate(ctx context.Context, workflowID string) (c *app.Certificate, err error) {
	err = db.read(ctx, func(tx *txn) error {
		c, err = document[app.Certificate](tx, "SELECT doc FROM certificates WHERE workflow_id = ?", workflowID)
		return notFound(err, "certificate", workflowID)
	})
	return c, err
}

// ListCertificates gives certificates, newest first.
func (db *DB) ListCertificates(ctx context.Context, machine string, before time.Time, limit int) (all []app.Certificate, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.Certificate](tx, `SELECT doc FROM certificates WHERE (?1 = '' OR ?1 IN (machine_id, machine, serial)) AND (?2 = 0 OR issued < ?2)
			ORDER BY issued DESC, workflow_id LIMIT ?3`, machine, micros(before), limit)
		return err
	})
	return all, err
}
