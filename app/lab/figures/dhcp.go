package figures

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"syscall"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/app/lab"
	"github.com/better-compute/bcd/store"
)

const (
	dhcpClients = 60000           // simulated clients
	dhcpPeriod  = 4 * time.Second // of one rate
	dhcpSteps   = 7               // rates at most, each twice the one before
	readyTime   = 20 * time.Second
)

// dhcpServers are the networks and files of the DHCP figures.
const (
	dhcpSite, dhcpClient = "10.77.0.1/16", "10.77.0.2/16"
	dhcpFirst, dhcpLast  = "10.77.4.0", "10.77.253.255"
)

// dhcpDnsmasq and dhcpKea compare whole exchanges a second with other DHCP servers.
func (s *session) dhcpDnsmasq(ctx context.Context) error {
	return s.dhcpRatio(ctx, "dhcp_ratio_dnsmasq", 200, firstLine("dnsmasq", "--version"), []string{
		"dnsmasq", "--keep-in-foreground", "--conf-file=/dev/null", "--port=0", "--interface=" + lab.Bridge, "--bind-interfaces", "--no-ping", "--quiet-dhcp", "--user=root",
		"--dhcp-range=" + dhcpFirst + "," + dhcpLast + ",255.255.0.0,1h", "--dhcp-lease-max=" + strconv.Itoa(dhcpClients), "--dhcp-leasefile=" + filepath.Join(s.Work, "dnsmasq.leases"),
	})
}

func (s *session) dhcpKea(ctx context.Context) error {
	conf := filepath.Join(s.Work, "kea.json")
	text := fmt.Sprintf(`{"Dhcp4":{"interfaces-config":{"interfaces":[%q]},"lease-database":{"type":"memfile","persist":true,"name":%q},"valid-lifetime":3600,
"subnet4":[{"subnet":"10.77.0.0/16","id":1,"pools":[{"pool":"%s-%s"}]}],"loggers":[{"name":"kea-dhcp4","severity":"ERROR","output_options":[{"output":"stdout"}]}]}}`,
		lab.Bridge, filepath.Join(s.Work, "kea.leases"), dhcpFirst, dhcpLast)
	if err := errors.Join(os.WriteFile(conf, []byte(text), 0o600), os.MkdirAll("/run/kea", 0o750)); err != nil { // where it keeps its pid
		return err
	}
	return s.dhcpRatio(ctx, "dhcp_ratio_kea", 1000, "Kea "+firstLine("kea-dhcp4", "-v"), []string{"kea-dhcp4", "-c", conf})
}

// dhcpRatio measures bcd and a peer in turns, in the same network, each from a rate on until more is offered than it takes.
func (s *session) dhcpRatio(ctx context.Context, name string, from int, version string, peer []string) error {
	var ratios, ours, theirs []float64
	for n := range s.Boots {
		s.say("%s: turn %d of %d", name, n+1, s.Boots)
		var us, them float64
		err := s.withPair(ctx, func(client string) (err error) {
			us, err = s.saturated(ctx, client, 1000)
			return err
		})
		if err == nil {
			err = s.withPeer(ctx, peer, func(client string) (err error) {
				them, err = s.saturated(ctx, client, from)
				return err
			})
		}
		if err != nil {
			return err
		}
		ours, theirs, ratios = append(ours, us), append(theirs, them), append(ratios, us/them)
	}
	s.note("%s: whole DISCOVER-OFFER-REQUEST-ACK exchanges a second by perfdhcp through a veth pair, the best of rates doubled until more is offered than is answered, both with the address probe off, in turns; median of %s", name, list(ratios, 2))
	s.note("%s: bcd, whose leases are on disk before the ACK: %s; %s, without fsync: %s", name, list(ours, 0), version, list(theirs, 0))
	s.put(name, median(ratios), 2)
	return nil
}

// withPair runs an appliance that answers a wide subnet, and a network of clients beside it.
func (s *session) withPair(ctx context.Context, use func(client string) error) error {
	return s.clients(func(client string) (err error) {
		a, err := s.start(ctx, func(data string) error { return wideSubnet(ctx, filepath.Join(data, databaseFile)) })
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, a.stop()) }()
		return use(client)
	})
}

func wideSubnet(ctx context.Context, path string) (err error) {
	db, err := store.Open(ctx, store.Config{Path: path})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return db.PutSubnet(ctx, &app.Subnet{
		ID: "net-figures", CIDR: netip.MustParsePrefix(dhcpSite).Masked(), Interface: lab.Bridge, Mode: app.SubnetFull, NoProbe: true, LeaseTime: app.Duration(time.Hour),
		PoolStart: netip.MustParseAddr(dhcpFirst), PoolEnd: netip.MustParseAddr(dhcpLast),
	})
}

// withPeer runs another server in the appliance's place.
func (s *session) withPeer(ctx context.Context, command []string, use func(client string) error) error {
	if _, err := exec.LookPath(command[0]); err != nil {
		return app.Errorf(app.Unavailable, "no-peer", "%s is not installed", command[0]).Do("run make setup-test")
	}
	return s.clients(func(client string) error {
		stop, err := s.inside(ctx, namespace, command...)
		if err != nil {
			return err
		}
		return errors.Join(use(client), stop())
	})
}

// clients makes the appliance's network and one of clients, joined by a cable between their switches.
func (s *session) clients(use func(client string) error) (err error) {
	near, err := lab.NewNetwork(lab.NetworkConfig{Name: namespace, Address: netip.MustParsePrefix(dhcpSite), Taps: 1, Log: s.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, near.Close()) }()
	far, err := lab.NewNetwork(lab.NetworkConfig{Name: namespace + "-clients", Address: netip.MustParsePrefix(dhcpClient), Taps: 1, Log: s.Log})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, far.Close()) }()
	for _, args := range [][]string{
		{"-n", near.Name(), "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", far.Name()},
		{"-n", near.Name(), "link", "set", "cable", "master", lab.Bridge, "up"},
		{"-n", far.Name(), "link", "set", lab.Bridge, "address", "02:77:00:00:00:02"}, // both switches have the same one at first
		{"-n", far.Name(), "link", "set", "cable", "master", lab.Bridge, "up"},
	} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			return fmt.Errorf("joining the networks: %w: %s", err, out)
		}
	}
	return use(far.Name())
}

// inside starts a program in a namespace; stop ends it.
func (s *session) inside(ctx context.Context, ns string, command ...string) (stop func() error, err error) {
	log, err := os.CreateTemp(s.Work, filepath.Base(command[0])+"-*.log")
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns}, command...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = readyTime
	if err := child.Start(cmd); err != nil {
		return nil, fmt.Errorf("starting %s: %w", command[0], err)
	}
	return func() error {
		_ = cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself
		_ = cmd.Wait()                          // how it ends is its own business
		return nil
	}, nil
}

// saturated finds how many exchanges a second are completed, offering twice as many each time, until the server takes no more.
func (s *session) saturated(ctx context.Context, client string, from int) (best float64, err error) {
	if err := s.until(ctx, "answer of DHCP", func() bool {
		n, err := perfdhcp(ctx, client, "-r", "50", "-p", "1", "-W", "1")
		return err == nil && n > 0
	}); err != nil {
		return 0, err
	}
	rate := from
	for range dhcpSteps {
		done, err := perfdhcp(ctx, client, "-r", strconv.Itoa(rate), "-R", strconv.Itoa(dhcpClients), "-p", strconv.Itoa(int(dhcpPeriod.Seconds())), "-W", "1")
		if err != nil {
			return 0, err
		}
		better := done > best*1.05
		best = max(best, done)
		if !better {
			break
		}
		rate *= 2
	}
	return best, nil
}

var perfRate = regexp.MustCompile(`(?m)^Rate: ([0-9.]+) 4-way exchanges/second`)

// perfdhcp runs Kea's load generator in the clients' network and gives exchanges a second. It ends with an error code
// whenever a packet was dropped, which is no failure here.
func perfdhcp(ctx context.Context, client string, args ...string) (float64, error) {
	out, err := exec.CommandContext(ctx, "ip", append(append([]string{"netns", "exec", client, "perfdhcp", "-4", "-l", lab.Bridge}, args...), "10.77.0.1")...).CombinedOutput()
	m := perfRate.FindSubmatch(out)
	if m == nil {
		return 0, app.Errorf(app.Unavailable, "no-perfdhcp", "perfdhcp gives no rate: %w", errors.Join(err, errors.New(lastLine(out)))).Do("run make setup-test")
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

func lastLine(b []byte) string {
	if len(b) > 200 {
		b = b[len(b)-200:]
	}
	return string(b)
}

// until tries something again and again.
func (s *session) until(ctx context.Context, what string, ready func() bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTime)
	defer cancel()
	for !ready() {
		select {
		case <-ctx.Done():
			return app.Errorf(app.Timeout, "not-ready", "there was no %s within %s", what, readyTime)
		case <-time.After(200 * time.Millisecond):
		}
	}
	return nil
}
