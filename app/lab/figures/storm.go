package figures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/lab"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web/api"
)

const (
	stormMachines = 200
	stormRate     = 1_000_000_000 / 8 // bytes a second on the wire
	stormTime     = 10 * time.Minute

	// stormWindow bounds what one machine has under way, and stormQueue holds all of it: the queue drops nothing. The fair
	// queue that an appliance's port has by default (fq_codel) is not in every kernel, and a plain one that overflows would
	// starve TFTP's single packets, which says nothing of the appliance.
	stormWindow = 128 << 10
	stormQueue  = 64 << 20

	// payloadShare is how much of a full Ethernet frame of 1514 bytes, as the shaper counts it, is TCP's payload (1448 with
	// time stamps).
	payloadShare = 1448.0 / 1514
)

// storm powers a rack on at once: every machine asks DHCP, loads the boot loader by TFTP, and script, kernel and ramdisk by
// HTTP, over one link of 1 Gbit/s.
func (s *session) storm(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, stormTime)
	defer cancel()
	fill := func(dataDir string) error { return stormRack(ctx, filepath.Join(dataDir, databaseFile)) }
	return s.withAppliance(ctx, fill, func(a *appliance) (err error) {
		site := netip.MustParseAddr("10.77.0.1")
		if err := stormSubnet(ctx, a); err != nil {
			return err
		}
		rack, err := lab.NewNetwork(lab.NetworkConfig{Name: namespace + "-rack", Address: netip.MustParsePrefix("10.77.0.250/24"), Taps: 1, Log: s.Log})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, rack.Close()) }()
		if err := cable(rack); err != nil {
			return err
		}
		wire, err := listen(rack)
		if err != nil {
			return err
		}
		defer wire.Close()
		if err := a.forget(); err != nil {
			return err
		}
		s.say("storm_200: powering %d machines on", stormMachines)
		var got atomic.Int64
		begun := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for i := range stormMachines {
			g.Go(func() error {
				m := &stormMachine{rack: rack, wire: wire, site: site, mac: stormMAC(i), got: &got}
				if err := m.boot(ctx); err != nil {
					return fmt.Errorf("machine %d of %d: %w", i+1, stormMachines, err)
				}
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		took := time.Since(begun)
		peak, err := a.memory("VmHWM")
		if err != nil {
			return err
		}
		pure := float64(got.Load()) / (stormRate * payloadShare)
		s.note("storm_200: %d machines (DHCP, loader by TFTP, script, kernel and ramdisk by HTTP) over one link shaped to 1 Gbit/s by the kernel: %d bytes in %.1f s, pure wire time %.1f s; none failed", stormMachines, got.Load(), took.Seconds(), pure)
		s.put("storm_200", took.Seconds()/pure, 3)
		s.put("storm_200_rss_bytes", float64(peak), 0)
		return nil
	})
}

func stormMAC(i int) net.HardwareAddr { return net.HardwareAddr{2, 0, 0x5e, 0, byte(i >> 8), byte(i)} }

// stormRack fills a database with machines that may netboot into the ramdisk now, as a workflow of each would let them.
func stormRack(ctx context.Context, path string) (err error) {
	db, err := store.Open(ctx, store.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	at := time.Now().UTC()
	for i := range stormMachines {
		mac := app.MAC(stormMAC(i).String())
		m := &app.Machine{
			ID: fmt.Sprintf("m-%016d", i), Name: fmt.Sprintf("node-%03d", i), State: app.StateEnrolled, StateSince: at, Created: at, Updated: at,
			NICs: []app.NIC{{MAC: mac, Confirmed: true, Source: "operator"}},
		}
		b := &app.Boot{Key: app.NewID("boot"), MachineID: m.ID, WorkflowID: fmt.Sprintf("wf-%016d", i), MAC: mac, Address: "10.77.0.1", Created: at}
		if err := errors.Join(db.CreateMachine(ctx, m), db.CreateBoot(ctx, b)); err != nil {
			return fmt.Errorf("making machine %s: %w", m.Name, err)
		}
	}
	return nil
}

// stormSubnet turns a subnet with an address for each machine on.
func stormSubnet(ctx context.Context, a *appliance) error {
	in := api.SubnetInput{
		CIDR: netip.MustParsePrefix("10.77.0.0/24"), Interface: lab.Bridge, PoolStart: netip.MustParseAddr("10.77.0.2"), PoolEnd: netip.MustParseAddr("10.77.0.249"),
	}
	var v api.SubnetView
	if err := a.Call(ctx, http.MethodPost, "/api/v1/subnets", in, &v); err != nil {
		return fmt.Errorf("adding the subnet: %w", err)
	}
	return a.Call(ctx, http.MethodPost, "/api/v1/subnets/"+v.ID+"/mode", api.ModeInput{Mode: app.SubnetFull}, nil)
}

// cable joins the switch of the rack to the appliance's, and shapes the appliance's end of the cable.
func cable(rack *lab.Network) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = "uplink"
	err := lab.InNamespace(namespace, func() error {
		far, err := lab.OpenNamespace(rack.Name())
		if err != nil {
			return err
		}
		defer far.Close()
		pair := &netlink.Veth{LinkAttrs: attrs, PeerName: "uplink", PeerNamespace: netlink.NsFd(far.Fd())}
		if err := netlink.LinkAdd(pair); err != nil {
			return fmt.Errorf("laying the cable: %w", err)
		}
		if err := plug(); err != nil {
			return err
		}
		l, err := netlink.LinkByName("uplink")
		if err != nil {
			return err
		}
		shaper := &netlink.Tbf{
			QdiscAttrs: netlink.QdiscAttrs{LinkIndex: l.Attrs().Index, Handle: netlink.MakeHandle(1, 0), Parent: netlink.HANDLE_ROOT},
			Rate:       stormRate, Buffer: 256 << 10, Limit: stormQueue,
		}
		if err := netlink.QdiscAdd(shaper); err != nil {
			return fmt.Errorf("shaping the cable: %w", err)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return rack.Do(func() error {
		sw, err := netlink.LinkByName(lab.Bridge)
		if err != nil {
			return err
		}
		// Every lab's switch has the same address, and these two are one network now.
		return errors.Join(netlink.LinkSetHardwareAddr(sw, net.HardwareAddr{2, 0x77, 0, 0, 0, 2}), plug())
	})
}

// plug puts this end of the cable into the switch.
func plug() error {
	l, err := netlink.LinkByName("uplink")
	if err != nil {
		return err
	}
	sw, err := netlink.LinkByName(lab.Bridge)
	if err != nil {
		return err
	}
	return errors.Join(netlink.LinkSetMaster(l, sw), netlink.LinkSetUp(l))
}

// stormMachine is one simulated machine.
type stormMachine struct {
	rack *lab.Network
	wire *wire
	site netip.Addr
	mac  net.HardwareAddr
	got  *atomic.Int64
	addr netip.Addr
}

// boot is what firmware and iPXE do up to the start of the kernel.
func (m *stormMachine) boot(ctx context.Context) error {
	lease, err := m.wire.lease(ctx, m.mac, false)
	if err != nil {
		return fmt.Errorf("DHCP of the firmware: %w", err)
	}
	m.addr, _ = netip.AddrFromSlice(lease.YourIPAddr.To4())
	if err := m.take(); err != nil {
		return err
	}
	n, err := m.tftp(ctx, lease.BootFileName)
	if err != nil {
		return fmt.Errorf("TFTP of %q: %w", lease.BootFileName, err)
	}
	m.got.Add(n)
	if lease, err = m.wire.lease(ctx, m.mac, true); err != nil {
		return fmt.Errorf("DHCP of iPXE: %w", err)
	}
	client := m.http()
	defer client.CloseIdleConnections()
	script, err := m.fetch(ctx, client, lease.BootFileName, true)
	if err != nil {
		return err
	}
	files := 0
	for line := range strings.Lines(script) {
		f := strings.Fields(line)
		if len(f) < 4 || f[0] != "kernel" && f[0] != "initrd" {
			continue
		}
		if _, err := m.fetch(ctx, client, f[3], false); err != nil {
			return err
		}
		files++
	}
	if files < 2 {
		return fmt.Errorf("the script names no kernel and ramdisk:\n%s", script)
	}
	return nil
}

// take gives the rack the machine's address.
func (m *stormMachine) take() error {
	return m.rack.Do(func() error {
		sw, err := netlink.LinkByName(lab.Bridge)
		if err != nil {
			return err
		}
		return netlink.AddrReplace(sw, &netlink.Addr{IPNet: &net.IPNet{IP: m.addr.AsSlice(), Mask: net.CIDRMask(24, 32)}})
	})
}

// http is a client that speaks from the machine's address.
func (m *stormMachine) http() *http.Client {
	return &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
		err = m.rack.Do(func() error {
			d := net.Dialer{LocalAddr: &net.TCPAddr{IP: m.addr.AsSlice()}}
			if c, err = d.DialContext(ctx, network, address); err != nil {
				return err
			}
			return c.(*net.TCPConn).SetReadBuffer(stormWindow)
		})
		return c, err
	}}}
}

// fetch loads a file whole, and keeps its text when asked to.
func (m *stormMachine) fetch(ctx context.Context, c *http.Client, url string, keep bool) (text string, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	r, err := c.Do(req)
	if err != nil {
		return "", err
	}
	defer r.Body.Close()
	var b strings.Builder
	to := io.Discard
	if keep {
		to = &b
	}
	n, err := io.Copy(to, r.Body)
	if err != nil || r.StatusCode != http.StatusOK {
		return "", fmt.Errorf("HTTP of %s: status %d: %w", url, r.StatusCode, err)
	}
	m.got.Add(n)
	return b.String(), nil
}
