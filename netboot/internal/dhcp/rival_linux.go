package dhcp

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/socket"
)

// Asker looks for other DHCP servers on one interface.
type Asker struct {
	conn wire
	ifi  *net.Interface
	now  func() time.Time // of the wait
}

// NewAsker opens the interface, in the network namespace of the calling thread. It needs CAP_NET_RAW.
func NewAsker(ifi *net.Interface) (*Asker, error) {
	filter, err := bpf.Assemble(toClients)
	if err != nil {
		return nil, fmt.Errorf("assembling the filter of answers: %w", err)
	}
	c, err := packet.Listen(ifi, packet.Raw, 0x0800, &packet.Config{Filter: filter})
	if err != nil {
		return nil, fmt.Errorf("opening packet socket on %s: %w", ifi.Name, err)
	}
	return &Asker{c, ifi, time.Now}, nil
}

// toClients passes whole UDP datagrams to the client port, as clientPayload reads them: without it, answers would share the
// socket's buffer with all that the interface carries.
var toClients = []bpf.Instruction{
	bpf.LoadAbsolute{Off: ethernetHeader + 9, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 17, SkipTrue: 6},
	bpf.LoadAbsolute{Off: ethernetHeader + 6, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x3fff, SkipTrue: 4},
	bpf.LoadMemShift{Off: ethernetHeader},
	bpf.LoadIndirect{Off: ethernetHeader + 2, Size: 2},
	bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: uint32(ClientPort), SkipTrue: 1},
	bpf.RetConstant{Val: maxDatagram + ethernetHeader},
	bpf.RetConstant{Val: 0},
}

// Ask broadcasts two DISCOVERs, a plain one and a PXE one, and gives those who answered within rivalTime, us left out. It
// closes the Asker. No answer is taken up, so that nothing is leased.
func (a *Asker) Ask(ctx context.Context, ours []netip.Addr, now func() time.Time) ([]app.Rival, error) {
	defer func() { _ = a.conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = a.conn.Close() })
	defer stop()
	asked := map[dhcpv4.TransactionID]bool{}
	for _, pxe := range []bool{false, true} {
		f, xid, err := question(a.ifi.HardwareAddr, pxe)
		if err != nil {
			return nil, err
		}
		if _, err := a.conn.WriteTo(f, everyone); err != nil {
			return nil, fmt.Errorf("sending a DISCOVER on %s: %w", a.ifi.Name, err)
		}
		asked[xid] = true
	}
	var found []app.Rival
	err := socket.Collect(a.conn, a.now().Add(rivalTime), make([]byte, maxDatagram+ethernetHeader), func(b []byte) bool {
		r, ok := rivalOf(b, func(x dhcpv4.TransactionID) bool { return asked[x] })
		if ok && !slices.Contains(ours, r.Server) {
			r.Interface, r.Seen = a.ifi.Name, now().UTC()
			found = mergeRival(found, r)
		}
		return false
	})
	if err != nil {
		return found, fmt.Errorf("on %s: %w", a.ifi.Name, errors.Join(context.Cause(ctx), err))
	}
	return found, nil
}
