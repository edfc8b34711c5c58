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
	raw, err := packet.Listen(ifi, packet.Raw, 0, nil) // protocol 0: sends only
	if err != nil {
		return nil, fmt.Errorf("opening packet socket on %s: %w", ifi.Name, err)
	}
	c, err := listen(ifi.Name, ServerPort)
	if err != nil {
		return nil, errors.Join(err, raw.Close())
	}
	c.raw, c.mac = raw, ifi.HardwareAddr
	return c, nil
}

// ListenRelayed opens the server port on all interfaces, for requests that relays send to any of our addresses.
func ListenRelayed() (Conn, error) { return listen("", ServerPort) }

// ListenPXE opens the port of PXE boot servers on one interface, or on all when device is "".
func ListenPXE(device string) (Conn, error) { return listen(device, PXEPort) }

func listen(device string, port uint16) (*socketConn, error) {
	udp, err := socket.UDP(device, netip.AddrPortFrom(netip.IPv4Unspecified(), port))
	if err != nil {
		return nil, err
	}
	p := ipv4.NewPacketConn(udp)
	if err := p.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true); err != nil {
		return nil, errors.Join(fmt.Errorf("asking for packet information on %q: %w", device, err), udp.Close())
	}
	return &socketConn{udp: p}, nil
}

// socketConn is the Conn of real interfaces.
type socketConn struct {
	udp *ipv4.PacketConn
	raw *packet.Conn     // of one interface; nil: all are served, or no client is without an address
	mac net.HardwareAddr // ours, on that interface
}

func (c *socketConn) Read(buf []byte) (int, Meta, error) {
	n, cm, src, err := c.udp.ReadFrom(buf)
	if err != nil {
		return 0, Meta{}, err
	}
	from := src.(*net.UDPAddr).AddrPort()
	m := Meta{From: netip.AddrPortFrom(from.Addr().Unmap(), from.Port())}
	if cm != nil {
		m.To, m.IfIndex = addrOf(cm.Dst), cm.IfIndex
	}
	return n, m, nil
}

// Write sends from the right source address and interface. When the frame to a client without an address cannot be
// sent, the reply is broadcast instead: the client takes it by its transaction id.
func (c *socketConn) Write(r Reply) error {
	if r.HW != nil {
		if c.raw != nil {
			f := frame(c.mac, r.HW, netip.AddrPortFrom(r.Source, ServerPort), r.To, r.Payload)
			if _, err := c.raw.WriteTo(f, &packet.Addr{HardwareAddr: r.HW}); err == nil {
				return nil
			}
		}
		r.To = broadcast
	}
	cm := &ipv4.ControlMessage{Src: r.Source.AsSlice(), IfIndex: r.IfIndex}
	_, err := c.udp.WriteTo(r.Payload, cm, net.UDPAddrFromAddrPort(r.To))
	return err
}

func (c *socketConn) Close() error {
	if c.raw == nil {
		return c.udp.Close()
	}
	return errors.Join(c.udp.Close(), c.raw.Close())
}
