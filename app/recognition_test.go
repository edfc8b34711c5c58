package app_test

import (
	"strings"
	"testing"

	"github.com/better-compute/bcd/app"
)

// Case 75, for the whole kind: however a MAC address is written, it is stored one way; what no port has is refused.
func TestMACSpellings(t *testing.T) {
	const want = app.MAC("00:00:5e:00:53:ab")
	for _, s := range []string{"00:00:5e:00:53:ab", "00:00:5E:00:53:AB", "00-00-5E-00-53-AB", "00-00-5e-00-53-ab", "0000.5e00.53ab", "0000.5E00.53AB", "00005E0053AB", "00005e0053ab"} {
		if got, err := app.ParseMAC(s); err != nil || got != want || got.Hyphen() != "00-00-5e-00-53-ab" || len(got.Bytes()) != 6 {
			t.Errorf("%s is %s, %v", s, got, err)
		}
	}
	for _, s := range []string{"", "00:00:5e:0:53:ab", "00:00:5e:00:53", "00:00:5e:00:53:ab:33", "00:00-5e:00-53:ab", "000.05e.005.3ab", "00:00:00:00:00:00", "ff:ff:ff:ff:ff:ff",
		"01:00:5e:00:00:01", "33:33:00:00:00:01", "gg:00:5e:00:53:ab", " 00:00:5e:00:53:ab", "00:00:5e:00:53:ab\n", "00005e0053a", "00:00:5e:00:53:a\xff", strings.Repeat("a", 1<<16)} {
		if got, err := app.ParseMAC(s); app.CodeOf(err) != app.InvalidInput || got != "" || len(err.Error()) > 300 {
			t.Errorf("%.40q is %q, %.200v", s, got, err)
		}
	}
}

// Case 77: what firmware writes when nobody filled it in identifies nothing.
func TestPlaceholdersAreNoIdentities(t *testing.T) {
	for _, s := range []string{"", "  ", "To be filled by O.E.M.", "TO BE FILLED BY O.E.M.", " Default string ", "System Serial Number", "0123456789", "Not Specified", "<BAD INDEX>", "None", "N/A", "Unknown", "00000000",
		"0000000000", "XXXXXXXX", "ffffffffffff", "........", "-", " . . . ", "--------", "\x00\x00\x00\x00", "Serial Number", "Baseboard Serial Number", "12345678", "UNDEFINED"} {
		if got := app.CleanSerial(s); got != "" {
			t.Errorf("the serial number %q is taken for %q", s, got)
		}
	}
	for _, s := range []string{"CN747517AB0123", "0", "S4EWNX0M ", "none-0001", "111", "2222-1", "A", "É1", "AAAB"} {
		if got := app.CleanSerial(s); got != strings.TrimSpace(s) && s != "0" {
			t.Errorf("the serial number %q becomes %q", s, got)
		}
	}
	for _, s := range []string{"", "00000000-0000-0000-0000-000000000000", "FFFFFFFF-FFFF-FFFF-FFFF-FFFFFFFFFFFF", "03000200-0400-0500-0006-000700080009", "00020003-0004-0005-0006-000700080009", "{00000000-0000-0000-0000-000000000000}"} {
		if got, err := app.ParseUUID(s); err != nil || got != "" {
			t.Errorf("the UUID %q is taken for %q, %v", s, got, err)
		}
	}
}

// Case 79: option 97, SMBIOS of either age, Redfish and iPXE name one machine.
func TestUUIDByteOrdersNameOneMachine(t *testing.T) {
	raw := [16]byte{0x33, 0x22, 0x11, 0x00, 0x55, 0x44, 0x77, 0x66, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	wire := app.UUIDFromBytes(raw)
	for _, s := range []string{"00112233-4455-6677-8899-aabbccddeeff", "33221100-5544-7766-8899-AABBCCDDEEFF", "{00112233-4455-6677-8899-aabbccddeeff}", "00112233445566778899aabbccddeeff"} {
		u, err := app.ParseUUID(s)
		if err != nil || !u.Same(wire) || !wire.Same(u) {
			t.Errorf("%s and the wire's %s are two: %v", s, wire, err)
		}
	}
}

func FuzzIdentities(f *testing.F) {
	f.Add("00:00:5e:00:53:ab")
	f.Add("00112233-4455-6677-8899-aabbccddeeff")
	f.Fuzz(func(t *testing.T, s string) {
		if mac, err := app.ParseMAC(s); err == nil {
			if again, err := app.ParseMAC(string(mac)); err != nil || again != mac {
				t.Errorf("%q gives %q, which gives %q, %v", s, mac, again, err)
			}
		}
		if u, err := app.ParseUUID(s); err == nil && u != "" {
			if again, err := app.ParseUUID(string(u)); err != nil || again != u || u.Swapped().Swapped() != u {
				t.Errorf("%q gives %q, which gives %q, %v", s, u, again, err)
			}
		}
	})
}
