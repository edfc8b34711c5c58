package netboot

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/dhcp"
	"github.com/better-compute/bcd/netboot/internal/httpboot"
	"github.com/better-compute/bcd/netboot/internal/sntp"
	"github.com/better-compute/bcd/netboot/internal/tftp"
)

// DefaultHTTP is where the HTTP listener is, unless told otherwise.
const DefaultHTTP = ":8080"

// Sockets runs open on a thread of the network that is to be served; the sockets that open opens belong there. open
// may run as long as the server does. Nil stands for the network of this process.
type Sockets func(open func() error) error

// Mount serves the files below a path prefix of the HTTP listener; a prefix that does not end in "/" is one file.
type Mount struct {
	Prefix string
	// Open opens the file behind the rest of the path. It is never given "..", empty or encoded parts.
	Open  func(ctx context.Context, rest string) (*os.File, error)
	Quiet bool // record failures only: for many small files
	// Sent is told of bytes that left, while they leave. It must be quick, and is called by several goroutines; nil: nobody is.
	Sent func(rest string, n int64)
}

// Handler serves a path prefix of the HTTP listener itself.
type Handler struct {
	Prefix  string
	Handler http.Handler
}

// Config is what a Server needs. Port, Store, Loaders, Record and Log must be set.
type Config struct {
	Port     Port
	Store    app.NetworkStore
	Sockets  Sockets
	HTTP     string // address of the HTTP listener, default DefaultHTTP
	Loaders  fs.FS  // the files of Loaders, by name
	Mounts   []Mount
	Handlers []Handler
	Log      *slog.Logger
	Clock    func() time.Time // default time.Now
	Record   func(app.Event)  // must not block; called for each exchange
	NoProbe  bool             // offer addresses without asking by ARP whether they are in use
}

// Server is the netboot service.
type Server struct {
	cfg     Config
	base    baseURL
	dhcp    *dhcp.Server
	tftp    *tftp.Server
	http    *httpboot.Server
	clients *tracker
	changed chan struct{}
	ready   chan struct{} // closed by Run

	strangers limiter // of what is recorded of clients that are nobody's machine

	mu      sync.Mutex // protects what follows
	subnets []app.Subnet
	status  map[string]Status
	rivals  map[string][]app.Rival // by interface, as last found
}

// New makes a Server.
func New(cfg Config) (*Server, error) {
	if cfg.Port == nil || cfg.Store == nil || cfg.Loaders == nil || cfg.Record == nil || cfg.Log == nil {
		return nil, errors.New("netboot: Port, Store, Loaders, Record and Log must be set")
	}
	if cfg.Sockets == nil {
		cfg.Sockets = func(open func() error) error { return open() }
	}
	if cfg.HTTP == "" {
		cfg.HTTP = DefaultHTTP
	}
	if cfg.Clock == nil {
		cfg.Clock = time.Now
	}
	s := &Server{cfg: cfg, clients: newTracker(cfg.Clock), changed: make(chan struct{}, 1), ready: make(chan struct{}), status: map[string]Status{}, rivals: map[string][]app.Rival{}}
	d := dhcp.Config{Store: cfg.Store, Clients: dhcpClients{s}, Record: s.recordDHCP, Log: cfg.Log, Now: cfg.Clock}
	if !cfg.NoProbe {
		d.Probe = s.probe
	}
	s.dhcp = dhcp.New(d)
	s.tftp = tftp.New(tftp.Config{Files: withAutoexec{cfg.Loaders}, Record: s.recordTFTP, Log: cfg.Log, SinglePort: s.singlePort, Block: s.blockSize})
	h := httpboot.Config{Loaders: cfg.Loaders, Script: s.script, BootData: cfg.Port.BootData, Image: cfg.image, Record: s.recordHTTP, Log: cfg.Log}
	for _, m := range cfg.Mounts {
		h.Mounts = append(h.Mounts, httpboot.Mount(m))
	}
	for _, x := range cfg.Handlers {
		h.Handlers = append(h.Handlers, httpboot.Handler(x))
	}
	s.http = httpboot.New(h)
	return s, nil
}

// image asks the Port for a file of one boot.
func (c Config) image(ctx context.Context, key, file string) (httpboot.Image, error) {
	i, err := c.Port.BootImage(ctx, key, file)
	return httpboot.Image(i), err
}

// SubnetsChanged makes a running Server read subnets and leases again. It does not wait.
func (s *Server) SubnetsChanged() {
	select {
	case s.changed <- struct{}{}:
	default:
	}
}

// Free makes a running server forget a lease that was deleted from the store.
func (s *Server) Free(mac app.MAC, a netip.Addr) { s.dhcp.Free(mac, a) }

// Ready is closed once a running Server has opened its HTTP listener and looked at every interface: from then on URL and
// AddressFor tell what they will tell later.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// Run serves until ctx ends; it is called once. It fails when the HTTP listener cannot be opened or the store cannot be read at start;
// interfaces that are missing or busy are tried again.
func (s *Server) Run(ctx context.Context) error {
	if err := s.load(ctx); err != nil {
		return err
	}
	var l net.Listener
	err := s.cfg.Sockets(func() (err error) {
		var lc net.ListenConfig
		l, err = lc.Listen(ctx, "tcp4", s.cfg.HTTP)
		return err
	})
	if err != nil {
		return fmt.Errorf("opening HTTP boot listener: %w", err)
	}
	s.base.set(l.Addr())
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var wg sync.WaitGroup
	failed := make(chan error, 3)
	for _, run := range []func() error{
		func() error { s.seekRivals(ctx); return nil },
		func() error { return s.http.Serve(ctx, l) },
		func() error { return s.dhcp.Run(ctx) },
		func() error { return s.watch(ctx) },
	} {
		wg.Go(func() {
			if err := run(); err != nil {
				failed <- err
				cancel()
			}
		})
	}
	wg.Wait()
	close(failed)
	return <-failed
}

// load reads the subnets, and gives them and the leases to DHCP.
func (s *Server) load(ctx context.Context) error {
	subnets, err := s.cfg.Store.ListSubnets(ctx)
	if err != nil {
		return fmt.Errorf("reading subnets: %w", err)
	}
	if err := s.dhcp.Load(ctx, subnets); err != nil {
		return fmt.Errorf("reading leases: %w", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.subnets = subnets
	return nil
}

// HTTPAddr is the address of the HTTP listener, nil before Run opened it.
func (s *Server) HTTPAddr() net.Addr { return s.base.addr() }

// AddressFor is our address as the network of a machine's port sees it: in the subnet of its lease, else in the first
// subnet that is served. It reports false when no subnet is served yet.
func (s *Server) AddressFor(mac app.MAC) (netip.Addr, bool) {
	id := s.dhcp.SubnetOf(mac)
	s.mu.Lock()
	defer s.mu.Unlock()
	var first netip.Addr
	for _, sub := range s.subnets {
		a, ok := s.source(sub)
		switch {
		case !ok:
		case sub.ID == id:
			return a, true
		case !first.IsValid():
			first = a
		}
	}
	return first, first.IsValid()
}

// Unanswered is our address in the first known subnet that is turned off, for a machine that boots without an answer of ours.
// It reports false when there is none.
func (s *Server) Unanswered() (netip.Addr, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subnets {
		if a, ok := s.ours(sub); ok && !sub.Answers() {
			return a, true
		}
	}
	return netip.Addr{}, false
}

// singlePort reports a client of a subnet whose firewall does not follow TFTP to another port.
func (s *Server) singlePort(client netip.Addr) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.ContainsFunc(s.subnets, func(sub app.Subnet) bool { return sub.TFTPSinglePort && sub.CIDR.Contains(client) })
}

// blockSize is the largest block of TFTP for a client's subnet, 0 when it has no bound of its own.
func (s *Server) blockSize(client netip.Addr) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.subnets, func(sub app.Subnet) bool { return sub.CIDR.Contains(client) })
	if i < 0 {
		return 0
	}
	return s.subnets[i].TFTPBlockSize
}

// source is our address for the clients of a subnet that is answered: ours in it, or the one that packets to a relayed one
// leave from. mu must be held.
func (s *Server) source(sub app.Subnet) (netip.Addr, bool) {
	if !sub.Answers() {
		return netip.Addr{}, false
	}
	return s.ours(sub)
}

// ours is our address for the clients of a subnet, answered or not. mu must be held.
func (s *Server) ours(sub app.Subnet) (netip.Addr, bool) {
	if sub.Interface == "" {
		a := s.route(sub.CIDR.Addr().Next())
		return a, a.IsValid() && !a.IsLoopback()
	}
	addrs := s.status[sub.Interface].Addrs
	i := slices.IndexFunc(addrs, sub.CIDR.Contains)
	if i < 0 {
		return netip.Addr{}, false
	}
	return addrs[i], true
}

// route asks the kernel from which address packets to another one leave; invalid when there is no way. Nothing is sent.
func (s *Server) route(to netip.Addr) (from netip.Addr) {
	_ = s.cfg.Sockets(func() error {
		c, err := net.DialUDP("udp4", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(to, dhcp.ServerPort)))
		if err != nil {
			return err
		}
		defer func() { _ = c.Close() }()
		from = c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap()
		return nil
	})
	return from
}

// URL is the absolute address of a path on the HTTP listener for a client that sees us at an address.
func (s *Server) URL(ours netip.Addr, path string) string { return s.base.url(ours) + path }

// hostClock is how good the time is that this host can tell.
var hostClock = sntp.HostClock
