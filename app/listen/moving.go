package listen

import (
	"io"
	"net"
	"time"
)

// partSize is how many bytes must leave within the time that a client may stall: with a minute, 4 KiB a second.
const partSize = 256 << 10

// Moving closes connections whose client takes in no more: each part of what is sent must leave within stall. A slow client
// keeps its connection for as long as it reads. Whoever sets write deadlines on a connection of l himself loses them.
func Moving(l net.Listener, stall time.Duration) net.Listener { return movingListener{l, stall} }

type movingListener struct {
	net.Listener
	stall time.Duration
}

// Accept waits for a connection.
func (l movingListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &moving{Conn: c, stall: l.stall}, nil
}

type moving struct {
	net.Conn
	stall time.Duration
}

// extend gives the next part its time.
func (c *moving) extend() error { return c.SetWriteDeadline(time.Now().Add(c.stall)) }

// Write sends b in parts.
func (c *moving) Write(b []byte) (sent int, err error) {
	for {
		if err := c.extend(); err != nil {
			return sent, err
		}
		n, err := c.Conn.Write(b[sent:min(len(b), sent+partSize)])
		sent += n
		if err != nil || sent == len(b) {
			return sent, err
		}
	}
}

// ReadFrom sends r in parts, and a file by sendfile.
func (c *moving) ReadFrom(r io.Reader) (sent int64, err error) {
	whole, limited := r.(*io.LimitedReader)
	to, direct := c.Conn.(io.ReaderFrom)
	if !limited || !direct {
		return io.Copy(struct{ io.Writer }{c}, r)
	}
	for whole.N > 0 {
		want := min(whole.N, partSize)
		err := c.extend()
		var n int64
		if err == nil {
			n, err = to.ReadFrom(&io.LimitedReader{R: whole.R, N: want})
		}
		sent, whole.N = sent+n, whole.N-n
		if err != nil || n < want { // the file may end early
			return sent, err
		}
	}
	return sent, nil
}

// CloseWrite is as in limitedConn.
func (c *moving) CloseWrite() error { return closeWrite(c.Conn) }
