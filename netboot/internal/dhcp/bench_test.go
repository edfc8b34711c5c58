package dhcp

import (
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
)

// BenchmarkDORA measures whole exchanges per second with a store whose transactions take 2 ms each, as a disk's do, and
// 64 clients in flight. dnsmasq, which keeps leases in a file without fsync, does some 430 a second through a veth pair.
func BenchmarkDORA(b *testing.B) {
	st := newStore()
	st.delay = 2 * time.Millisecond
	wide := lan
	wide.CIDR = netip.MustParsePrefix("198.18.0.0/15") // RFC 2544
	wide.PoolStart, wide.PoolEnd = netip.MustParseAddr("198.18.1.0"), netip.MustParseAddr("198.19.255.0")
	r := start(b, st, []app.Subnet{wide}, func(c *Config) { c.Record = func(Exchange) {} })
	var waiting sync.Map // MAC → chan
	go func() {
		for rep := range r.conn.out {
			if ch, ok := waiting.Load([6]byte(rep.Payload[28:34])); ok {
				ch.(chan []byte) <- rep.Payload
			}
		}
	}()
	var next atomic.Uint32
	exchange := func() {
		n := next.Add(1)
		m := [6]byte{2, 0, 0, byte(n >> 16), byte(n >> 8), byte(n)}
		ch := make(chan []byte, 1)
		waiting.Store(m, ch)
		defer waiting.Delete(m)
		p, _ := dhcpv4.New(dhcpv4.WithHwAddr(net.HardwareAddr(m[:])), dhcpv4.WithMessageType(dhcpv4.MessageTypeDiscover), pxeX64)
		r.send(p.ToBytes(), netip.Addr{})
		offer, _ := dhcpv4.FromBytes(<-ch)
		q, _ := dhcpv4.New(dhcpv4.WithHwAddr(net.HardwareAddr(m[:])), dhcpv4.WithMessageType(dhcpv4.MessageTypeRequest), pxeX64,
			dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())))
		r.send(q.ToBytes(), netip.Addr{})
		<-ch
	}
	work := make(chan struct{})
	var wg sync.WaitGroup
	for range 64 {
		wg.Go(func() {
			for range work {
				exchange()
			}
		})
	}
	for b.Loop() {
		work <- struct{}{}
	}
	close(work)
	wg.Wait()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "DORA/s")
}
