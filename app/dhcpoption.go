package app

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Limits of what an operator may add to a subnet's answers.
const (
	MaxDHCPOptions     = 32
	MaxDHCPOptionBytes = 510 // two instances of one option (RFC 3396)
)

// DHCPOption is an option that an operator adds to what clients are told. Its text form is CODE=TYPE:VALUE, as in
// "26=uint16:9000" or "150=ip:192.0.2.1,192.0.2.2". Types: ip (a list), text, uint8, uint16, uint32, bool, hex.
type DHCPOption struct {
	Code  uint8
	Type  string
	Value string
}

// String is the text form.
func (o DHCPOption) String() string { return fmt.Sprintf("%d=%s:%s", o.Code, o.Type, o.Value) }

// MarshalText gives the text form.
func (o DHCPOption) MarshalText() ([]byte, error) { return []byte(o.String()), nil }

// UnmarshalText reads the text form. Whether bcd sends such an option is Validate's business.
func (o *DHCPOption) UnmarshalText(b []byte) error {
	code, rest, ok := strings.Cut(string(b), "=")
	kind, value, typed := strings.Cut(rest, ":")
	n, err := strconv.ParseUint(strings.TrimSpace(code), 10, 8)
	if !ok || !typed || err != nil || len(b) > 2*MaxDHCPOptionBytes+32 {
		return badOption("%q is not CODE=TYPE:VALUE", clip(string(b), 60)).Do("write it as 26=uint16:9000 or 150=ip:192.0.2.1")
	}
	*o = DHCPOption{uint8(n), strings.TrimSpace(kind), strings.TrimSpace(value)}
	return nil
}

func badOption(format string, args ...any) *Error { return Invalid("options", format, args...) }

// Validate checks that the option may be added, and that its value has the form and length that its code demands.
func (o DHCPOption) Validate() error {
	if why := reservedOption(o.Code); why != "" {
		return badOption("option %d cannot be set here: %s", o.Code, why).Do("remove it")
	}
	b, err := o.Encode()
	if err != nil {
		return err
	}
	unit, exact := optionLength(o.Code)
	if unit > 0 && (len(b)%unit != 0 || exact && len(b) != unit) {
		return badOption("option %d holds %s, and the value has %d", o.Code, octets(unit, exact), len(b)).Do("give it the right type and value")
	}
	return nil
}

// Encode gives the octets of the value.
func (o DHCPOption) Encode() ([]byte, error) {
	var b []byte
	var err error
	switch o.Type {
	case "text":
		b, err = []byte(o.Value), ValidLine("options", o.Value, 255)
	case "hex":
		if b, err = hex.DecodeString(strings.NewReplacer(":", "", " ", "").Replace(o.Value)); err != nil {
			err = badOption("option %d: %q is not hexadecimal", o.Code, clip(o.Value, 40)).Do("write it as hex:0a0b0c")
		}
	case "ip":
		b, err = o.addresses()
	case "bool", "uint8", "uint16", "uint32":
		b, err = o.number()
	default:
		return nil, badOption("option %d: %q is no type", o.Code, clip(o.Type, 20)).Do("use ip, text, uint8, uint16, uint32, bool or hex")
	}
	switch {
	case err != nil:
		return nil, err
	case len(b) == 0:
		return nil, badOption("option %d has no value", o.Code).Do("give it one, or remove it")
	case len(b) > MaxDHCPOptionBytes:
		return nil, badOption("option %d has %d bytes", o.Code, len(b)).Do("keep it to %d", MaxDHCPOptionBytes)
	}
	return b, nil
}

func (o DHCPOption) addresses() ([]byte, error) {
	var b []byte
	for _, s := range strings.FieldsFunc(o.Value, func(r rune) bool { return r == ',' || r == ' ' }) {
		a, err := netip.ParseAddr(s)
		if err != nil || !a.Is4() {
			return nil, badOption("option %d: %q is no IPv4 address", o.Code, clip(s, 40)).Do("write it as ip:192.0.2.1,192.0.2.2")
		}
		b = append(b, a.AsSlice()...)
	}
	return b, nil
}

func (o DHCPOption) number() ([]byte, error) {
	bits := map[string]int{"bool": 1, "uint8": 8, "uint16": 16, "uint32": 32}[o.Type]
	s := o.Value
	if o.Type == "bool" {
		s = strings.NewReplacer("true", "1", "false", "0").Replace(s)
	}
	n, err := strconv.ParseUint(s, 0, bits)
	if err != nil {
		return nil, badOption("option %d: %q is no %s", o.Code, clip(o.Value, 40), o.Type).Do("write a number that fits")
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(n))
	return b[4-(bits+7)/8:], nil
}

// reservedOption says why an option is not an operator's to set, "" when it is.
func reservedOption(code uint8) string {
	switch code {
	case 0, 255:
		return "it is no option"
	case 1, 28:
		return "it follows from the network"
	case 3, 6, 15, 42, 51, 121:
		return "the subnet has a field for it"
	case 50, 52, 53, 54, 55, 56, 57, 58, 59, 61, 80, 81, 82, 90, 118:
		return "it belongs to the protocol"
	case 43, 60, 66, 67, 77, 93, 94, 97, 175:
		return "bcd boots machines with it"
	}
	return ""
}

// optionLength is the length that the registry of RFC 2132 and its successors gives an option, in octets: a multiple of
// unit, or exactly that. A unit of 0 means any length.
func optionLength(code uint8) (unit int, exact bool) {
	switch code {
	case 19, 20, 23, 27, 29, 30, 31, 34, 36, 37, 39, 46:
		return 1, true
	case 13, 22, 26:
		return 2, true
	case 2, 16, 24, 32, 35, 38:
		return 4, true
	case 25:
		return 2, false
	case 4, 5, 7, 8, 9, 10, 11, 41, 44, 45, 48, 49, 65, 68, 69, 70, 71, 72, 73, 74, 75, 76, 150:
		return 4, false
	case 21, 33:
		return 8, false
	}
	return 0, false
}

func octets(unit int, exact bool) string {
	if exact {
		return fmt.Sprintf("%d bytes", unit)
	}
	return fmt.Sprintf("a multiple of %d bytes", unit)
}
