package dhcp

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/mdlayher/packet"
	"golang.org/x/net/ipv4"

	"github.com/better-compute/bcd/netboot/internal/socket"
)

// Listen opens the server port on one interface, with a packet socket beside it for clients that have no address yet.
// Both belong to the network namespace of the calling thread. It needs CAP_NET_RAW and CAP_NET_BIND_SERVICE.
func Listen(ifi *net.Interface) (Conn, error) {
	udp, err := socket.UDP(ifi.Name, netip.AddrPortFrom(netip.IPv4Unspecified(), ServerPort))
	if err != nil {
		return nil, err
	}
	raw, err := packet.Listen(ifi, packet.Raw, 0, nil) // protocol 0: sends only
	if err != nil {
		return nil, errors.Join(fmt.Errorf("opening packet socket on %s: %w", ifi.Name, err), udp.Close())
	}
	p := ipv4.NewPacketConn(udp)
	if err := p.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true); err != nil {
		return nil, errors.Join(fmt.Errorf("asking for packet information on %s: %w", ifi.Name, err), udp.Close(), raw.Close())
	}
	return &deviceConn{udp: p, raw: raw, ifi: ifi}, nil
}

// deviceConn is the Conn of a real interface.
type deviceConn struct {
	udp *ipv4.PacketConn
	raw *packet.Conn
	ifi *net.Interface
}

func (c *deviceConn) Read(buf []byte) (int, netip.AddrPort, netip.Addr, error) {
	n, cm, src, err := c.udp.ReadFrom(buf)
	if err != nil {
		return 0, netip.AddrPort{}, netip.Addr{}, err
	}
	var to netip.Addr
	if cm != nil {
		to = addrOf(cm.Dst)
	}
	from := src.(*net.UDPAddr).AddrPort()
	return n, netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), to, nil
}

// Write sends from the right source address and interface. When the frame to a client without an address cannot be
// sent, the reply is broadcast instead: the client takes it by its transaction id.
func (c *deviceConn) Write(r Reply) error {
	if r.HW != nil {
		f := frame(c.ifi.HardwareAddr, r.HW, netip.AddrPortFrom(r.Source, ServerPort), r.To, r.Payload)
		if _, err := c.raw.WriteTo(f, &packet.Addr{HardwareAddr: r.HW}); err == nil {
			return nil
		}
		r.To = broadcast
	}
	cm := &ipv4.ControlMessage{Src: r.Source.AsSlice(), IfIndex: c.ifi.Index}
	_, err := c.udp.WriteTo(r.Payload, cm, net.UDPAddrFromAddrPort(r.To))
	return err
}

func (c *deviceConn) Close() error { return errors.Join(c.udp.Close(), c.raw.Close()) }
