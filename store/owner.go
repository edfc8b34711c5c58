package store

import (
	"context"
	"fmt"
	"sync"

	"github.com/better-compute/bcd/app"
)

// owners says which machine has a MAC, in memory: DHCP asks for every packet. It is read anew after a change of any
// machine's MACs.
type owners struct {
	mu      sync.RWMutex // protects what follows
	byMAC   map[app.MAC]string
	changes uint64 // how often forget was called
}

// forget makes the next question read the table.
func (o *owners) forget() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.byMAC = nil
	o.changes++
}

// OwnerOf gives the id of the machine that has a MAC in its stored form, "" when none has.
func (db *DB) OwnerOf(ctx context.Context, mac app.MAC) (string, error) {
	o := &db.owners
	o.mu.RLock()
	all, changes := o.byMAC, o.changes
	o.mu.RUnlock()
	if all != nil {
		return all[mac], nil // never written to once it is there
	}
	all = map[app.MAC]string{}
	err := db.read(ctx, func(tx *txn) error {
		rows, err := tx.Query("SELECT mac, machine_id FROM machine_macs")
		if err != nil {
			return err
		}
		defer func() { _ = rows.Close() }()
		for rows.Next() {
			var mac app.MAC
			var id string
			if err := rows.Scan(&mac, &id); err != nil {
				return err
			}
			all[mac] = id
		}
		return rows.Err()
	})
	if err != nil {
		return "", fmt.Errorf("reading the owners of MACs: %w", err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.changes == changes { // else somebody changed one meanwhile
		o.byMAC = all
	}
	return all[mac], nil
}
