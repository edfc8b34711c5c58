package ra

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"syscall"

	"golang.org/x/net/ipv6"
	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
)

// hopLimit is what RFC 4861 demands of both messages: it proves that no router was crossed.
const hopLimit = 255

// Config is what Serve needs. All fields must be set.
type Config struct {
	Booting func(ctx context.Context, mac app.MAC) bool // is this machine netbooting now?
	Record  func(mac app.MAC)                           // an advertisement was sent
	Log     *slog.Logger
}

// Conn is the open socket of one interface.
type Conn struct {
	pc  *ipv6.PacketConn
	ifi *net.Interface
}

// Listen opens ICMPv6 on one interface, in the network namespace of the calling thread. It needs CAP_NET_RAW and an
// interface with IPv6.
func Listen(ifi *net.Interface) (*Conn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var opt error
		err := c.Control(func(fd uintptr) { opt = unix.BindToDevice(int(fd), ifi.Name) })
		return errors.Join(err, opt)
	}}
	raw, err := lc.ListenPacket(context.Background(), "ip6:ipv6-icmp", "::")
	if err != nil {
		return nil, fmt.Errorf("opening ICMPv6 socket on %s: %w", ifi.Name, err)
	}
	c := &Conn{pc: ipv6.NewPacketConn(raw), ifi: ifi}
	if err := c.prepare(); err != nil {
		return nil, errors.Join(fmt.Errorf("preparing ICMPv6 socket on %s: %w", ifi.Name, err), raw.Close())
	}
	return c, nil
}

func (c *Conn) prepare() error {
	var f ipv6.ICMPFilter
	f.SetAll(true)
	f.Accept(ipv6.ICMPTypeRouterSolicitation)
	return errors.Join(
		c.pc.SetICMPFilter(&f),
		c.pc.JoinGroup(c.ifi, &net.IPAddr{IP: net.IPv6linklocalallrouters}),
		c.pc.SetControlMessage(ipv6.FlagHopLimit|ipv6.FlagInterface|ipv6.FlagDst, true),
		c.pc.SetHopLimit(hopLimit),
	)
}

// Serve answers until ctx ends, and closes the socket.
func (c *Conn) Serve(ctx context.Context, cfg Config) error {
	stop := context.AfterFunc(ctx, func() { _ = c.pc.Close() })
	defer stop()
	defer func() { _ = c.pc.Close() }()
	buf := make([]byte, 1500)
	for {
		n, cm, src, err := c.pc.ReadFrom(buf)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("reading ICMPv6 on %s: %w", c.ifi.Name, err)
		}
		from := addrOf(src)
		if cm == nil || cm.HopLimit != hopLimit || !from.IsLinkLocalUnicast() {
			continue // also leaves out ::, to which no answer can be unicast
		}
		mac, err := solicitor(buf[:n], from)
		if err != nil || !cfg.Booting(ctx, mac) {
			continue
		}
		out := &ipv6.ControlMessage{IfIndex: c.ifi.Index, HopLimit: hopLimit}
		if _, err := c.pc.WriteTo(advertisement(), out, &net.IPAddr{IP: from.AsSlice(), Zone: strconv.Itoa(c.ifi.Index)}); err != nil {
			cfg.Log.Warn("sending router advertisement failed", "interface", c.ifi.Name, "error", err)
			continue
		}
		cfg.Record(mac)
	}
}

func addrOf(a net.Addr) netip.Addr {
	ip, ok := a.(*net.IPAddr)
	if !ok {
		return netip.Addr{}
	}
	out, _ := netip.AddrFromSlice(ip.IP)
	return out
}
