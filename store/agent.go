package store

import (
	"context"
	"time"

	"github.com/better-compute/bcd/app"
)

// keepBoots is how long a boot that is over is remembered, so that a late trade of its token is named for what it is.
const keepBoots = 30 * 24 * time.Hour

// CreateBoot stores a boot, and ends every other of its machine with its sessions.
func (db *DB) CreateBoot(ctx context.Context, b *app.Boot) error {
	return db.write(ctx, func(tx *txn) error {
		if err := db.revokeBoots(tx, b.MachineID); err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM boots WHERE live = 0 AND created < ?", micros(db.now().Add(-keepBoots))); err != nil {
			return err
		}
		doc, err := encode(b)
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO boots (key, machine_id, live, created, doc) VALUES (?, ?, 1, ?, ?)", b.Key, b.MachineID, micros(b.Created), doc)
		return err
	})
}

// Boot finds a boot by its key.
func (db *DB) Boot(ctx context.Context, key string) (b *app.Boot, err error) {
	err = db.read(ctx, func(tx *txn) error { b, err = boot(tx, key); return err })
	return b, err
}

func boot(tx *txn, key string) (*app.Boot, error) {
	b, err := document[app.Boot](tx, "SELECT doc FROM boots WHERE key = ?", key)
	return b, notFound(err, "boot", key)
}

// LiveBoot finds the boot a machine may netboot with.
func (db *DB) LiveBoot(ctx context.Context, machineID string) (b *app.Boot, err error) {
	err = db.read(ctx, func(tx *txn) error {
		b, err = document[app.Boot](tx, "SELECT doc FROM boots WHERE machine_id = ? AND live = 1", machineID)
		return notFound(err, "boot", machineID)
	})
	return b, err
}

// RefuseBoot notes why a live boot's ramdisk was turned away.
func (db *DB) RefuseBoot(ctx context.Context, key string, why *app.Error) error {
	return db.write(ctx, func(tx *txn) error {
		b, err := boot(tx, key)
		if err != nil || b.Refused != nil || !b.Revoked.IsZero() {
			return err
		}
		b.Refused = why
		return saveBoot(tx, b, 1)
	})
}

// RevokeBoots ends a machine's boots and their sessions.
func (db *DB) RevokeBoots(ctx context.Context, machineID string) error {
	return db.write(ctx, func(tx *txn) error { return db.revokeBoots(tx, machineID) })
}

func (db *DB) revokeBoots(tx *txn, machineID string) error {
	live, err := documents[app.Boot](tx, "SELECT doc FROM boots WHERE machine_id = ? AND live = 1", machineID)
	if err != nil {
		return err
	}
	for i := range live {
		live[i].Revoked = db.now()
		if err := saveBoot(tx, &live[i], 0); err != nil {
			return err
		}
	}
	sessions, err := documents[app.AgentSession](tx, "SELECT doc FROM agent_sessions WHERE machine_id = ? AND live = 1", machineID)
	if err != nil {
		return err
	}
	for i := range sessions {
		sessions[i].Ended = db.now()
		doc, err := encode(&sessions[i])
		if err != nil {
			return err
		}
		if _, err := tx.Exec("UPDATE agent_sessions SET live = 0, doc = ? WHERE id = ?", doc, sessions[i].ID); err != nil {
			return err
		}
	}
	return nil
}

func saveBoot(tx *txn, b *app.Boot, live int) error {
	doc, err := encode(b)
	if err != nil {
		return err
	}
	_, err = tx.Exec("UPDATE boots SET live = ?, doc = ? WHERE key = ?", live, doc, b.Key)
	return err
}

// NoteRead notes how much of a live boot's CD image left.
func (db *DB) NoteRead(ctx context.Context, key string, bytes int64) error {
	return db.write(ctx, func(tx *txn) error {
		b, err := boot(tx, key)
		if err != nil || !b.Revoked.IsZero() || b.Read >= bytes {
			return err
		}
		b.Read = bytes
		return saveBoot(tx, b, 1)
	})
}

// SpendBoot trades a boot for a session; a Conflict when it was traded before or is over.
func (db *DB) SpendBoot(ctx context.Context, s *app.AgentSession, at time.Time) error {
	return db.write(ctx, func(tx *txn) error {
		b, err := boot(tx, s.BootKey)
		if err != nil {
			return err
		}
		if !b.Revoked.IsZero() {
			return app.Errorf(app.Conflict, "boot-over", "that boot is over").Do("boot the machine again from its workflow")
		}
		if !b.Spent.IsZero() {
			return app.Errorf(app.Conflict, "boot-token-spent", "that boot token was traded before")
		}
		b.Spent = at
		if err := saveBoot(tx, b, 1); err != nil {
			return err
		}
		doc, err := encode(s)
		if err != nil {
			return err
		}
		_, err = tx.Exec("INSERT INTO agent_sessions (id, boot_key, machine_id, live, doc) VALUES (?, ?, ?, 1, ?)", s.ID, s.BootKey, s.MachineID, doc)
		return err
	})
}

// AgentSession finds a session by id.
func (db *DB) AgentSession(ctx context.Context, id string) (s *app.AgentSession, err error) {
	err = db.read(ctx, func(tx *txn) error {
		s, err = document[app.AgentSession](tx, "SELECT doc FROM agent_sessions WHERE id = ?", id)
		return notFound(err, "session", id)
	})
	return s, err
}

// LiveAgentSession finds the session of a machine that has not ended.
func (db *DB) LiveAgentSession(ctx context.Context, machineID string) (s *app.AgentSession, err error) {
	err = db.read(ctx, func(tx *txn) error {
		s, err = document[app.AgentSession](tx, "SELECT doc FROM agent_sessions WHERE machine_id = ? AND live = 1", machineID)
		return notFound(err, "session", machineID)
	})
	return s, err
}

// PutPhoneHome stores the address an installed system calls; those of the machine's earlier deploys end with it.
func (db *DB) PutPhoneHome(ctx context.Context, p *app.PhoneHome) error {
	return db.write(ctx, func(tx *txn) error {
		if _, err := tx.Exec("DELETE FROM phone_homes WHERE machine_id = ? AND workflow_id <> ?", p.MachineID, p.WorkflowID); err != nil {
			return err
		}
		_, err := tx.Exec("INSERT INTO phone_homes (secret_hash, machine_id, workflow_id, created) VALUES (?, ?, ?, ?) ON CONFLICT (secret_hash) DO NOTHING",
			p.SecretHash, p.MachineID, p.WorkflowID, micros(p.Created))
		return err
	})
}

// PhoneHome finds an address by the hash of its secret.
func (db *DB) PhoneHome(ctx context.Context, secretHash string) (p *app.PhoneHome, err error) {
	err = db.read(ctx, func(tx *txn) error {
		var v app.PhoneHome
		var created int64
		err := tx.QueryRow("SELECT secret_hash, machine_id, workflow_id, created FROM phone_homes WHERE secret_hash = ?", secretHash).
			Scan(&v.SecretHash, &v.MachineID, &v.WorkflowID, &created)
		v.Created = fromMicros(created)
		p = &v
		return notFound(err, "phone-home", "of that secret")
	})
	if err != nil {
		return nil, err
	}
	return p, nil
}

// DeletePhoneHomes forgets a machine's addresses.
func (db *DB) DeletePhoneHomes(ctx context.Context, machineID string) error {
	return db.write(ctx, func(tx *txn) error {
		_, err := tx.Exec("DELETE FROM phone_homes WHERE machine_id = ?", machineID)
		return err
	})
}
