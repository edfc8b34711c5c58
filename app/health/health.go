// Package health gathers what is not as it should be, each warning with a stable code and the way out.
package health

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"sort"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// Warning is one thing a person should know.
type Warning struct {
	Code    string
	Level   string // "info", "warn", "error"
	Message string
	WayOut  string
}

// Check looks at one thing. It returns soon; an error becomes a warning of its own.
type Check func(ctx context.Context) ([]Warning, error)

// Service runs checks. Add is safe at any time.
type Service struct {
	mu     sync.Mutex
	checks []named
}

type named struct {
	name string
	run  Check
}

// Add registers a check under a name for people.
func (s *Service) Add(name string, c Check) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.checks = append(s.checks, named{name, c})
}

// Warnings runs every check, worst first. It never fails because one of them does.
func (s *Service) Warnings(ctx context.Context) []Warning {
	s.mu.Lock()
	checks := append([]named(nil), s.checks...)
	s.mu.Unlock()
	var out []Warning
	for _, c := range checks {
		w, err := c.run(ctx)
		if err != nil {
			w = append(w, Warning{"check-failed", "warn", fmt.Sprintf("the check of %s failed: %v", c.name, err), "look at the log"})
		}
		out = append(out, w...)
	}
	rank := map[string]int{"error": 0, "warn": 1, "info": 2}
	sort.SliceStable(out, func(i, j int) bool { return rank[out[i].Level] < rank[out[j].Level] })
	return out
}

// Network warns while no subnet is turned on: then nothing is answered and no machine can netboot.
func Network(store app.NetworkStore) Check {
	return func(ctx context.Context) ([]Warning, error) {
		all, err := store.ListSubnets(ctx)
		if err != nil {
			return nil, err
		}
		for _, s := range all {
			if s.Answers() {
				return nil, nil
			}
		}
		return []Warning{{"no-subnet-on", "info", "bcd only listens: no subnet is turned on, so no machine can netboot",
			"add the provisioning subnet on the Network page and turn it on"}}, nil
	}
}

// Pools warns of subnets that have no address left for a machine that is new there.
func Pools(store app.NetworkStore, now func() time.Time) Check {
	return func(ctx context.Context) (out []Warning, err error) {
		subnets, err := store.ListSubnets(ctx)
		if err != nil {
			return nil, err
		}
		leases, err := store.ListLeases(ctx)
		if err != nil {
			return nil, err
		}
		at := now()
		for _, s := range subnets {
			if s.Mode == app.SubnetFull && s.PoolStart.Is4() && s.PoolEnd.Is4() && int64(held(s, leases, at)) >= size(s) {
				out = append(out, Warning{"pool-exhausted", "error", fmt.Sprintf("every address of the pool of %s is given out: a machine that is new there cannot netboot", s.CIDR),
					"widen the pool, shorten the lease time, or free the addresses of machines that are gone, on the Network page"})
			}
		}
		return out, nil
	}
}

// held counts the addresses of a pool that cannot be given to a new machine.
func held(s app.Subnet, leases []app.Lease, now time.Time) int {
	taken := map[netip.Addr]bool{s.Gateway: true}
	for _, r := range s.Reservations {
		taken[r.Addr] = true
	}
	for _, l := range leases {
		if l.Reserved || l.State != "released" && l.Expires.After(now) {
			taken[l.Addr] = true
		}
	}
	n := 0
	for a := range taken {
		if a.IsValid() && !a.Less(s.PoolStart) && !s.PoolEnd.Less(a) {
			n++
		}
	}
	return n
}

// size is how many addresses a pool has.
func size(s app.Subnet) int64 {
	first, last := s.PoolStart.As4(), s.PoolEnd.As4()
	return int64(binary.BigEndian.Uint32(last[:])) - int64(binary.BigEndian.Uint32(first[:])) + 1
}

// Machines warns of machines that wait for a person.
func Machines(store app.MachineStore) Check {
	return func(ctx context.Context) ([]Warning, error) {
		page, err := store.ListMachines(ctx, app.MachineFilter{States: []app.State{app.StateFailed}, Limit: 5})
		if err != nil || page.Total == 0 {
			return nil, err
		}
		return []Warning{{"machines-failed", "warn", fmt.Sprintf("%d machines have failed, %s among them", page.Total, page.Items[0].Name),
			"open each on the Machines page: it says what happened and what can be done"}}, nil
	}
}

// Images warns while there is nothing to deploy.
func Images(store app.ImageStore) Check {
	return func(ctx context.Context) ([]Warning, error) {
		all, err := store.ListImages(ctx)
		if err != nil {
			return nil, err
		}
		var out []Warning
		ready := false
		for _, i := range all {
			ready = ready || i.State == "ready"
			if i.State == "failed" {
				out = append(out, imageFailed(i))
			}
		}
		if !ready {
			out = append(out, Warning{"no-image", "info", "there is no image to deploy", "upload one on the Images page"})
		}
		return out, nil
	}
}

// imageFailed says what an image is not good for, and how to be rid of the warning: an import under the same name replaces the
// row of the failed one.
func imageFailed(i app.Image) Warning {
	w := Warning{"image-failed", "warn", fmt.Sprintf("the import of image %s failed: %s", i.Name, i.Reason), fmt.Sprintf(
		"once that is mended, bring it again under the name %s, which takes the place of the failed one: bcd image upload %s FILE, bcd image import %s --url URL --sha256 DIGEST --wait, or the forms on the Images page; "+
			"if it is not wanted: bcd image delete %s, or Delete beside it on the Images page", i.Name, i.Name, i.Name, i.Name)}
	if i.Index != "" {
		w.Message = fmt.Sprintf("image %s was ready and cannot be used any more: %s", i.Name, i.Reason)
	}
	return w
}

// Space warns before the file system of the data is full: then nothing can be written down, and nobody can log in. free gives
// what is left, in bytes; below reserve no image is taken on.
func Space(free func() (int64, error), reserve int64) Check {
	return func(context.Context) ([]Warning, error) {
		left, err := free()
		if err != nil || left >= 2*reserve {
			return nil, err
		}
		w := Warning{"disk-low", "warn", fmt.Sprintf("%d MB are free for data", left/1e6), "delete images that are not needed, or enlarge the file system of the data directory"}
		if left < reserve {
			w.Code, w.Level, w.Message = "disk-full", "error", fmt.Sprintf("only %d MB are free for data: no image can be imported, and soon nothing be written down", left/1e6)
		}
		return []Warning{w}, nil
	}
}
