package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"syscall"

	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"

	"github.com/better-compute/bcd/app"
)

// mapped turns what SQLite says into an error a person can act on. An *app.Error and a context's end pass as they are;
// anything else stays, and shows as internal.
func mapped(err error) error {
	var se *sqlite.Error
	if err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	if _, ok := app.AsError(err); ok {
		return err
	}
	if errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) {
		return full(err)
	}
	if errors.Is(err, sql.ErrConnDone) || strings.Contains(err.Error(), "sql: database is closed") {
		return app.Errorf(app.Unavailable, "store-closed", "bcd is shutting down: %w", err).Retryable()
	}
	if !errors.As(err, &se) {
		return err
	}
	switch se.Code() & 0xff {
	case sqlite3.SQLITE_FULL:
		return full(err)
	case sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED:
		return app.Errorf(app.Unavailable, "store-busy", "the database is locked by another process: %w", err).
			Do("close other programs that have it open").Retryable()
	case sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB:
		return app.Errorf(app.Unavailable, "store-damaged", "the database file is damaged: %w", err).
			Do("stop bcd, keep the file for inspection and restore the last backup")
	case sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM:
		return app.Errorf(app.Unavailable, "store-not-writable", "the database cannot be written: %w", err).
			Do("check the owner and mode of the file and its directory, and whether the file system is read-only")
	case sqlite3.SQLITE_IOERR:
		return app.Errorf(app.Unavailable, "store-io", "the disk of the database answers with an error: %w", err).
			Do("check the disk, then restart bcd")
	case sqlite3.SQLITE_TOOBIG:
		return app.Errorf(app.TooLarge, "store-too-large", "a value is too large to keep: %w", err)
	}
	return err
}

func full(err error) error {
	return app.Errorf(app.StorageFull, "store-full", "the disk of the database is full; nothing was changed: %w", err).
		Do("free space on it, then try again").Retryable()
}

// notFound turns an empty result into the NotFound error of the noun.
func notFound(err error, noun, id string) error {
	if errors.Is(err, sql.ErrNoRows) {
		return app.Missing(noun, id)
	}
	return err
}
