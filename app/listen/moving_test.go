package listen

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/synctest"
	"time"
)

// piped is a moving connection in memory, and the client's end of it.
func piped(t *testing.T) (c *moving, client net.Conn) {
	server, client := net.Pipe()
	t.Cleanup(func() { _, _ = server.Close(), client.Close() })
	return &moving{Conn: pipeConn{server}, stall: time.Minute}, client
}

// pipeConn copies as a TCP connection does.
type pipeConn struct{ net.Conn }

func (c pipeConn) ReadFrom(r io.Reader) (int64, error) {
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}

var ways = map[string]func(c *moving, b []byte) (int64, error){
	"Write": func(c *moving, b []byte) (int64, error) { n, err := c.Write(b); return int64(n), err },
	"ReadFrom": func(c *moving, b []byte) (int64, error) {
		return c.ReadFrom(io.LimitReader(bytes.NewReader(b), int64(len(b))))
	},
	"ReadFrom without a limit": func(c *moving, b []byte) (int64, error) { return c.ReadFrom(struct{ io.Reader }{bytes.NewReader(b)}) },
}

// A BMC at 10 kB/s loads for minutes, and gets all of it.
func TestSlowReaderGetsAll(t *testing.T) {
	for name, send := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := piped(t)
				want := bytes.Repeat([]byte("slow"), 1<<18) // 1 MiB: 105 s
				got := make(chan []byte)
				go func() {
					var in bytes.Buffer
					for {
						time.Sleep(400 * time.Millisecond)
						if _, err := io.CopyN(&in, client, 4000); err != nil {
							got <- in.Bytes()
							return
						}
					}
				}()
				n, err := send(c, want)
				_ = c.Close()
				if b := <-got; err != nil || n != int64(len(want)) || !bytes.Equal(b, want) {
					t.Errorf("sent %d, read %d: %v", n, len(b), err)
				}
			})
		})
	}
}

// A client that reads some and then no more is let go a minute later.
func TestStalledReaderIsLetGo(t *testing.T) {
	for name, send := range ways {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := piped(t)
				began := time.Now()
				go func() { _, _ = io.CopyN(io.Discard, client, 300_000) }()
				n, err := send(c, make([]byte, 1<<20))
				if !errors.Is(err, os.ErrDeadlineExceeded) || time.Since(began) != time.Minute || n > 400_000 {
					t.Errorf("sent %d in %v: %v", n, time.Since(began), err)
				}
			})
		})
	}
}

// A file that is shorter than announced ends, and nothing is sent for nothing.
func TestMovingEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, client := piped(t)
		go func() { _, _ = io.Copy(io.Discard, client) }()
		short := &io.LimitedReader{R: bytes.NewReader(make([]byte, 1000)), N: 1 << 30}
		if n, err := c.ReadFrom(short); n != 1000 || err != nil {
			t.Errorf("%d %v", n, err)
		}
		if n, err := c.Write(nil); n != 0 || err != nil {
			t.Errorf("%d %v", n, err)
		}
	})
}
