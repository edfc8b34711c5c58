package store

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/better-compute/bcd/app"
)

// applicationID marks a file as bcd's in the SQLite header: the bytes "bcd1".
const applicationID = 0x62636431

const fileHeader = "SQLite format 3\x00"

// createPrivate makes an empty file of mode 0600 unless it is there, and takes the rights of others off one that is. The
// files SQLite puts beside it take over its mode.
func createPrivate(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return app.Errorf(app.InvalidConfig, "store-no-directory", "the directory of the database %s does not exist", path).
			Do("create it, owned by the account bcd runs as")
	case errors.Is(err, fs.ErrPermission):
		return app.Errorf(app.InvalidConfig, "store-no-permission", "the database %s may not be opened for writing", path).
			Do("give it to the account bcd runs as")
	case err != nil:
		return fmt.Errorf("opening database file %q: %w", path, err)
	}
	defer f.Close()
	if st, err := f.Stat(); err == nil && st.Mode().Perm()&0o077 != 0 {
		if err := f.Chmod(0o600); err != nil {
			return fmt.Errorf("taking the rights of others off %q: %w", path, err)
		}
	}
	return nil
}

// lockFile takes an advisory lock that dies with the process: two engines on one database would run steps twice.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, app.Errorf(app.InvalidConfig, "store-no-directory", "the directory of %s does not exist", path).
			Do("create it, owned by the account bcd runs as")
	}
	if err != nil {
		return nil, fmt.Errorf("opening lock file %q: %w", path, err)
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder, _ := io.ReadAll(io.LimitReader(f, 20))
		f.Close()
		return nil, app.Errorf(app.Conflict, "store-in-use", "the database is open in another process (pid %s)",
			strings.TrimSpace(string(holder))).Do("stop that bcd first, or talk to it through its API")
	}
	if err := f.Truncate(0); err == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0) // for people only; the lock is what counts
	}
	return f, nil
}

// inspect refuses what is not a database of ours, before anything is written to it. An empty file is fine.
func inspect(ctx context.Context, path string) error {
	empty, err := checkHeader(path)
	if err != nil || empty {
		return err
	}
	db, err := sql.Open("sqlite", dsn(path, map[string][]string{"_busy_timeout": {"10000"}, "_query_only": {"1"}}))
	if err != nil {
		return fmt.Errorf("opening database %q: %w", path, err)
	}
	defer db.Close()
	return inspectSchema(ctx, db, path)
}

func checkHeader(path string) (empty bool, err error) {
	f, err := os.Open(path)
	if err != nil {
		return false, fmt.Errorf("opening database file %q: %w", path, err)
	}
	defer f.Close()
	head := make([]byte, len(fileHeader))
	n, err := io.ReadFull(f, head)
	if n == 0 && errors.Is(err, io.EOF) {
		return true, nil
	}
	if string(head) != fileHeader {
		return false, app.Errorf(app.InvalidConfig, "store-not-a-database", "%s is not a database of bcd", path).
			Do("name another path, or restore a backup")
	}
	return false, nil
}

func inspectSchema(ctx context.Context, db *sql.DB, path string) error {
	var id, tables int64
	if err := db.QueryRowContext(ctx, "PRAGMA application_id").Scan(&id); err != nil {
		return fmt.Errorf("reading the header of %q: %w", path, err)
	}
	if err := db.QueryRowContext(ctx, "SELECT count(*) FROM sqlite_master").Scan(&tables); err != nil {
		return fmt.Errorf("reading the schema of %q: %w", path, err)
	}
	if tables == 0 {
		return nil
	}
	if id != applicationID {
		return app.Errorf(app.InvalidConfig, "store-foreign", "%s is a database of another program", path).
			Do("name another path")
	}
	has, err := schemaVersion(ctx, db)
	if err != nil {
		return fmt.Errorf("reading the schema version of %q: %w", path, err)
	}
	if known := knownVersion(); has > known {
		return app.Errorf(app.InvalidConfig, "store-newer",
			"%s was written by a newer bcd: its schema is %d, this build knows %d", path, has, known).
			Do("run the newer bcd, or restore a backup made by this one")
	}
	return nil
}

// syncDir makes a rename in the directory of path durable.
func syncDir(path string) error {
	d, err := os.Open(filepath.Dir(path))
	if err != nil {
		return fmt.Errorf("opening directory of %q: %w", path, err)
	}
	return errors.Join(d.Sync(), d.Close())
}
