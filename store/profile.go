package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/better-compute/bcd/app"
)

// PutProfile creates or replaces a hardware profile.
func (db *DB) PutProfile(ctx context.Context, p *app.Profile) error {
	if err := app.ValidName("name", p.Name); err != nil {
		return err
	}
	return db.write(ctx, func(tx *txn) error {
		next := *p
		next.Updated = db.now()
		doc, err := encode(&next)
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO profiles (name, doc) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET doc = excluded.doc", next.Name, doc)
		if err == nil {
			*p = next
		}
		return err
	})
}

// Profile finds a hardware profile by its name.
func (db *DB) Profile(ctx context.Context, name string) (p *app.Profile, err error) {
	err = db.read(ctx, func(tx *txn) error {
		p, err = document[app.Profile](tx, "SELECT doc FROM profiles WHERE name = ?", name)
		return notFound(err, "profile", name)
	})
	return p, err
}

// ListProfiles gives all hardware profiles by name.
func (db *DB) ListProfiles(ctx context.Context) (all []app.Profile, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.Profile](tx, "SELECT doc FROM profiles ORDER BY name")
		return err
	})
	return all, err
}

// DeleteProfile removes a hardware profile that no machine and no pool uses.
func (db *DB) DeleteProfile(ctx context.Context, name string) error {
	return db.write(ctx, func(tx *txn) error {
		err := unused(tx, "profile", name,
			"SELECT 'machine ' || name FROM machines WHERE profile = ?1 AND profile <> '' UNION ALL SELECT 'pool ' || name FROM pools WHERE profile = ?1 LIMIT 1")
		if err != nil {
			return err
		}
		return removed(tx, "profile", name, "DELETE FROM profiles WHERE name = ?", name)
	})
}

// PutPool creates or replaces a pool.
func (db *DB) PutPool(ctx context.Context, p *app.Pool) error {
	if err := app.ValidName("name", p.Name); err != nil {
		return err
	}
	return db.write(ctx, func(tx *txn) error {
		next := *p
		next.Updated = db.now()
		doc, err := encode(&next)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO pools (name, profile, doc) VALUES (?, ?, ?)
			ON CONFLICT (name) DO UPDATE SET profile = excluded.profile, doc = excluded.doc`, next.Name, next.Policy.HardwareProfile, doc)
		if err == nil {
			*p = next
		}
		return err
	})
}

// Pool finds a pool by its name.
func (db *DB) Pool(ctx context.Context, name string) (p *app.Pool, err error) {
	err = db.read(ctx, func(tx *txn) error {
		p, err = document[app.Pool](tx, "SELECT doc FROM pools WHERE name = ?", name)
		return notFound(err, "pool", name)
	})
	return p, err
}

// ListPools gives all pools by name.
func (db *DB) ListPools(ctx context.Context) (all []app.Pool, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.Pool](tx, "SELECT doc FROM pools ORDER BY name")
		return err
	})
	return all, err
}

// DeletePool removes a pool that no machine is in.
func (db *DB) DeletePool(ctx context.Context, name string) error {
	return db.write(ctx, func(tx *txn) error {
		err := unused(tx, "pool", name, "SELECT 'machine ' || name FROM machines WHERE pool = ?1 AND pool <> '' LIMIT 1")
		if err != nil {
			return err
		}
		return removed(tx, "pool", name, "DELETE FROM pools WHERE name = ?", name)
	})
}

// unused is a Conflict that names the first user the query finds.
func unused(tx *txn, noun, name, query string) error {
	var user string
	err := tx.QueryRow(query, name).Scan(&user)
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	if err != nil {
		return err
	}
	return app.Errorf(app.Conflict, noun+"-in-use", "the %s %s is used by %s", noun, name, user).Do("take it off there first")
}
