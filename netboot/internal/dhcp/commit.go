package dhcp

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/better-compute/bcd/app"
)

// maxBatch bounds how many leases share a transaction; queueDepth how many wait for the next one. A client whose
// request finds the queue full is not answered and asks again.
const (
	maxBatch   = 512
	queueDepth = 4096
)

// change is one durable change to the leases and what follows once it is on disk.
type change struct {
	lease app.Lease
	lost  []app.Lease // stored leases that this one replaces, to be deleted first
	then  func(error) // called exactly once
}

// committer writes changes, as many in one transaction as have come while the last one was written.
type committer struct {
	store Store
	queue chan change
}

func newCommitter(store Store) *committer {
	return &committer{store: store, queue: make(chan change, queueDepth)}
}

// add queues a change, or reports false when too many wait.
func (c *committer) add(ch change) bool {
	select {
	case c.queue <- ch:
		return true
	default:
		return false
	}
}

// run writes until ctx ends. What is queued then is dropped: those clients were never told anything.
func (c *committer) run(ctx context.Context) {
	done := make(chan func(), 2)
	finished := make(chan struct{})
	go func() { // sends the answers of one batch while the next is written
		defer close(finished)
		for f := range done {
			f()
		}
	}()
	defer func() { close(done); <-finished }()
	for {
		batch := c.next(ctx)
		if batch == nil {
			return
		}
		errs := c.writeEach(ctx, batch)
		done <- func() {
			for i, ch := range batch {
				ch.then(errs[i])
			}
		}
	}
}

// next waits for a change and takes what else is there. It returns nil when ctx ended.
func (c *committer) next(ctx context.Context) []change {
	var batch []change
	select {
	case <-ctx.Done():
		return nil
	case ch := <-c.queue:
		batch = append(batch, ch)
	}
	for len(batch) < maxBatch {
		select {
		case ch := <-c.queue:
			batch = append(batch, ch)
		default:
			return batch
		}
	}
	return batch
}

// writeEach writes a batch in one transaction. When that fails each change is tried by itself, so that one that the
// store refuses, as of a subnet that was just deleted, does not take the others with it.
func (c *committer) writeEach(ctx context.Context, batch []change) []error {
	errs := make([]error, len(batch))
	err := c.write(ctx, batch)
	for i := range batch {
		if errs[i] = err; err != nil && len(batch) > 1 {
			errs[i] = c.write(ctx, batch[i:i+1])
		}
	}
	return errs
}

func (c *committer) write(ctx context.Context, batch []change) error {
	leases := make([]app.Lease, 0, len(batch))
	last := make(map[netip.Addr]int, len(batch)) // of several changes to one address only the last is written
	for i, ch := range batch {
		last[ch.lease.Addr] = i
	}
	for i, ch := range batch {
		for _, l := range ch.lost {
			if err := c.store.DeleteLease(ctx, l.MAC, l.Addr); err != nil && app.CodeOf(err) != app.NotFound {
				return fmt.Errorf("deleting the former lease of %v: %w", l.Addr, err)
			}
		}
		if last[ch.lease.Addr] == i {
			leases = append(leases, ch.lease)
		}
	}
	if err := c.store.PutLeases(ctx, leases); err != nil {
		return fmt.Errorf("storing %d leases: %w", len(leases), err)
	}
	return nil
}
