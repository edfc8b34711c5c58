package store

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"
	"log/slog"
	"strconv"
	"strings"

	"github.com/pressly/goose/v3"
)

//go:embed migrations/*.sql
var migrations embed.FS

// migrate brings the schema up to date and marks the file as ours. Each migration is one transaction: a crash in between
// leaves the schema at a version.
func migrate(ctx context.Context, db *sql.DB, log *slog.Logger) error {
	dir, err := fs.Sub(migrations, "migrations")
	if err != nil {
		return fmt.Errorf("opening the embedded migrations: %w", err)
	}
	if _, err := db.ExecContext(ctx, "PRAGMA application_id = "+strconv.Itoa(applicationID)); err != nil {
		return fmt.Errorf("marking the database: %w", err)
	}
	p, err := goose.NewProvider(goose.DialectSQLite3, db, dir)
	if err != nil {
		return fmt.Errorf("reading the migrations: %w", err)
	}
	done, err := p.Up(ctx)
	for _, m := range done {
		log.Info("database migrated", "schema", m.Source.Version, "took", m.Duration)
	}
	if err != nil {
		return fmt.Errorf("migrating the database: %w", err)
	}
	return nil
}

// knownVersion is the newest schema this build can work with.
func knownVersion() int64 {
	entries, _ := migrations.ReadDir("migrations") // embedded: cannot fail
	var newest int64
	for _, e := range entries {
		number, _, _ := strings.Cut(e.Name(), "_")
		if v, err := strconv.ParseInt(number, 10, 64); err == nil && v > newest {
			newest = v
		}
	}
	return newest
}

func schemaVersion(ctx context.Context, db *sql.DB) (int64, error) {
	var v int64
	err := db.QueryRowContext(ctx, "SELECT coalesce(max(version_id), 0) FROM goose_db_version WHERE is_applied").Scan(&v)
	return v, err
}
