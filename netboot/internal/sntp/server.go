// Package sntp tells machines the time (RFC 4330), while this host's clock is itself synchronised; else it is silent,
// because a wrong time is worse than none.
package sntp

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"time"

	"golang.org/x/net/ipv4"
)

// Port is NTP's.
const Port = 123

const packetLen = 48

// ntpEpoch is 1900 in seconds before 1970.
const ntpEpoch = 2208988800

// Health is how good the host's clock is.
type Health struct {
	Synchronised bool
	MaxError     time.Duration // bound of the offset to true time
}

// Config is what Serve needs. All fields must be set.
type Config struct {
	Clock func() Health
	Now   func() time.Time
}

// Serve answers on conn until ctx ends, and closes it. Answers leave from the address that was asked.
func Serve(ctx context.Context, conn *net.UDPConn, cfg Config) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	pc := ipv4.NewPacketConn(conn)
	if err := pc.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true); err != nil {
		return fmt.Errorf("asking for packet information: %w", err)
	}
	buf := make([]byte, 512)
	for {
		n, cm, from, err := pc.ReadFrom(buf)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("reading SNTP request: %w", err)
		}
		b := reply(buf[:n], cfg.Clock(), cfg.Now)
		if b == nil || cm == nil || cm.Dst.IsMulticast() || cm.Dst.Equal(net.IPv4bcast) {
			continue
		}
		_, _ = pc.WriteTo(b, &ipv4.ControlMessage{Src: cm.Dst, IfIndex: cm.IfIndex}, from)
	}
}

// reply answers a client request (mode 3, versions 1 to 4), or gives nil for anything else and while the clock is not
// synchronised.
func reply(q []byte, h Health, now func() time.Time) []byte {
	if !h.Synchronised || len(q) < packetLen {
		return nil
	}
	version, mode := q[0]>>3&7, q[0]&7
	if mode != 3 || version < 1 || version > 4 {
		return nil
	}
	received := now()
	b := make([]byte, packetLen)
	b[0] = version<<3 | 4 // no leap second announced, server
	b[1] = 4              // stratum: our own source is not known here, and no client should prefer us to a better one
	b[2] = q[2]           // poll interval as asked
	b[3] = 0xec           // precision: 2^-20 s
	binary.BigEndian.PutUint32(b[8:], uint32(h.MaxError.Seconds()*65536))
	copy(b[12:16], "LOCL")
	putTime(b[16:], received)
	copy(b[24:32], q[40:48])
	putTime(b[32:], received)
	putTime(b[40:], now())
	return b
}

// putTime writes an NTP timestamp: 32 bits of seconds since 1900 and 32 of fraction.
func putTime(b []byte, t time.Time) {
	binary.BigEndian.PutUint32(b, uint32(t.Unix()+ntpEpoch))
	binary.BigEndian.PutUint32(b[4:], uint32(uint64(t.Nanosecond())<<32/1e9))
}
