package store

import (
	"context"
	"database/sql"
	"errors"
	"strings"

	"github.com/better-compute/bcd/app"
)

// CountUsers tells how many users there are; none means that first setup is due.
func (db *DB) CountUsers(ctx context.Context) (n int, err error) {
	err = db.read(ctx, func(tx *txn) error { return tx.QueryRow("SELECT count(*) FROM users").Scan(&n) })
	return n, err
}

// CreateUser adds a user; the name is kept in lower case.
func (db *DB) CreateUser(ctx context.Context, u *app.User) error {
	if u.ID == "" {
		return app.Invalid("id", "a user needs an id")
	}
	return db.write(ctx, func(tx *txn) error {
		next := *u
		if next.Created.IsZero() {
			next.Created = db.now()
		}
		if err := userNameFree(tx, &next); err != nil {
			return err
		}
		doc, err := encode(&next)
		if err != nil {
			return err
		}
		res, err := tx.Exec("INSERT INTO users (id, name, hash, doc) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING",
			next.ID, next.Name, next.Hash, doc)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, app.Errorf(app.Conflict, "user-exists", "there is a user with the id %s", next.ID))
		}
		*u = next
		return nil
	})
}

func userNameFree(tx *txn, u *app.User) error {
	u.Name = strings.ToLower(u.Name)
	if u.Name == "" {
		return app.Invalid("name", "a user needs a name")
	}
	var other string
	err := tx.QueryRow("SELECT id FROM users WHERE id <> ? AND (name = ? OR id = ?)", u.ID, u.Name, u.Name).Scan(&other)
	if err == nil {
		return app.Errorf(app.Conflict, "name-taken", "there is a user %s", u.Name).At("name").Do("choose another name")
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// User finds a user by id, else by name in any case.
func (db *DB) User(ctx context.Context, id string) (u *app.User, err error) {
	err = db.read(ctx, func(tx *txn) error { u, err = user(tx, id); return err })
	return u, err
}

func user(tx *txn, id string) (*app.User, error) {
	var doc, hash string
	err := tx.QueryRow("SELECT doc, hash FROM users WHERE id = ?1 OR name = ?2 ORDER BY id = ?1 DESC LIMIT 1", id, strings.ToLower(id)).
		Scan(&doc, &hash)
	if err != nil {
		return nil, notFound(err, "user", id)
	}
	u, err := decode[app.User](doc)
	if err == nil {
		u.Hash = hash
	}
	return u, err
}

// ListUsers gives all users by name, without their hashes.
func (db *DB) ListUsers(ctx context.Context) (all []app.User, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.User](tx, "SELECT doc FROM users ORDER BY name")
		return err
	})
	return all, err
}

// UpdateUser reads, changes and writes a user; the id and time of creation stay.
func (db *DB) UpdateUser(ctx context.Context, id string, change func(*app.User) error) (u *app.User, err error) {
	err = db.write(ctx, func(tx *txn) error {
		if u, err = user(tx, id); err != nil {
			return err
		}
		was := *u
		if err := change(u); err != nil {
			return err
		}
		u.ID, u.Created = was.ID, was.Created
		if err := userNameFree(tx, u); err != nil {
			return err
		}
		doc, err := encode(u)
		if err != nil {
			return err
		}
		_, err = tx.Exec("UPDATE users SET name = ?, hash = ?, doc = ? WHERE id = ?", u.Name, u.Hash, doc, u.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return u, nil
}

// DeleteUser removes a user with its sessions and tokens.
func (db *DB) DeleteUser(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *txn) error {
		u, err := user(tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec("DELETE FROM users WHERE id = ?", u.ID)
		return err
	})
}

func userExists(tx *txn, id string) error {
	var known bool
	if err := tx.QueryRow("SELECT EXISTS (SELECT 1 FROM users WHERE id = ?)", id).Scan(&known); err != nil {
		return err
	}
	if !known {
		return app.Missing("user", id)
	}
	return nil
}
