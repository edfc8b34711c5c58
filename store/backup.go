package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/better-compute/bcd/app"
)

// Backup writes a copy of the database as of one moment to path: see BackupOf.
func (db *DB) Backup(ctx context.Context, path string) error { return BackupOf(ctx, db.path, path) }

// BackupOf writes a copy of a database as of one moment to path, with all that was committed before the call, whether or
// not a bcd has it open; that one goes on reading and writing. The copy is one file of mode 0600, checked before it gets
// its name. An existing file is refused.
func BackupOf(ctx context.Context, database, path string) (err error) {
	if _, err := os.Lstat(database); errors.Is(err, fs.ErrNotExist) {
		return app.Missing("database", database)
	}
	if _, err := os.Lstat(path); err == nil {
		return app.Errorf(app.Conflict, "backup-exists", "%s exists already", path).Do("name another file, or remove it")
	}
	tmp, err := privateTemp(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	if err := copyInto(ctx, database, tmp); err != nil {
		return err
	}
	if err := verify(ctx, tmp); err != nil {
		return err
	}
	return publish(tmp, path)
}

// copyInto reads through a connection of its own: those of the pool refuse every statement that writes anywhere.
func copyInto(ctx context.Context, from, to string) error {
	db, err := sql.Open("sqlite", dsn(from, map[string][]string{"mode": {"ro"}, "_busy_timeout": {"10000"}}))
	if err != nil {
		return fmt.Errorf("opening %q: %w", from, err)
	}
	defer db.Close()
	if _, err := db.ExecContext(ctx, "VACUUM INTO ?", to); err != nil { // takes an empty file as a new one
		return mapped(fmt.Errorf("copying the database to %q: %w", to, err))
	}
	return nil
}

// Restore puts a backup at path, where no database may be, after checking it. No bcd may run on path.
func Restore(ctx context.Context, backup, path string) (err error) {
	for _, p := range []string{path, path + "-wal", path + "-shm"} {
		if _, err := os.Lstat(p); err == nil {
			return app.Errorf(app.Conflict, "restore-exists", "%s exists already", p).
				Do("stop bcd and move the old database files away first")
		}
	}
	in, err := os.Open(backup)
	if errors.Is(err, fs.ErrNotExist) {
		return app.Missing("backup", backup)
	}
	if err != nil {
		return fmt.Errorf("opening backup %q: %w", backup, err)
	}
	defer in.Close()
	tmp, err := privateTemp(path)
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			_ = os.Remove(tmp)
		}
	}()
	out, err := os.OpenFile(tmp, os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("opening %q: %w", tmp, err)
	}
	_, err = io.Copy(out, in)
	if err = errors.Join(err, out.Close()); err != nil {
		return mapped(fmt.Errorf("copying backup %q: %w", backup, err))
	}
	if err := verify(ctx, tmp); err != nil {
		return err
	}
	return publish(tmp, path)
}

// Check reads the whole database and reports damage.
func (db *DB) Check(ctx context.Context) error { return integrity(ctx, db.reader) }

// privateTemp makes an empty file of mode 0600 in the directory of path.
func privateTemp(path string) (string, error) {
	tmp := path + ".part"
	f, err := os.OpenFile(tmp, os.O_RDWR|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return "", mapped(fmt.Errorf("making %q: %w", tmp, err))
	}
	return tmp, f.Close()
}

// verify refuses a file that is damaged or not a database this build can open.
func verify(ctx context.Context, path string) error {
	empty, err := checkHeader(path)
	if err != nil {
		return err
	}
	if empty {
		return app.Errorf(app.InvalidConfig, "store-not-a-database", "the file is empty")
	}
	db, err := sql.Open("sqlite", dsn(path, map[string][]string{"mode": {"ro"}, "immutable": {"1"}}))
	if err != nil {
		return fmt.Errorf("opening %q: %w", path, err)
	}
	defer db.Close()
	if err := inspectSchema(ctx, db, path); err != nil {
		return mapped(err)
	}
	return integrity(ctx, db)
}

func integrity(ctx context.Context, db *sql.DB) error {
	var verdict string
	if err := db.QueryRowContext(ctx, "PRAGMA integrity_check(1)").Scan(&verdict); err != nil {
		return mapped(fmt.Errorf("checking the database: %w", err))
	}
	if verdict != "ok" {
		return app.Errorf(app.Unavailable, "store-damaged", "the database is damaged: %s", verdict).
			Do("restore the last backup that is whole")
	}
	return nil
}

// publish makes a finished file durable and gives it its name.
func publish(tmp, path string) error {
	f, err := os.Open(tmp)
	if err != nil {
		return fmt.Errorf("opening %q: %w", tmp, err)
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return mapped(fmt.Errorf("writing %q: %w", tmp, err))
	}
	if err := os.Rename(tmp, path); err != nil {
		return fmt.Errorf("naming %q: %w", path, err)
	}
	return syncDir(path)
}
