package tftp

import (
	"bytes"
	"crypto/sha256"
	"encoding/binary"
	"log/slog"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/better-compute/bcd/netboot/internal/socket"
)

var (
	body = bytes.Repeat([]byte("0123456789abcdef"), 4000)
	long = bytes.Repeat([]byte("0123456"), 80_000) // more than 65,535 blocks of 8 bytes
)

// start serves on loopback and gives the address and the transfers recorded.
func start(t *testing.T, change ...func(*Config)) (net.Addr, chan Transfer) {
	t.Helper()
	done := make(chan Transfer, 64)
	cfg := Config{
		Files:  fstest.MapFS{"snponly.efi": {Data: body}, "Boot/x64/wdsmgfw.efi": {Data: body}, "even": {Data: body[:1024]}, "text": {Data: []byte("a\nb\rc\n")}, "none": {}, "long": {Data: long}},
		Record: func(x Transfer) { done <- x },
		Log:    slog.New(slog.DiscardHandler),
	}
	for _, c := range change {
		c(&cfg)
	}
	s := New(cfg)
	s.tries = 1000 // a test that is held up is no client that has gone
	conn, err := socket.UDP("", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(t.Context(), conn, "") }()
	t.Cleanup(func() {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return conn.LocalAddr(), done
}

// client is a TFTP client of a few lines, so that it can be as odd as ROMs are.
type client struct {
	t    *testing.T
	conn net.PacketConn
	peer net.Addr
}

func dial(t *testing.T, addr net.Addr, request string) *client {
	t.Helper()
	conn, err := net.ListenPacket("udp4", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if _, err := conn.WriteTo([]byte("\x00\x01"+request), addr); err != nil {
		t.Fatal(err)
	}
	return &client{t: t, conn: conn}
}

func (c *client) recv(wait time.Duration) []byte {
	buf := make([]byte, 2000)
	_ = c.conn.SetReadDeadline(time.Now().Add(wait))
	n, peer, err := c.conn.ReadFrom(buf)
	if err != nil {
		return nil
	}
	c.peer = peer
	return buf[:n]
}

// pending gives a datagram that is here already, or nil.
func (c *client) pending() []byte {
	var got []byte
	take := func(b []byte) bool { got = b; return true }
	if err := socket.Collect(c.conn.(*net.UDPConn), time.Unix(1, 0), make([]byte, 2000), take); err != nil {
		c.t.Fatal(err)
	}
	return got
}

func (c *client) send(b ...byte) { _, _ = c.conn.WriteTo(b, c.peer) }

// fetch reads to the end and gives the body, or the error packet.
func (c *client) fetch(block int) (data, failure []byte) {
	next := uint16(1)
	for {
		p := c.recv(patience)
		if len(p) < 4 {
			c.t.Fatal("no answer")
		}
		switch p[1] {
		case 5:
			return nil, p
		case 6:
			c.send(0, 4, 0, 0)
			if v, ok := bytes.CutPrefix(p[2:], []byte("blksize\x00")); ok {
				n, _, _ := bytes.Cut(v, []byte{0})
				block, _ = strconv.Atoi(string(n))
			}
		case 3:
			c.send(0, 4, p[2], p[3])
			if binary.BigEndian.Uint16(p[2:]) != next { // sent again, as this side was slow
				continue
			}
			next++
			data = append(data, p[4:]...)
			if len(p)-4 < block {
				return data, nil
			}
		}
	}
}

func TestSpellings(t *testing.T) {
	addr, done := start(t)
	want := sha256.Sum256(body)
	for _, name := range []string{
		`\Boot\x64\wdsmgfw.efi`, `Boot\x64\wdsmgfw.efi`, "/Boot/x64/wdsmgfw.efi", "//Boot//x64/wdsmgfw.efi",
		"snponly.efi\xff", "snponly.efi\xff\xff\r", "/snponly.efi",
	} {
		got, failure := dial(t, addr, name+"\x00octet\x00").fetch(512)
		if failure != nil || sha256.Sum256(got) != want {
			t.Errorf("%q: error %q, %d bytes", name, failure, len(got))
		}
		if x := <-done; x.Err != nil || x.Bytes != int64(len(body)) || !x.Remote.IsLoopback() {
			t.Errorf("%q was recorded as %+v", name, x)
		}
	}
}

func TestRefusals(t *testing.T) {
	addr, done := start(t)
	for _, name := range []string{"missing", "../../etc/passwd", `..\..\etc\passwd`, "", "/", "Boot", "\xff"} {
		if got, failure := dial(t, addr, name+"\x00octet\x00").fetch(512); failure == nil {
			t.Errorf("%q gave %d bytes", name, len(got))
		}
		if x := <-done; x.Err == nil {
			t.Errorf("%q was recorded as a success", name)
		}
	}
}

func TestBlockAndTransferSize(t *testing.T) {
	addr, _ := start(t)
	c := dial(t, addr, "snponly.efi\x00octet\x00tsize\x000\x00blksize\x001432\x00")
	p := c.recv(patience)
	if len(p) < 2 || p[1] != 6 || !strings.Contains(string(p), "tsize\x0064000\x00") || !strings.Contains(string(p), "blksize\x001432\x00") {
		t.Fatalf("option acknowledgement is %q", p)
	}
	c.send(0, 4, 0, 0)
	if got, _ := c.fetch(1432); !bytes.Equal(got, body) {
		t.Errorf("%d bytes differ", len(got))
	}
}

// A path that drops large packets is served with small ones, whatever its clients ask for; who asks for smaller ones gets those.
func TestBlocksAreBounded(t *testing.T) {
	addr, done := start(t, func(c *Config) { c.Block = func(netip.Addr) int { return 700 } })
	for asked, want := range map[string]int{"1468": 700, "65464": 700, "700": 700, "512": 512, "8": 8, "": 512} {
		request := "even\x00octet\x00"
		if asked != "" {
			request += "blksize\x00" + asked + "\x00"
		}
		if got, failure := dial(t, addr, request).fetch(512); failure != nil || !bytes.Equal(got, body[:1024]) {
			t.Errorf("%q: %d bytes, %q", asked, len(got), failure)
		}
		if x := <-done; x.Err != nil || x.Block != want {
			t.Errorf("%q: blocks of %d, want %d (%v)", asked, x.Block, want, x.Err)
		}
	}
}

// Case 23: Windows boot managers write names as Windows does; all spellings below the root are one file, and none leaves it.
func TestNamesAsWindowsWritesThem(t *testing.T) {
	addr, _ := start(t)
	for _, name := range []string{`\Boot\x64\wdsmgfw.efi`, `Boot\x64\wdsmgfw.efi`, `/Boot/x64/wdsmgfw.efi`, `\\Boot\x64//wdsmgfw.efi`, `/\Boot/.\x64\wdsmgfw.efi`, `..\..\Boot\x64\wdsmgfw.efi`} {
		if got, failure := dial(t, addr, name+"\x00octet\x00").fetch(512); failure != nil || !bytes.Equal(got, body) {
			t.Errorf("%s: %d bytes, %q", name, len(got), failure)
		}
	}
	for _, name := range []string{`\Boot`, `\`, `Boot\x64\`, `C:\Boot\x64\wdsmgfw.efi`, `\Boot\BCD`} {
		if _, failure := dial(t, addr, name+"\x00octet\x00").fetch(512); failure == nil {
			t.Errorf("%s was served", name)
		}
	}
}

// Case 21: a client that asks for the size and aborts has not failed, and its second request is served.
func TestSizeProbeIsNoFailure(t *testing.T) {
	addr, done := start(t)
	c := dial(t, addr, "snponly.efi\x00octet\x00tsize\x000\x00blksize\x001468\x00")
	if p := c.recv(patience); len(p) < 2 || p[1] != 6 || !strings.Contains(string(p), "tsize\x0064000\x00") {
		t.Fatalf("option acknowledgement is %q", p)
	}
	c.send(append([]byte{0, 5, 0, 8}, "User aborted the transfer\x00"...)...)
	after := 0
	for c.recv(1500*time.Millisecond) != nil {
		after++
	}
	if after > 1 {
		t.Errorf("%d datagrams after the client's error", after)
	}
	if got, failure := dial(t, addr, "snponly.efi\x00octet\x00").fetch(512); failure != nil || !bytes.Equal(got, body) {
		t.Error("the second request failed")
	}
	if x := <-done; x.Err != nil {
		t.Errorf("the probe was recorded: %+v", x)
	}
	if len(done) != 0 {
		t.Errorf("%d more records", len(done))
	}
}

func TestWritesAreRefused(t *testing.T) {
	addr, _ := start(t)
	c := dial(t, addr, "")
	_, _ = c.conn.WriteTo([]byte("\x00\x02x\x00octet\x00"), addr)
	for {
		p := c.recv(patience)
		if p == nil {
			t.Fatal("no answer to a write request")
		}
		if p[1] == 5 {
			return
		}
	}
}

func TestManyAtOnce(t *testing.T) {
	addr, done := start(t)
	results := make(chan bool, 40)
	for range 40 {
		c := dial(t, addr, "snponly.efi\x00octet\x00blksize\x001468\x00")
		go func() { got, _ := c.fetch(1468); results <- bytes.Equal(got, body) }()
	}
	for range 40 {
		if !<-results {
			t.Error("a transfer differs")
		}
		<-done
	}
}

func FuzzCleanName(f *testing.F) {
	f.Add(`\..\x`)
	f.Fuzz(func(t *testing.T, s string) {
		n := cleanName(s)
		if strings.HasPrefix(n, "/") || strings.Contains("/"+n+"/", "/../") || strings.Contains(n, `\`) {
			t.Fatalf("%q became %q", s, n)
		}
	})
}

func FuzzDatagram(f *testing.F) {
	f.Add(binary.BigEndian.AppendUint16(nil, 1))
	f.Add([]byte("\x00\x01x\x00octet\x00blksize\x00-1\x00"))
	s := New(Config{Files: fstest.MapFS{}, Record: func(Transfer) {}, Log: slog.New(slog.DiscardHandler)})
	conn, err := socket.UDP("", netip.MustParseAddrPort("127.0.0.1:0"))
	if err != nil {
		f.Fatal(err)
	}
	ctx := f.Context()
	go func() { _ = s.Serve(ctx, conn, "") }()
	out, err := net.Dial("udp4", conn.LocalAddr().String())
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, b []byte) { _, _ = out.Write(b) })
}
