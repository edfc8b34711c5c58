package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/better-compute/bcd/app"
)

// maxBMCOperations are kept of one machine.
const maxBMCOperations = 500

// BeginBMCOperation journals an operation before it is sent, or takes up the row of an earlier delivery.
func (db *DB) BeginBMCOperation(ctx context.Context, o *app.BMCOperation, repeat string) error {
	return db.write(ctx, func(tx *txn) error {
		if repeat != "" {
			err := tx.QueryRow("SELECT id FROM bmc_operations WHERE repeat_of = ?", repeat).Scan(&o.ID)
			if !errors.Is(err, sql.ErrNoRows) {
				return err
			}
		}
		doc, err := encode(o)
		if err != nil {
			return err
		}
		res, err := tx.Exec("INSERT INTO bmc_operations (machine_id, repeat_of, doc) VALUES (?, NULLIF(?, ''), ?)", o.MachineID, repeat, doc)
		if err != nil {
			return err
		}
		if o.ID, err = res.LastInsertId(); err != nil {
			return err
		}
		_, err = tx.Exec(`DELETE FROM bmc_operations WHERE machine_id = ?1 AND id <=
			(SELECT id FROM bmc_operations WHERE machine_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`, o.MachineID, maxBMCOperations)
		return err
	})
}

// EndBMCOperation journals how an operation went.
func (db *DB) EndBMCOperation(ctx context.Context, o *app.BMCOperation) error {
	return db.write(ctx, func(tx *txn) error {
		doc, err := encode(o)
		if err != nil {
			return err
		}
		_, err = tx.Exec("UPDATE bmc_operations SET doc = ? WHERE id = ?", doc, o.ID)
		return err
	})
}

// ListBMCOperations gives a machine's operations, newest first, those below an id; 0 from the newest.
func (db *DB) ListBMCOperations(ctx context.Context, machineID string, before int64, limit int) (all []app.BMCOperation, err error) {
	err = db.read(ctx, func(tx *txn) error {
		rows, err := tx.Query("SELECT id, doc FROM bmc_operations WHERE machine_id = ?1 AND (?2 = 0 OR id < ?2) ORDER BY id DESC LIMIT ?3", machineID, before, limit)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var id int64
			var doc string
			if err := rows.Scan(&id, &doc); err != nil {
				return err
			}
			o, err := decode[app.BMCOperation](doc)
			if err != nil {
				return err
			}
			o.ID = id
			all = append(all, *o)
		}
		return rows.Err()
	})
	return all, err
}
