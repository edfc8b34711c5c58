package network

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
	"github.com/insomniacslk/dhcp/dhcpv4/nclient4"
	"github.com/vishvananda/netlink"
)

// raise brings a port up.
func raise(name string) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding port %s: %w", name, err)
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return fmt.Errorf("raising port %s: %w", name, err)
	}
	return nil
}

// dora gets a lease by DISCOVER, OFFER, REQUEST, ACK on raw sockets, which need no address.
func dora(ctx context.Context, name string, mac net.HardwareAddr) (*lease, error) {
	c, err := nclient4.New(name, nclient4.WithHWAddr(mac), nclient4.WithTimeout(dhcpTry), nclient4.WithRetry(dhcpRetries))
	if err != nil {
		return nil, fmt.Errorf("opening DHCP socket on %s: %w", name, err)
	}
	defer c.Close()
	got, err := c.Request(ctx, dhcpv4.WithRequestedOptions(
		dhcpv4.OptionSubnetMask, dhcpv4.OptionRouter, dhcpv4.OptionInterfaceMTU, dhcpv4.OptionIPAddressLeaseTime,
	))
	if err != nil {
		return nil, fmt.Errorf("asking for an address on %s: %w", name, err)
	}
	return readLease(got.ACK)
}

// readLease takes what is needed from an ACK, and refuses an address that is none.
func readLease(ack *dhcpv4.DHCPv4) (*lease, error) {
	ip := ack.YourIPAddr.To4()
	if ip == nil || ip.IsUnspecified() || ip.IsMulticast() || ip.IsLoopback() {
		return nil, fmt.Errorf("the DHCP server gave the unusable address %v", ack.YourIPAddr)
	}
	mask := ack.SubnetMask()
	if ones, bits := mask.Size(); bits != 32 || ones == 0 {
		mask = ip.DefaultMask()
	}
	l := &lease{addr: net.IPNet{IP: ip, Mask: mask}, duration: ack.IPAddressLeaseTime(time.Hour)}
	if r := ack.Router(); len(r) > 0 && r[0].To4() != nil && !r[0].IsUnspecified() {
		l.gateway = r[0].To4()
	}
	if mtu, err := dhcpv4.GetUint16(dhcpv4.OptionInterfaceMTU, ack.Options); err == nil && mtu >= 576 {
		l.mtu = int(mtu)
	}
	return l, nil
}

// apply gives a port the address of a lease and its default route, and takes away older IPv4 addresses.
func apply(name string, l *lease) error {
	link, err := netlink.LinkByName(name)
	if err != nil {
		return fmt.Errorf("finding port %s: %w", name, err)
	}
	if l.mtu != 0 && link.Attrs().MTU != l.mtu {
		if err := netlink.LinkSetMTU(link, l.mtu); err != nil {
			return fmt.Errorf("setting the MTU of %s to %d: %w", name, l.mtu, err)
		}
	}
	old, err := netlink.AddrList(link, netlink.FAMILY_V4)
	if err != nil {
		return fmt.Errorf("listing addresses of %s: %w", name, err)
	}
	var errs []error
	for _, a := range old { // before the new one comes: the kernel drops later addresses of a network with its first
		if !a.IP.Equal(l.addr.IP) {
			errs = append(errs, netlink.AddrDel(link, &a))
		}
	}
	if err := netlink.AddrReplace(link, &netlink.Addr{IPNet: &l.addr}); err != nil {
		return fmt.Errorf("setting address %s on %s: %w", &l.addr, name, err)
	}
	if l.gateway != nil {
		_, all, _ := net.ParseCIDR("0.0.0.0/0")
		route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: all, Gw: l.gateway, Flags: int(netlink.FLAG_ONLINK)}
		if err := netlink.RouteReplace(route); err != nil {
			errs = append(errs, fmt.Errorf("setting gateway %s on %s: %w", l.gateway, name, err))
		}
	}
	return errors.Join(errs...)
}
