package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"sync"

	"github.com/better-compute/bcd/app"
)

// recordsID marks the recorder's file in the SQLite header: the bytes "bcdr". recordsSchema is its only version: a file of
// another one is set aside and begun anew.
const (
	recordsID     = 0x62636472
	recordsSchema = 1
	damagedSuffix = ".damaged"
)

const recordsDDL = `
CREATE TABLE records (
	id INTEGER PRIMARY KEY AUTOINCREMENT,
	subject TEXT NOT NULL, -- machine id, or "mac:" and the address
	lane INTEGER NOT NULL,
	time INTEGER NOT NULL, -- µs
	kind TEXT NOT NULL, level TEXT NOT NULL, mac TEXT NOT NULL, workflow TEXT NOT NULL, actor TEXT NOT NULL, message TEXT NOT NULL,
	data TEXT
);
CREATE INDEX records_subject ON records (subject, id, lane);
CREATE INDEX records_nobody ON records (id) WHERE lane = 3;`

// Records is the flight recorder's file. It is not worth what the database is: a crash of the host may cost its last
// second, and a damaged one is set aside.
type Records struct {
	path   string
	aside  error // why an earlier file was set aside; nil: none was
	writer *sql.DB
	reader *sql.DB
	once   sync.Once

	mu     sync.Mutex // one write at a time; protects what follows
	counts map[laneKey]int
	total  int
	nobody int
	// MaxRecords, MaxNobodyRecords and MaxRecordPages, but in tests.
	max, maxNobody int
	pages          int64
}

var _ app.RecordStore = (*Records)(nil)

// OpenRecords opens the recorder's file and creates it, mode 0600, when there is none. What is not a readable file of this
// version is set aside under the same name with ".damaged", in place of an earlier one, and so is any file with anew.
func OpenRecords(ctx context.Context, path string, anew bool) (*Records, error) {
	var why error
	if !anew {
		r, err := openRecords(ctx, path)
		if err == nil || !damaged(err) {
			return r, mapped(err)
		}
		why = err
	}
	if err := setAside(path); err != nil {
		return nil, mapped(err)
	}
	r, err := openRecords(ctx, path)
	if err != nil {
		return nil, mapped(err)
	}
	r.aside = why
	return r, nil
}

// Aside says why the file that was there was set aside; nil: it was not.
func (r *Records) Aside() error { return r.aside }

var errOtherFile = errors.New("the file is not a flight recorder's of this version")

// damaged reports what beginning anew mends.
func damaged(err error) bool {
	e, ok := app.AsError(mapped(err))
	return errors.Is(err, errOtherFile) || ok && e.Reason == "store-damaged" || ok && e.Reason == "store-not-a-database"
}

func setAside(path string) error {
	err := os.Rename(path, path+damagedSuffix)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("setting the flight recorder's file aside: %w", err)
	}
	for _, s := range []string{"-wal", "-shm"} {
		if err := os.Remove(path + s); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("setting the flight recorder's file aside: %w", err)
		}
	}
	return nil
}

func openRecords(ctx context.Context, path string) (_ *Records, err error) {
	r := &Records{path: path, max: MaxRecords, maxNobody: MaxNobodyRecords, pages: MaxRecordPages}
	defer func() {
		if err != nil {
			err = errors.Join(err, r.Close())
		}
	}()
	if err := createPrivate(path); err != nil {
		return nil, err
	}
	if _, err := checkHeader(path); err != nil {
		return nil, err
	}
	if r.writer, err = sql.Open("sqlite", recordsDSN(path)); err != nil {
		return nil, fmt.Errorf("opening %q: %w", path, err)
	}
	r.writer.SetMaxOpenConns(1)
	if err := r.prepare(ctx); err != nil {
		return nil, err
	}
	if r.reader, err = sql.Open("sqlite", readDSN(path)); err != nil {
		return nil, fmt.Errorf("opening %q for reading: %w", path, err)
	}
	r.reader.SetMaxOpenConns(readers)
	return r, r.count(ctx)
}

// recordsDSN gives up the flush to disk of each transaction: WAL keeps the file whole without it.
func recordsDSN(path string) string {
	return dsn(path, url.Values{
		"_busy_timeout": {"5000"},
		"_txlock":       {"immediate"},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"NORMAL"},
		"_dqs":          {"0"},
		"_pragma":       {"cache_size(-4096)", "temp_store(memory)", "journal_size_limit(16777216)"},
	})
}

// prepare makes the schema of a new file and refuses another's.
func (r *Records) prepare(ctx context.Context) error {
	var id, version, tables int64
	for query, to := range map[string]*int64{"PRAGMA application_id": &id, "PRAGMA user_version": &version, "SELECT count(*) FROM sqlite_master": &tables} {
		if err := r.writer.QueryRowContext(ctx, query).Scan(to); err != nil {
			return fmt.Errorf("reading %q: %w", r.path, err)
		}
	}
	if tables > 0 {
		if id != recordsID || version != recordsSchema {
			return errOtherFile
		}
		return nil
	}
	for _, q := range []string{fmt.Sprintf("PRAGMA application_id = %d", recordsID), recordsDDL, fmt.Sprintf("PRAGMA user_version = %d", recordsSchema)} {
		if _, err := r.writer.ExecContext(ctx, q); err != nil {
			return fmt.Errorf("making %q: %w", r.path, err)
		}
	}
	return nil
}

// count learns how much there is of everything.
func (r *Records) count(ctx context.Context) error {
	r.counts, r.total, r.nobody = map[laneKey]int{}, 0, 0
	rows, err := r.writer.QueryContext(ctx, "SELECT subject, lane, count(*) FROM records GROUP BY subject, lane")
	if err != nil {
		return fmt.Errorf("counting records: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var k laneKey
		var n int
		if err := rows.Scan(&k.subject, &k.lane, &n); err != nil {
			return fmt.Errorf("counting records: %w", err)
		}
		r.counted(k, n)
	}
	return rows.Err()
}

// counted adds n, which may be negative, to the counts. mu must be held, but while opening.
func (r *Records) counted(k laneKey, n int) {
	r.total += n
	if k.lane == laneNobody {
		r.nobody += n
	}
	if r.counts[k] += n; r.counts[k] <= 0 {
		delete(r.counts, k)
	}
}

// Close ends all connections.
func (r *Records) Close() (err error) {
	r.once.Do(func() {
		for _, c := range []*sql.DB{r.reader, r.writer} {
			if c != nil {
				err = errors.Join(err, c.Close())
			}
		}
	})
	return err
}
