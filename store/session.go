package store

import (
	"context"

	"github.com/better-compute/bcd/app"
)

// PutSession creates or renews a login. Logins that have expired by now are removed on the way.
func (db *DB) PutSession(ctx context.Context, s *app.Session) error {
	if s.ID == "" {
		return app.Invalid("id", "a session needs an id")
	}
	return db.write(ctx, func(tx *txn) error {
		if err := userExists(tx, s.UserID); err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM sessions WHERE expires < ? AND id <> ?", micros(db.now()), s.ID); err != nil {
			return err
		}
		_, err := tx.Exec(`INSERT INTO sessions (id, user_id, created, seen, expires) VALUES (?, ?, ?, ?, ?)
			ON CONFLICT (id) DO UPDATE SET seen = excluded.seen, expires = excluded.expires`,
			s.ID, s.UserID, micros(s.Created), micros(s.Seen), micros(s.Expires))
		return err
	})
}

// Session finds a login, an expired one too: its caller judges.
func (db *DB) Session(ctx context.Context, id string) (*app.Session, error) {
	s := app.Session{ID: id}
	err := db.read(ctx, func(tx *txn) error {
		var created, seen, expires int64
		err := tx.QueryRow("SELECT user_id, created, seen, expires FROM sessions WHERE id = ?", id).
			Scan(&s.UserID, &created, &seen, &expires)
		s.Created, s.Seen, s.Expires = fromMicros(created), fromMicros(seen), fromMicros(expires)
		return notFound(err, "session", id)
	})
	if err != nil {
		return nil, err
	}
	return &s, nil
}

// DeleteSession ends a login; ending none is no error.
func (db *DB) DeleteSession(ctx context.Context, id string) error {
	return db.exec(ctx, "DELETE FROM sessions WHERE id = ?", id)
}

// DeleteUserSessions ends all logins of a user.
func (db *DB) DeleteUserSessions(ctx context.Context, userID string) error {
	return db.exec(ctx, "DELETE FROM sessions WHERE user_id = ?", userID)
}

// exec is a write of one statement.
func (db *DB) exec(ctx context.Context, query string, args ...any) error {
	return db.write(ctx, func(tx *txn) error { _, err := tx.Exec(query, args...); return err })
}
