package sntp

import (
	"bytes"
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/better-compute/bcd/netboot/internal/socket"
)

var noon = time.Date(2026, 3, 4, 12, 0, 0, 500_000_000, time.UTC)

func request(first byte) []byte {
	q := make([]byte, packetLen)
	q[0] = first
	copy(q[40:], "transmit")
	return q
}

func TestReply(t *testing.T) {
	b := reply(request(4<<3|3), Health{Synchronised: true, MaxError: time.Second}, func() time.Time { return noon })
	if len(b) != packetLen || b[0] != 4<<3|4 || b[1] == 0 || b[1] > 15 {
		t.Fatalf("%x", b)
	}
	if !bytes.Equal(b[24:32], []byte("transmit")) {
		t.Error("the origin timestamp is not the client's")
	}
	if s := binary.BigEndian.Uint32(b[40:]); int64(s)-ntpEpoch != noon.Unix() || binary.BigEndian.Uint32(b[44:]) != 1<<31 {
		t.Errorf("the time told is %x", b[40:])
	}
	if binary.BigEndian.Uint32(b[8:]) != 65536 {
		t.Errorf("dispersion is %x", b[8:12])
	}
}

func TestSilence(t *testing.T) {
	good := Health{Synchronised: true}
	for name, c := range map[string]struct {
		q []byte
		h Health
	}{
		"clock not synchronised": {request(4<<3 | 3), Health{}},
		"short":                  {request(4<<3 | 3)[:47], good},
		"empty":                  {nil, good},
		"server mode":            {request(4<<3 | 4), good},
		"broadcast mode":         {request(4<<3 | 5), good},
		"control message":        {request(2<<3 | 6), good},
		"version 0":              {request(3), good},
		"version 7":              {request(7<<3 | 3), good},
	} {
		if b := reply(c.q, c.h, time.Now); b != nil {
			t.Errorf("%s was answered", name)
		}
	}
}

func TestServe(t *testing.T) {
	conn, err := socket.UDP("", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- Serve(ctx, conn, Config{Clock: func() Health { return Health{Synchronised: true} }, Now: time.Now})
	}()
	c, err := net.Dial("udp4", conn.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	_, _ = c.Write([]byte("junk"))
	_, _ = c.Write(request(3<<3 | 3))
	buf := make([]byte, 100)
	_ = c.SetReadDeadline(time.Now().Add(time.Minute))
	if n, err := c.Read(buf); err != nil || n != packetLen {
		t.Fatalf("%d bytes, %v", n, err)
	}
	cancel()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func FuzzReply(f *testing.F) {
	f.Add(request(4<<3 | 3))
	f.Fuzz(func(t *testing.T, q []byte) {
		if b := reply(q, Health{Synchronised: true}, time.Now); len(b) > len(q) {
			t.Fatal("the answer is longer than the question")
		}
	})
}
