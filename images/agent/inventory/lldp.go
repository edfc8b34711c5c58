package inventory

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"sync"
	"time"

	"github.com/mdlayher/packet"
	"golang.org/x/sys/unix"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// etherLLDP is the EtherType of LLDP (IEEE 802.1AB).
const etherLLDP = 0x88cc

// Listener hears the switch ports that the machine's ports are cabled to. Switches speak when a link comes up and every
// 30 s after, so it listens from the start on.
type Listener struct {
	sys string
	log *slog.Logger

	mu    sync.Mutex // protects heard
	heard map[string]agentv1.LLDP
}

// NewListener makes a Listener; sys is the root of /sys.
func NewListener(sys string, log *slog.Logger) *Listener {
	return &Listener{sys: sys, log: log, heard: map[string]agentv1.LLDP{}}
}

// Heard gives the neighbours by port.
func (l *Listener) Heard() map[string]agentv1.LLDP {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.heard)
}

// Run listens on every port that has a link, and on those that get one, until ctx ends.
func (l *Listener) Run(ctx context.Context) {
	var wg sync.WaitGroup
	defer wg.Wait()
	open := map[string]bool{}
	for {
		c := New(Config{Sys: l.sys, Log: l.log})
		ports, err := c.nics()
		if err != nil {
			l.log.Debug("listing ports for LLDP", "error", err)
		}
		for _, p := range ports {
			if p.Virtual || p.BMCUSB || !p.Link || open[p.Name] || len(open) == maxNICs {
				continue
			}
			open[p.Name] = true
			wg.Go(func() {
				if err := l.listen(ctx, p.Name); err != nil {
					l.log.Debug("no LLDP on a port", "port", p.Name, "error", err)
				}
			})
		}
		t := time.NewTimer(2 * time.Second)
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return
		}
	}
}

func (l *Listener) listen(ctx context.Context, name string) error {
	ifc, err := net.InterfaceByName(name)
	if err != nil {
		return fmt.Errorf("finding port %s: %w", name, err)
	}
	conn, err := packet.Listen(ifc, packet.Raw, etherLLDP, nil)
	if err != nil {
		return fmt.Errorf("opening LLDP socket on %s: %w", name, err)
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer conn.Close()
	if err := joinGroups(conn, ifc.Index); err != nil {
		return fmt.Errorf("receiving group frames on %s: %w", name, err)
	}
	buf := make([]byte, 2048)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return nil // closed, or the port is gone
		}
		if got, err := parseLLDP(buf[:n]); err == nil {
			l.mu.Lock()
			l.heard[name] = got
			l.mu.Unlock()
		}
	}
}

// groups are the addresses LLDP is sent to (IEEE 802.1AB, table 7-1). No port receives them by itself.
var groups = [][6]byte{{0x01, 0x80, 0xc2, 0, 0, 0x0e}, {0x01, 0x80, 0xc2, 0, 0, 0x03}, {0x01, 0x80, 0xc2, 0, 0, 0x00}}

// joinGroups makes a port receive them. Promiscuous mode would do too, and would hand the kernel all other traffic as well.
func joinGroups(conn *packet.Conn, index int) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	var errs []error
	err = raw.Control(func(fd uintptr) {
		for _, g := range groups {
			m := unix.PacketMreq{Ifindex: int32(index), Type: unix.PACKET_MR_MULTICAST, Alen: 6}
			copy(m.Address[:], g[:])
			errs = append(errs, unix.SetsockoptPacketMreq(int(fd), unix.SOL_PACKET, unix.PACKET_ADD_MEMBERSHIP, &m))
		}
	})
	return errors.Join(append(errs, err)...)
}

// parseLLDP reads an Ethernet frame with an LLDP data unit, tagged or not: chassis and port, which are mandatory, and the
// system's name.
func parseLLDP(frame []byte) (agentv1.LLDP, error) {
	var out agentv1.LLDP
	if len(frame) < 14 {
		return out, fmt.Errorf("the frame has %d bytes", len(frame))
	}
	frame = frame[12:]
	if binary.BigEndian.Uint16(frame) == 0x8100 && len(frame) >= 6 {
		frame = frame[4:]
	}
	if binary.BigEndian.Uint16(frame) != etherLLDP {
		return out, fmt.Errorf("the frame is no LLDP")
	}
	for b := frame[2:]; len(b) >= 2; {
		head := binary.BigEndian.Uint16(b)
		kind, n := head>>9, int(head&0x1ff)
		if 2+n > len(b) {
			return out, fmt.Errorf("element %d is cut off", kind)
		}
		value := b[2 : 2+n]
		b = b[2+n:]
		switch kind {
		case 0:
			b = nil
		case 1:
			out.Chassis = lldpID(value, 4, 5)
		case 2:
			out.Port = lldpID(value, 3, 4)
		case 5:
			out.System = text(string(value))
		}
	}
	if out.Chassis == "" || out.Port == "" {
		return out, fmt.Errorf("it names no chassis or no port")
	}
	return out, nil
}

// lldpID spells an identifier by its subtype, the first byte: a MAC address, a network address, or text.
func lldpID(b []byte, mac, network byte) string {
	if len(b) < 2 {
		return ""
	}
	switch v := b[1:]; {
	case b[0] == mac && len(v) == 6:
		return net.HardwareAddr(v).String()
	case b[0] == network && v[0] == 1 && len(v) == 5, b[0] == network && v[0] == 2 && len(v) == 17:
		return net.IP(v[1:]).String()
	default:
		return text(string(v))
	}
}
