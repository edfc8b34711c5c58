package store

import (
	"context"

	"github.com/better-compute/bcd/app"
)

// maxBootReadings are kept of one machine.
const maxBootReadings = 64

// BootOrder gives what is known of a machine's boot order.
func (db *DB) BootOrder(ctx context.Context, machineID string) (b *app.BootOrder, err error) {
	err = db.read(ctx, func(tx *txn) error {
		b, err = document[app.BootOrder](tx, "SELECT doc FROM boot_orders WHERE machine_id = ?", machineID)
		return notFound(err, "boot-order", machineID)
	})
	return b, err
}

// PutBootOrder writes the state and appends a reading to its history.
func (db *DB) PutBootOrder(ctx context.Context, b *app.BootOrder, r *app.BootReading) error {
	return db.write(ctx, func(tx *txn) error {
		m, err := machine(tx, b.MachineID)
		if err != nil {
			return err
		}
		b.MachineID, b.Updated = m.ID, db.now()
		doc, err := encode(b)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO boot_orders (machine_id, problem, doc) VALUES (?, ?, ?)
			ON CONFLICT (machine_id) DO UPDATE SET problem = excluded.problem, doc = excluded.doc`, m.ID, b.Problem != nil, doc)
		if err != nil {
			return err
		}
		r.MachineID = m.ID
		if doc, err = encode(r); err != nil {
			return err
		}
		res, err := tx.Exec("INSERT INTO boot_readings (machine_id, doc) VALUES (?, ?)", m.ID, doc)
		if err != nil {
			return err
		}
		if r.ID, err = res.LastInsertId(); err != nil {
			return err
		}
		_, err = tx.Exec(`DELETE FROM boot_readings WHERE machine_id = ?1 AND id <=
			(SELECT id FROM boot_readings WHERE machine_id = ?1 ORDER BY id DESC LIMIT 1 OFFSET ?2)`, m.ID, maxBootReadings)
		return err
	})
}

// BootReadings gives the history of a machine's boot order, newest first.
func (db *DB) BootReadings(ctx context.Context, machineID string, limit int) (all []app.BootReading, err error) {
	err = db.read(ctx, func(tx *txn) error {
		rows, err := tx.Query("SELECT id, doc FROM boot_readings WHERE machine_id = ? ORDER BY id DESC LIMIT ?", machineID, limit)
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
			r, err := decode[app.BootReading](doc)
			if err != nil {
				return err
			}
			r.ID = id
			all = append(all, *r)
		}
		return rows.Err()
	})
	return all, err
}

// BootOrderProblems gives the boot orders that are not as they should be.
func (db *DB) BootOrderProblems(ctx context.Context) (all []app.BootOrder, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.BootOrder](tx, "SELECT doc FROM boot_orders WHERE problem = 1 ORDER BY machine_id")
		return err
	})
	return all, err
}
