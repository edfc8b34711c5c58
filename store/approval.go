package store

import (
	"context"

	"github.com/better-compute/bcd/app"
)

// maxApprovals are kept in all, and maxPending of those wait.
const (
	maxApprovals = 500
	maxPending   = 100
)

// CreateApproval adds an approval.
func (db *DB) CreateApproval(ctx context.Context, a *app.Approval) error {
	return db.write(ctx, func(tx *txn) error {
		var pending int
		if err := tx.QueryRow("SELECT count(*) FROM approvals WHERE state = ?", app.ApprovalPending).Scan(&pending); err != nil {
			return err
		}
		if pending >= maxPending {
			return app.Errorf(app.Conflict, "too-many-approvals", "%d batches wait for approval already", pending).Do("decide those first: bcd approval list")
		}
		doc, err := encode(a)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("INSERT INTO approvals (id, state, created, doc) VALUES (?, ?, ?, ?)", a.ID, a.State, micros(a.Created), doc); err != nil {
			return err
		}
		_, err = tx.Exec(`DELETE FROM approvals WHERE state <> ?1 AND id IN (SELECT id FROM approvals WHERE state <> ?1 ORDER BY created DESC LIMIT -1 OFFSET ?2)`,
			app.ApprovalPending, maxApprovals)
		return err
	})
}

// Approval finds an approval by its id.
func (db *DB) Approval(ctx context.Context, id string) (a *app.Approval, err error) {
	err = db.read(ctx, func(tx *txn) error {
		a, err = document[app.Approval](tx, "SELECT doc FROM approvals WHERE id = ?", id)
		return notFound(err, "approval", id)
	})
	return a, err
}

// ListApprovals gives all approvals, newest first.
func (db *DB) ListApprovals(ctx context.Context) (all []app.Approval, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.Approval](tx, "SELECT doc FROM approvals ORDER BY created DESC, id")
		return err
	})
	return all, err
}

// UpdateApproval reads, changes and writes an approval.
func (db *DB) UpdateApproval(ctx context.Context, id string, change func(*app.Approval) error) (a *app.Approval, err error) {
	err = db.write(ctx, func(tx *txn) error {
		a, err = document[app.Approval](tx, "SELECT doc FROM approvals WHERE id = ?", id)
		if err != nil {
			return notFound(err, "approval", id)
		}
		if err := change(a); err != nil {
			return err
		}
		doc, err := encode(a)
		if err != nil {
			return err
		}
		_, err = tx.Exec("UPDATE approvals SET state = ?, doc = ? WHERE id = ?", a.State, doc, a.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return a, nil
}
