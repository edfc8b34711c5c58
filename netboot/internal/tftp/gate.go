package tftp

import (
	"net/netip"
	"sync"
)

// What may be under way, waiting for its turn included. Each transfer has a socket of its own, and requests come from
// whatever address their sender wrote on them: a flood of them must not take the descriptors that the other listeners
// accept with.
const (
	maxUnderWay       = 4096
	maxUnderWayClient = 64 // firmware fetches one file at a time; a router may hide a rack
)

// gate counts transfers.
type gate struct {
	mu   sync.Mutex // protects what follows
	all  int
	from map[netip.Addr]int
}

// enter counts a transfer of a client until leave is called; false when there are too many.
func (g *gate) enter(client netip.Addr) (leave func(), ok bool) {
	client = client.Unmap().WithZone("")
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.all >= maxUnderWay || g.from[client] >= maxUnderWayClient {
		return nil, false
	}
	g.all++
	g.from[client]++
	return func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.all--
		if g.from[client]--; g.from[client] == 0 {
			delete(g.from, client)
		}
	}, true
}
