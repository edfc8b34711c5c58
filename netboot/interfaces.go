package netboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/dhcp"
	"github.com/better-compute/bcd/netboot/internal/ra"
	"github.com/better-compute/bcd/netboot/internal/sntp"
	"github.com/better-compute/bcd/netboot/internal/socket"
)

// lookEvery is how often interfaces are looked at: one that appears or changes its address is taken up that soon.
const lookEvery = 2 * time.Second

// Status is how one interface that a subnet names is served. Without a name it stands for all of them, where clients that
// come through relays are answered.
type Status struct {
	Interface string
	Present   bool
	Carrier   bool
	Addrs     []netip.Addr
	Answers   bool   // answers are given; else it is listened to only
	Error     string // why it is not served, in full or in part; "" when all is well
}

// faces are what is served on an interface: all that any of its subnets needs.
type faces struct {
	answers bool // DHCP answers, and the router advertisement that iPXE waits for
	tftp    bool
	pxe     bool // port 4011
	time    bool
}

// with adds what one subnet needs.
func (f faces) with(s app.Subnet) faces {
	return faces{
		answers: f.answers || s.Answers(),
		tftp:    f.tftp || s.Mode == app.SubnetFull || s.Mode == app.SubnetProxy,
		pxe:     f.pxe || s.Mode == app.SubnetProxy,
		time:    f.time || s.Mode == app.SubnetFull,
	}
}

// Status lists the interfaces that subnets name, by name.
func (s *Server) Status() []Status {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]Status, 0, len(s.status))
	for _, st := range s.status {
		st.Addrs = slices.Clone(st.Addrs)
		out = append(out, st)
	}
	slices.SortFunc(out, func(a, b Status) int { return strings.Compare(a.Interface, b.Interface) })
	return out
}

// link is what decides how an interface is served. A change of any field restarts its servers.
type link struct {
	index int
	faces faces
	addrs string
}

// served is a running set of servers of one interface.
type served struct {
	link  link
	stop  context.CancelFunc
	ended chan struct{} // closed when all of them ended
}

// watch keeps the servers in step with subnets and interfaces until ctx ends.
func (s *Server) watch(ctx context.Context) error {
	running := map[string]*served{}
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	s.reconcile(ctx, running)
	close(s.ready)
	for ; ; s.reconcile(ctx, running) {
		select {
		case <-ctx.Done():
			for _, r := range running {
				r.stop()
				<-r.ended
			}
			return nil
		case <-tick.C:
		case <-s.changed:
			if err := s.load(ctx); err != nil && ctx.Err() == nil {
				s.cfg.Log.Error("subnets could not be read again, the former ones stay", "error", err)
			}
		}
	}
}

// reconcile starts, stops and restarts the servers of interfaces.
func (s *Server) reconcile(ctx context.Context, running map[string]*served) {
	wanted := s.wanted()
	for name, r := range running {
		if _, ok := wanted[name]; !ok {
			r.stop()
			<-r.ended
			delete(running, name)
		}
	}
	status := map[string]Status{}
	for name, want := range wanted {
		status[name] = s.keep(ctx, running, name, want)
	}
	s.mu.Lock()
	s.status = status
	s.mu.Unlock()
}

// wanted says which interfaces subnets name, and what is to be served there. Relayed subnets name none: they are served on
// all, once they are turned on.
func (s *Server) wanted() map[string]faces {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]faces{}
	for _, sub := range s.subnets {
		if sub.Interface != "" || sub.Answers() {
			out[sub.Interface] = out[sub.Interface].with(sub)
		}
	}
	return out
}

// keep makes one interface be served as it should, and tells when that changed.
func (s *Server) keep(ctx context.Context, running map[string]*served, name string, f faces) Status {
	st := Status{Interface: name, Answers: f.answers}
	r := running[name]
	ifi, addrs, err := s.look(name)
	var want link
	if err == nil {
		st.Present, st.Carrier, st.Addrs = true, ifi.Flags&net.FlagRunning != 0, addrs
		want = link{ifi.Index, f, fmt.Sprint(addrs)}
	}
	if err == nil && r != nil && r.link == want && !r.over() {
		st.Error = s.lastError(name)
		return st
	}
	if r != nil {
		r.stop()
		<-r.ended
		delete(running, name)
	}
	if err == nil {
		if r, err = s.serve(ctx, ifi, addrs, want); r != nil {
			running[name] = r
		}
	}
	if err != nil {
		st.Error = err.Error()
	}
	if running[name] != nil || st.Error != s.lastError(name) {
		s.tell(st)
	}
	return st
}

func (r *served) over() bool {
	select {
	case <-r.ended:
		return true
	default:
		return false
	}
}

func (s *Server) lastError(name string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.status[name].Error
}

// tell records that an interface is served, or why not.
func (s *Server) tell(st Status) {
	name := "Interface " + st.Interface
	if st.Interface == "" {
		name = "The port for relayed requests"
	}
	level, message := "info", name+" is listened to; nothing is answered there."
	switch {
	case st.Error != "":
		level, message = "error", name+" is not fully served: "+st.Error
	case st.Answers && st.Interface == "":
		message = "Machines behind relays are answered."
	case st.Answers:
		message = "Machines on interface " + st.Interface + " are answered."
	}
	s.record("netboot.interface", level, "", message, st)
}

// look finds an interface and its IPv4 addresses. The nameless one is there always, and has those of all others.
func (s *Server) look(name string) (ifi *net.Interface, addrs []netip.Addr, err error) {
	err = s.cfg.Sockets(func() error {
		list, err := net.InterfaceAddrs()
		if ifi = (&net.Interface{Flags: net.FlagRunning}); name != "" {
			if ifi, err = net.InterfaceByName(name); err != nil {
				return fmt.Errorf("interface %q is not there", name)
			}
			list, err = ifi.Addrs()
		}
		if err != nil {
			return fmt.Errorf("reading addresses of %q: %w", name, err)
		}
		for _, a := range list {
			if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() && (name != "" || !p.Addr().IsLoopback()) {
				addrs = append(addrs, p.Addr())
			}
		}
		return nil
	})
	return ifi, addrs, err
}

// serve starts the servers of one interface. DHCP is a must; when another fails to open, the rest goes on and the
// error says which.
func (s *Server) serve(ctx context.Context, ifi *net.Interface, addrs []netip.Addr, want link) (*served, error) {
	open := func() (dhcp.Conn, error) { return dhcp.Listen(ifi) }
	if ifi.Name == "" {
		open = dhcp.ListenRelayed
	}
	var conn dhcp.Conn
	if err := s.cfg.Sockets(func() (err error) { conn, err = open(); return err }); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	r := &served{link: want, stop: cancel, ended: make(chan struct{})}
	var wg sync.WaitGroup
	at := dhcp.Interface{Name: ifi.Name, Addrs: addrs}
	s.start(&wg, cancel, func() error { return s.dhcp.Serve(ctx, at, conn) })
	var errs []error
	if want.faces.pxe {
		errs = append(errs, s.servePXE(ctx, &wg, cancel, at))
	}
	if want.faces.tftp {
		errs = append(errs, s.serveTFTP(ctx, &wg, cancel, ifi))
	}
	if want.faces.answers && ifi.Name != "" {
		errs = append(errs, s.serveRA(ctx, &wg, cancel, ifi))
	}
	if want.faces.time {
		errs = append(errs, s.serveTime(ctx, &wg, cancel, ifi))
	}
	go func() { wg.Wait(); cancel(); close(r.ended) }()
	return r, errors.Join(errs...)
}

func (s *Server) servePXE(ctx context.Context, wg *sync.WaitGroup, cancel context.CancelFunc, at dhcp.Interface) error {
	var conn dhcp.Conn
	if err := s.cfg.Sockets(func() (err error) { conn, err = dhcp.ListenPXE(at.Name); return err }); err != nil {
		return err
	}
	s.start(wg, cancel, func() error { return s.dhcp.ServePXE(ctx, at, conn) })
	return nil
}

// start runs one server; when it fails, those of its interface end with it and are started anew.
func (s *Server) start(wg *sync.WaitGroup, cancel context.CancelFunc, run func() error) {
	wg.Go(func() {
		if err := run(); err != nil {
			s.cfg.Log.Error("netboot server failed, starting it again", "error", err)
			cancel()
		}
	})
}

// serveTFTP runs inside Sockets all the time: each transfer opens a socket of its own.
func (s *Server) serveTFTP(ctx context.Context, wg *sync.WaitGroup, cancel context.CancelFunc, ifi *net.Interface) error {
	opened := make(chan error, 1)
	s.start(wg, cancel, func() error {
		return s.cfg.Sockets(func() error {
			conn, err := socket.UDP(ifi.Name, netip.AddrPortFrom(netip.IPv4Unspecified(), 69))
			opened <- err
			if err != nil {
				return nil // told by opened
			}
			return s.tftp.Serve(ctx, conn, ifi.Name)
		})
	})
	return <-opened
}

func (s *Server) serveRA(ctx context.Context, wg *sync.WaitGroup, cancel context.CancelFunc, ifi *net.Interface) error {
	var conn *ra.Conn
	if err := s.cfg.Sockets(func() (err error) { conn, err = ra.Listen(ifi); return err }); err != nil {
		s.cfg.Log.Info("no IPv6 on this interface: iPXE will wait longer", "interface", ifi.Name, "error", err)
		return nil
	}
	s.start(wg, cancel, func() error {
		return conn.Serve(ctx, ra.Config{Booting: s.booting, Record: s.recordRA(ifi.Name), Log: s.cfg.Log})
	})
	return nil
}

// booting reports a machine that netboots now, or is about to: its solicitation may come before its DISCOVER.
func (s *Server) booting(ctx context.Context, mac app.MAC) bool {
	if s.clients.isBooting(mac) {
		return true
	}
	t, err := s.target(ctx, Client{MACs: []app.MAC{mac}})
	return err == nil && t.Kind.loads()
}

func (s *Server) serveTime(ctx context.Context, wg *sync.WaitGroup, cancel context.CancelFunc, ifi *net.Interface) error {
	var conn *net.UDPConn
	err := s.cfg.Sockets(func() (err error) {
		conn, err = socket.UDP(ifi.Name, netip.AddrPortFrom(netip.IPv4Unspecified(), sntp.Port))
		return err
	})
	if err != nil {
		s.cfg.Log.Info("another program tells the time on this interface", "interface", ifi.Name, "error", err)
		return nil
	}
	s.start(wg, cancel, func() error { return sntp.Serve(ctx, conn, sntp.Config{Clock: hostClock, Now: s.cfg.Clock}) })
	return nil
}

// probe asks whether an address is in use: by ARP on an interface, by ICMP when it is behind a relay.
func (s *Server) probe(ctx context.Context, iface string, a netip.Addr) (inUse bool) {
	_ = s.cfg.Sockets(func() error {
		if iface == "" {
			inUse = dhcp.Ping(ctx, a)
			return nil
		}
		ifi, err := net.InterfaceByName(iface)
		if err == nil {
			inUse = dhcp.Probe(ctx, ifi, a)
		}
		return err
	})
	return inUse
}
