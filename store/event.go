package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/better-compute/bcd/app"
)

// How many events are kept, of one machine and in all. Pruning takes some more than it must, so that it is rare, and not so
// many that other writes wait for it.
const (
	MaxMachineEvents = 2_000
	MaxEvents        = 200_000
)

// AddEvents appends events and fills in their ids, and times where unset.
func (db *DB) AddEvents(ctx context.Context, events []app.Event) error {
	if len(events) == 0 {
		return nil
	}
	return db.write(ctx, func(tx *txn) error {
		added := map[string]int{"": len(events)}
		for i := range events {
			if err := db.addEvent(tx, &events[i]); err != nil {
				return err
			}
			if id := events[i].MachineID; id != "" {
				added[id]++
			}
		}
		for id, n := range added {
			if err := db.countEvents(tx, id, n); err != nil {
				return err
			}
		}
		return nil
	})
}

func (db *DB) addEvent(tx *txn, e *app.Event) error {
	if e.Time.IsZero() {
		e.Time = db.now()
	}
	if e.Level == "" {
		e.Level = "info"
	}
	res, err := tx.Exec(`INSERT INTO events (time, kind, level, machine_id, workflow, actor, message, data) VALUES (?, ?, ?, ?, ?, ?, ?, ?)`,
		micros(e.Time), e.Kind, e.Level, e.MachineID, e.Workflow, e.Actor, e.Message, textOrNil(e.Data))
	if err != nil {
		return err
	}
	e.ID, err = res.LastInsertId()
	return err
}

// countEvents adds n to a machine's count, or to that of all under "", and prunes when it is over its limit.
func (db *DB) countEvents(tx *txn, machineID string, n int) error {
	err := tx.QueryRow(`INSERT INTO event_counts (machine_id, n) VALUES (?, ?)
		ON CONFLICT (machine_id) DO UPDATE SET n = n + excluded.n RETURNING n`, machineID, n).Scan(&n)
	switch {
	case err != nil:
		return err
	case machineID != "" && n > MaxMachineEvents:
		return pruneEvents(tx, "machine_id = ?2 AND machine_id <> ''", n-MaxMachineEvents+200, machineID)
	case machineID == "" && n > db.maxEvents:
		return pruneEvents(tx, "?2 = ''", n-db.maxEvents+db.maxEvents/200, machineID)
	}
	return nil
}

// pruneEvents deletes the n oldest rows of those that where selects, and takes them off all counts.
func pruneEvents(tx *txn, where string, n int, machineID string) error {
	var last int64
	err := tx.QueryRow("SELECT id FROM events WHERE "+where+" ORDER BY id LIMIT 1 OFFSET ?1", n-1, machineID).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	_, err = tx.Exec(`UPDATE event_counts SET n = event_counts.n - gone.n
		FROM (SELECT machine_id AS id, count(*) AS n FROM events WHERE `+where+` AND id <= ?1 GROUP BY machine_id) AS gone
		WHERE event_counts.machine_id = gone.id AND gone.id <> ''`, last, machineID)
	if err != nil {
		return err
	}
	res, err := tx.Exec("DELETE FROM events WHERE "+where+" AND id <= ?1", last, machineID)
	if err != nil {
		return err
	}
	gone, err := res.RowsAffected()
	if err != nil {
		return err
	}
	if _, err := tx.Exec("UPDATE event_counts SET n = n - ? WHERE machine_id = ''", gone); err != nil {
		return err
	}
	_, err = tx.Exec("DELETE FROM event_counts WHERE n <= 0 AND machine_id <> ''")
	return err
}

// ListEvents gives events, newest first.
func (db *DB) ListEvents(ctx context.Context, f app.EventFilter) (all []app.Event, err error) {
	where, args := "1", []any{}
	add := func(cond string, a ...any) { where += " AND " + cond; args = append(args, a...) }
	if f.MachineID != "" {
		add("machine_id = ? AND machine_id <> ''", f.MachineID)
	}
	if f.WorkflowID != "" {
		add("workflow = ? AND workflow <> ''", f.WorkflowID)
	}
	if family, ok := strings.CutSuffix(f.Kind, "."); ok {
		add("kind >= ? AND kind < ?", f.Kind, family+"/") // "/" follows "." in ASCII
	} else if f.Kind != "" {
		add("kind = ?", f.Kind)
	}
	if !f.Since.IsZero() {
		add("time >= ?", micros(f.Since))
	}
	if f.Before > 0 {
		add("id < ?", f.Before)
	}
	args = append(args, pageSize(f.Limit, 100))
	err = db.read(ctx, func(tx *txn) error {
		all, err = scanEvents(tx, where, args)
		return err
	})
	return all, err
}

func scanEvents(tx *txn, where string, args []any) (all []app.Event, err error) {
	rows, err := tx.Query(`SELECT id, time, kind, level, machine_id, workflow, actor, message, coalesce(data, '')
		FROM events WHERE `+where+" ORDER BY id DESC LIMIT ?", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var e app.Event
		var at int64
		var data string
		if err := rows.Scan(&e.ID, &at, &e.Kind, &e.Level, &e.MachineID, &e.Workflow, &e.Actor, &e.Message, &data); err != nil {
			return nil, err
		}
		e.Time, e.Data = fromMicros(at), rawOrNil(data)
		all = append(all, e)
	}
	return all, rows.Err()
}
