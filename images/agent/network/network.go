package network

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"time"
)

// Waits of one round.
const (
	portWait    = 15 * time.Second // for the port that netbooted to show up: its driver may still be loading
	carrierWait = 20 * time.Second // for the port that netbooted: auto-negotiation and a switch's spanning tree take time
	dhcpTry     = 2 * time.Second  // for one DISCOVER or REQUEST
	dhcpRetries = 5
	roundPause  = 2 * time.Second
	renewRetry  = 30 * time.Second
)

// Config of a Network. Log is required.
type Config struct {
	Sys     string // root of /sys
	BootMAC string // the port that netbooted, colon form; empty: unknown
	Log     *slog.Logger
}

// Network holds the machine's address. Make it with New.
type Network struct {
	cfg Config
	// What touches the kernel, replaced in tests of the order of tries.
	raise func(name string) error
	lease func(ctx context.Context, name string, mac net.HardwareAddr) (*lease, error)
	apply func(name string, l *lease) error

	port  port
	owned *lease
}

// port is an Ethernet port of the machine.
type port struct {
	name string
	mac  net.HardwareAddr
	usb  bool // often the BMC's own
}

// lease is what DHCP gave.
type lease struct {
	addr     net.IPNet
	gateway  net.IP // nil: none
	mtu      int    // 0: leave it
	duration time.Duration
}

// New makes a Network. It touches nothing.
func New(cfg Config) *Network {
	return &Network{cfg: cfg, raise: raise, lease: dora, apply: apply}
}

// Up brings up every port and returns once one has an address. It tries for ever: ports appear late, cables are plugged in,
// a server comes back.
func (n *Network) Up(ctx context.Context) error {
	for patience := portWait; ; patience = 0 {
		if n.round(ctx, n.raiseAll(ctx, patience)) {
			return nil
		}
		if !sleep(ctx, roundPause) {
			return context.Cause(ctx)
		}
	}
}

// raiseAll brings up every port as it shows up, and waits until the one that netbooted is among them.
func (n *Network) raiseAll(ctx context.Context, patience time.Duration) []port {
	up := map[string]bool{}
	for deadline := time.Now().Add(patience); ; {
		ports, found := n.ports(), false
		for _, p := range ports {
			found = found || n.cfg.BootMAC == "" || strings.EqualFold(p.mac.String(), n.cfg.BootMAC)
			if up[p.name] {
				continue
			}
			up[p.name] = true
			if err := n.raise(p.name); err != nil {
				n.cfg.Log.Warn("a network port does not come up", "port", p.name, "error", err)
			}
		}
		if found || !time.Now().Before(deadline) || !sleep(ctx, 100*time.Millisecond) {
			return ports
		}
	}
}

// round tries the port that netbooted first, and each other port with a link when that gives no address.
func (n *Network) round(ctx context.Context, ports []port) bool {
	order(ports, n.cfg.BootMAC)
	for i, p := range ports {
		boot := strings.EqualFold(p.mac.String(), n.cfg.BootMAC)
		wait := time.Duration(0)
		if boot || (i == 0 && n.cfg.BootMAC == "") {
			wait = carrierWait
		}
		if !n.carrier(ctx, p.name, wait) {
			n.cfg.Log.Info("a network port has no link", "port", p.name, "mac", p.mac.String(), "netbooted", boot)
			continue
		}
		l, err := n.lease(ctx, p.name, p.mac)
		if err == nil {
			err = n.apply(p.name, l)
		}
		if err == nil {
			n.port, n.owned = p, l
			n.cfg.Log.Info("network is up", "port", p.name, "mac", p.mac.String(), "address", l.addr.String(), "netbooted", boot)
			return true
		}
		n.cfg.Log.Warn("a network port gets no address", "port", p.name, "mac", p.mac.String(), "error", err)
		if ctx.Err() != nil {
			return false
		}
	}
	return false
}

// Keep renews the address until ctx ends. An address that cannot be renewed is kept: work under way matters more, and the
// appliance gives a machine the same address for good.
func (n *Network) Keep(ctx context.Context) {
	if n.owned == nil {
		return
	}
	pause := n.owned.duration / 2
	for sleep(ctx, max(pause, renewRetry)) {
		l, err := n.lease(ctx, n.port.name, n.port.mac)
		if err == nil {
			err = n.apply(n.port.name, l)
		}
		if err != nil {
			n.cfg.Log.Warn("the address was not renewed", "port", n.port.name, "error", err)
			pause = renewRetry
			continue
		}
		n.owned, pause = l, l.duration/2
	}
}

// order sorts ports: the one that netbooted, then wired ones, then USB, each by name.
func order(ports []port, boot string) {
	rank := func(p port) int {
		switch {
		case strings.EqualFold(p.mac.String(), boot):
			return 0
		case p.usb:
			return 2
		}
		return 1
	}
	sort.SliceStable(ports, func(i, j int) bool {
		if a, b := rank(ports[i]), rank(ports[j]); a != b {
			return a < b
		}
		return ports[i].name < ports[j].name
	})
}

// ports lists the Ethernet ports that are devices.
func (n *Network) ports() []port {
	dir := filepath.Join(n.cfg.Sys, "class/net")
	entries, err := os.ReadDir(dir)
	if err != nil {
		n.cfg.Log.Error("the network ports cannot be listed", "error", err)
	}
	var out []port
	for _, e := range entries {
		at := filepath.Join(dir, e.Name())
		device, err := filepath.EvalSymlinks(filepath.Join(at, "device"))
		if err != nil || read(at, "type") != "1" {
			continue
		}
		mac, err := net.ParseMAC(read(at, "address"))
		if err != nil || len(mac) != 6 {
			continue
		}
		out = append(out, port{name: e.Name(), mac: mac, usb: strings.Contains(device, "/usb")})
	}
	return out
}

// carrier waits for a port's link.
func (n *Network) carrier(ctx context.Context, name string, limit time.Duration) bool {
	for deadline := time.Now().Add(limit); ; {
		if read(filepath.Join(n.cfg.Sys, "class/net", name), "carrier") == "1" {
			return true
		}
		if !time.Now().Before(deadline) || !sleep(ctx, 100*time.Millisecond) {
			return false
		}
	}
}

func read(dir, name string) string {
	b, _ := os.ReadFile(filepath.Join(dir, name)) // absent, or EINVAL for the carrier of a port that is down
	return strings.TrimSpace(string(b))
}

func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
