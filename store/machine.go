package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// MaxInventory is the largest inventory kept, in bytes.
const MaxInventory = 1 << 20

// CreateMachine adds a machine and sets its Version and, when unset, its times.
func (db *DB) CreateMachine(ctx context.Context, m *app.Machine) error {
	if m.ID == "" {
		return app.Invalid("id", "a machine needs an id")
	}
	return db.write(ctx, func(tx *txn) error {
		next := *m
		next.Version = 1
		next.Updated = db.now()
		if next.Created.IsZero() {
			next.Created = next.Updated
		}
		if next.StateSince.IsZero() {
			next.StateSince = next.Updated
		}
		if err := insertMachine(tx, &next); err != nil {
			return err
		}
		*m = next
		return nil
	})
}

// Machine finds a machine by id, else by name.
func (db *DB) Machine(ctx context.Context, id string) (m *app.Machine, err error) {
	err = db.read(ctx, func(tx *txn) error { m, err = machine(tx, id); return err })
	return m, err
}

func machine(tx *txn, id string) (*app.Machine, error) {
	m, err := document[app.Machine](tx, "SELECT doc FROM machines WHERE id = ?", id)
	if errors.Is(err, sql.ErrNoRows) {
		m, err = document[app.Machine](tx, "SELECT doc FROM machines WHERE name = ?", id)
	}
	return m, notFound(err, "machine", id)
}

// MachineByMAC finds the machine that owns a MAC, in any spelling.
func (db *DB) MachineByMAC(ctx context.Context, mac app.MAC) (m *app.Machine, err error) {
	canonical, err := app.ParseMAC(string(mac))
	if err != nil {
		return nil, err
	}
	err = db.read(ctx, func(tx *txn) error {
		m, err = document[app.Machine](tx,
			"SELECT m.doc FROM machine_macs a JOIN machines m ON m.id = a.machine_id WHERE a.mac = ?", canonical)
		return notFound(err, "machine", string(canonical))
	})
	return m, err
}

// MachinesByUUID finds machines by system UUID in any byte order. An empty UUID finds none.
func (db *DB) MachinesByUUID(ctx context.Context, u app.UUID) (all []app.Machine, err error) {
	canonical, err := app.ParseUUID(string(u))
	if err != nil || canonical == "" {
		return nil, err
	}
	err = db.read(ctx, func(tx *txn) error {
		s := canonical.Spellings()
		all, err = documents[app.Machine](tx,
			"SELECT doc FROM machines WHERE uuid IN (?, ?, ?, ?, ?, ?) AND uuid <> '' ORDER BY name", s[0], s[1], s[2], s[3], s[4], s[5])
		return err
	})
	return all, err
}

// UpdateMachine reads, changes and writes a machine. Its id and time of creation stay, its Version rises by one, and a
// new State gets a new StateSince unless change set that too.
func (db *DB) UpdateMachine(ctx context.Context, id string, change func(*app.Machine) error) (m *app.Machine, err error) {
	err = db.write(ctx, func(tx *txn) error { m, err = db.changeMachine(tx, id, change); return err })
	if err != nil {
		return nil, err
	}
	return m, nil
}

func (db *DB) changeMachine(tx *txn, id string, change func(*app.Machine) error) (*app.Machine, error) {
	m, err := machine(tx, id)
	if err != nil {
		return nil, err
	}
	was := *m
	if err := change(m); err != nil {
		return nil, err
	}
	m.ID, m.Created, m.Version, m.Updated = was.ID, was.Created, was.Version+1, db.now()
	if m.State != was.State && m.StateSince.Equal(was.StateSince) {
		m.StateSince = m.Updated
	}
	return m, updateMachine(tx, m)
}

// DeleteMachine removes a machine with all that hangs on it: MACs, labels, inventory and finished workflows. An active
// workflow stays until the engine has ended it.
func (db *DB) DeleteMachine(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *txn) error {
		m, err := machine(tx, id)
		if err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM workflows WHERE machine_id = ? AND active = 0", m.ID); err != nil {
			return err
		}
		if _, err := tx.Exec("DELETE FROM bmc_operations WHERE machine_id = ?", m.ID); err != nil {
			return err
		}
		tx.macs = true
		_, err = tx.Exec("DELETE FROM machines WHERE id = ?", m.ID)
		return err
	})
}

func insertMachine(tx *txn, m *app.Machine) error {
	if err := checkMachine(tx, m); err != nil {
		return err
	}
	var taken string
	switch err := tx.QueryRow("SELECT name FROM machines WHERE id = ?", m.ID).Scan(&taken); {
	case err == nil:
		return app.Errorf(app.Conflict, "machine-exists", "there is a machine with the id %s: %s", m.ID, taken)
	case !errors.Is(err, sql.ErrNoRows):
		return err
	}
	doc, err := encode(m)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`INSERT INTO machines (id, name, state, pool, profile, uuid, version, search, doc)
		VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)`,
		m.ID, m.Name, m.State, m.Pool, m.Profile, m.UUID, m.Version, searchText(m), doc)
	if err != nil {
		return err
	}
	return indexMachine(tx, m)
}

func updateMachine(tx *txn, m *app.Machine) error {
	if err := checkMachine(tx, m); err != nil {
		return err
	}
	doc, err := encode(m)
	if err != nil {
		return err
	}
	_, err = tx.Exec(`UPDATE machines SET name = ?, state = ?, pool = ?, profile = ?, uuid = ?, version = ?, search = ?, doc = ?
		WHERE id = ?`, m.Name, m.State, m.Pool, m.Profile, m.UUID, m.Version, searchText(m), doc, m.ID)
	if err != nil {
		return err
	}
	return indexMachine(tx, m)
}

// checkMachine brings addresses to their stored form and refuses a name or MAC that another machine has.
func checkMachine(tx *txn, m *app.Machine) error {
	if err := app.ValidName("name", m.Name); err != nil {
		return err
	}
	u, err := app.ParseUUID(string(m.UUID))
	if err != nil {
		return err
	}
	m.UUID = u
	var other string
	err = tx.QueryRow("SELECT name FROM machines WHERE id <> ? AND (name = ? OR id = ?)", m.ID, m.Name, m.Name).Scan(&other)
	if err == nil {
		return app.Errorf(app.Conflict, "name-taken", "the name %s belongs to another machine", m.Name).
			At("name").Do("choose another name")
	}
	for i := 0; errors.Is(err, sql.ErrNoRows) && i < len(m.NICs); i++ {
		mac, bad := app.ParseMAC(string(m.NICs[i].MAC))
		if bad != nil {
			return bad
		}
		m.NICs[i].MAC = mac
		err = tx.QueryRow(`SELECT m.name FROM machine_macs a JOIN machines m ON m.id = a.machine_id
			WHERE a.mac = ? AND a.machine_id <> ?`, mac, m.ID).Scan(&other)
		if err == nil {
			return app.Errorf(app.Conflict, "mac-taken", "the MAC address %s belongs to machine %s", mac, other).
				At("nics").Do("remove it from %s, or correct it here", other)
		}
	}
	if errors.Is(err, sql.ErrNoRows) {
		return nil
	}
	return err
}

// indexMachine brings the side tables in line with the machine, touching them only where they differ.
func indexMachine(tx *txn, m *app.Machine) error {
	macs := make([]string, 0, len(m.NICs))
	for _, n := range m.NICs {
		macs = append(macs, string(n.MAC))
	}
	labels := m.Labels
	if labels == nil {
		labels = map[string]string{}
	}
	for i, s := range []struct {
		query string
		list  any
	}{
		{"DELETE FROM machine_macs WHERE machine_id = ?1 AND mac NOT IN (SELECT value FROM json_each(?2))", macs},
		{"INSERT OR IGNORE INTO machine_macs (mac, machine_id) SELECT value, ?1 FROM json_each(?2)", macs},
		{`DELETE FROM machine_labels WHERE machine_id = ?1
			AND (key, value) NOT IN (SELECT key, value FROM json_each(?2))`, labels},
		{"INSERT OR IGNORE INTO machine_labels (key, value, machine_id) SELECT key, value, ?1 FROM json_each(?2)", labels},
	} {
		list, err := json.Marshal(s.list)
		if err != nil {
			return err
		}
		done, err := tx.Exec(s.query, m.ID, string(list))
		if err != nil {
			return err
		}
		if n, err := done.RowsAffected(); i < 2 && (n > 0 || err != nil) {
			tx.macs = true
		}
	}
	return nil
}

// searchText is what a list's text filter looks through, in lower case, one field a line.
func searchText(m *app.Machine) string {
	fields := []string{m.Name, m.ID, m.Serial, m.Model}
	if m.BMC != nil {
		fields = append(fields, m.BMC.Address)
	}
	for _, n := range m.NICs {
		fields = append(fields, string(n.MAC))
	}
	return strings.ToLower(strings.Join(fields, "\n"))
}

// Inventory gives the last inventory of a machine and when it was taken.
func (db *DB) Inventory(ctx context.Context, machineID string) (inv json.RawMessage, taken time.Time, err error) {
	err = db.read(ctx, func(tx *txn) error {
		var doc string
		var at int64
		err := tx.QueryRow("SELECT doc, taken FROM inventories WHERE machine_id = ?", machineID).Scan(&doc, &at)
		inv, taken = json.RawMessage(doc), fromMicros(at)
		return notFound(err, "inventory", machineID)
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	return inv, taken, nil
}

// SetInventory replaces the inventory of a machine; at most MaxInventory bytes of JSON.
func (db *DB) SetInventory(ctx context.Context, machineID string, inv json.RawMessage) error {
	if len(inv) > MaxInventory {
		return app.Errorf(app.TooLarge, "inventory-too-large", "the inventory has %d bytes, the limit is %d", len(inv), MaxInventory)
	}
	if !json.Valid(inv) {
		return app.Invalid("inventory", "is not JSON")
	}
	return db.write(ctx, func(tx *txn) error {
		m, err := machine(tx, machineID)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO inventories (machine_id, taken, doc) VALUES (?, ?, ?)
			ON CONFLICT (machine_id) DO UPDATE SET taken = excluded.taken, doc = excluded.doc`,
			m.ID, micros(db.now()), string(inv))
		return err
	})
}
