package store

import (
	"context"

	"github.com/better-compute/bcd/app"
)

// maxKexecTrials are kept of one make.
const maxKexecTrials = 200

// PutKexecTrial keeps how a kexec went, in place of an earlier word on the same attempt.
func (db *DB) PutKexecTrial(ctx context.Context, t *app.KexecTrial) error {
	return db.write(ctx, func(tx *txn) error {
		doc, err := encode(t)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO kexec_trials (attempt, make, at, doc) VALUES (?, ?, ?, ?)
			ON CONFLICT (attempt) DO UPDATE SET make = excluded.make, at = excluded.at, doc = excluded.doc`, t.Attempt, t.Make, micros(t.Time), doc)
		if err != nil {
			return err
		}
		_, err = tx.Exec("DELETE FROM kexec_trials WHERE make = ?1 AND attempt NOT IN (SELECT attempt FROM kexec_trials WHERE make = ?1 ORDER BY at DESC LIMIT ?2)",
			t.Make, maxKexecTrials)
		return err
	})
}

// ForgetKexecTrial drops the word on an attempt, if one is kept.
func (db *DB) ForgetKexecTrial(ctx context.Context, attempt string) error {
	return db.write(ctx, func(tx *txn) error {
		_, err := tx.Exec("DELETE FROM kexec_trials WHERE attempt = ?", attempt)
		return err
	})
}

// ListKexecTrials gives the trials of a make, newest first.
func (db *DB) ListKexecTrials(ctx context.Context, name string) (all []app.KexecTrial, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.KexecTrial](tx, "SELECT doc FROM kexec_trials WHERE make = ? ORDER BY at DESC, attempt", name)
		return err
	})
	return all, err
}

// ForgetKexecTrials drops the trials of a make and tells how many there were.
func (db *DB) ForgetKexecTrials(ctx context.Context, name string) (n int, err error) {
	err = db.write(ctx, func(tx *txn) error {
		res, err := tx.Exec("DELETE FROM kexec_trials WHERE make = ?", name)
		if err != nil {
			return err
		}
		gone, err := res.RowsAffected()
		n = int(gone)
		return err
	})
	return n, err
}
