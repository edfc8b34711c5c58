package netboot

import (
	"context"
	"log/slog"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/fstest"
	"time"

	"github.com/better-compute/bcd/app"
)

// memStore is an app.NetworkStore in memory.
type memStore struct {
	mu      sync.Mutex
	subnets []app.Subnet
	leases  map[app.MAC]app.Lease
}

func newMemStore(subnets ...app.Subnet) *memStore {
	return &memStore{subnets: subnets, leases: map[app.MAC]app.Lease{}}
}

func (m *memStore) ListSubnets(context.Context) ([]app.Subnet, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(m.subnets), nil
}

func (m *memStore) PutSubnet(_ context.Context, s *app.Subnet) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subnets = append(slices.DeleteFunc(m.subnets, func(o app.Subnet) bool { return o.ID == s.ID }), *s)
	return nil
}

func (m *memStore) ChangeSubnet(_ context.Context, id string, change func(*app.Subnet) error) (*app.Subnet, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i := range m.subnets {
		if m.subnets[i].ID == id {
			return &m.subnets[i], change(&m.subnets[i])
		}
	}
	return nil, app.Missing("subnet", id)
}

func (m *memStore) DeleteSubnet(_ context.Context, id string) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.subnets = slices.DeleteFunc(m.subnets, func(o app.Subnet) bool { return o.ID == id })
	return nil
}

func (m *memStore) ListLeases(context.Context) ([]app.Lease, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	var out []app.Lease
	for _, l := range m.leases {
		out = append(out, l)
	}
	return out, nil
}

func (m *memStore) PutLeases(_ context.Context, ls []app.Lease) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, l := range ls {
		m.leases[l.MAC] = l
	}
	return nil
}

func (m *memStore) DeleteLease(_ context.Context, mac app.MAC, _ netip.Addr) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.leases, mac)
	return nil
}

func (m *memStore) PutDiscovery(context.Context, *app.Discovery) error       { return nil }
func (m *memStore) ListDiscoveries(context.Context) ([]app.Discovery, error) { return nil, nil }
func (m *memStore) DeleteDiscovery(ctx context.Context, mac app.MAC) error   { return nil }

// fakePort knows machines by MAC.
type fakePort struct {
	mu       sync.Mutex
	targets  map[app.MAC]Target
	reserved map[app.MAC]netip.Addr
	fail     error
	found    []app.Discovery
	image    string // content of every file of the boot "k3y"; "" for none
}

func (p *fakePort) Target(_ context.Context, c Client) (Target, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return Target{}, p.fail
	}
	for _, m := range c.MACs {
		if t, ok := p.targets[m]; ok {
			return t, nil
		}
	}
	return Target{Kind: KindNone}, nil
}

func (p *fakePort) Reservation(_ context.Context, mac app.MAC) (Reservation, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fail != nil {
		return Reservation{}, p.fail
	}
	return Reservation{MachineID: p.targets[mac].MachineID, Addr: p.reserved[mac]}, nil
}

func (p *fakePort) Discovered(_ context.Context, d app.Discovery) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.found = append(p.found, d)
}

func (p *fakePort) BootData(_ context.Context, key string) ([]byte, error) {
	if key != "k3y" {
		return nil, app.Missing("boot", key)
	}
	return []byte("070701"), nil
}

func (p *fakePort) BootImage(_ context.Context, key, file string) (BootImage, error) {
	if key != "k3y" || p.image == "" {
		return BootImage{}, app.Missing("boot", key)
	}
	return BootImage{ReaderAt: strings.NewReader(p.image), Size: int64(len(p.image)), Tag: "tag of " + file, MachineID: "m-vm"}, nil
}

// patience bounds waits for what must come: a loaded machine is slow, and only a test that fails waits so long.
const patience = time.Minute

// events collects what was recorded and wakes whoever waits for a kind.
type events struct {
	mu   sync.Mutex
	all  []app.Event
	more chan struct{}
}

func newEvents() *events { return &events{more: make(chan struct{})} }

func (e *events) record(x app.Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.all = append(e.all, x)
	close(e.more)
	e.more = make(chan struct{})
}

// wait gives the first event that match accepts, or fails the test after a time.
func (e *events) wait(t *testing.T, what string, limit time.Duration, match func(app.Event) bool) app.Event {
	t.Helper()
	return e.waitFor(t, what, limit, 1, match)
}

// waitFor gives the nth event that match accepts, or fails the test after a time.
func (e *events) waitFor(t *testing.T, what string, limit time.Duration, nth int, match func(app.Event) bool) app.Event {
	t.Helper()
	deadline := time.After(limit)
	for {
		e.mu.Lock()
		left := nth
		i, more := slices.IndexFunc(e.all, func(x app.Event) bool {
			if match(x) {
				left--
			}
			return left == 0
		}), e.more
		if i >= 0 {
			defer e.mu.Unlock()
			return e.all[i]
		}
		e.mu.Unlock()
		select {
		case <-more:
		case <-deadline:
			e.mu.Lock()
			defer e.mu.Unlock()
			for _, x := range e.all {
				t.Logf("%s %s %s %s", x.Kind, x.Level, x.Message, x.Data)
			}
			t.Fatalf("no event %s within %v", what, limit)
		}
	}
}

func kind(k string) func(app.Event) bool { return func(x app.Event) bool { return x.Kind == k } }

var loaders = fstest.MapFS{
	"undionly.kpxe": {Data: []byte("undionly")},
	"snponly.efi":   {Data: []byte("MZ snponly")},
}

func discard() *slog.Logger { return slog.New(slog.DiscardHandler) }

func labSubnet(iface, mode string) app.Subnet {
	return app.Subnet{
		ID: "net-lab", CIDR: netip.MustParsePrefix("10.77.0.0/24"), Interface: iface, Mode: mode, Discover: true,
		PoolStart: netip.MustParseAddr("10.77.0.100"), PoolEnd: netip.MustParseAddr("10.77.0.199"),
		Gateway: netip.MustParseAddr("10.77.0.254"), DNS: []netip.Addr{netip.MustParseAddr("10.77.0.53")},
		NTP: []netip.Addr{netip.MustParseAddr("10.77.0.1")}, Domain: "lab.example", LeaseTime: app.Duration(10 * time.Minute),
	}
}
