package tftp

import (
	"bytes"
	"encoding/binary"
	"log/slog"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// patience bounds waits for what must come: only a test that fails waits so long.
const patience = 30 * time.Second

func single(c *Config) { c.SinglePort = func(netip.Addr) bool { return true } }

// Both ways of answering send the same bytes to the same clients.
func TestSinglePortAndNot(t *testing.T) {
	for name, change := range map[string]func(*Config){"a port each": func(*Config) {}, "one port": single} {
		t.Run(name, func(t *testing.T) {
			addr, done := start(t, change)
			for _, request := range []string{
				"snponly.efi\x00octet\x00", "snponly.efi\x00OCTET\x00blksize\x001428\x00", "snponly.efi\x00octet\x00BLKSIZE\x0065464\x00tsize\x000\x00",
				"snponly.efi\x00octet\x00blksize\x008\x00", "even\x00octet\x00", "none\x00octet\x00", "snponly.efi\x00octet\x00timeout\x002\x00windowsize\x001\x00",
				"snponly.efi\x00octet\x00blksize\x00x\x00blksize\x00-1\x00blksize\x007\x00windowsize\x000\x00tsize\x00\x00timeout\x00256\x00unknown\x001\x00half",
			} {
				file, _, _ := strings.Cut(request, "\x00")
				want := map[string][]byte{"snponly.efi": body, "even": body[:1024], "none": {}}[file]
				c := dial(t, addr, request)
				got, failure := c.fetch(512)
				if failure != nil || !bytes.Equal(got, want) {
					t.Errorf("%q: %q, %d of %d bytes", request, failure, len(got), len(want))
				}
				if same := c.peer.String() == addr.String(); same != (name == "one port") {
					t.Errorf("answered from %v by the server at %v", c.peer, addr)
				}
				if x := <-done; x.Err != nil || x.Bytes != int64(len(want)) || x.Size != x.Bytes {
					t.Errorf("%q was recorded as %+v", request, x)
				}
			}
		})
	}
}

// With a window, packets come in a row, and one that is lost is sent again with those behind it.
func TestWindow(t *testing.T) {
	for name, change := range map[string]func(*Config){"a port each": func(*Config) {}, "one port": single} {
		t.Run(name, func(t *testing.T) {
			addr, done := start(t, change)
			c := dial(t, addr, "snponly.efi\x00octet\x00blksize\x001000\x00windowsize\x004\x00")
			if p := c.recv(patience); string(p) != "\x00\x06blksize\x001000\x00windowsize\x004\x00" {
				t.Fatalf("%q", p)
			}
			c.send(0, 4, 0, 0)
			var got []byte
			next, lost := uint16(1), false
			for short := false; !short; {
				p := c.recv(patience)
				if p == nil {
					t.Fatalf("nothing after %d bytes", len(got))
				}
				block := binary.BigEndian.Uint16(p[2:])
				if block == 7 && !lost {
					lost = true // never arrived
					continue
				}
				if block != next {
					c.send(0, 4, byte((next-1)>>8), byte(next-1))
					continue
				}
				got, short = append(got, p[4:]...), len(p) < 1004
				if next++; block%4 == 0 || short {
					c.send(0, 4, p[2], p[3])
				}
			}
			if !bytes.Equal(got, body) {
				t.Error("the bytes differ")
			}
			if x := <-done; x.Err != nil || x.Bytes != int64(len(body)) || x.Block != 1000 {
				t.Errorf("%+v", x)
			}
		})
	}
}

// Block numbers of long files wrap.
func TestLongFile(t *testing.T) {
	addr, done := start(t)
	c := dial(t, addr, "long\x00octet\x00blksize\x008\x00windowsize\x0016\x00")
	got, next := make([]byte, 0, len(long)), uint16(0)
	for p := c.recv(patience); ; p = c.recv(patience) {
		if p == nil {
			t.Fatalf("nothing after %d bytes", len(got))
		}
		if p[1] == opOACK {
			c.send(0, 4, 0, 0)
			continue
		}
		if binary.BigEndian.Uint16(p[2:]) != next+1 {
			c.send(0, 4, byte(next>>8), byte(next))
			continue
		}
		next++
		got = append(got, p[4:]...)
		if next%16 == 0 || len(p) < 12 {
			c.send(0, 4, p[2], p[3])
		}
		if len(p) < 12 {
			break
		}
	}
	if !bytes.Equal(got, long) {
		t.Error("the bytes differ")
	}
	if x := <-done; x.Err != nil {
		t.Error(x.Err)
	}
}

func TestNetascii(t *testing.T) {
	addr, _ := start(t)
	if got, failure := dial(t, addr, "text\x00netascii\x00").fetch(512); string(got) != "a\r\nb\r\x00c\r\n" || failure != nil {
		t.Errorf("%q %q", got, failure)
	}
	c := dial(t, addr, "text\x00NetASCII\x00tsize\x000\x00")
	if p := c.recv(patience); string(p) != "\x00\x06tsize\x009\x00" {
		t.Errorf("%q", p)
	}
	c.send(0, 5, 0, 0)
	if _, failure := dial(t, addr, "text\x00mail\x00").fetch(512); failure == nil {
		t.Error("mode mail was answered")
	}
}

// What is lost is sent again after a second. What is acknowledged twice is not sent twice.
func TestLossesAndDuplicates(t *testing.T) {
	for name, change := range map[string]func(*Config){"a port each": func(*Config) {}, "one port": single} {
		t.Run(name, func(t *testing.T) {
			addr, done := start(t, change)
			c := dial(t, addr, "even\x00octet\x00blksize\x00512\x00")
			oacks, seen := 0, map[byte]int{}
			for ; oacks < 2; oacks++ { // the answer to the first is lost
				if p := c.recv(patience); len(p) < 2 || p[1] != opOACK {
					t.Fatalf("option acknowledgement %d is %q", oacks, p)
				}
			}
			for range 3 {
				c.send(0, 4, 0, 0)
			}
			for last := false; !last; {
				p := c.recv(patience)
				switch {
				case len(p) >= 2 && p[1] == opOACK: // this side was held up: more came before its answer
					oacks++
					continue
				case len(p) < 4 || p[1] != opData:
					t.Fatalf("%q", p)
				}
				seen[p[3]]++
				if p[3] == 1 && seen[1] == 1 {
					continue // the acknowledgement is lost
				}
				c.send(0, 4, p[2], p[3])
				c.send(0, 4, p[2], p[3])
				last = len(p) == 4
			}
			x := <-done
			for p := c.pending(); p != nil; p = c.pending() { // sent before the last answer was read
				seen[p[3]]++
			}
			if x.Err != nil || x.Retries < 2 || x.Bytes != 1024 {
				t.Errorf("%+v", x)
			}
			if seen[1] < 2 || oacks+seen[1]+seen[2]+seen[3] != 1+3+x.Retries { // all that came is a first time or a retry
				t.Errorf("option acknowledgements: %d, times that blocks came: %v, retries %d", oacks, seen, x.Retries)
			}
		})
	}
}

// A request that comes twice is one transfer; another one from the same port is a client that started anew.
func TestRequestsFromOnePort(t *testing.T) {
	for name, change := range map[string]func(*Config){"a port each": func(*Config) {}, "one port": single} {
		t.Run(name, func(t *testing.T) {
			addr, done := start(t, change)
			c := dial(t, addr, "snponly.efi\x00octet\x00")
			again := []byte("\x00\x01snponly.efi\x00octet\x00")
			_, _ = c.conn.WriteTo(again, addr)
			if p := c.recv(patience); len(p) != 516 || p[3] != 1 {
				t.Fatalf("%q", p)
			}
			_, _ = c.conn.WriteTo([]byte("\x00\x01even\x00octet\x00tsize\x000\x00"), addr)
			for p := c.recv(patience); ; p = c.recv(patience) {
				if len(p) > 1 && p[1] == opOACK {
					break
				}
				if p == nil {
					t.Fatal("the new request was not answered")
				}
			}
			if got, failure := c.fetchFrom(512); failure != nil || !bytes.Equal(got, body[:1024]) {
				t.Errorf("%q, %d bytes", failure, len(got))
			}
			ok, ended := 0, 0
			for range 2 {
				if x := <-done; x.Err == nil {
					ok++
				} else {
					ended++
				}
			}
			if ok != 1 || ended != 1 {
				t.Errorf("%d whole, %d ended", ok, ended)
			}
		})
	}
}

// fetchFrom goes on after an option acknowledgement.
func (c *client) fetchFrom(block int) (data, failure []byte) {
	c.send(0, 4, 0, 0)
	return c.fetch(block)
}

func TestClientThatGivesUp(t *testing.T) {
	for name, change := range map[string]func(*Config){"a port each": func(*Config) {}, "one port": single} {
		t.Run(name, func(t *testing.T) {
			addr, done := start(t, change)
			c := dial(t, addr, "snponly.efi\x00octet\x00")
			c.recv(patience)
			c.send(append([]byte{0, 5, 0, 3}, "Disk full\x00"...)...)
			if x := <-done; x.Err == nil || !strings.Contains(x.Err.Error(), "Disk full") || x.Bytes != 0 {
				t.Errorf("%+v", x)
			}
		})
	}
}

// Case 25: what had to be guessed is told once.
func TestCorrectedNamesAreToldOnce(t *testing.T) {
	var log bytes.Buffer
	s := New(Config{Log: slog.New(slog.NewTextHandler(&log, nil))})
	for range 5 {
		s.noteCorrection("snponly.efi\xff", "snponly.efi", netip.MustParseAddr("192.0.2.1"))
		s.noteCorrection("/snponly.efi", "snponly.efi", netip.MustParseAddr("192.0.2.1"))
	}
	for i := range 2 * maxCorrections {
		s.noteCorrection(strings.Repeat("x", i)+"\xff", "snponly.efi", netip.MustParseAddr("192.0.2.1"))
	}
	if n := strings.Count(log.String(), "\n"); n != maxCorrections {
		t.Errorf("%d lines", n)
	}
}

func FuzzParseRead(f *testing.F) {
	f.Add([]byte("snponly.efi\x00octet\x00blksize\x001468\x00tsize\x000\x00"))
	f.Add([]byte("\x00octet\x00windowsize\x00-1\x00"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := parseRead(b)
		if !ok {
			return
		}
		if r.block < 8 || r.block > maxBlock || r.window < 1 || r.window > maxWindow || r.wait < time.Second || r.wait > maxTimeout*time.Second || len(r.accepted) > 4 {
			t.Fatalf("%+v", r)
		}
		if o := r.oack(1 << 40); len(o) > 200 {
			t.Fatalf("an acknowledgement of %d bytes", len(o))
		}
	})
}
