package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"

	"github.com/better-compute/bcd/app"
)

// Asker looks for other DHCP servers on one interface.
type Asker struct {
	conn *packet.Conn
	ifi  *net.Interface
}

// NewAsker opens the interface, in the network namespace of the calling thread. It needs CAP_NET_RAW.
func NewAsker(ifi *net.Interface) (*Asker, error) {
	c, err := packet.Listen(ifi, packet.Raw, 0x0800, nil)
	if err != nil {
		return nil, fmt.Errorf("opening packet socket on %s: %w", ifi.Name, err)
	}
	return &Asker{c, ifi}, nil
}

// Ask broadcasts two DISCOVERs, a plain one and a PXE one, and gives those who answered within rivalTime, us left out. It
// closes the Asker. No answer is taken up, so that nothing is leased.
func (a *Asker) Ask(ctx context.Context, ours []netip.Addr, now func() time.Time) ([]app.Rival, error) {
	defer func() { _ = a.conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = a.conn.Close() })
	defer stop()
	if err := a.conn.SetReadDeadline(time.Now().Add(rivalTime)); err != nil {
		return nil, fmt.Errorf("bounding the wait on %s: %w", a.ifi.Name, err)
	}
	asked := map[dhcpv4.TransactionID]bool{}
	for _, pxe := range []bool{false, true} {
		f, xid, err := question(a.ifi.HardwareAddr, pxe)
		if err != nil {
			return nil, err
		}
		if _, err := a.conn.WriteTo(f, &packet.Addr{HardwareAddr: net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}}); err != nil {
			return nil, fmt.Errorf("sending a DISCOVER on %s: %w", a.ifi.Name, err)
		}
		asked[xid] = true
	}
	var found []app.Rival
	buf := make([]byte, maxDatagram+ethernetHeader)
	for {
		n, _, err := a.conn.ReadFrom(buf)
		switch {
		case errors.Is(err, os.ErrDeadlineExceeded):
			return found, nil
		case err != nil:
			return found, fmt.Errorf("reading answers on %s: %w", a.ifi.Name, errors.Join(context.Cause(ctx), err))
		}
		r, ok := rivalOf(buf[:n], func(x dhcpv4.TransactionID) bool { return asked[x] })
		if !ok || slices.Contains(ours, r.Server) {
			continue
		}
		r.Interface, r.Seen = a.ifi.Name, now().UTC()
		found = mergeRival(found, r)
	}
}
