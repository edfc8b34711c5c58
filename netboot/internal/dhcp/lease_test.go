package dhcp

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

// Case 13.
func TestLeasesSurviveRestarts(t *testing.T) {
	st := newStore()
	small := lan
	small.PoolEnd = netip.MustParseAddr("192.0.2.12")
	first := start(t, st, []app.Subnet{small})
	a := first.dora(mac(1))

	second := start(t, st, []app.Subnet{small})
	for i := 2; i <= 3; i++ {
		if got := second.dora(mac(i)); got == a {
			t.Fatalf("client %d was given the lease of client 1", i)
		}
	}
	if ack, _ := second.ask(initReboot(mac(1), a.String())); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Error(ack.Summary())
	}

	moved := lan
	moved.PoolStart, moved.PoolEnd = netip.MustParseAddr("192.0.2.100"), netip.MustParseAddr("192.0.2.110")
	third := start(t, st, []app.Subnet{moved})
	if !slices.Contains(third.kinds(), "dhcp.stranded") {
		t.Errorf("recorded %v", third.kinds())
	}
	if got, _ := third.ask(renewing(mac(1), a.String())); got.MessageType() != dhcpv4.MessageTypeNak {
		t.Errorf("a stranded lease was renewed: %v", got.Summary())
	}
	if got := third.dora(mac(1)); !moved.CIDR.Contains(got) || got == a {
		t.Errorf("the client got %v", got)
	}
	if n := len(st.of(mac(1))); n != 1 {
		t.Errorf("%d leases stored for the client", n)
	}
}

func TestAckOnlyWhenDurable(t *testing.T) {
	st := newStore()
	r := start(t, st, []app.Subnet{lan})
	offer, _ := r.ask(discover(mac(1)))
	st.gate = make(chan struct{})
	r.send(selecting(mac(1), offer).ToBytes(), netip.Addr{})
	r.silent() // other clients are served meanwhile, and no ACK is out
	close(st.gate)
	if rep := <-r.conn.out; !strings.Contains(string(rep.Payload), "\x35\x01\x05") {
		t.Error("no ACK after the lease was stored")
	}
}

func TestNoAckWhenTheStoreFails(t *testing.T) {
	st := newStore()
	r := start(t, st, []app.Subnet{lan})
	offer, _ := r.ask(discover(mac(1)))
	st.mu.Lock()
	st.fail = errors.New("disk full")
	st.mu.Unlock()
	r.silent(selecting(mac(1), offer))
	r.recorded("dhcp.failed", 1)
	st.mu.Lock()
	st.fail = nil
	st.mu.Unlock()
	if ack, _ := r.ask(selecting(mac(1), offer)); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Error("the client's second try failed")
	}
}

func TestManyLeasesShareATransaction(t *testing.T) {
	st := newStore()
	r := start(t, st, []app.Subnet{lan})
	var requests []*dhcpv4.DHCPv4
	for i := range 50 {
		offer, _ := r.ask(discover(mac(i + 1)))
		requests = append(requests, selecting(mac(i+1), offer))
	}
	st.gate = make(chan struct{})
	for _, m := range requests {
		r.send(m.ToBytes(), netip.Addr{})
	}
	r.conn.handled()
	close(st.gate)
	for range requests {
		<-r.conn.out
	}
	st.mu.Lock()
	defer st.mu.Unlock()
	if st.writes > 2 || len(st.leases) != 50 {
		t.Errorf("%d leases in %d transactions", len(st.leases), st.writes)
	}
}

func TestNAKOnlyForAddressesOfTheSubnet(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	a := r.dora(mac(1))
	nak := func(m *dhcpv4.DHCPv4) {
		t.Helper()
		got, rep := r.ask(m)
		if got.MessageType() != dhcpv4.MessageTypeNak || rep.To != broadcast || !got.YourIPAddr.IsUnspecified() || len(hasAny(got, 51, 1, 3)) > 0 {
			t.Errorf("%v to %v", got.Summary(), rep.To)
		}
	}
	nak(initReboot(mac(1), "192.0.2.77"))        // knows it at another address
	nak(initReboot(mac(2), a.String()))          // somebody else's
	nak(selecting(mac(3), offerOf(a, serverIP))) // never offered
	r.silent(
		initReboot(mac(1), "203.0.113.9"),      // another network's
		initReboot(mac(4), "192.0.2.50"),       // never heard of it: another server may have given it
		renewing(mac(4), "203.0.113.9"),        //
		selecting(mac(1), offerOf(a, relayIP)), // chose another server
	)
	// Renewing by unicast a lease that was lost: the client must start anew.
	m := renewing(mac(5), "192.0.2.60")
	r.send(m.ToBytes(), serverIP)
	if rep := <-r.conn.out; !strings.Contains(string(rep.Payload), "\x35\x01\x06") {
		t.Error("no NAK for an unknown lease renewed with us")
	}
}

func offerOf(a, server netip.Addr) *dhcpv4.DHCPv4 {
	return &dhcpv4.DHCPv4{YourIPAddr: a.AsSlice(), Options: dhcpv4.OptionsFromList(dhcpv4.OptServerIdentifier(server.AsSlice()))}
}

func TestRenewalGoesToTheClient(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	a := r.dora(mac(1))
	r.pass(40 * time.Minute)
	ack, rep := r.ask(renewing(mac(1), a.String()))
	if ack.MessageType() != dhcpv4.MessageTypeAck || rep.To != netip.AddrPortFrom(a, 68) || rep.HW != nil || addrOf(ack.ClientIPAddr) != a {
		t.Errorf("%v to %v", ack.Summary(), rep.To)
	}
	r.pass(50 * time.Minute) // past the first lease's end
	if l := r.store.of(mac(1)); !l[0].Expires.After(r.srv.cfg.Now()) {
		t.Errorf("the renewal was not stored: %+v", l)
	}
}

func TestDeclinedAddressRests(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	a := r.dora(mac(1))
	decline := func(m app.MAC) *dhcpv4.DHCPv4 {
		return message(dhcpv4.MessageTypeDecline, m, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a.AsSlice())))
	}
	r.silent(decline(mac(2))) // nobody else may decline it
	if got := r.dora(mac(1)); got != a {
		t.Fatalf("the client moved to %v", got)
	}
	r.silent(decline(mac(1)))
	r.recorded("dhcp.decline", 1)
	if got := r.dora(mac(1)); got == a {
		t.Error("a declined address was given out again")
	}
	if !slices.Contains(r.kinds(), "dhcp.decline") {
		t.Errorf("recorded %v", r.kinds())
	}
	r.pass(quarantine + time.Minute)
	offer, _ := r.ask(discover(mac(9), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a.AsSlice()))))
	if addrOf(offer.YourIPAddr) != a {
		t.Error("the address never came back")
	}
}

func TestReleasedAddressIsFree(t *testing.T) {
	r := start(t, newStore(), []app.Subnet{lan})
	a := r.dora(mac(1))
	m := message(dhcpv4.MessageTypeRelease, mac(1), func(d *dhcpv4.DHCPv4) { d.ClientIPAddr = a.AsSlice() })
	theft := message(dhcpv4.MessageTypeRelease, mac(2), func(d *dhcpv4.DHCPv4) { d.ClientIPAddr = a.AsSlice() })
	r.silent(theft)
	if l := r.store.of(mac(1)); l[0].State != "bound" {
		t.Error("another client released the lease")
	}
	r.silent(m)
	r.recorded("dhcp.release", 1)
	offer, _ := r.ask(discover(mac(3), dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(a.AsSlice()))))
	if addrOf(offer.YourIPAddr) != a {
		t.Error("the released address is not free")
	}
}

func TestExpiryAndExhaustion(t *testing.T) {
	two := lan
	two.PoolEnd = netip.MustParseAddr("192.0.2.11")
	st := newStore()
	r := start(t, st, []app.Subnet{two})
	r.dora(mac(1))
	r.pass(time.Minute)
	r.dora(mac(2))
	r.send(discover(mac(3)).ToBytes(), netip.Addr{})
	if offer, _ := r.ask(discover(mac(1))); offer.YourIPAddr == nil { // known clients go on
		t.Error("no offer")
	}
	r.conn.handled()
	for range 2 { // each client is told once in a while, and one of them as an error
		r.send(discover(mac(4)).ToBytes(), netip.Addr{})
	}
	r.conn.handled()
	r.mu.Lock()
	var told []string
	for _, x := range r.records {
		if x.Kind == "dhcp.exhausted" {
			told = append(told, string(x.MAC)+" "+x.Level)
		}
	}
	r.mu.Unlock()
	if want := []string{string(mac(3)) + " error", string(mac(4)) + " info"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
	r.pass(59*time.Minute + time.Second) // client 1's lease is over, client 2's not
	r.dora(mac(3))
	if len(st.of(mac(1))) != 0 || len(st.of(mac(2))) != 1 {
		t.Error("the wrong lease was taken over")
	}
}

func TestUnansweredOfferIsHeldForAWhile(t *testing.T) {
	one := lan
	one.PoolEnd = one.PoolStart
	r := start(t, newStore(), []app.Subnet{one})
	r.ask(discover(mac(1)))
	r.send(discover(mac(2)).ToBytes(), netip.Addr{})
	r.conn.handled()
	r.pass(holdTime + time.Second)
	offer, _ := r.ask(discover(mac(3)))
	if addrOf(offer.YourIPAddr) != one.PoolStart {
		t.Error(offer.Summary())
	}
}

func TestMachinesKeepTheirAddressForGood(t *testing.T) {
	one := lan
	one.PoolEnd = one.PoolStart
	st := newStore()
	r := start(t, st, []app.Subnet{one})
	r.clients.mu.Lock()
	r.clients.reserved[mac(1)] = netip.Addr{} // ours, any address
	r.clients.mu.Unlock()
	a := r.dora(mac(1))
	if l := st.of(mac(1)); !l[0].Reserved {
		t.Errorf("%+v", l)
	}
	r.pass(1000 * time.Hour)
	again := start(t, st, []app.Subnet{one})
	again.send(discover(mac(2)).ToBytes(), netip.Addr{})
	again.conn.handled()
	if got, _ := again.ask(initReboot(mac(1), a.String())); got.MessageType() != dhcpv4.MessageTypeAck {
		t.Error(got.Summary())
	}
}

func TestAddressInUseIsNotOffered(t *testing.T) {
	var probes atomic.Int32
	var taken atomic.Value
	r := start(t, newStore(), []app.Subnet{lan}, func(c *Config) {
		c.Probe = func(_ context.Context, iface string, a netip.Addr) bool {
			if probes.Add(1) == 1 {
				taken.Store(a)
				return true
			}
			return false
		}
	})
	trusting := remote
	trusting.NoProbe = true
	if err := r.srv.Load(t.Context(), []app.Subnet{lan, trusting}); err != nil {
		t.Fatal(err)
	}
	if r.ask(discover(mac(9), viaRelay("198.51.100.1"))); probes.Load() != 0 {
		t.Error("a subnet that is not to be probed was")
	}
	offer, _ := r.ask(discover(mac(1)))
	if addrOf(offer.YourIPAddr) == taken.Load() {
		t.Error("the address that is in use was offered")
	}
	if !slices.Contains(r.kinds(), "dhcp.conflict") {
		t.Errorf("recorded %v", r.kinds())
	}
	n := probes.Load()
	r.ask(discover(mac(1)))
	if ack, _ := r.ask(selecting(mac(1), offer)); ack.MessageType() != dhcpv4.MessageTypeAck {
		t.Error(ack.Summary())
	}
	if probes.Load() != n {
		t.Error("the client's own address was probed again")
	}
}

func TestGatewayAndOwnAddressAreNeverGivenOut(t *testing.T) {
	tight := lan
	tight.CIDR = netip.MustParsePrefix("192.0.2.0/29")
	tight.PoolStart, tight.PoolEnd = netip.MustParseAddr("192.0.2.0"), netip.MustParseAddr("192.0.2.7")
	tight.Gateway = netip.MustParseAddr("192.0.2.2")
	r := start(t, newStore(), []app.Subnet{tight})
	got := map[string]bool{}
	for i := range 4 {
		got[r.dora(mac(i+1)).String()] = true
	}
	for _, a := range []string{"192.0.2.3", "192.0.2.4", "192.0.2.5", "192.0.2.6"} {
		if !got[a] {
			t.Errorf("given out: %v", got)
		}
	}
}

func TestUDPFrame(t *testing.T) {
	src, dst := net.HardwareAddr{2, 0, 0, 0, 0, 1}, net.HardwareAddr{2, 0, 0, 0, 0, 2}
	b := frame(src, dst, netip.MustParseAddrPort("192.0.2.1:67"), netip.MustParseAddrPort("192.0.2.10:68"), []byte("odd"))
	if len(b) != 14+20+8+3 || sum(0, b[14:34]) != 0xffff {
		t.Errorf("%x", b)
	}
	pseudo := append(append([]byte{}, b[26:34]...), 0, 17, 0, 11)
	if sum(uint32(sum(0, pseudo)), b[34:]) != 0xffff {
		t.Error("the UDP checksum is wrong")
	}
}

func FuzzRequest(f *testing.F) {
	f.Add(discover(mac(1), pxeX64).ToBytes())
	f.Add(initReboot(mac(1), "192.0.2.10").ToBytes())
	f.Add(message(dhcpv4.MessageTypeInform, mac(1)).ToBytes())
	r := start(f, newStore(), []app.Subnet{lan, remote})
	go func() {
		for {
			select {
			case <-r.conn.out:
			case <-r.conn.closed:
				return
			}
		}
	}()
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) <= maxDatagram {
			r.send(b, serverIP)
		}
		if q, err := parse(b); err == nil {
			_ = q.facts().UUID()
			if len(q.hostname()) > 3*255 {
				t.Fatal("a host name without bounds")
			}
		}
	})
}
