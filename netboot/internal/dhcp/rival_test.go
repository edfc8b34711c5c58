package dhcp

import (
	"net"
	"net/netip"
	"testing"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

var (
	ourHW   = net.HardwareAddr{0, 0, 0x5e, 0, 0x53, 1}
	rivalHW = net.HardwareAddr{0, 0, 0x5e, 0, 0x53, 0xfe}
)

// answerTo makes the frame in which a server answers one of our questions.
func answerTo(t testing.TB, q []byte, change func(*dhcpv4.DHCPv4)) []byte {
	t.Helper()
	in, err := dhcpv4.FromBytes(q[ethernetHeader+ipv4Header+udpHeader:])
	if err != nil {
		t.Fatal(err)
	}
	m, err := dhcpv4.NewReplyFromRequest(in, dhcpv4.WithMessageType(dhcpv4.MessageTypeOffer))
	if err != nil {
		t.Fatal(err)
	}
	change(m)
	return frame(rivalHW, ourHW, netip.MustParseAddrPort("192.0.2.3:67"), netip.MustParseAddrPort("255.255.255.255:68"), m.ToBytes())
}

func TestRivalsAreReadFromTheirAnswers(t *testing.T) {
	plain, x1, err := question(ourHW, false)
	if err != nil {
		t.Fatal(err)
	}
	pxe, x2, err := question(ourHW, true)
	if err != nil {
		t.Fatal(err)
	}
	ours := func(x dhcpv4.TransactionID) bool { return x == x1 || x == x2 }
	gives := answerTo(t, plain, func(m *dhcpv4.DHCPv4) {
		m.YourIPAddr = net.IPv4(192, 0, 2, 55)
		m.UpdateOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 3)))
		m.UpdateOption(dhcpv4.OptRouter(net.IPv4(192, 0, 2, 254)))
	})
	boots := answerTo(t, pxe, func(m *dhcpv4.DHCPv4) {
		m.ServerIPAddr, m.BootFileName = net.IPv4(192, 0, 2, 4), "x\x00<b>"
		m.UpdateOption(dhcpv4.OptServerIdentifier(net.IPv4(192, 0, 2, 3)))
	})
	var all []app.Rival
	for _, f := range [][]byte{gives, boots} {
		r, ok := rivalOf(f, ours)
		if !ok {
			t.Fatal("an answer was not read")
		}
		all = mergeRival(all, r)
	}
	if len(all) != 1 {
		t.Fatalf("%d rivals", len(all))
	}
	r := all[0]
	if r.Server.String() != "192.0.2.3" || r.MAC != "00:00:5e:00:53:fe" || r.Offered.String() != "192.0.2.55" || r.Gateway.String() != "192.0.2.254" ||
		r.BootFile != "x" || r.Next.String() != "192.0.2.4" {
		t.Errorf("%+v", r)
	}
	r.Interface = "eno1"
	if s := r.String(); s != `the DHCP server 192.0.2.3 (00:00:5e:00:53:fe) on eno1, which offers 192.0.2.55 and the boot file "x"` {
		t.Error(s)
	}
	if _, ok := rivalOf(gives, func(dhcpv4.TransactionID) bool { return false }); ok {
		t.Error("an answer to somebody else was taken for ours")
	}
	if _, ok := rivalOf(answerTo(t, plain, func(*dhcpv4.DHCPv4) {}), ours); !ok {
		t.Error("a server that does not name itself is nobody")
	}
	for i := range 100 {
		r.Server = netip.AddrFrom4([4]byte{203, 0, 113, byte(i)})
		all = mergeRival(all, r)
	}
	if len(all) > maxRivals {
		t.Errorf("%d rivals are kept", len(all))
	}
}

func FuzzRival(f *testing.F) {
	q, _, err := question(ourHW, true)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(q)
	f.Add(answerTo(f, q, func(m *dhcpv4.DHCPv4) { m.BootFileName = "x" }))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := rivalOf(b, func(dhcpv4.TransactionID) bool { return true })
		if ok && (!r.Server.IsValid() || len(r.BootFile) > 3*255) {
			t.Fatalf("%+v", r)
		}
	})
}

func FuzzSuboptions(f *testing.F) {
	f.Add([]byte("\x05\x04\xc0\x00\x02\x01\x0b\x04\xc0\x00\x02\x02"), byte(5))
	f.Add([]byte("\x06\x01\x08\x47\x04\x00\x00\x00\x00\xff"), byte(71))
	f.Add([]byte("\x05\xff"), byte(5))
	f.Fuzz(func(t *testing.T, b []byte, code byte) {
		if v := suboption(b, code); len(v) > 255 {
			t.Fatalf("%d octets", len(v))
		}
		if a := relayAddress(b, code); a.IsValid() && !a.Is4() {
			t.Fatal(a)
		}
	})
}
