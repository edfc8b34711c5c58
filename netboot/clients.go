package netboot

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
	"github.com/better-compute/bcd/netboot/internal/httpboot"
	"github.com/better-compute/bcd/netboot/internal/ipxe"
)

// portTime bounds one question to the Port.
const portTime = 2 * time.Second

// dhcpClients answers DHCP's questions out of the Port.
type dhcpClients struct{ *Server }

// Reservation asks whose a MAC is. When the Port fails the client counts as nobody's for now.
func (s dhcpClients) Reservation(ctx context.Context, mac app.MAC) (netip.Addr, bool) {
	ctx, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	r, err := s.cfg.Port.Reservation(ctx, mac)
	if err != nil {
		s.cfg.Log.Error("asking for a reservation failed", "mac", mac, "error", err)
		return netip.Addr{}, false
	}
	s.clients.machine(mac, r.MachineID)
	return r.Addr, r.MachineID != ""
}

// Decide chooses the boot file. When the Port fails the client gets as far as a script, which asks again.
func (s dhcpClients) Decide(ctx context.Context, f bootfile.Facts, _ app.Subnet, ours netip.Addr) bootfile.Decision {
	f.HTTPBase = s.base.url(ours)
	f.Chained = s.clients.chained(f.MAC)
	if bootfile.Decide(f).Stage == bootfile.StageOS {
		s.clients.booting(f.MAC, false)
		return bootfile.Decide(f)
	}
	t, err := s.target(ctx, Client{MACs: []app.MAC{f.MAC}, UUID: f.UUID()})
	switch f.Boot = bootfile.Boot(t.Kind); {
	case err != nil:
		f.Boot = bootfile.BootAsk
	case f.Boot == "":
		f.Boot = bootfile.BootNone
	}
	if t.Program != "" {
		f.Program = absolute(f.HTTPBase, t.Program)
	}
	d := bootfile.Decide(f)
	s.clients.booting(f.MAC, d.File != "")
	return d
}

// target asks the Port, within a time.
func (s *Server) target(ctx context.Context, c Client) (Target, error) {
	ctx, cancel := context.WithTimeout(ctx, portTime)
	defer cancel()
	t, err := s.cfg.Port.Target(ctx, c)
	if err != nil {
		s.cfg.Log.Error("asking for a boot target failed", "macs", c.MACs, "error", err)
		return Target{}, err
	}
	for _, m := range c.MACs {
		s.clients.machine(m, t.MachineID)
	}
	return t, nil
}

// script gives iPXE its script: never an error, which would leave the machine at a prompt.
func (s *Server) script(ctx context.Context, r httpboot.ScriptRequest) string {
	c := Client{MACs: r.MACs, UUID: r.UUID}
	if len(c.MACs) == 0 {
		if mac, ok := s.dhcp.ClientAt(r.Remote); ok {
			c.MACs = []app.MAC{mac}
		}
	}
	if len(c.MACs) == 0 && c.UUID == "" {
		return ipxe.Disk()
	}
	self := r.Base + "/boot/script"
	if len(c.MACs) > 0 {
		self += "?mac=" + c.MACs[0].Hyphen()
	}
	t, err := s.target(ctx, c)
	if err == nil && !t.Kind.loads() {
		s.recordScript(c, r, t, "The machine was sent on to its disk.", nil)
		return ipxe.Disk()
	}
	var text string
	what := "the ramdisk"
	switch {
	case err != nil:
	case t.Kind == KindISO:
		what = "the ISO image"
		text, err = ipxe.ISO{Machine: t.Name, URL: absolute(r.Base, t.ISO), Script: self}.Render()
	default:
		text, err = ramdiskScript(t, r.Base, self)
	}
	if err == nil {
		s.recordScript(c, r, t, "The machine was told to load "+what+".", nil)
		return text
	}
	s.recordScript(c, r, t, "The machine was told to wait and ask again.", err)
	if text, err = ipxe.Wait(self); err != nil {
		return ipxe.Disk()
	}
	return text
}

func ramdiskScript(t Target, base, self string) (string, error) {
	r := ipxe.Ramdisk{Machine: t.Name, Kernel: absolute(base, t.Kernel), Cmdline: t.Cmdline, Script: self}
	for _, i := range t.Initrds {
		r.Initrds = append(r.Initrds, absolute(base, i))
	}
	return r.Render()
}

func absolute(base, ref string) string {
	if strings.HasPrefix(ref, "/") {
		return base + ref
	}
	return ref
}

// bootTime is how long a client counts as netbooting, and as chained to our loader, after it last said so.
const bootTime = 2 * time.Minute

// maxTracked bounds the clients remembered; beyond it those not seen for bootTime are forgotten.
const maxTracked = 16384

// tracker remembers clients for a while.
type tracker struct {
	now func() time.Time
	mu  sync.Mutex
	all map[app.MAC]*tracked
}

type tracked struct {
	machine               string
	seen, boots, chainEnd time.Time
}

func newTracker(now func() time.Time) *tracker {
	return &tracker{now: now, all: map[app.MAC]*tracked{}}
}

// at gives a client's entry. mu must be held.
func (t *tracker) at(mac app.MAC) *tracked {
	now := t.now()
	c := t.all[mac]
	if c == nil {
		if len(t.all) >= maxTracked {
			t.prune(now)
		}
		c = &tracked{}
		t.all[mac] = c
	}
	c.seen = now
	return c
}

// prune forgets old clients, and all when there are only new ones: a flood of invented MACs.
func (t *tracker) prune(now time.Time) {
	for mac, c := range t.all {
		if now.Sub(c.seen) > bootTime {
			delete(t.all, mac)
		}
	}
	if len(t.all) >= maxTracked {
		clear(t.all)
	}
}

func (t *tracker) machine(mac app.MAC, id string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at(mac).machine = id
}

func (t *tracker) machineOf(mac app.MAC) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if c := t.all[mac]; c != nil {
		return c.machine
	}
	return ""
}

// booting notes that a client netboots now, or that its operating system runs.
func (t *tracker) booting(mac app.MAC, yes bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.at(mac)
	c.boots = time.Time{}
	if yes {
		c.boots = t.now().Add(bootTime)
	}
}

func (t *tracker) isBooting(mac app.MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[mac]
	return c != nil && t.now().Before(c.boots)
}

// loaded notes that a client fetched our loader.
func (t *tracker) loaded(mac app.MAC) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at(mac).chainEnd = t.now().Add(bootTime)
}

func (t *tracker) chained(mac app.MAC) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.all[mac]
	return c != nil && t.now().Before(c.chainEnd)
}
