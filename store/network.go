package store

import (
	"context"
	"encoding/json"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/better-compute/bcd/app"
)

// MaxDiscoveries is how many unknown machines are remembered; the ones not seen for longest go.
const MaxDiscoveries = 1000

// ListSubnets gives all subnets in the order of their addresses.
func (db *DB) ListSubnets(ctx context.Context) (all []app.Subnet, err error) {
	err = db.read(ctx, func(tx *txn) error { all, err = subnets(tx); return err })
	return all, err
}

func subnets(tx *txn) ([]app.Subnet, error) {
	all, err := documents[app.Subnet](tx, "SELECT doc FROM subnets")
	slices.SortFunc(all, func(a, b app.Subnet) int { return a.CIDR.Addr().Compare(b.CIDR.Addr()) })
	return all, err
}

// PutSubnet creates or replaces a subnet by its id. Its CIDR is kept in masked form.
func (db *DB) PutSubnet(ctx context.Context, s *app.Subnet) error {
	if s.ID == "" {
		return app.Invalid("id", "a subnet needs an id")
	}
	if !s.CIDR.IsValid() {
		return app.Invalid("cidr", "a subnet needs a network such as 192.0.2.0/24")
	}
	return db.write(ctx, func(tx *txn) error { return putSubnet(tx, s, db.now()) })
}

// ChangeSubnet changes a subnet in one transaction. Its id stays.
func (db *DB) ChangeSubnet(ctx context.Context, id string, change func(*app.Subnet) error) (out *app.Subnet, err error) {
	err = db.write(ctx, func(tx *txn) error {
		s, err := document[app.Subnet](tx, "SELECT doc FROM subnets WHERE id = ?", id)
		if err != nil {
			return notFound(err, "subnet", id)
		}
		if err := change(s); err != nil {
			return err
		}
		s.ID, out = id, s
		return putSubnet(tx, s, db.now())
	})
	return out, err
}

func putSubnet(tx *txn, s *app.Subnet, now time.Time) error {
	next := *s
	next.CIDR = next.CIDR.Masked()
	if next.Created.IsZero() {
		next.Created = now
	}
	all, err := subnets(tx)
	if err != nil {
		return err
	}
	for _, o := range all {
		if o.ID != next.ID && o.CIDR.Overlaps(next.CIDR) {
			return app.Errorf(app.Conflict, "subnet-overlap", "%s overlaps subnet %s (%s)", next.CIDR, o.ID, o.CIDR).
				At("cidr").Do("choose another network, or delete %s", o.ID)
		}
	}
	doc, err := encode(&next)
	if err != nil {
		return err
	}
	_, err = tx.Exec("INSERT INTO subnets (id, doc) VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET doc = excluded.doc", next.ID, doc)
	if err == nil {
		*s = next
	}
	return err
}

// DeleteSubnet removes a subnet and its leases.
func (db *DB) DeleteSubnet(ctx context.Context, id string) error {
	return db.write(ctx, func(tx *txn) error {
		return removed(tx, "subnet", id, "DELETE FROM subnets WHERE id = ?", id)
	})
}

// ListLeases gives all leases in the order of their addresses, expired ones too.
func (db *DB) ListLeases(ctx context.Context) (all []app.Lease, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.Lease](tx, "SELECT doc FROM leases")
		return err
	})
	slices.SortFunc(all, func(a, b app.Lease) int { return a.Addr.Compare(b.Addr) })
	return all, err
}

// PutLeases writes leases, one per address: a later owner of an address replaces the earlier one. All are kept or none.
func (db *DB) PutLeases(ctx context.Context, leases []app.Lease) error {
	if len(leases) == 0 {
		return nil
	}
	rows := make([]leaseRow, 0, len(leases))
	subnets := map[string]bool{}
	for _, l := range leases {
		row, err := leaseRowOf(l)
		if err != nil {
			return err
		}
		rows, subnets[l.SubnetID] = append(rows, row), true
	}
	list, err := json.Marshal(rows)
	if err != nil {
		return fmt.Errorf("encoding leases: %w", err)
	}
	return db.write(ctx, func(tx *txn) error {
		for id := range subnets {
			var known bool
			if err := tx.QueryRow("SELECT EXISTS (SELECT 1 FROM subnets WHERE id = ?)", id).Scan(&known); err != nil {
				return err
			}
			if !known {
				return app.Missing("subnet", id)
			}
		}
		// One statement for all: what a lease costs is its row, not its words. WHERE true tells the parser that ON is no join's.
		_, err := tx.Exec(`INSERT INTO leases (addr, mac, subnet_id, expires, doc)
			SELECT value->>0, value->>1, value->>2, value->>3, value->>4 FROM json_each(?) WHERE true
			ON CONFLICT (addr) DO UPDATE SET
				mac = excluded.mac, subnet_id = excluded.subnet_id, expires = excluded.expires, doc = excluded.doc`, string(list))
		return err
	})
}

// leaseRow is address, MAC, subnet, end in microseconds, document.
type leaseRow [5]any

func leaseRowOf(l app.Lease) (leaseRow, error) {
	mac, err := app.ParseMAC(string(l.MAC))
	if err != nil {
		return leaseRow{}, err
	}
	if !l.Addr.IsValid() {
		return leaseRow{}, app.Invalid("address", "a lease needs an address")
	}
	l.MAC, l.Addr = mac, l.Addr.Unmap()
	doc, err := encode(&l)
	if err != nil {
		return leaseRow{}, err
	}
	return leaseRow{l.Addr.String(), l.MAC, l.SubnetID, micros(l.Expires), doc}, nil
}

// DeleteLease removes the lease of an address if the MAC still holds it; removing none is no error.
func (db *DB) DeleteLease(ctx context.Context, mac app.MAC, addr netip.Addr) error {
	return db.write(ctx, func(tx *txn) error {
		_, err := tx.Exec("DELETE FROM leases WHERE addr = ? AND mac = ?", addr.Unmap().String(), mac)
		return err
	})
}

// PutDiscovery records one more sight of an unknown machine: Count rises by one, First stays, facts not seen this time
// are kept. d becomes what is stored.
func (db *DB) PutDiscovery(ctx context.Context, d *app.Discovery) error {
	mac, err := app.ParseMAC(string(d.MAC))
	if err != nil {
		return err
	}
	return db.write(ctx, func(tx *txn) error {
		next := *d
		next.MAC, next.Count = mac, 1
		if next.Last.IsZero() {
			next.Last = db.now()
		}
		if next.First.IsZero() {
			next.First = next.Last
		}
		if err := mergeDiscovery(tx, &next); err != nil {
			return err
		}
		doc, err := encode(&next)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`INSERT INTO discoveries (mac, last, doc) VALUES (?, ?, ?)
			ON CONFLICT (mac) DO UPDATE SET last = excluded.last, doc = excluded.doc`, mac, micros(next.Last), doc)
		if err != nil {
			return err
		}
		_, err = tx.Exec(`DELETE FROM discoveries WHERE mac IN (
			SELECT mac FROM discoveries WHERE mac <> ? ORDER BY last DESC LIMIT -1 OFFSET ?)`, mac, MaxDiscoveries-1)
		if err == nil {
			*d = next
		}
		return err
	})
}

func mergeDiscovery(tx *txn, next *app.Discovery) error {
	old, err := document[app.Discovery](tx, "SELECT doc FROM discoveries WHERE mac = ?", next.MAC)
	if err != nil {
		if app.CodeOf(notFound(err, "", "")) == app.NotFound {
			return nil
		}
		return err
	}
	next.Count = old.Count + 1
	next.First = old.First
	keep := func(now *string, before string) {
		if *now == "" {
			*now = before
		}
	}
	keep((*string)(&next.UUID), string(old.UUID))
	keep(&next.Arch, old.Arch)
	keep(&next.Address, old.Address)
	keep(&next.SubnetID, old.SubnetID)
	keep(&next.Vendor, old.Vendor)
	return nil
}

// ListDiscoveries gives the unknown machines, last seen first.
func (db *DB) ListDiscoveries(ctx context.Context) (all []app.Discovery, err error) {
	err = db.read(ctx, func(tx *txn) error {
		all, err = documents[app.Discovery](tx, "SELECT doc FROM discoveries ORDER BY last DESC, mac")
		return err
	})
	return all, err
}

// DeleteDiscovery forgets an unknown machine; forgetting none is no error.
func (db *DB) DeleteDiscovery(ctx context.Context, mac app.MAC) error {
	return db.write(ctx, func(tx *txn) error {
		_, err := tx.Exec("DELETE FROM discoveries WHERE mac = ?", mac)
		return err
	})
}
