package bmctest

import (
	"fmt"
	"net/netip"
	"syscall"
	"testing"
)

// Deaf gives the address of a TCP port on loopback that refuses every connection. It is held until the test ends, so that
// no other process comes to listen there.
func Deaf(t testing.TB) netip.AddrPort {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	at, ok := name.(*syscall.SockaddrInet4)
	if err != nil || !ok {
		t.Fatal(fmt.Errorf("the name of a bound socket is %v: %w", name, err))
	}
	return netip.AddrPortFrom(netip.AddrFrom4(at.Addr), uint16(at.Port))
}
