package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// maxBatch is how many writes share one transaction.
const maxBatch = 128

// slowCommit is how long a transaction may take before the log says so.
const slowCommit = 2 * time.Second

// group merges writes of the same moment into one transaction. The first caller to find no leader becomes it and commits
// for all that wait; mu protects the fields.
type group struct {
	mu      sync.Mutex
	waiting []*write
	leading bool
	batches atomic.Int64 // transactions begun, for tests
}

// write is one caller's part of a batch. do is called at most once.
type write struct {
	ctx      context.Context
	do       func(tx *txn) error
	err      error
	panicked any
	done     chan struct{} // closed when err is final
	lead     chan struct{} // closed when this caller is to lead the next batch
}

// write runs do in a write transaction and returns when its effect is durable, or was undone. A failure of do undoes its
// own changes only. The caller's context is looked at before do starts, never after.
func (db *DB) write(ctx context.Context, do func(tx *txn) error) error {
	w := &write{ctx: ctx, do: do, done: make(chan struct{}), lead: make(chan struct{})}
	g := &db.group
	g.mu.Lock()
	g.waiting = append(g.waiting, w)
	if !g.leading {
		g.leading = true
		close(w.lead)
	}
	g.mu.Unlock()

	select {
	case <-w.done:
	case <-w.lead:
		db.lead()
		<-w.done
	}
	if w.panicked != nil {
		panic(w.panicked)
	}
	return mapped(w.err)
}

// lead commits one batch, which holds its caller's write, and passes the lead on.
func (db *DB) lead() {
	g := &db.group
	g.mu.Lock()
	n := min(len(g.waiting), maxBatch)
	batch := g.waiting[:n:n]
	g.waiting = g.waiting[n:]
	g.mu.Unlock()

	begun := time.Now()
	err := db.commit(batch)
	if took := time.Since(begun); took > slowCommit {
		db.log.Warn("the database's disk is slow", "took", took, "writes", len(batch))
	}
	if err != nil {
		for _, w := range batch {
			w.err = errors.Join(w.err, err)
		}
	}

	g.mu.Lock()
	if g.leading = len(g.waiting) > 0; g.leading {
		close(g.waiting[0].lead)
	}
	g.mu.Unlock()
	for _, w := range batch {
		close(w.done)
	}
}

// commit runs the batch. Its error means that nothing of the batch was kept.
func (db *DB) commit(batch []*write) error {
	db.group.batches.Add(1)
	tx, err := begin(context.Background(), db.writer, false) // what others wait for is not one caller's to cancel
	if err != nil {
		return fmt.Errorf("beginning a write: %w", err)
	}
	defer tx.rollback()
	kept := 0
	for _, w := range batch {
		if w.err = w.ctx.Err(); w.err != nil {
			continue
		}
		if err := w.run(tx, len(batch) > 1); err != nil {
			return err
		}
		if w.err == nil && w.panicked == nil {
			kept++
		}
	}
	if kept == 0 {
		return nil
	}
	if err := tx.tx.Commit(); err != nil {
		return fmt.Errorf("committing: %w", err)
	}
	if tx.macs {
		db.owners.forget()
	}
	return nil
}

// run calls do, in a savepoint when it shares the transaction. Its error means that the transaction is lost.
func (w *write) run(tx *txn, shared bool) error {
	if !shared {
		w.call(tx)
		return nil // an unsuccessful lone write is never committed
	}
	if _, err := tx.Exec("SAVEPOINT w"); err != nil {
		return fmt.Errorf("beginning a part of a write: %w", err)
	}
	w.call(tx)
	end := "RELEASE w"
	if w.err != nil || w.panicked != nil {
		end = "ROLLBACK TO w; RELEASE w"
	}
	if _, err := tx.Exec(end); err != nil {
		return fmt.Errorf("ending a part of a write: %w", err) // a full disk ends the whole transaction
	}
	return nil
}

func (w *write) call(tx *txn) {
	defer func() { w.panicked = recover() }()
	w.err = w.do(tx)
}

// read runs do in a read transaction: all it sees is of one moment. It ends early with ctx.
func (db *DB) read(ctx context.Context, do func(tx *txn) error) error {
	tx, err := begin(ctx, db.reader, true)
	if err != nil {
		return mapped(err)
	}
	defer tx.rollback()
	if err = do(tx); err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return mapped(err)
}

// txn is a transaction whose statements end with its context.
type txn struct {
	ctx  context.Context
	tx   *sql.Tx
	macs bool // it changed which machine has which MAC
}

func begin(ctx context.Context, db *sql.DB, readOnly bool) (*txn, error) {
	tx, err := db.BeginTx(ctx, &sql.TxOptions{ReadOnly: readOnly})
	return &txn{ctx: ctx, tx: tx}, err
}

// Exec runs a statement that gives no rows.
func (t *txn) Exec(query string, args ...any) (sql.Result, error) {
	return t.tx.ExecContext(t.ctx, query, args...)
}

// Query runs a statement that gives rows.
func (t *txn) Query(query string, args ...any) (*sql.Rows, error) {
	return t.tx.QueryContext(t.ctx, query, args...)
}

// QueryRow runs a statement that gives one row.
func (t *txn) QueryRow(query string, args ...any) *sql.Row {
	return t.tx.QueryRowContext(t.ctx, query, args...)
}

// rollback undoes what was not committed; its error could change nothing.
func (t *txn) rollback() { _ = t.tx.Rollback() }
