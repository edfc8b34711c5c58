package netboot

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/netboot/internal/dhcp"
)

// seekEvery is how often other DHCP servers are looked for.
const seekEvery = 10 * time.Minute

// Rivals lists the other DHCP servers that were last found, by interface and address.
func (s *Server) Rivals() []app.Rival {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []app.Rival
	for iface, all := range s.rivals {
		if _, listened := s.status[iface]; listened {
			out = append(out, all...)
		}
	}
	slices.SortFunc(out, cmpRival)
	return out
}

func cmpRival(a, b app.Rival) int {
	if c := strings.Compare(a.Interface, b.Interface); c != 0 {
		return c
	}
	return a.Server.Compare(b.Server)
}

// SeekRivals looks for other DHCP servers on an interface now, which takes four seconds, and gives those that it found. An
// interface that is not there, or that cannot be asked on, is an Unavailable error.
func (s *Server) SeekRivals(ctx context.Context, iface string) ([]app.Rival, error) {
	var ask *dhcp.Asker
	var ours []netip.Addr
	err := s.cfg.Sockets(func() error {
		ifi, err := net.InterfaceByName(iface)
		if err != nil {
			return fmt.Errorf("interface %q is not there", iface)
		}
		if ifi.Flags&net.FlagUp == 0 || len(ifi.HardwareAddr) != 6 {
			return fmt.Errorf("interface %q is down or no Ethernet", iface)
		}
		addrs, err := ifi.Addrs()
		if err != nil {
			return err
		}
		for _, a := range addrs {
			if p, err := netip.ParsePrefix(a.String()); err == nil {
				ours = append(ours, p.Addr())
			}
		}
		ask, err = dhcp.NewAsker(ifi)
		return err
	})
	var found []app.Rival
	if err == nil {
		found, err = ask.Ask(ctx, ours, s.cfg.Clock)
	}
	if err != nil {
		return nil, app.Errorf(app.Unavailable, "rivals-not-sought", "other DHCP servers on %s cannot be looked for: %w", iface, err).
			Do("see that the interface is there and up").Retryable()
	}
	slices.SortFunc(found, cmpRival)
	s.found(iface, found)
	return found, nil
}

// found keeps what a look found and records what is new.
func (s *Server) found(iface string, found []app.Rival) {
	s.mu.Lock()
	before := s.rivals[iface]
	s.rivals[iface] = found
	s.mu.Unlock()
	known := func(all []app.Rival, r app.Rival) bool {
		return slices.ContainsFunc(all, func(o app.Rival) bool { return o.Server == r.Server && o.Offered.IsValid() == r.Offered.IsValid() })
	}
	for _, r := range found {
		if !known(before, r) {
			s.record("dhcp.rival", s.rivalLevel(r), "", "There is "+r.String()+".", r)
		}
	}
	for _, r := range before {
		if !known(found, r) {
			s.record("dhcp.rival", "info", "", "No longer heard: the DHCP server "+r.Server.String()+" on "+iface+".", r)
		}
	}
}

// rivalLevel is "warn" for a second server that gives addresses where we do.
func (s *Server) rivalLevel(r app.Rival) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sub := range s.subnets {
		if sub.Interface == r.Interface && sub.Mode == app.SubnetFull && r.Offered.IsValid() {
			return "warn"
		}
	}
	return "info"
}

// seekRivals looks for rivals again and again, on each interface that a subnet names, until ctx ends.
func (s *Server) seekRivals(ctx context.Context) {
	select {
	case <-s.ready:
	case <-ctx.Done():
		return
	}
	tick := time.NewTicker(seekEvery)
	defer tick.Stop()
	for {
		for _, st := range s.Status() {
			if st.Interface == "" || !st.Present || !st.Carrier {
				continue
			}
			if _, err := s.SeekRivals(ctx, st.Interface); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				s.cfg.Log.Info("other DHCP servers were not looked for", "interface", st.Interface, "error", err)
			}
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}
