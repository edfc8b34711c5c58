package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/better-compute/bcd/app"
)

// Setting gives the value of a key, "" when it was never set.
func (db *DB) Setting(ctx context.Context, key string) (v string, err error) {
	err = db.read(ctx, func(tx *txn) error {
		err := tx.QueryRow("SELECT value FROM settings WHERE key = ?", key).Scan(&v)
		if errors.Is(err, sql.ErrNoRows) {
			return nil
		}
		return err
	})
	return v, err
}

// SetSetting sets the value of a key.
func (db *DB) SetSetting(ctx context.Context, key, value string) error {
	if key == "" {
		return app.Invalid("key", "a setting needs a key")
	}
	return db.exec(ctx, "INSERT INTO settings (key, value) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET value = excluded.value", key, value)
}
