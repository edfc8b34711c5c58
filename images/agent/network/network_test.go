package network

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/insomniacslk/dhcp/dhcpv4"
)

var quiet = slog.New(slog.DiscardHandler)

// machine makes a /sys with ports; the value is the carrier.
func machine(t *testing.T, ports map[string]string) string {
	t.Helper()
	sys := t.TempDir()
	n := byte(0)
	for _, name := range []string{"eth0", "eth1", "eth2", "usb0", "veth9", "ib0"} {
		carrier, ok := ports[name]
		if !ok {
			continue
		}
		n++
		dir := filepath.Join(sys, "class/net", name)
		device := filepath.Join(sys, "devices/pci0000:00", name)
		if name == "usb0" {
			device = filepath.Join(sys, "devices/pci0000:00/usb1", name)
		}
		kind := "1"
		if name == "ib0" {
			kind = "32"
		}
		for _, d := range []string{dir, device} {
			if err := os.MkdirAll(d, 0o755); err != nil {
				t.Fatal(err)
			}
		}
		if name != "veth9" {
			if err := os.Symlink(device, filepath.Join(dir, "device")); err != nil {
				t.Fatal(err)
			}
		}
		mac := net.HardwareAddr{0, 0, 0x5e, 0, 0x53, name[len(name)-1] - '0'}
		for file, body := range map[string]string{"type": kind, "address": mac.String(), "carrier": carrier} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(body+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
		}
	}
	return sys
}

func TestUp(t *testing.T) {
	all := map[string]string{"eth0": "1", "eth1": "1", "eth2": "0", "usb0": "1", "veth9": "1", "ib0": "1"}
	tests := []struct {
		name, boot string
		ports      map[string]string
		refuse     map[string]int // DHCP failures before the port answers; -1 always
		tried      string
		min, max   time.Duration
	}{
		{name: "the port that netbooted", boot: "00:00:5e:00:53:01", ports: all, tried: "eth1", max: time.Second},
		{name: "upper case", boot: "00:00:5E:00:53:01", ports: all, tried: "eth1"},
		{name: "unknown", ports: all, tried: "eth0"},
		{name: "not here", boot: "00:00:5e:00:53:77", ports: all, tried: "eth0", min: portWait, max: portWait + time.Second},
		{name: "its link is down: others after a wait", boot: "00:00:5e:00:53:02", ports: all, tried: "eth0", min: carrierWait, max: carrierWait + time.Second},
		{name: "no answer there: others", boot: "00:00:5e:00:53:01", ports: all, refuse: map[string]int{"eth1": -1}, tried: "eth1 eth0"},
		{name: "nobody answers for a while", boot: "00:00:5e:00:53:01", ports: map[string]string{"eth0": "1", "eth1": "1", "usb0": "1"},
			refuse: map[string]int{"eth1": 2, "eth0": -1, "usb0": -1}, tried: "eth1 eth0 usb0 eth1 eth0 usb0 eth1"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			sys := machine(t, tt.ports)
			synctest.Test(t, func(t *testing.T) {
				n := New(Config{Sys: sys, BootMAC: tt.boot, Log: quiet})
				var tried, raised []string
				n.raise = func(name string) error { raised = append(raised, name); return nil }
				n.lease = func(_ context.Context, name string, _ net.HardwareAddr) (*lease, error) {
					tried = append(tried, name)
					if tt.refuse[name] != 0 {
						tt.refuse[name]--
						return nil, errors.New("no offer")
					}
					return &lease{addr: net.IPNet{IP: net.IPv4(192, 0, 2, 9), Mask: net.CIDRMask(24, 32)}, duration: time.Hour}, nil
				}
				n.apply = func(string, *lease) error { return nil }
				start := time.Now()
				if err := n.Up(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(tried, " "); got != tt.tried {
					t.Errorf("tried %q, want %q", got, tt.tried)
				}
				if took := time.Since(start); took < tt.min || (tt.max > 0 && took > tt.max) {
					t.Errorf("took %s", took)
				}
				if s := strings.Join(raised, " "); strings.Contains(s, "veth9") || strings.Contains(s, "ib0") || !strings.Contains(s, "usb0") {
					t.Errorf("raised %q", s)
				}
			})
		})
	}
}

func TestKeepRenewsAndNeverGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := New(Config{Log: quiet})
		var at []time.Duration
		start := time.Now()
		n.owned = &lease{duration: time.Hour}
		n.apply = func(string, *lease) error { return nil }
		n.lease = func(context.Context, string, net.HardwareAddr) (*lease, error) {
			at = append(at, time.Since(start))
			if len(at) < 3 {
				return nil, errors.New("the server is away")
			}
			return &lease{duration: 2 * time.Hour}, nil
		}
		ctx, stop := context.WithTimeout(t.Context(), 100*time.Minute)
		defer stop()
		n.Keep(ctx)
		want := []time.Duration{30 * time.Minute, 30*time.Minute + renewRetry, 30*time.Minute + 2*renewRetry, 91 * time.Minute}
		if len(at) != len(want) {
			t.Fatalf("renewed at %v", at)
		}
		for i := range want {
			if at[i] != want[i] {
				t.Errorf("renewed at %v, want %v", at, want)
			}
		}
	})
}

func TestReadLease(t *testing.T) {
	ack := func(ip net.IP, opts ...dhcpv4.Option) *dhcpv4.DHCPv4 {
		p, err := dhcpv4.New()
		if err != nil {
			t.Fatal(err)
		}
		p.YourIPAddr = ip
		for _, o := range opts {
			p.UpdateOption(o)
		}
		return p
	}
	ip := net.IPv4(192, 0, 2, 9)
	l, err := readLease(ack(ip, dhcpv4.OptSubnetMask(net.CIDRMask(25, 32)), dhcpv4.OptRouter(net.IPv4(192, 0, 2, 1)),
		dhcpv4.OptIPAddressLeaseTime(time.Minute), dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{0x23, 0x28})))
	if err != nil || l.addr.String() != "192.0.2.9/25" || l.gateway.String() != "192.0.2.1" || l.mtu != 9000 || l.duration != time.Minute {
		t.Errorf("%+v %v", l, err)
	}
	l, err = readLease(ack(ip, dhcpv4.OptGeneric(dhcpv4.OptionInterfaceMTU, []byte{0, 1})))
	if err != nil || l.addr.String() != "192.0.2.9/24" || l.gateway != nil || l.mtu != 0 || l.duration != time.Hour {
		t.Errorf("defaults: %+v %v", l, err)
	}
	for _, bad := range []net.IP{nil, net.IPv4zero, net.IPv4(224, 0, 0, 1), net.IPv4(127, 0, 0, 1)} {
		if _, err := readLease(ack(bad)); err == nil {
			t.Errorf("%v was taken", bad)
		}
	}
}
