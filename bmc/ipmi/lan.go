package ipmi

import (
	"net"
	"net/netip"
)

// parseLAN reads the BMC's own addresses from "lan print"; what is no address is "".
func parseLAN(text string) (mac, ip string) {
	found, _ := fields(text, "IP Address", "MAC Address")
	if hw, err := net.ParseMAC(found["MAC Address"]); err == nil && len(hw) == 6 && hw[0]&1 == 0 && hw.String() != "00:00:00:00:00:00" {
		mac = hw.String()
	}
	if a, err := netip.ParseAddr(found["IP Address"]); err == nil && a.Zone() == "" && !a.IsUnspecified() && !a.IsMulticast() && a != netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		ip = a.String()
	}
	return mac, ip
}
