// Package socket opens UDP sockets that belong to one network interface and say to which address each datagram came.
package socket

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// UDP opens an IPv4 socket at an address, bound to a device unless that is "". It belongs to the network namespace of
// the calling thread. Packet information is asked for before the socket is bound, so that no datagram comes without it.
// Two sockets of one port may exist on different devices.
func UDP(device string, at netip.AddrPort) (*net.UDPConn, error) {
	lc := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var opts error
		err := c.Control(func(fd uintptr) { opts = prepare(int(fd), device) })
		return errors.Join(err, opts)
	}}
	c, err := lc.ListenPacket(context.Background(), "udp4", at.String())
	if err != nil {
		return nil, fmt.Errorf("opening UDP port %d on %q: %w", at.Port(), device, err)
	}
	return c.(*net.UDPConn), nil
}

func prepare(fd int, device string) error {
	err := errors.Join(
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_BROADCAST, 1),
		unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_RCVBUF, 1<<20),
		unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_PKTINFO, 1),
	)
	if device != "" {
		err = errors.Join(err, unix.BindToDevice(fd, device))
	}
	return err
}

// Connected opens an IPv4 socket on a port of the kernel's choice that hears one peer only, and whose reads block. It is bound to
// a device unless that is "", and to a local address unless that is invalid or the broadcast address. Its caller closes it.
func Connected(device string, local netip.Addr, peer netip.AddrPort) (fd int, err error) {
	fd, err = unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return -1, fmt.Errorf("opening UDP to %v on %q: %w", peer, device, err)
	}
	if device != "" {
		err = unix.BindToDevice(fd, device)
	}
	if err == nil && local.Is4() && local != netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		err = unix.Bind(fd, &unix.SockaddrInet4{Addr: local.As4()})
	}
	if err == nil {
		err = unix.Connect(fd, &unix.SockaddrInet4{Addr: peer.Addr().Unmap().As4(), Port: int(peer.Port())})
	}
	if err != nil {
		return -1, errors.Join(fmt.Errorf("opening UDP to %v on %q: %w", peer, device, err), unix.Close(fd))
	}
	return fd, nil
}
