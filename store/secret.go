package store

import (
	"context"

	"github.com/better-compute/bcd/app"
)

// PutSecret creates or replaces a sealed secret; Created stays.
func (db *DB) PutSecret(ctx context.Context, s *app.SealedSecret) error {
	if s.Name == "" || len(s.Sealed) == 0 {
		return app.Invalid("name", "a secret needs a name and a sealed value")
	}
	return db.write(ctx, func(tx *txn) error {
		now := db.now()
		if s.Updated.IsZero() {
			s.Updated = now
		}
		if s.Created.IsZero() {
			s.Created = now
		}
		_, err := tx.Exec(`INSERT INTO secrets (name, sealed, created, updated) VALUES (?, ?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET sealed = excluded.sealed, updated = excluded.updated`,
			s.Name, s.Sealed, micros(s.Created), micros(s.Updated))
		return err
	})
}

// Secret finds a sealed secret by its name.
func (db *DB) Secret(ctx context.Context, name string) (*app.SealedSecret, error) {
	s := app.SealedSecret{Name: name}
	err := db.read(ctx, func(tx *txn) error {
		var created, updated int64
		err := tx.QueryRow("SELECT sealed, created, updated FROM secrets WHERE name = ?", name).Scan(&s.Sealed, &created, &updated)
		s.Created, s.Updated = fromMicros(created), fromMicros(updated)
		return notFound(err, "secret", name)
	})
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// ListSecrets gives all secrets by name, without their values.
func (db *DB) ListSecrets(ctx context.Context) (all []app.SealedSecret, err error) {
	err = db.read(ctx, func(tx *txn) error {
		rows, err := tx.Query("SELECT name, created, updated FROM secrets ORDER BY name")
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var s app.SealedSecret
			var created, updated int64
			if err := rows.Scan(&s.Name, &created, &updated); err != nil {
				return err
			}
			s.Created, s.Updated = fromMicros(created), fromMicros(updated)
			all = append(all, s)
		}
		return rows.Err()
	})
	return all, err
}

// DeleteSecret removes a secret.
func (db *DB) DeleteSecret(ctx context.Context, name string) error {
	return db.write(ctx, func(tx *txn) error {
		return removed(tx, "secret", name, "DELETE FROM secrets WHERE name = ?", name)
	})
}
