package app

import (
	"crypto/rand"
	"encoding/base32"
	"encoding/hex"
	"slices"
	"strings"
	"unicode"
)

// MAC is an Ethernet address in its one stored form: six lower-case pairs joined by colons.
type MAC string

// ParseMAC reads 00:00:5e:00:53:ab, 00-00-5E-00-53-AB, 0000.5e00.53ab and 00005E0053AB, and refuses anything else,
// the all-zero and broadcast addresses, and group addresses.
func ParseMAC(s string) (MAC, error) {
	bad := func(why string) (MAC, error) {
		return "", Invalid("mac", "%q is not a usable MAC address: %s", clip(s, 40), why).Do("write it as 00:00:5e:00:53:ab")
	}
	digits := s
	switch {
	case strings.Count(s, ":") == 5 && len(s) == 17:
		digits = strings.ReplaceAll(s, ":", "")
	case strings.Count(s, "-") == 5 && len(s) == 17:
		digits = strings.ReplaceAll(s, "-", "")
	case strings.Count(s, ".") == 2 && len(s) == 14 && s[4] == '.' && s[9] == '.':
		digits = strings.ReplaceAll(s, ".", "")
	case len(s) != 12:
		return bad("six pairs of hexadecimal digits are needed")
	}
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != 6 {
		return bad("six pairs of hexadecimal digits are needed")
	}
	return MACFromBytes(b)
}

// MACFromBytes makes a MAC of six octets, with the same refusals as ParseMAC.
func MACFromBytes(b []byte) (MAC, error) {
	if len(b) != 6 {
		return "", Invalid("mac", "a MAC address has 6 octets, not %d", len(b))
	}
	if b[0]&1 != 0 {
		return "", Invalid("mac", "%x is a group or broadcast address, which no machine owns", b)
	}
	if b[0]|b[1]|b[2]|b[3]|b[4]|b[5] == 0 {
		return "", Invalid("mac", "the all-zero address belongs to no machine")
	}
	var out strings.Builder
	for i, c := range b {
		if i > 0 {
			out.WriteByte(':')
		}
		out.WriteString(hex.EncodeToString([]byte{c}))
	}
	return MAC(out.String()), nil
}

// Bytes gives the six octets.
func (m MAC) Bytes() []byte {
	b, _ := hex.DecodeString(strings.ReplaceAll(string(m), ":", ""))
	return b
}

// Hyphen gives the form iPXE calls ${mac:hexhyp}.
func (m MAC) Hyphen() string { return strings.ReplaceAll(string(m), ":", "-") }

// UUID is an SMBIOS or Redfish system UUID in canonical lower-case form, or "" when the machine has none.
type UUID string

// ParseUUID reads a canonical UUID in any case. Placeholders (all zeros, all ones, and the well-known vendor default)
// give "" and no error: they identify nothing.
func ParseUUID(s string) (UUID, error) {
	t := strings.ToLower(strings.Trim(strings.TrimSpace(s), "{}"))
	if t == "" {
		return "", nil
	}
	digits := strings.ReplaceAll(t, "-", "")
	b, err := hex.DecodeString(digits)
	if err != nil || len(b) != 16 || (len(t) != 36 && len(t) != 32) {
		return "", Invalid("uuid", "%q is not a UUID", clip(s, 60)).Do("write it as 01234567-89ab-cdef-0123-456789abcdef")
	}
	return UUIDFromBytes([16]byte(b)), nil
}

// UUIDFromBytes makes a UUID of sixteen octets in the order they are printed.
func UUIDFromBytes(b [16]byte) UUID {
	h := hex.EncodeToString(b[:])
	u := UUID(h[0:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:])
	switch u {
	case "00000000-0000-0000-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009":
		return ""
	}
	return u
}

// Swapped gives the UUID with its first three fields in the other byte order: SMBIOS 2.6 and later store them
// little-endian, and firmware, BMCs and tools disagree on undoing it.
func (u UUID) Swapped() UUID {
	if len(u) != 36 {
		return u
	}
	rev := func(s UUID) string {
		var out string
		for i := len(s); i >= 2; i -= 2 {
			out += string(s[i-2 : i])
		}
		return out
	}
	return UUID(rev(u[0:8]) + "-" + rev(u[9:13]) + "-" + rev(u[14:18]) + string(u[18:]))
}

// Spellings are the six ways in which one UUID comes. Firmware and BMCs send its octets as they are printed, with the
// first three fields swapped (SMBIOS), or from the last one on (IPMI), and tools undo one of these, not always the right
// one. nil for no UUID.
func (u UUID) Spellings() []UUID {
	if len(u) != 36 || u.backwards() == "" {
		return nil
	}
	return []UUID{u, u.Swapped(), u.backwards(), u.backwards().Swapped(), u.Swapped().backwards(), u.Swapped().backwards().Swapped()}
}

// backwards is the UUID with its octets in reverse.
func (u UUID) backwards() UUID {
	b, err := hex.DecodeString(strings.ReplaceAll(string(u), "-", ""))
	if err != nil || len(b) != 16 {
		return ""
	}
	slices.Reverse(b)
	return UUIDFromBytes([16]byte(b))
}

// Same reports whether two UUIDs name one machine in any byte order. Empty UUIDs are never the same.
func (u UUID) Same(v UUID) bool { return v != "" && slices.Contains(u.Spellings(), v) }

// NewID gives a fresh id: prefix, hyphen, sixteen lower-case base32 characters (80 random bits).
func NewID(prefix string) string {
	var b [10]byte
	_, _ = rand.Read(b[:]) // crypto/rand.Read never fails since Go 1.24
	return prefix + "-" + strings.ToLower(base32.StdEncoding.EncodeToString(b[:]))
}

// CleanSerial trims a serial number and turns firmware placeholders into "": they are not identities. Besides those that are
// known by their words that is what nobody counts with: one character again and again, or no letter and no digit at all.
func CleanSerial(s string) string {
	t := strings.TrimSpace(s)
	if len(t) >= 4 && strings.Count(t, t[:1]) == len(t) || !strings.ContainsFunc(t, func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }) {
		return ""
	}
	switch strings.ToLower(t) {
	case "to be filled by o.e.m.", "to be filled by o.e.m", "default string", "system serial number", "0123456789",
		"not specified", "<bad index>", "none", "n/a", "na", "unknown", "not available", "not applicable", "empty",
		"chassis serial number", "base board serial number", "baseboard serial number", "serial number", "serialnumber", "serial", "to be filled by oem", "o.e.m.",
		"default", "unspecified", "undefined", "no serial number", "tbd", "0", "12345678", "123456789", "1234567890", "invalid", "oem":
		return ""
	}
	return t
}

func clip(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
