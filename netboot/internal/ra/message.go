// Package ra answers router solicitations of machines that are netbooting, and of no others.
//
// iPXE waits some thirteen seconds for a router advertisement after DHCPv4 is done. One that says "no router, no prefix,
// nothing more to ask" ends that wait. It is sent to the asking machine alone, so no other host hears it; a host that
// does gains neither an address nor a route from it.
package ra

import (
	"encoding/binary"
	"errors"
	"net/netip"

	"github.com/better-compute/bcd/app"
)

// ICMPv6 types of RFC 4861.
const (
	typeSolicitation  = 133
	typeAdvertisement = 134
	optSourceLink     = 1
)

var errNotSolicitation = errors.New("not a router solicitation")

// solicitor reads a router solicitation and says which Ethernet address sent it: its source link-layer option, else
// the EUI-64 of its link-local address.
func solicitor(b []byte, from netip.Addr) (app.MAC, error) {
	if len(b) < 8 || b[0] != typeSolicitation || b[1] != 0 {
		return "", errNotSolicitation
	}
	for o := b[8:]; len(o) >= 2; {
		n := int(o[1]) * 8
		if n == 0 || n > len(o) {
			return "", errNotSolicitation
		}
		if o[0] == optSourceLink && n == 8 {
			return app.MACFromBytes(o[2:8])
		}
		o = o[n:]
	}
	return macOf(from)
}

// macOf undoes the modified EUI-64 of a link-local address.
func macOf(a netip.Addr) (app.MAC, error) {
	b := a.As16()
	if !a.Is6() || !a.IsLinkLocalUnicast() || b[11] != 0xff || b[12] != 0xfe {
		return "", errNotSolicitation
	}
	return app.MACFromBytes([]byte{b[8] ^ 2, b[9], b[10], b[13], b[14], b[15]})
}

// advertisement says: router lifetime 0, no prefix, no managed or other configuration, nothing specified. The kernel
// fills in the checksum.
func advertisement() []byte {
	b := make([]byte, 16)
	b[0] = typeAdvertisement
	binary.BigEndian.PutUint16(b[6:], 0) // lifetime: not a router
	return b
}
