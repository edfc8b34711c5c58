package store

import (
	"context"
	"database/sql"
	"errors"

	"github.com/better-compute/bcd/app"
)

// CreateImage adds an image row.
func (db *DB) CreateImage(ctx context.Context, i *app.Image) error {
	if i.ID == "" {
		return app.Invalid("id", "an image needs an id")
	}
	return db.write(ctx, func(tx *txn) error {
		next := *i
		if next.Created.IsZero() {
			next.Created = db.now()
		}
		if err := imageNameFree(tx, &next); err != nil {
			return err
		}
		doc, err := encode(&next)
		if err != nil {
			return err
		}
		res, err := tx.Exec("INSERT INTO images (id, name, doc) VALUES (?, ?, ?) ON CONFLICT (id) DO NOTHING", next.ID, next.Name, doc)
		if err != nil {
			return err
		}
		if n, err := res.RowsAffected(); err != nil || n == 0 {
			return errors.Join(err, app.Errorf(app.Conflict, "image-exists", "there is an image with the id %s", next.ID))
		}
		*i = next
		return nil
	})
}

func imageNameFree(tx *txn, i *app.Image) error {
	if i.Name == "" {
		return app.Invalid("name", "an image needs a name")
	}
	var other string
	err := tx.QueryRow("SELECT id FROM images WHERE id <> ? AND (name = ? OR id = ?)", i.ID, i.Name, i.Name).Scan(&other)
	if err == nil {
		return app.Errorf(app.Conflict, "name-taken", "the name %s belongs to image %s", i.Name, other).
			At("name").Do("choose another name, or delete that image")
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// Image finds an image by id, else by name.
func (db *DB) Image(ctx context.Context, id string) (i *app.Image, err error) {
	err = db.read(ctx, func(tx *txn) error { i, err = image(tx, id); return err })
	return i, err
}

func image(tx *txn, id string) (*app.Image, error) {
	i, err := document[app.Image](tx, "SELECT doc FROM images WHERE id = ?1 OR name = ?1 ORDER BY id = ?1 DESC LIMIT 1", id)
	return i, notFound(err, "image", id)
}

// ListImages gives all images by name.
func (db *DB) ListImages(ctx context.Context) (all []app.Image, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.Image](tx, "SELECT doc FROM images ORDER BY name")
		return err
	})
	return all, err
}

// UpdateImage reads, changes and writes an image; its id and time of creation stay.
func (db *DB) UpdateImage(ctx context.Context, id string, change func(*app.Image) error) (i *app.Image, err error) {
	err = db.write(ctx, func(tx *txn) error {
		if i, err = image(tx, id); err != nil {
			return err
		}
		was := *i
		if err := change(i); err != nil {
			return err
		}
		i.ID, i.Created = was.ID, was.Created
		if err := imageNameFree(tx, i); err != nil {
			return err
		}
		doc, err := encode(i)
		if err != nil {
			return err
		}
		_, err = tx.Exec("UPDATE images SET name = ?, doc = ? WHERE id = ?", i.Name, doc, i.ID)
		return err
	})
	if err != nil {
		return nil, err
	}
	return i, nil
}

// DeleteImage removes an image row, by id or name.
func (db *DB) DeleteImage(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *txn) error {
		i, err := image(tx, id)
		if err != nil {
			return err
		}
		_, err = tx.Exec("DELETE FROM images WHERE id = ?", i.ID)
		return err
	})
}
