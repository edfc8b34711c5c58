package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/workflow"
)

// readers is how many connections answer reads at the same time.
const readers = 4

// Config is what Open needs.
type Config struct {
	Path string           // of the database file; its directory must exist
	Log  *slog.Logger     // nil discards
	Now  func() time.Time // nil: time.Now
}

// DB is the open store. All its methods may be called from many goroutines. Functions passed to Update methods run
// inside the write transaction: they must be quick and must not call the store.
type DB struct {
	path   string
	log    *slog.Logger
	now    func() time.Time
	writer *sql.DB
	reader *sql.DB
	lock   *os.File
	group  group
	owners owners
	once   sync.Once

	maxEvents    int // MaxEvents, but in tests
	maxQuestions int // MaxPortQuestions, but in tests
}

var (
	_ app.MachineStore      = (*DB)(nil)
	_ app.ImageStore        = (*DB)(nil)
	_ app.NetworkStore      = (*DB)(nil)
	_ app.AccessStore       = (*DB)(nil)
	_ app.SecretStore       = (*DB)(nil)
	_ app.EventStore        = (*DB)(nil)
	_ app.ProfileStore      = (*DB)(nil)
	_ app.SettingStore      = (*DB)(nil)
	_ app.PortQuestionStore = (*DB)(nil)
	_ workflow.Store        = (*DB)(nil)
)

// Open opens the database, creates it with mode 0600 when there is none, and brings its schema up to date. It refuses a
// file of another program, one written by a newer bcd, and one that another process has open.
func Open(ctx context.Context, c Config) (*DB, error) {
	db := &DB{path: c.Path, log: c.Log, now: c.Now, maxEvents: MaxEvents, maxQuestions: MaxPortQuestions}
	if db.log == nil {
		db.log = slog.New(slog.DiscardHandler)
	}
	if db.now == nil {
		db.now = time.Now
	}
	if err := db.open(ctx); err != nil {
		return nil, errors.Join(mapped(err), db.Close())
	}
	return db, nil
}

func (db *DB) open(ctx context.Context) (err error) {
	if db.lock, err = lockFile(db.path + ".lock"); err != nil {
		return err
	}
	if err := createPrivate(db.path); err != nil {
		return err
	}
	if err := inspect(ctx, db.path); err != nil {
		return err
	}
	if db.writer, err = sql.Open("sqlite", writeDSN(db.path)); err != nil {
		return fmt.Errorf("opening database %q: %w", db.path, err)
	}
	db.writer.SetMaxOpenConns(1)
	if err := migrate(ctx, db.writer, db.log); err != nil {
		return err
	}
	if db.reader, err = sql.Open("sqlite", readDSN(db.path)); err != nil {
		return fmt.Errorf("opening database %q for reading: %w", db.path, err)
	}
	db.reader.SetMaxOpenConns(readers)
	db.reader.SetMaxIdleConns(readers)
	return db.reader.PingContext(ctx)
}

// Close ends all connections, folds the write-ahead log into the file and lets another process open it.
func (db *DB) Close() error {
	var errs []error
	db.once.Do(func() {
		for _, c := range []*sql.DB{db.reader, db.writer} { // the writer last: it checkpoints
			if c != nil {
				errs = append(errs, c.Close())
			}
		}
		if db.lock != nil {
			errs = append(errs, db.lock.Close())
		}
	})
	return errors.Join(errs...)
}

// The pragmas stand in the DSN because it is applied to every connection the pool opens; one set by a statement is lost
// with the connection it was said on. busy_timeout comes first, so that the ones after it wait for a lock too.
func writeDSN(path string) string {
	return dsn(path, url.Values{
		"_busy_timeout": {"10000"},
		"_txlock":       {"immediate"},
		"_journal_mode": {"WAL"},
		"_synchronous":  {"FULL"},
		"_foreign_keys": {"1"},
		"_dqs":          {"0"},
		"_pragma":       {"cache_size(-32768)", "temp_store(memory)", "journal_size_limit(67108864)"},
	})
}

func readDSN(path string) string {
	return dsn(path, url.Values{
		"mode":          {"ro"},
		"_busy_timeout": {"10000"},
		"_foreign_keys": {"1"},
		"_query_only":   {"1"},
		"_dqs":          {"0"},
		"_pragma":       {"cache_size(-16384)", "temp_store(memory)"},
	})
}

func dsn(path string, q url.Values) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return (&url.URL{Scheme: "file", Path: path, RawQuery: q.Encode()}).String()
}
