package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// How many records the flight recorder keeps. The lanes of a machine are bounded apart, so that a console that prints without
// end, or a network that asks without end, pushes out none of the others.
const (
	MaxConsoleRecords = 4_000   // of one machine
	MaxNetworkRecords = 2_000   // of one machine
	MaxOtherRecords   = 2_000   // of one machine
	MaxPortRecords    = 200     // of one MAC address that is nobody's
	MaxNobodyRecords  = 20_000  // of all those addresses
	MaxRecords        = 400_000 // in all
	// MaxRecordPages bounds the file: 512 MiB of 4 KiB pages.
	MaxRecordPages = 131_072
)

// lane says which bound a record counts under.
type lane int

const (
	laneOther lane = iota
	laneConsole
	laneNetwork
	laneNobody
)

// laneKey is a lane of one subject.
type laneKey struct {
	subject string
	lane    lane
}

func (k laneKey) limit() int {
	return [...]int{MaxOtherRecords, MaxConsoleRecords, MaxNetworkRecords, MaxPortRecords}[k.lane]
}

func keyOf(r *app.Record) laneKey {
	if r.MachineID == "" {
		return laneKey{portSubject(r.MAC), laneNobody}
	}
	family, _, _ := strings.Cut(r.Kind, ".")
	switch family {
	case "console":
		return laneKey{r.MachineID, laneConsole}
	case "dhcp", "tftp", "http", "ipxe", "ra", "sntp", "network":
		return laneKey{r.MachineID, laneNetwork}
	}
	return laneKey{r.MachineID, laneOther}
}

func portSubject(mac app.MAC) string { return "mac:" + string(mac) }

// write runs do in a transaction. Counts are read again when it failed.
func (r *Records) write(ctx context.Context, do func(tx *txn) error) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	tx, err := begin(ctx, r.writer, false)
	if err != nil {
		return mapped(err)
	}
	defer tx.rollback()
	if err = do(tx); err == nil {
		err = tx.tx.Commit()
	}
	if err != nil {
		tx.rollback()
		if cerr := r.count(context.WithoutCancel(ctx)); cerr != nil {
			err = errors.Join(err, cerr)
		}
	}
	return mapped(err)
}

// AddRecords appends a batch in one transaction and drops what is over a bound.
func (r *Records) AddRecords(ctx context.Context, batch []app.Record) error {
	if len(batch) == 0 {
		return nil
	}
	return r.write(ctx, func(tx *txn) error {
		add, err := tx.tx.PrepareContext(ctx, `INSERT INTO records (subject, lane, time, kind, level, mac, workflow, actor, message, data)
			VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)`)
		if err != nil {
			return err
		}
		defer add.Close()
		touched := map[laneKey]bool{}
		for i := range batch {
			x, k := &batch[i], keyOf(&batch[i])
			res, err := add.ExecContext(ctx, k.subject, k.lane, micros(x.Time), x.Kind, x.Level, string(x.MAC), x.Workflow, x.Actor, x.Message, textOrNil(x.Data))
			if err != nil {
				return err
			}
			if x.ID, err = res.LastInsertId(); err != nil {
				return err
			}
			r.counted(k, 1)
			touched[k] = true
		}
		return r.bound(tx, touched)
	})
}

// bound drops the oldest of what is over its limit, and some more, so that it is not at each batch.
func (r *Records) bound(tx *txn, touched map[laneKey]bool) error {
	for k := range touched {
		if over := r.counts[k] - k.limit(); over > 0 {
			if err := r.drop(tx, "subject = ?2 AND lane = ?3", over+k.limit()/20, k.subject, k.lane); err != nil {
				return err
			}
		}
	}
	if over := r.nobody - r.maxNobody; over > 0 {
		if err := r.drop(tx, "lane = 3 AND ?2 = ?3", over+r.maxNobody/20, 0, 0); err != nil {
			return err
		}
	}
	over := r.total - r.max
	var used int64
	if err := tx.QueryRow("SELECT (SELECT page_count FROM pragma_page_count) - (SELECT freelist_count FROM pragma_freelist_count)").Scan(&used); err != nil {
		return err
	}
	if used > r.pages {
		over = max(over, r.total/10)
	}
	if over > 0 {
		return r.drop(tx, "?2 = ?3", over+r.total/100, 0, 0)
	}
	return nil
}

// drop deletes the n oldest records of those that where selects.
func (r *Records) drop(tx *txn, where string, n int, a, b any) error {
	var last int64
	err := tx.QueryRow("SELECT id FROM records WHERE "+where+" ORDER BY id LIMIT 1 OFFSET ?1", n-1, a, b).Scan(&last)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.remove(tx, where+" AND id <= ?1", last, a, b)
}

// remove deletes what where selects and takes it off the counts.
func (r *Records) remove(tx *txn, where string, args ...any) error {
	rows, err := tx.Query("SELECT subject, lane, count(*) FROM records WHERE "+where+" GROUP BY subject, lane", args...)
	if err != nil {
		return err
	}
	gone := map[laneKey]int{}
	for rows.Next() {
		var k laneKey
		var n int
		if err := rows.Scan(&k.subject, &k.lane, &n); err != nil {
			return errors.Join(err, rows.Close())
		}
		gone[k] = n
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		return err
	}
	if _, err := tx.Exec("DELETE FROM records WHERE "+where, args...); err != nil {
		return err
	}
	for k, n := range gone {
		r.counted(k, -n)
	}
	return nil
}

// ClaimRecords gives a machine what was seen of an address while it was nobody's. Its kinds decide the lane from then on.
func (r *Records) ClaimRecords(ctx context.Context, mac app.MAC, machineID string) error {
	return r.write(ctx, func(tx *txn) error {
		n := r.counts[laneKey{portSubject(mac), laneNobody}]
		if n == 0 {
			return nil
		}
		_, err := tx.Exec("UPDATE records SET subject = ?, lane = ? WHERE subject = ? AND lane = ?", machineID, laneNetwork, portSubject(mac), laneNobody)
		if err != nil {
			return err
		}
		r.counted(laneKey{portSubject(mac), laneNobody}, -n)
		k := laneKey{machineID, laneNetwork}
		r.counted(k, n)
		return r.bound(tx, map[laneKey]bool{k: true})
	})
}

// ForgetRecords deletes all of a machine.
func (r *Records) ForgetRecords(ctx context.Context, machineID string) error {
	return r.write(ctx, func(tx *txn) error { return r.remove(tx, "subject = ?", machineID) })
}

// pruneChunk bounds one transaction of pruning, so that records that come in do not wait.
const pruneChunk = 5_000

// PruneRecords deletes what is older than a time, in the order it was written, and says how much that was.
func (r *Records) PruneRecords(ctx context.Context, before time.Time) (n int64, err error) {
	for {
		had := 0
		err := r.write(ctx, func(tx *txn) error {
			var oldest, young int64
			err := tx.QueryRow("SELECT coalesce(min(id), 0) FROM records").Scan(&oldest)
			if err != nil || oldest == 0 {
				return err
			}
			err = tx.QueryRow(`SELECT coalesce((SELECT id FROM records WHERE id < ?1 + ?2 AND time >= ?3 ORDER BY id LIMIT 1), ?1 + ?2)`,
				oldest, pruneChunk, micros(before)).Scan(&young)
			if err != nil {
				return err
			}
			had = r.total
			err = r.remove(tx, "id < ?", young)
			had -= r.total
			return err
		})
		n += int64(had)
		if err != nil || had == 0 {
			return n, err
		}
	}
}

// ListRecords gives records, newest first.
func (r *Records) ListRecords(ctx context.Context, f app.RecordFilter) (all []app.Record, err error) {
	subject := f.MachineID
	if subject == "" {
		subject = portSubject(f.MAC)
	}
	where, args := "subject = ?", []any{subject}
	add := func(cond string, a ...any) { where += " AND " + cond; args = append(args, a...) }
	if cond, a := anyKind(f.Kinds); cond != "" {
		add(cond, a...)
	}
	if !f.Since.IsZero() {
		add("time >= ?", micros(f.Since))
	}
	if f.Before > 0 {
		add("id < ?", f.Before)
	}
	if f.After > 0 {
		add("id > ?", f.After)
	}
	args = append(args, pageSize(f.Limit, 200))
	tx, err := begin(ctx, r.reader, true)
	if err != nil {
		return nil, mapped(err)
	}
	defer tx.rollback()
	all, err = scanRecords(tx, f, where, args)
	return all, mapped(err)
}

// anyKind is the condition that a record is of one of some kinds or families.
func anyKind(kinds []string) (string, []any) {
	var conds []string
	var args []any
	for _, k := range kinds {
		if family, ok := strings.CutSuffix(k, "."); ok {
			conds, args = append(conds, "kind >= ? AND kind < ?"), append(args, k, family+"/") // "/" follows "." in ASCII
		} else {
			conds, args = append(conds, "kind = ?"), append(args, k)
		}
	}
	if len(conds) == 0 {
		return "", nil
	}
	return "(" + strings.Join(conds, " OR ") + ")", args
}

func scanRecords(tx *txn, f app.RecordFilter, where string, args []any) (all []app.Record, err error) {
	rows, err := tx.Query(`SELECT id, time, kind, level, mac, workflow, actor, message, coalesce(data, '') FROM records
		WHERE `+where+" ORDER BY id DESC LIMIT ?", args...)
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		x := app.Record{MachineID: f.MachineID}
		var at int64
		var mac, data string
		if err := rows.Scan(&x.ID, &at, &x.Kind, &x.Level, &mac, &x.Workflow, &x.Actor, &x.Message, &data); err != nil {
			return nil, err
		}
		x.Time, x.MAC, x.Data = fromMicros(at), app.MAC(mac), rawOrNil(data)
		all = append(all, x)
	}
	return all, rows.Err()
}
