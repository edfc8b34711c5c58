package dhcp

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
)

// readers is how many goroutines handle the datagrams of one interface; maxProbes how many offers may wait for a probe.
const (
	readers   = 4
	maxProbes = 256
)

// Store keeps leases across restarts. It is the part of app.NetworkStore that is needed here.
type Store interface {
	ListLeases(ctx context.Context) ([]app.Lease, error)
	PutLeases(ctx context.Context, l []app.Lease) error
	DeleteLease(ctx context.Context, mac app.MAC, addr netip.Addr) error
}

// Clients says who a client is and what it should boot.
type Clients interface {
	// Reservation reports whether mac is a machine of ours, which keeps its address for good, and the address that it
	// must have; an invalid address means any of the pool.
	Reservation(ctx context.Context, mac app.MAC) (addr netip.Addr, known bool)
	// Decide chooses the boot file for a client that sees us at ours.
	Decide(ctx context.Context, f bootfile.Facts, s app.Subnet, ours netip.Addr) bootfile.Decision
}

// Exchange is one thing that happened, for the flight recorder. Hostname and Vendor are hostile text.
type Exchange struct {
	Kind      string         `json:"-"` // "dhcp.offer", "dhcp.ack", "dhcp.nak", …
	Level     string         `json:"-"`
	Message   string         `json:"-"`
	MAC       app.MAC        `json:"mac,omitempty"`
	Addr      netip.Addr     `json:"address,omitzero"`
	Subnet    string         `json:"subnet,omitempty"`
	Interface string         `json:"interface,omitempty"`
	Server    netip.Addr     `json:"server,omitzero"`   // the other server that the client chose
	Request   string         `json:"request,omitempty"` // message type of the client
	XID       string         `json:"xid,omitempty"`
	Stage     bootfile.Stage `json:"stage,omitempty"`
	Arch      string         `json:"arch,omitempty"`
	UUID      app.UUID       `json:"uuid,omitempty"`
	File      string         `json:"file,omitempty"`
	Reason    string         `json:"reason,omitempty"`
	LeftOut   []int          `json:"optionsLeftOut,omitempty"` // options that the client's largest message had no room for
	Hostname  string         `json:"hostname,omitempty"`
	Vendor    string         `json:"vendor,omitempty"`
}

// Config is what a Server needs. All fields but Probe must be set.
type Config struct {
	Store   Store
	Clients Clients
	// Probe reports whether somebody has an address on the network of an interface; without one, behind a relay. Nil
	// never probes.
	Probe  func(ctx context.Context, iface string, a netip.Addr) (inUse bool)
	Record func(Exchange)
	Log    *slog.Logger
	Now    func() time.Time
}

// Server answers DHCP. Load it before the first Serve.
type Server struct {
	cfg     Config
	commit  *committer
	probers chan struct{}

	mu      sync.Mutex // protects what follows
	subnets []*subnet
	table   *table
	probing map[netip.Addr]bool
	seen    map[netip.Addr]app.MAC // clients whose address another server gave
	at      map[app.MAC]string     // and the subnets that they are in
	told    map[string]time.Time   // by subnet, and by subnet and client: when an exhausted pool was last reported
	swept   map[string]time.Time   // by subnet: when its kept addresses were last looked through
}

// New makes a Server that knows no subnet and answers nothing.
func New(cfg Config) *Server {
	return &Server{
		cfg: cfg, commit: newCommitter(cfg.Store), probers: make(chan struct{}, maxProbes),
		table: newTable(), probing: map[netip.Addr]bool{}, seen: map[netip.Addr]app.MAC{}, at: map[app.MAC]string{}, told: map[string]time.Time{}, swept: map[string]time.Time{},
	}
}

// Load reads the stored leases and takes up subnets. It may be called again after either changed elsewhere; leases
// that this server gave out are kept.
func (s *Server) Load(ctx context.Context, subnets []app.Subnet) error {
	leases, err := s.cfg.Store.ListLeases(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.subnets = s.subnets[:0:0]
	for _, sub := range subnets {
		s.subnets = append(s.subnets, newSubnet(sub))
	}
	s.table.forget(func(e *entry) bool { return s.subnetByID(e.lease.SubnetID) == nil })
	for _, l := range leases {
		if s.subnetByID(l.SubnetID) == nil {
			continue
		}
		if e := s.table.byKey[leaseKey{l.SubnetID, l.MAC}]; e == nil || l.Seen.After(e.lease.Seen) {
			s.table.load(l)
		}
	}
	stranded := s.stranded()
	s.mu.Unlock()
	for _, x := range stranded {
		s.cfg.Log.Warn("lease lies outside its subnet's pool and will not be renewed", "mac", x.MAC, "address", x.Addr, "subnet", x.Subnet)
		s.cfg.Record(x)
	}
	return nil
}

// stranded lists live leases that the pools no longer cover. mu must be held.
func (s *Server) stranded() []Exchange {
	var out []Exchange
	now := s.cfg.Now()
	for _, e := range s.table.byKey {
		sub := s.subnetByID(e.lease.SubnetID)
		if sub == nil || !sub.full() || e.lease.Reserved || e.lease.State != "bound" || !e.live(now) || sub.holds(e.lease.Addr, e.lease.MAC, nil) {
			continue
		}
		out = append(out, Exchange{
			Kind: "dhcp.stranded", Level: "warn", MAC: e.lease.MAC, Addr: e.lease.Addr, Subnet: sub.ID,
			Message: "The lease of " + e.lease.Addr.String() + " lies outside the pool now: the client gets another address when it renews.",
		})
	}
	return out
}

func (s *Server) subnetByID(id string) *subnet {
	for _, sub := range s.subnets {
		if sub.ID == id {
			return sub
		}
	}
	return nil
}

// Run writes leases until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	s.commit.run(ctx)
	return nil
}

// Serve answers the requests that arrive on one interface until ctx ends or the connection fails. It closes conn.
func (s *Server) Serve(ctx context.Context, iface Interface, conn Conn) error {
	var wg sync.WaitGroup // of answers that are sent later
	defer wg.Wait()
	return s.serve(ctx, conn, func(r *request) {
		r.iface = iface
		s.handle(ctx, r, conn, &wg)
	})
}

// serve gives the requests of a connection to handle, several at a time.
func (s *Server) serve(ctx context.Context, conn Conn, handle func(*request)) error {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	var wg sync.WaitGroup
	errs := make(chan error, readers)
	for range readers {
		wg.Go(func() { errs <- s.read(conn, handle) })
	}
	err := <-errs
	_ = conn.Close()
	wg.Wait()
	if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}

func (s *Server) read(conn Conn, handle func(*request)) error {
	buf := make([]byte, maxDatagram)
	for {
		n, meta, err := conn.Read(buf)
		if err != nil {
			return err
		}
		r, err := parse(buf[:n])
		if err != nil {
			s.cfg.Log.Debug("ignoring datagram", "from", meta.From, "error", err)
			continue
		}
		r.meta, r.arrived = meta, s.cfg.Now()
		handle(r)
	}
}

// handle answers one request. An answer that must wait, for a probe or the disk, is sent later by another goroutine.
func (s *Server) handle(ctx context.Context, r *request, conn Conn, wg *sync.WaitGroup) {
	sub := s.subnetFor(r)
	if sub == nil {
		return
	}
	if !sub.Answers() {
		s.heard(r, sub, "A machine tried to netboot on a subnet that is listened to only.")
		return
	}
	if !ours(r, sub).IsValid() {
		s.cfg.Log.Debug("interface has no address in the subnet, a request goes unanswered", "interface", r.iface.Name, "subnet", sub.ID)
		return
	}
	if !sub.full() {
		s.proxy(ctx, r, sub, conn)
		return
	}
	switch r.kind {
	case dhcpv4.MessageTypeDiscover:
		s.discover(ctx, r, sub, conn, wg)
	case dhcpv4.MessageTypeRequest:
		s.request(ctx, r, sub, conn)
	case dhcpv4.MessageTypeDecline:
		s.decline(r, sub)
	case dhcpv4.MessageTypeRelease:
		s.release(r, sub)
	case dhcpv4.MessageTypeInform:
		s.inform(ctx, r, sub, conn)
	}
}

// subnetFor finds the subnet a request is about: the relay's, else one of the interface it came in on. Of several on
// one interface, the one that holds an address the request names or the client's lease comes first. Nil: none is ours.
func (s *Server) subnetFor(r *request) *subnet {
	s.mu.Lock()
	defer s.mu.Unlock()
	var first *subnet
	for _, sub := range s.subnets {
		if r.link.IsValid() {
			if sub.CIDR.Contains(r.link) {
				return sub
			}
			continue
		}
		if sub.Interface == "" && sub.CIDR.Contains(r.ciaddr) && slices.Contains(r.iface.Addrs, r.meta.To) {
			return sub // a client behind a relay renews without it
		}
		if sub.Interface == "" || sub.Interface != r.iface.Name {
			continue
		}
		if named := firstValid(r.ciaddr, r.wanted); named.IsValid() && sub.CIDR.Contains(named) {
			return sub
		}
		if first == nil || (s.table.byKey[leaseKey{sub.ID, r.mac}] != nil && s.table.byKey[leaseKey{first.ID, r.mac}] == nil) {
			first = sub
		}
	}
	return first
}

func firstValid(addrs ...netip.Addr) netip.Addr {
	for _, a := range addrs {
		if a.IsValid() {
			return a
		}
	}
	return netip.Addr{}
}

// heard reports a netbooting client that is not answered.
func (s *Server) heard(r *request, sub *subnet, message string) {
	f := r.facts()
	d := bootfile.Decide(f)
	if r.kind != dhcpv4.MessageTypeDiscover || d.Stage == bootfile.StageOS {
		return
	}
	x := s.exchange("dhcp.heard", r, sub, netip.Addr{}, d)
	x.Message = message
	s.cfg.Record(x)
}

// ours is our address as the client's subnet sees it: the one that was written to, else the interface's in the subnet;
// invalid when it has none there. A relayed client is answered from any.
func ours(r *request, sub *subnet) netip.Addr {
	if slices.Contains(r.iface.Addrs, r.meta.To) {
		return r.meta.To
	}
	for _, a := range r.iface.Addrs {
		if sub.CIDR.Contains(a) {
			return a
		}
	}
	if r.giaddr.IsValid() && len(r.iface.Addrs) > 0 {
		return r.iface.Addrs[0]
	}
	return netip.Addr{}
}

// serverID is who we are for the client: ourselves, unless its relay says otherwise.
func serverID(r *request, sub *subnet) netip.Addr { return firstValid(r.as, ours(r, sub)) }

func (s *Server) exchange(kind string, r *request, sub *subnet, a netip.Addr, d bootfile.Decision) Exchange {
	return Exchange{
		Kind: kind, Level: "info", MAC: r.mac, Addr: a, Subnet: sub.ID, Interface: r.iface.Name,
		Request: r.kind.String(), XID: r.msg.TransactionID.String(), Stage: d.Stage, Arch: d.Arch, UUID: r.facts().UUID(),
		File: d.File, Reason: d.Reason, Hostname: r.hostname(), Vendor: text(r.msg.Options.Get(optVendorClass)),
	}
}
