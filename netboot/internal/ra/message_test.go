package ra

import (
	"net/netip"
	"testing"
)

var linkLocal = netip.MustParseAddr("fe80::200:5eff:fe00:5301")

func TestSolicitor(t *testing.T) {
	const head = "\x85\x00\x00\x00\x00\x00\x00\x00"
	for _, c := range []struct {
		name, packet string
		from         netip.Addr
		want         string
	}{
		{"with link-layer option", head + "\x01\x01\x00\x00\x5e\x00\x53\x02", linkLocal, "00:00:5e:00:53:02"},
		{"option after another", head + "\x0e\x01abcdef\x01\x01\x00\x00\x5e\x00\x53\x02", linkLocal, "00:00:5e:00:53:02"},
		{"without option", head, linkLocal, "00:00:5e:00:53:01"},
		{"without option, privacy address", head, netip.MustParseAddr("fe80::1"), ""},
		{"option of length 0", head + "\x01\x00\x00\x00\x5e\x00\x53\x02", linkLocal, ""},
		{"option beyond the end", head + "\x01\x02\x00\x00\x5e\x00\x53\x02", linkLocal, ""},
		{"short", "\x85\x00\x00", linkLocal, ""},
		{"empty", "", linkLocal, ""},
		{"an advertisement", "\x86" + head[1:], linkLocal, ""},
		{"group address", head + "\x01\x01\x01\x00\x5e\x00\x53\x02", linkLocal, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := solicitor([]byte(c.packet), c.from)
			if string(got) != c.want || (err == nil) != (c.want != "") {
				t.Errorf("got %q, %v", got, err)
			}
		})
	}
}

func TestAdvertisementOffersNothing(t *testing.T) {
	b := advertisement()
	if len(b) != 16 || b[0] != 134 {
		t.Fatalf("%x", b)
	}
	for i, c := range b[1:] { // hop limit, flags, lifetime, timers: all unspecified; no option follows
		if c != 0 {
			t.Errorf("octet %d is %#x", i+1, c)
		}
	}
}

func FuzzSolicitor(f *testing.F) {
	f.Add([]byte("\x85\x00\x00\x00\x00\x00\x00\x00\x01\x01\x00\x00\x5e\x00\x53\x02"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if mac, err := solicitor(b, linkLocal); err == nil && len(mac) != 17 {
			t.Fatalf("%q", mac)
		}
	})
}
