package figures

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/mdlayher/packet"
	"golang.org/x/net/bpf"

	"github.com/better-compute/bcd/app/lab"
)

const (
	etherIPv4 = 0x0800
	headers   = 14 + 20 + 8 // Ethernet, IPv4, UDP
)

// wire speaks DHCP for many simulated machines over one packet socket.
type wire struct {
	conn    *packet.Conn
	mu      sync.Mutex
	waiting map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4
}

// listen opens the socket on the rack's switch.
func listen(rack *lab.Network) (*wire, error) {
	w := &wire{waiting: map[dhcpv4.TransactionID]chan *dhcpv4.DHCPv4{}}
	err := rack.Do(func() error {
		iface, err := net.InterfaceByName(lab.Bridge)
		if err != nil {
			return err
		}
		// Only what is for DHCP clients: the rest of a storm would fill the socket.
		filter, err := bpf.Assemble([]bpf.Instruction{
			bpf.LoadAbsolute{Off: 23, Size: 1}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: 17, SkipTrue: 3},
			bpf.LoadAbsolute{Off: 36, Size: 2}, bpf.JumpIf{Cond: bpf.JumpNotEqual, Val: dhcpv4.ClientPort, SkipTrue: 1},
			bpf.RetConstant{Val: 2048}, bpf.RetConstant{Val: 0},
		})
		if err != nil {
			return err
		}
		w.conn, err = packet.Listen(iface, packet.Raw, etherIPv4, &packet.Config{Filter: filter})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("opening a packet socket: %w", err)
	}
	go w.read()
	return w, nil
}

// Close ends the reading.
func (w *wire) Close() error { return w.conn.Close() }

func (w *wire) read() {
	for b := make([]byte, 2048); ; {
		n, _, err := w.conn.ReadFrom(b)
		if err != nil {
			return
		}
		if n < headers || b[14] != 0x45 || b[23] != 17 || binary.BigEndian.Uint16(b[36:]) != dhcpv4.ClientPort {
			continue
		}
		m, err := dhcpv4.FromBytes(bytes.Clone(b[headers:n])) // the message keeps parts of it
		if err != nil {
			continue
		}
		w.mu.Lock()
		c := w.waiting[m.TransactionID]
		w.mu.Unlock()
		select {
		case c <- m:
		default: // nobody asked, or it was answered already
		}
	}
}

// lease takes a machine through DISCOVER, OFFER, REQUEST and ACK, as a UEFI firmware or as iPXE.
func (w *wire) lease(ctx context.Context, mac net.HardwareAddr, ipxe bool) (*dhcpv4.DHCPv4, error) {
	who := []dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptClassIdentifier("PXEClient:Arch:00007:UNDI:003016")), dhcpv4.WithOption(dhcpv4.OptClientArch(7)),
		dhcpv4.WithBroadcast(true), dhcpv4.WithRequestedOptions(dhcpv4.OptionBootfileName, dhcpv4.OptionTFTPServerName, dhcpv4.OptionRouter),
	}
	if ipxe {
		who = append(who, dhcpv4.WithUserClass("iPXE", false))
	}
	ask, err := dhcpv4.NewDiscovery(mac, who...)
	if err != nil {
		return nil, err
	}
	offer, err := w.exchange(ctx, ask, dhcpv4.MessageTypeOffer)
	if err != nil {
		return nil, err
	}
	take, err := dhcpv4.NewRequestFromOffer(offer, who...)
	if err != nil {
		return nil, err
	}
	ack, err := w.exchange(ctx, take, dhcpv4.MessageTypeAck)
	if err == nil && ack.BootFileName == "" {
		ack.BootFileName = ack.BootFileNameOption()
	}
	return ack, err
}

// exchange sends a message, again after 2, 4, 8, … s as firmware does, until it is answered.
func (w *wire) exchange(ctx context.Context, m *dhcpv4.DHCPv4, want dhcpv4.MessageType) (*dhcpv4.DHCPv4, error) {
	c := make(chan *dhcpv4.DHCPv4, 1)
	w.mu.Lock()
	w.waiting[m.TransactionID] = c
	w.mu.Unlock()
	defer func() { w.mu.Lock(); delete(w.waiting, m.TransactionID); w.mu.Unlock() }()
	for again := 2 * time.Second; again < time.Minute; again *= 2 {
		if _, err := w.conn.WriteTo(frame(m.ClientHWAddr, m.ToBytes()), &packet.Addr{HardwareAddr: broadcast}); err != nil {
			return nil, err
		}
		select {
		case got := <-c:
			if got.MessageType() != want {
				return nil, fmt.Errorf("%s of %s answered by %s: %s", m.MessageType(), m.RequestedIPAddress(), got.MessageType(), got.Message())
			}
			return got, nil
		case <-time.After(again):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
	return nil, errors.New("no answer")
}

var broadcast = net.HardwareAddr{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

// frame puts a DHCP message of a machine without address into an Ethernet frame.
func frame(mac net.HardwareAddr, msg []byte) []byte {
	b := make([]byte, headers, headers+len(msg))
	copy(b, broadcast)
	copy(b[6:], mac)
	binary.BigEndian.PutUint16(b[12:], etherIPv4)
	ip, udp := b[14:34], b[34:42]
	ip[0], ip[8], ip[9] = 0x45, 64, 17
	binary.BigEndian.PutUint16(ip[2:], uint16(28+len(msg)))
	copy(ip[16:], net.IPv4bcast.To4())
	var sum uint32
	for i := 0; i < len(ip); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(ip[i:]))
	}
	for sum > 0xffff {
		sum = sum>>16 + sum&0xffff
	}
	binary.BigEndian.PutUint16(ip[10:], ^uint16(sum))
	binary.BigEndian.PutUint16(udp, dhcpv4.ClientPort)
	binary.BigEndian.PutUint16(udp[2:], dhcpv4.ServerPort)
	binary.BigEndian.PutUint16(udp[4:], uint16(8+len(msg))) // without a checksum, as UDP over IPv4 may be
	return append(b, msg...)
}

// tftp reads a file as firmware does, which begins anew when the server falls silent.
func (m *stormMachine) tftp(ctx context.Context, name string) (total int64, err error) {
	for range 4 {
		var n int64
		n, err = m.transfer(ctx, name)
		total += n
		if !errors.Is(err, errSilent) {
			break
		}
	}
	return total, err
}

var errSilent = errors.New("no answer for 6 s")

// transfer reads a file in blocks of 1432 bytes, each acknowledged, asked for again after a second (RFC 1350, 2348).
func (m *stormMachine) transfer(ctx context.Context, name string) (total int64, err error) {
	c, err := m.rack.ListenPacket(ctx, "udp4", net.JoinHostPort(m.addr.String(), "0"))
	if err != nil {
		return 0, err
	}
	defer c.Close()
	const size = 1432
	out := []byte("\x00\x01" + name + "\x00octet\x00blksize\x001432\x00")
	var to net.Addr = &net.UDPAddr{IP: m.site.AsSlice(), Port: 69}
	var peer string // the server's end of this transfer; that of a request sent again is another
	in := make([]byte, size+4)
	for next, heard := uint16(1), time.Now(); time.Since(heard) < 6*time.Second; {
		if _, err := c.WriteTo(out, to); err != nil {
			return total, err
		}
		n, from, err := hear(c, in, peer)
		if errors.Is(err, os.ErrDeadlineExceeded) && ctx.Err() == nil {
			continue
		}
		if err != nil || n < 4 {
			return total, errors.Join(err, context.Cause(ctx))
		}
		peer, to = from.String(), from
		switch op, block := binary.BigEndian.Uint16(in), binary.BigEndian.Uint16(in[2:]); {
		case op == 6: // the options are granted
			out = []byte{0, 4, 0, 0}
		case op == 3 && block == next:
			out, heard = []byte{0, 4, in[2], in[3]}, time.Now()
			total += int64(n - 4)
			next++
			if n-4 < size {
				_, err := c.WriteTo(out, to)
				return total, err
			}
		case op == 5:
			return total, fmt.Errorf("refused: %q", in[4:n])
		}
	}
	return total, errSilent
}

// hear waits a second for a packet of peer, of anybody when it is "".
func hear(c net.PacketConn, in []byte, peer string) (int, net.Addr, error) {
	if err := c.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
		return 0, nil, err
	}
	for {
		n, from, err := c.ReadFrom(in)
		if err != nil || peer == "" || from.String() == peer {
			return n, from, err
		}
	}
}
