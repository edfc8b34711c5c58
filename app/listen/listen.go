// Package listen holds what every TCP listener of the appliance needs against clients that open connections and leave them.
package listen

import (
	"errors"
	"io"
	"net"
	"net/netip"
	"sync"
)

// Limit closes connections beyond a number in all and from one address at once, so that no client can hold the listener from
// the others. Closing is better than waiting: a client that waits unaccepted holds up those behind it.
func Limit(l net.Listener, total, perClient int) net.Listener {
	return &limited{Listener: l, total: total, perClient: perClient, open: map[netip.Addr]int{}}
}

type limited struct {
	net.Listener
	total, perClient int

	mu   sync.Mutex // protects what follows
	all  int
	open map[netip.Addr]int
}

// Accept waits for a connection within the limits.
func (l *limited) Accept() (net.Conn, error) {
	for {
		c, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		ap, _ := netip.ParseAddrPort(c.RemoteAddr().String())
		from := client(ap.Addr())
		if l.take(from) {
			return &limitedConn{Conn: c, release: sync.OnceFunc(func() { l.give(from) })}, nil
		}
		_ = c.Close()
	}
}

// client is what one client surely owns: an IPv4 address, a link-local address, or an IPv6 /64, given by its first address.
func client(a netip.Addr) netip.Addr {
	a = a.Unmap()
	if a.Is4() || a.IsLinkLocalUnicast() {
		return a
	}
	p, err := a.WithZone("").Prefix(64)
	if err != nil {
		return a
	}
	return p.Addr()
}

func (l *limited) take(a netip.Addr) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.all >= l.total || l.open[a] >= l.perClient {
		return false
	}
	l.all++
	l.open[a]++
	return true
}

func (l *limited) give(a netip.Addr) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all--
	if l.open[a]--; l.open[a] == 0 {
		delete(l.open, a)
	}
}

type limitedConn struct {
	net.Conn
	release func()
}

// ReadFrom keeps sendfile.
func (c *limitedConn) ReadFrom(r io.Reader) (int64, error) {
	if rf, ok := c.Conn.(io.ReaderFrom); ok {
		return rf.ReadFrom(r)
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, r)
}

// CloseWrite ends what is sent and lets the client end first, as net/http does after an answer that it cut short.
func (c *limitedConn) CloseWrite() error { return closeWrite(c.Conn) }

func closeWrite(c net.Conn) error {
	if half, ok := c.(interface{ CloseWrite() error }); ok {
		return half.CloseWrite()
	}
	return errors.ErrUnsupported
}

// Close closes the connection and makes room for another, once.
func (c *limitedConn) Close() error {
	defer c.release()
	return c.Conn.Close()
}
