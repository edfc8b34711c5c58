package netboot

import (
	"net"
	"net/netip"
	"sync/atomic"
)

// baseURL is the HTTP listener's address once it is open.
type baseURL struct{ a atomic.Pointer[net.Addr] }

func (b *baseURL) set(a net.Addr) { b.a.Store(&a) }

func (b *baseURL) addr() net.Addr {
	if p := b.a.Load(); p != nil {
		return *p
	}
	return nil
}

// url is "http://host:port": the listener's own address when it has a single one, else ours.
func (b *baseURL) url(ours netip.Addr) string {
	a := b.addr()
	if a == nil {
		return ""
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	host := ap.Addr().Unmap()
	if host.IsUnspecified() {
		host = ours
	}
	return "http://" + netip.AddrPortFrom(host, ap.Port()).String()
}
