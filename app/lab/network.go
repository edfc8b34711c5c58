package lab

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"regexp"
	"sync"

	"github.com/vishvananda/netlink"

	"github.com/better-compute/bcd/app"
)

// Bridge is the name of the lab's switch, inside its namespace.
const Bridge = "br0"

// bridgeMAC is fixed: without it the bridge would take its ports' lowest address, and change it as taps come and go.
const bridgeMAC = "02:77:00:00:00:01"

// NetworkConfig describes the isolated network.
type NetworkConfig struct {
	Name    string       // of the namespace; default "bcdlab"
	Address netip.Prefix // of the appliance, default 10.77.0.1/24
	Taps    int          // ports for virtual machines, at most 16; default 2
	Log     *slog.Logger // default: discard
}

func (c NetworkConfig) withDefaults() NetworkConfig {
	if c.Name == "" {
		c.Name = "bcdlab"
	}
	if !c.Address.IsValid() {
		c.Address = netip.MustParsePrefix("10.77.0.1/24")
	}
	if c.Taps == 0 {
		c.Taps = 2
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	return c
}

// Network is a network namespace with a bridge and taps. Its methods may be called from any goroutine.
type Network struct {
	cfg   NetworkConfig
	claim *claim
	close sync.Once
	err   error // of close
}

var namespaceRE = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// NewNetwork makes the network. What a killed lab of the same name left is removed first; a living one is refused.
func NewNetwork(cfg NetworkConfig) (*Network, error) {
	cfg = cfg.withDefaults()
	if !namespaceRE.MatchString(cfg.Name) || cfg.Taps < 0 || cfg.Taps > 16 || !cfg.Address.Addr().Is4() {
		return nil, app.Invalid("network", "a lab network has a plain name, an IPv4 prefix and at most 16 taps")
	}
	if os.Geteuid() != 0 {
		return nil, app.Errorf(app.Forbidden, "need-root", "the lab makes a network namespace of its own, which needs root").Do("run it as root")
	}
	claim, err := claimName(cfg.Name, cfg.Log)
	if err != nil {
		return nil, err
	}
	n := &Network{cfg: cfg, claim: claim}
	err = createNamespace(cfg.Name)
	if err == nil {
		err = n.Do(n.build)
	}
	if err != nil {
		return nil, errors.Join(app.Errorf(app.Unavailable, "lab-network", "the lab's network cannot be made: %w", err), n.Close())
	}
	return n, nil
}

// build makes the devices; it runs inside the namespace.
func (n *Network) build() error {
	lo, err := netlink.LinkByName("lo")
	if err != nil {
		return fmt.Errorf("finding the loopback: %w", err)
	}
	if err := netlink.LinkSetUp(lo); err != nil {
		return fmt.Errorf("setting the loopback up: %w", err)
	}
	attrs := netlink.NewLinkAttrs()
	attrs.Name = Bridge
	attrs.HardwareAddr, _ = net.ParseMAC(bridgeMAC)
	bridge := &netlink.Bridge{LinkAttrs: attrs}
	if err := netlink.LinkAdd(bridge); err != nil {
		return fmt.Errorf("adding the bridge: %w", err)
	}
	// A tap without a guest has no carrier, so the bridge has none either: duplicate address detection would never end.
	err = os.WriteFile("/proc/sys/net/ipv6/conf/"+Bridge+"/accept_dad", []byte("0"), 0o644)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("turning duplicate address detection off: %w", err)
	}
	addr := &netlink.Addr{IPNet: &net.IPNet{IP: n.cfg.Address.Addr().AsSlice(), Mask: net.CIDRMask(n.cfg.Address.Bits(), 32)}}
	if err := netlink.AddrAdd(bridge, addr); err != nil {
		return fmt.Errorf("giving the bridge %s: %w", n.cfg.Address, err)
	}
	for _, name := range n.Taps() {
		if err := addTap(name, bridge); err != nil {
			return err
		}
	}
	if err := netlink.LinkSetUp(bridge); err != nil {
		return fmt.Errorf("setting the bridge up: %w", err)
	}
	return nil
}

func addTap(name string, bridge netlink.Link) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = name
	tap := &netlink.Tuntap{LinkAttrs: attrs, Mode: netlink.TUNTAP_MODE_TAP, Flags: netlink.TUNTAP_DEFAULTS}
	if err := netlink.LinkAdd(tap); err != nil {
		return fmt.Errorf("adding %s: %w", name, err)
	}
	if err := netlink.LinkSetMaster(tap, bridge); err != nil {
		return fmt.Errorf("plugging %s in: %w", name, err)
	}
	if err := netlink.LinkSetUp(tap); err != nil {
		return fmt.Errorf("setting %s up: %w", name, err)
	}
	return nil
}

// Name is the namespace's name, for `ip netns exec`.
func (n *Network) Name() string { return n.cfg.Name }

// Address is the appliance's address with the prefix of the lab's subnet.
func (n *Network) Address() netip.Prefix { return n.cfg.Address }

// Taps are the ports for virtual machines, "tap0" first.
func (n *Network) Taps() []string {
	var names []string
	for i := range n.cfg.Taps {
		names = append(names, fmt.Sprintf("tap%d", i))
	}
	return names
}

// Do runs f inside the namespace; see InNamespace.
func (n *Network) Do(f func() error) error { return InNamespace(n.cfg.Name, f) }

// Listen opens a stream listener inside the namespace; the address must be numeric.
func (n *Network) Listen(ctx context.Context, network, address string) (l net.Listener, err error) {
	err = n.Do(func() error {
		var lc net.ListenConfig
		l, err = lc.Listen(ctx, network, address)
		return err
	})
	return l, err
}

// ListenPacket opens a packet socket inside the namespace; the address must be numeric.
func (n *Network) ListenPacket(ctx context.Context, network, address string) (c net.PacketConn, err error) {
	err = n.Do(func() error {
		var lc net.ListenConfig
		c, err = lc.ListenPacket(ctx, network, address)
		return err
	})
	return c, err
}

// Dial connects from inside the namespace, as a machine's neighbour would; the address must be numeric.
func (n *Network) Dial(ctx context.Context, network, address string) (c net.Conn, err error) {
	if _, err := netip.ParseAddrPort(address); err != nil {
		return nil, app.Invalid("address", "%q is not numeric", address)
	}
	err = n.Do(func() error {
		var d net.Dialer
		c, err = d.DialContext(ctx, network, address)
		return err
	})
	return c, err
}

// Close removes the namespace with everything in it. Machines on its taps must have ended. It may be called more than once.
func (n *Network) Close() error {
	n.close.Do(func() { n.err = errors.Join(removeNamespace(n.cfg.Name), n.claim.release()) })
	return n.err
}
