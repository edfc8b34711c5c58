package drivers

import (
	"context"
	"net"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

// addresses remembers where BMCs are.
type addresses struct {
	mu    sync.RWMutex
	ips   map[netip.Addr]bool
	hosts map[string]bool
}

const (
	lookupTimeout = 3 * time.Second // of a BMC's host name
	maxLookups    = 16              // addresses taken from one lookup
)

// RememberMachine notes every address that a machine's drivers reach. Call it at start for every machine, and whenever one was
// bound.
func (r *Registry) RememberMachine(ctx context.Context, m *app.Machine) {
	known := map[string]bool{"": true}
	note := func(address string) {
		if !known[address] {
			known[address] = true
			r.Remember(ctx, address)
		}
	}
	if m.BMC != nil {
		note(m.BMC.Address)
	}
	for _, b := range m.Drivers {
		note(addressOf(b.Config))
	}
}

// Remember notes a BMC's address, as an operator writes it, so that IsBMC knows it. A host name is resolved now, and again
// at each call to that BMC.
func (r *Registry) Remember(ctx context.Context, address string) {
	host := hostOf(address)
	if host == "" {
		return
	}
	if ip, err := netip.ParseAddr(host); err == nil {
		r.bmcs.add("", ip)
		return
	}
	r.bmcs.add(host)
	ctx, cancel := context.WithTimeout(ctx, lookupTimeout)
	defer cancel()
	ips, err := r.cfg.LookupIP(ctx, host)
	if err != nil {
		r.log.Debug("BMC name does not resolve", "host", host, "error", err)
		return
	}
	r.bmcs.add(host, ips[:min(len(ips), maxLookups)]...)
}

func (a *addresses) add(host string, ips ...netip.Addr) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.ips == nil {
		a.ips, a.hosts = map[netip.Addr]bool{}, map[string]bool{}
	}
	if host != "" {
		a.hosts[host] = true
	}
	for _, ip := range ips {
		a.ips[ip.Unmap().WithZone("")] = true
	}
}

// IsBMC reports whether an address is a BMC's, which no fetch made for a user may reach.
func (r *Registry) IsBMC(addr netip.Addr) bool {
	r.bmcs.mu.RLock()
	defer r.bmcs.mu.RUnlock()
	return r.bmcs.ips[addr.Unmap().WithZone("")]
}

// IsBMCHost reports whether a host name or literal address is a BMC's.
func (r *Registry) IsBMCHost(host string) bool {
	host = hostOf(host)
	if ip, err := netip.ParseAddr(host); err == nil {
		return r.IsBMC(ip)
	}
	r.bmcs.mu.RLock()
	defer r.bmcs.mu.RUnlock()
	return r.bmcs.hosts[host]
}

// splitAddress takes host and port out of HOST, HOST:PORT and [IPv6]:PORT, each with or without a scheme, user and path.
// The host is in lower case and, when it is an address, in its one form.
func splitAddress(address string) (host, port string) {
	s := strings.TrimSpace(address)
	if _, rest, ok := strings.Cut(s, "://"); ok {
		s = rest
	}
	s, _, _ = strings.Cut(s, "/")
	if i := strings.LastIndexByte(s, '@'); i >= 0 {
		s = s[i+1:]
	}
	if h, p, err := net.SplitHostPort(s); err == nil {
		s, port = h, p
	}
	s = strings.ToLower(strings.TrimSuffix(strings.Trim(s, "[]"), "."))
	if ip, err := netip.ParseAddr(s); err == nil {
		s = ip.Unmap().WithZone("").String()
	}
	return s, port
}

func hostOf(address string) string {
	host, _ := splitAddress(address)
	return host
}

// laneOf names the queue of a BMC: its host and port, however they were written. The usual ports of Redfish and IPMI are one:
// both lead to the same controller.
func laneOf(address string) string {
	host, port := splitAddress(address)
	if port == "" || port == "443" || port == "623" {
		return host
	}
	return net.JoinHostPort(host, port)
}
