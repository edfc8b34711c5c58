package dhcp

import "net/netip"

// Sub-options of the relay agent information (option 82).
const (
	subLinkSelection  = 5  // RFC 3527: an address of the client's subnet, when giaddr is not one
	subServerOverride = 11 // RFC 5107: the server identifier to tell the client, so that it renews through the relay
)

// relayAddress reads a sub-option of option 82 that holds an address; invalid when it is absent or malformed.
func relayAddress(option []byte, code byte) netip.Addr {
	v := suboption(option, code)
	if len(v) != 4 {
		return netip.Addr{}
	}
	return addrOf(v)
}

// suboption finds the value of a code in a list of code, length, value; nil when it is absent, or when the list is
// malformed before it.
func suboption(list []byte, code byte) []byte {
	for len(list) >= 2 {
		n := int(list[1])
		if list[0] == 0xff || n > len(list)-2 {
			return nil
		}
		if list[0] == code {
			return list[2 : 2+n]
		}
		list = list[2+n:]
	}
	return nil
}
