package dhcp

import (
	"context"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
)

var (
	serverIP = netip.MustParseAddr("192.0.2.1")
	benchIP  = netip.MustParseAddr("198.18.0.1") // RFC 2544
	relayIP  = netip.MustParseAddr("198.51.100.1")
	lan      = app.Subnet{
		ID: "net-lan", CIDR: netip.MustParsePrefix("192.0.2.0/24"), Interface: "eth0", Mode: "full",
		PoolStart: netip.MustParseAddr("192.0.2.10"), PoolEnd: netip.MustParseAddr("192.0.2.99"),
		Gateway: netip.MustParseAddr("192.0.2.254"), DNS: []netip.Addr{netip.MustParseAddr("192.0.2.53")}, Domain: "example",
		LeaseTime: app.Duration(time.Hour),
	}
	remote = app.Subnet{
		ID: "net-remote", CIDR: netip.MustParsePrefix("198.51.100.0/24"), Mode: "full",
		PoolStart: netip.MustParseAddr("198.51.100.10"), PoolEnd: netip.MustParseAddr("198.51.100.20"),
	}
)

// store is a lease store in memory that counts transactions and can be made to fail.
type store struct {
	mu     sync.Mutex
	leases map[netip.Addr]app.Lease
	writes int
	fail   error
	gate   chan struct{} // when set, PutLeases waits for it
	delay  time.Duration
}

func newStore() *store { return &store{leases: map[netip.Addr]app.Lease{}} }

func (s *store) ListLeases(context.Context) ([]app.Lease, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []app.Lease
	for _, l := range s.leases {
		out = append(out, l)
	}
	return out, nil
}

func (s *store) PutLeases(_ context.Context, ls []app.Lease) error {
	if s.gate != nil {
		<-s.gate
	}
	if s.delay > 0 {
		time.Sleep(s.delay)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.writes++
	if s.fail != nil {
		return s.fail
	}
	for _, l := range ls {
		s.leases[l.Addr] = l
	}
	return nil
}

func (s *store) DeleteLease(_ context.Context, mac app.MAC, a netip.Addr) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.leases[a].MAC != mac {
		return app.Missing("lease", a.String())
	}
	delete(s.leases, a)
	return nil
}

func (s *store) of(mac app.MAC) []app.Lease {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []app.Lease
	for _, l := range s.leases {
		if l.MAC == mac {
			out = append(out, l)
		}
	}
	return out
}

// clients is a Clients whose machines all boot the ramdisk.
type clients struct {
	mu       sync.Mutex
	reserved map[app.MAC]netip.Addr
	file     string // overrides the decision's file
}

func (c *clients) Reservation(_ context.Context, mac app.MAC) (netip.Addr, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a, ok := c.reserved[mac]
	return a, ok
}

func (c *clients) Decide(_ context.Context, f bootfile.Facts, _ app.Subnet, ours netip.Addr) bootfile.Decision {
	f.Boot, f.HTTPBase = bootfile.BootRamdisk, "http://"+ours.String()+":8080"
	d := bootfile.Decide(f)
	if c.file != "" && d.File != "" {
		d.File = c.file
	}
	return d
}

// pipe is a Conn of channels.
type pipe struct {
	in     chan datagram
	out    chan Reply
	closed chan struct{}
	once   sync.Once

	mu          sync.Mutex
	moved       *sync.Cond // of mu: one of these changed
	sent, taken int        // datagrams
	waiting     int        // readers in Read
}

type datagram struct {
	b    []byte
	from netip.AddrPort
	to   netip.Addr
}

func newPipe() *pipe {
	p := &pipe{in: make(chan datagram, 1024), out: make(chan Reply, 1024), closed: make(chan struct{})}
	p.moved = sync.NewCond(&p.mu)
	return p
}

func (p *pipe) send(d datagram) {
	p.mu.Lock()
	p.sent++
	p.mu.Unlock()
	p.in <- d
}

// handled waits until each reader has come back for more and found nothing left of what was sent.
func (p *pipe) handled() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for p.taken < p.sent || p.waiting < readers {
		p.moved.Wait()
	}
}

func (p *pipe) count(taken, waiting int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.taken += taken
	p.waiting += waiting
	p.moved.Broadcast()
}

// Read gives what was sent before Close, also after it.
func (p *pipe) Read(buf []byte) (int, Meta, error) {
	p.count(0, 1)
	select {
	case d := <-p.in:
		p.count(1, -1)
		return copy(buf, d.b), Meta{From: d.from, To: d.to, IfIndex: 7}, nil
	case <-p.closed:
	}
	select {
	case d := <-p.in:
		p.count(1, -1)
		return copy(buf, d.b), Meta{From: d.from, To: d.to, IfIndex: 7}, nil
	default:
		return 0, Meta{}, net.ErrClosed
	}
}

func (p *pipe) Write(r Reply) error {
	select {
	case p.out <- r:
		return nil
	default:
		return io.ErrShortWrite
	}
}

func (p *pipe) Close() error { p.once.Do(func() { close(p.closed) }); return nil }

// rig is a running server.
type rig struct {
	t       testing.TB
	srv     *Server
	store   *store
	clients *clients
	conn    *pipe
	mu      sync.Mutex
	clock   time.Time
	records []Exchange
	told    *sync.Cond // of mu: a record came
	served  chan struct{}
}

type option func(*Config)

func start(t testing.TB, st *store, subnets []app.Subnet, opts ...option) *rig {
	t.Helper()
	r := &rig{t: t, store: st, clients: &clients{reserved: map[app.MAC]netip.Addr{}}, conn: newPipe(), clock: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), served: make(chan struct{})}
	r.told = sync.NewCond(&r.mu)
	cfg := Config{
		Store: st, Clients: r.clients, Log: slog.New(slog.DiscardHandler),
		Record: func(x Exchange) { r.mu.Lock(); r.records = append(r.records, x); r.told.Broadcast(); r.mu.Unlock() },
		Now:    func() time.Time { r.mu.Lock(); defer r.mu.Unlock(); return r.clock },
	}
	for _, o := range opts {
		o(&cfg)
	}
	r.srv = New(cfg)
	if err := r.srv.Load(context.Background(), subnets); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var wg sync.WaitGroup
	wg.Go(func() { _ = r.srv.Run(ctx) })
	wg.Go(func() {
		defer close(r.served)
		if err := r.srv.Serve(ctx, Interface{Name: "eth0", Addrs: []netip.Addr{serverIP, benchIP}}, r.conn); err != nil {
			t.Errorf("Serve: %v", err)
		}
	})
	t.Cleanup(func() { cancel(); wg.Wait() })
	return r
}

// pxe serves port 4011 until the test ends, or until the pipe is closed: then ended is closed when all was handled.
func (r *rig) pxe() (conn *pipe, ended chan struct{}) {
	conn, ended = newPipe(), make(chan struct{})
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer close(ended)
		if err := r.srv.ServePXE(ctx, Interface{Name: "eth0", Addrs: []netip.Addr{serverIP, benchIP}}, conn); err != nil {
			r.t.Errorf("ServePXE: %v", err)
		}
	}()
	r.t.Cleanup(func() { cancel(); <-ended })
	return conn, ended
}

// drain ends the server when everything that was sent is handled, and gives how many answers nobody took.
func (r *rig) drain() int {
	_ = r.conn.Close()
	<-r.served
	return len(r.conn.out)
}

func (r *rig) pass(d time.Duration) { r.mu.Lock(); r.clock = r.clock.Add(d); r.mu.Unlock() }

func (r *rig) kinds() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var out []string
	for _, x := range r.records {
		out = append(out, x.Kind)
	}
	return out
}

// recorded waits until n exchanges of a kind are recorded. The test's own deadline ends the wait.
func (r *rig) recorded(kind string, n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for {
		have := 0
		for _, x := range r.records {
			if x.Kind == kind {
				have++
			}
		}
		if have >= n {
			return
		}
		r.told.Wait()
	}
}

// ask sends a packet as a broadcast and gives the answer.
func (r *rig) ask(m *dhcpv4.DHCPv4) (*dhcpv4.DHCPv4, Reply) {
	r.t.Helper()
	r.send(m.ToBytes(), netip.MustParseAddr("255.255.255.255"))
	select {
	case rep := <-r.conn.out:
		got, err := dhcpv4.FromBytes(rep.Payload)
		if err != nil {
			r.t.Fatalf("the answer does not decode: %v", err)
		}
		if got.TransactionID != m.TransactionID || got.OpCode != dhcpv4.OpcodeBootReply {
			r.t.Fatalf("not the answer to the question: %v", got)
		}
		return got, rep
	case <-time.After(time.Minute):
		r.t.Fatalf("no answer; recorded %v", r.kinds())
	}
	panic("unreachable")
}

func (r *rig) send(b []byte, to netip.Addr) {
	r.conn.send(datagram{b: b, from: netip.MustParseAddrPort("0.0.0.0:68"), to: to})
}

// silent sends packets and checks that none is answered: once they are handled, the offer to another client on the same
// interface must be the only thing that leaves.
func (r *rig) silent(packets ...*dhcpv4.DHCPv4) {
	r.t.Helper()
	for _, m := range packets {
		r.send(m.ToBytes(), netip.MustParseAddr("255.255.255.255"))
	}
	r.conn.handled()
	if got, _ := r.ask(discover(mac(200))); got.ClientHWAddr.String() != string(mac(200)) {
		r.t.Fatalf("an answer left that should not: %v", got.Summary())
	}
}

func mac(n int) app.MAC { return app.MAC(fmt.Sprintf("00:00:5e:00:53:%02x", n)) }

var xids struct {
	sync.Mutex
	n uint32
}

func message(kind dhcpv4.MessageType, m app.MAC, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	xids.Lock()
	xids.n++
	x := dhcpv4.TransactionID{byte(xids.n >> 24), byte(xids.n >> 16), byte(xids.n >> 8), byte(xids.n)}
	xids.Unlock()
	all := append([]dhcpv4.Modifier{
		dhcpv4.WithTransactionID(x), dhcpv4.WithHwAddr(m.Bytes()), dhcpv4.WithMessageType(kind),
	}, mods...)
	p, err := dhcpv4.New(all...)
	if err != nil {
		panic(err)
	}
	return p
}

func discover(m app.MAC, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	return message(dhcpv4.MessageTypeDiscover, m, mods...)
}

// selecting is the REQUEST that takes an offer.
func selecting(m app.MAC, offer *dhcpv4.DHCPv4, mods ...dhcpv4.Modifier) *dhcpv4.DHCPv4 {
	return message(dhcpv4.MessageTypeRequest, m, append([]dhcpv4.Modifier{
		dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(offer.YourIPAddr)), dhcpv4.WithOption(dhcpv4.OptServerIdentifier(offer.ServerIdentifier())),
	}, mods...)...)
}

func initReboot(m app.MAC, a string) *dhcpv4.DHCPv4 {
	return message(dhcpv4.MessageTypeRequest, m, dhcpv4.WithOption(dhcpv4.OptRequestedIPAddress(net.ParseIP(a))))
}

func renewing(m app.MAC, a string) *dhcpv4.DHCPv4 {
	return message(dhcpv4.MessageTypeRequest, m, func(d *dhcpv4.DHCPv4) { d.ClientIPAddr = net.ParseIP(a).To4() })
}

// dora leases an address.
func (r *rig) dora(m app.MAC, mods ...dhcpv4.Modifier) netip.Addr {
	r.t.Helper()
	offer, _ := r.ask(discover(m, mods...))
	if offer.MessageType() != dhcpv4.MessageTypeOffer {
		r.t.Fatalf("no offer: %v", offer.Summary())
	}
	ack, _ := r.ask(selecting(m, offer, mods...))
	if ack.MessageType() != dhcpv4.MessageTypeAck || !ack.YourIPAddr.Equal(offer.YourIPAddr) {
		r.t.Fatalf("no ACK of the offer: %v", ack.Summary())
	}
	return addrOf(ack.YourIPAddr)
}

func raw(code uint8, b ...byte) dhcpv4.Modifier {
	return dhcpv4.WithOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(code), b))
}

func pxeX64(d *dhcpv4.DHCPv4) {
	for _, o := range []string{
		"3902 05c0", "3704 01034243", "3c20 " + hex.EncodeToString([]byte("PXEClient:Arch:00007:UNDI:003016")), "5d02 0007", "5e03 010310",
		"6111 00000102030405060708090a0b0c0d0e0f",
	} {
		code, value, _ := strings.Cut(o, " ")
		c, _ := hex.DecodeString(code)
		v, _ := hex.DecodeString(value)
		d.UpdateOption(dhcpv4.OptGeneric(dhcpv4.GenericOptionCode(c[0]), v))
	}
}

func hasAny(m *dhcpv4.DHCPv4, codes ...uint8) []uint8 {
	var out []uint8
	for _, c := range codes {
		if _, ok := m.Options[c]; ok {
			out = append(out, c)
		}
	}
	slices.Sort(out)
	return out
}
