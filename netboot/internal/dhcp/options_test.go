package dhcp

import (
	"bytes"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

func own(code uint8, kind, value string) app.DHCPOption {
	return app.DHCPOption{Code: code, Type: kind, Value: value}
}

func TestOwnOptionsAndRoutes(t *testing.T) {
	s := lan
	s.NTP = []netip.Addr{netip.MustParseAddr("192.0.2.123")}
	s.Options = []app.DHCPOption{own(26, "uint16", "9000"), own(224, "text", "rack 1")}
	s.Routes = []app.StaticRoute{{To: netip.MustParsePrefix("198.51.100.0/25"), Via: netip.MustParseAddr("192.0.2.7")}}
	r := start(t, newStore(), []app.Subnet{s})
	all := map[uint8]string{26: "\x23\x28", 224: "rack 1", 121: "\x19\xc6\x33\x64\x00\xc0\x00\x02\x07\x00\xc0\x00\x02\xfe", 42: "\xc0\x00\x02\x7b"}
	offer, _ := r.ask(discover(mac(1), without(55)))
	for code, want := range all {
		if string(offer.Options[code]) != want {
			t.Errorf("option %d is %x, want %x", code, offer.Options[code], want)
		}
	}
	offer, _ = r.ask(discover(mac(2), raw(55, 1, 3, 26)))
	if got := hasAny(offer, 26, 121, 224); !slices.Equal(got, []uint8{26}) {
		t.Errorf("a client that asks for 26 was given %v", got)
	}
	ack, _ := r.ask(message(dhcpv4.MessageTypeInform, mac(3), withCiaddr("192.0.2.150"), raw(55, 121)))
	if string(ack.Options[121]) != all[121] {
		t.Errorf("INFORM gave routes %x", ack.Options[121])
	}
	s.Gateway = netip.Addr{}
	if got := newSubnet(s).options[121]; len(got) != 9 {
		t.Errorf("routes without a gateway are %x", got)
	}
}

func without(code uint8) dhcpv4.Modifier {
	return func(d *dhcpv4.DHCPv4) { delete(d.Options, code) }
}

// Case 15, for options of the operator's: two instances, in order, and never more than the client takes.
func TestLongOptionsOfTheOperator(t *testing.T) {
	s := lan
	long := strings.Repeat("6162", 150) // 300 octets
	s.Options = []app.DHCPOption{own(230, "hex", long), own(224, "text", "small")}
	for i := range 20 {
		s.Routes = append(s.Routes, app.StaticRoute{To: netip.PrefixFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i * 4)}), 30), Via: netip.MustParseAddr("192.0.2.7")})
	}
	r := start(t, newStore(), []app.Subnet{s})
	offer, rep := r.ask(discover(mac(1), without(55), raw(57, 0x05, 0xdc)))
	if len(offer.Options[230]) != 300 || !bytes.Contains(rep.Payload, append([]byte{230, 255}, strings.Repeat("ab", 127)...)) || !bytes.Contains(rep.Payload, append([]byte{230, 45}, "ba"...)) ||
		len(offer.Options[121]) != 20*9+5 {
		t.Errorf("%d octets of option 230, %d of routes", len(offer.Options[230]), len(offer.Options[121]))
	}
	offer, rep = r.ask(discover(mac(2), without(55), raw(57, 0x02, 0x40)))
	if len(rep.Payload) > 548 || len(hasAny(offer, 230)) > 0 || string(offer.Options[224]) != "small" || len(offer.Router()) != 1 {
		t.Errorf("%d octets for a client that takes 548: %v", len(rep.Payload), offer.Summary())
	}
	r.drain()
	for _, x := range r.records {
		if short := x.MAC == mac(2); short != slices.Equal(x.LeftOut, []int{230}) || short != (x.Level == "warn") {
			t.Errorf("what was left out is recorded as %+v", x)
		}
	}
}

func TestReservations(t *testing.T) {
	inside, outside := netip.MustParseAddr("192.0.2.10"), netip.MustParseAddr("192.0.2.200")
	s := lan
	s.PoolEnd = netip.MustParseAddr("192.0.2.12")
	s.Reservations = []app.Reservation{{MAC: mac(1), Addr: inside}, {MAC: mac(2), Addr: outside}}
	st := newStore()
	r := start(t, st, []app.Subnet{s})
	given, third := map[netip.Addr]bool{}, netip.Addr{}
	for i := 3; i <= 4; i++ { // what is reserved is kept free, also for those who ask for it
		r.ask(discover(mac(i), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(inside.AsSlice()))))
		a := r.dora(mac(i))
		if given[a] = true; i == 3 {
			third = a
		}
	}
	if given[inside] || len(given) != 2 {
		t.Errorf("given out: %v", given)
	}
	if a, b := r.dora(mac(1)), r.dora(mac(2)); a != inside || b != outside {
		t.Errorf("reserved ones are %v and %v", a, b)
	}
	if ack, _ := r.ask(renewing(mac(2), outside.String())); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Error("an address outside the pool was not renewed for whom it is reserved")
	}
	nak, _ := r.ask(initReboot(mac(3), outside.String()))
	if nak.MessageType() != dhcpv4.MessageTypeNak {
		t.Error(nak.Summary())
	}

	// A reservation for a client that has another address moves it when it asks next, unless its address is in use yet.
	s.Reservations = append(s.Reservations, app.Reservation{MAC: mac(3), Addr: netip.MustParseAddr("192.0.2.50")})
	if err := r.srv.Load(t.Context(), []app.Subnet{s}); err != nil {
		t.Fatal(err)
	}
	if got, _ := r.ask(renewing(mac(3), third.String())); got.MessageType() != dhcpv4.MessageTypeNak {
		t.Error(got.Summary())
	}
	if got := r.dora(mac(3)); got.String() != "192.0.2.50" {
		t.Errorf("moved to %v", got)
	}
}

// A reservation that somebody else lives at must not leave its owner without an address.
func TestReservationOfATakenAddress(t *testing.T) {
	s := lan
	r := start(t, newStore(), []app.Subnet{s})
	taken := r.dora(mac(1))
	mine := r.dora(mac(2))
	s.Reservations = []app.Reservation{{MAC: mac(2), Addr: taken}}
	if err := r.srv.Load(t.Context(), []app.Subnet{s}); err != nil {
		t.Fatal(err)
	}
	if got := r.dora(mac(2)); got != mine {
		t.Errorf("while it is taken: %v", got)
	}
	if got, _ := r.ask(renewing(mac(1), taken.String())); got.MessageType() != dhcpv4.MessageTypeNak {
		t.Error("the squatter was renewed")
	}
	if got := r.dora(mac(1)); got == taken {
		t.Error("the squatter was given the address again")
	}
	if got := r.dora(mac(2)); got != taken {
		t.Errorf("once it is free: %v", got)
	}
}

func TestFreedAndForgottenLeases(t *testing.T) {
	one := lan
	one.PoolEnd = one.PoolStart
	r := start(t, newStore(), []app.Subnet{one})
	a := r.dora(mac(1))
	r.srv.Free(mac(2), a) // not its
	r.send(discover(mac(2)).ToBytes(), netip.Addr{})
	r.conn.handled()
	r.srv.Free(mac(1), a)
	if got := r.dora(mac(2)); got != a {
		t.Errorf("after it was freed: %v", got)
	}
	moved := one
	moved.ID = "net-new"
	if err := r.srv.Load(t.Context(), []app.Subnet{moved}); err != nil {
		t.Fatal(err)
	}
	if got := r.dora(mac(3)); got != a {
		t.Errorf("after its subnet was made anew: %v", got)
	}
}

// An address kept for a machine that was deleted is given to others when there is no other left.
func TestAddressesOfDeletedMachinesComeBack(t *testing.T) {
	one := lan
	one.PoolEnd = one.PoolStart
	r := start(t, newStore(), []app.Subnet{one})
	r.clients.mu.Lock()
	r.clients.reserved[mac(1)] = netip.Addr{}
	r.clients.mu.Unlock()
	a := r.dora(mac(1))
	r.pass(1000 * time.Hour)
	r.send(discover(mac(2)).ToBytes(), netip.Addr{})
	r.conn.handled()
	r.clients.mu.Lock()
	delete(r.clients.reserved, mac(1))
	r.clients.mu.Unlock()
	r.pass(holdTime + time.Second)
	if got := r.dora(mac(2)); got != a {
		t.Errorf("got %v", got)
	}
}
