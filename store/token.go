package store

import (
	"context"
	"errors"
	"time"

	"github.com/better-compute/bcd/app"
)

// CreateToken adds an API token of a user.
func (db *DB) CreateToken(ctx context.Context, t *app.APIToken) error {
	if t.ID == "" || t.Hash == "" {
		return app.Invalid("id", "a token needs an id and a hash")
	}
	return db.write(ctx, func(tx *txn) error {
		if err := userExists(tx, t.UserID); err != nil {
			return err
		}
		next := *t
		if next.Created.IsZero() {
			next.Created = db.now()
		}
		doc, err := encode(&next)
		if err != nil {
			return err
		}
		res, err := tx.Exec(`INSERT INTO tokens (id, user_id, hash, last_used, doc) VALUES (?, ?, ?, ?, ?) ON CONFLICT DO NOTHING`,
			next.ID, next.UserID, next.Hash, micros(next.LastUsed), doc)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, app.Errorf(app.Conflict, "token-exists", "there is a token with the id %s", next.ID))
		}
		*t = next
		return nil
	})
}

// TokenByHash finds a token by the hash of its value, an expired one too: its caller judges.
func (db *DB) TokenByHash(ctx context.Context, hash string) (*app.APIToken, error) {
	all, err := db.tokens(ctx, "hash = ?", hash)
	if err == nil && len(all) == 0 {
		err = app.Errorf(app.NotFound, "token-not-found", "there is no such token")
	}
	if err != nil {
		return nil, err
	}
	return &all[0], nil
}

// ListTokens gives the tokens of a user, of all users when userID is empty, oldest first.
func (db *DB) ListTokens(ctx context.Context, userID string) ([]app.APIToken, error) {
	return db.tokens(ctx, "(?1 = '' OR user_id = ?1)", userID)
}

func (db *DB) tokens(ctx context.Context, where string, args ...any) (all []app.APIToken, err error) {
	err = db.read(ctx, func(tx *txn) error {
		rows, err := tx.Query("SELECT doc, hash, last_used FROM tokens WHERE "+where+" ORDER BY rowid", args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		for rows.Next() {
			var doc, hash string
			var used int64
			if err := rows.Scan(&doc, &hash, &used); err != nil {
				return err
			}
			t, err := decode[app.APIToken](doc)
			if err != nil {
				return err
			}
			t.Hash, t.LastUsed = hash, fromMicros(used)
			all = append(all, *t)
		}
		return rows.Err()
	})
	return all, err
}

// DeleteToken revokes a token.
func (db *DB) DeleteToken(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *txn) error {
		return removed(tx, "token", id, "DELETE FROM tokens WHERE id = ?", id)
	})
}

// TouchToken records a token's last use; a token that is gone is no error.
func (db *DB) TouchToken(ctx context.Context, id string, at time.Time) error {
	return db.exec(ctx, "UPDATE tokens SET last_used = max(last_used, ?) WHERE id = ?", micros(at), id)
}
