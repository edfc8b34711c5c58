package figures

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/lab"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
)

const (
	tftpBlock    = 1468 // bytes of data that fit an Ethernet frame
	tftpClients  = 4
	httpClients  = 64
	bootPort     = "8080" // of the appliance's boot listener
	peerPort     = "8081"
	transferTurn = 3 // transfers of each server in a turn, of which the fastest counts: the first one warms up
)

// siteAddr is the appliance as the clients see it.
const siteAddr = "10.77.0.1"

// tftp compares the time that curl takes to load the ramdisk by TFTP from bcd and from tftpd-hpa.
func (s *session) tftp(ctx context.Context) error {
	dir, size, err := s.bootDir()
	if err != nil {
		return err
	}
	version := firstLine("in.tftpd", "-V")
	peer := []string{"in.tftpd", "-L", "--secure", "--address", siteAddr + ":6969", "--user", "root", dir}
	for _, clients := range []int{1, tftpClients} { // the figure is of the first; the second tells how it goes on
		fetch := func(client, port string) (float64, error) {
			url := "tftp://" + net.JoinHostPort(siteAddr, port) + "/" + ramdisk.InitramfsFile
			begun := time.Now()
			g, ctx := errgroup.WithContext(ctx)
			for range clients {
				g.Go(func() error { return curl(ctx, client, url, size) })
			}
			err := g.Wait()
			return float64(clients) * float64(size) / time.Since(begun).Seconds(), err
		}
		ratio, err := s.transferRatio(ctx, "tftp_ratio", peer, "69", "6969", fetch,
			fmt.Sprintf("%d times curl at once loads the ramdisk, %d bytes, in blocks of %d bytes", clients, size, tftpBlock), version)
		if err != nil {
			return err
		}
		if clients == 1 {
			s.put("tftp_ratio", ratio, 2)
		}
	}
	return nil
}

// curl loads a file by TFTP in the clients' network.
func curl(ctx context.Context, client, url string, size int64) error {
	out, err := exec.CommandContext(ctx, "ip", "netns", "exec", client, "curl", "-sS", "--tftp-blksize", strconv.Itoa(tftpBlock), "-o", "/dev/null", "-w", "%{size_download}", url).CombinedOutput()
	if err != nil || strings.TrimSpace(string(out)) != strconv.FormatInt(size, 10) {
		return fmt.Errorf("loading %s: %w: %s", url, err, out)
	}
	return nil
}

// http compares 64 clients that load the ramdisk by HTTP from bcd and from nginx.
func (s *session) http(ctx context.Context) error {
	dir, size, err := s.bootDir()
	if err != nil {
		return err
	}
	conf := filepath.Join(s.Work, "nginx.conf")
	text := fmt.Sprintf(`daemon off; user root; worker_processes auto; pid %[1]s/nginx.pid; error_log %[1]s/nginx.error;
events { worker_connections 1024; }
http { access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000; client_body_temp_path %[1]s/nginx.body; proxy_temp_path %[1]s/nginx.proxy;
 fastcgi_temp_path %[1]s/nginx.fcgi; uwsgi_temp_path %[1]s/nginx.uwsgi; scgi_temp_path %[1]s/nginx.scgi; server { listen %[2]s:%[3]s; location /ramdisk/ { alias %[4]s/; } } }
`, s.Work, siteAddr, peerPort, dir)
	if err := os.WriteFile(conf, []byte(text), 0o600); err != nil {
		return err
	}
	version := firstLine("nginx", "-V")
	if out, err := exec.Command("nginx", "-v").CombinedOutput(); err == nil {
		version = strings.TrimSpace(string(out)) // it tells on standard error
	}
	fetch := func(client, port string) (float64, error) {
		url := "http://" + net.JoinHostPort(siteAddr, port) + "/ramdisk/" + ramdisk.InitramfsFile
		t := &http.Transport{MaxIdleConnsPerHost: httpClients, DialContext: func(ctx context.Context, network, address string) (c net.Conn, err error) {
			err = lab.InNamespace(client, func() error {
				var d net.Dialer
				c, err = d.DialContext(ctx, network, address)
				return err
			})
			return c, err
		}}
		defer t.CloseIdleConnections()
		begun := time.Now()
		g, ctx := errgroup.WithContext(ctx)
		for range httpClients {
			g.Go(func() error { return load(ctx, &http.Client{Transport: t}, url, size) })
		}
		err := g.Wait()
		return float64(httpClients*size) / time.Since(begun).Seconds(), err
	}
	ratio, err := s.transferRatio(ctx, "http_ratio", []string{"nginx", "-c", conf, "-p", s.Work}, bootPort, peerPort, fetch,
		fmt.Sprintf("%d clients at once load the ramdisk, %d bytes", httpClients, size), version)
	if err != nil {
		return err
	}
	s.put("http_ratio", ratio, 2)
	return nil
}

func load(ctx context.Context, c *http.Client, url string, size int64) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	r, err := c.Do(req)
	if err != nil {
		return err
	}
	defer r.Body.Close()
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil || n != size || r.StatusCode != http.StatusOK {
		return fmt.Errorf("loading %s: status %d, %d of %d bytes: %w", url, r.StatusCode, n, size, err)
	}
	return nil
}

// bootDir unpacks the ramdisk for the peers.
func (s *session) bootDir() (dir string, size int64, err error) {
	src, err := embed.FS(ramdisk.Server)
	if err != nil {
		return "", 0, err
	}
	dir = filepath.Join(s.Work, "boot")
	if _, err := os.Stat(dir); errors.Is(err, os.ErrNotExist) {
		if err := os.CopyFS(dir, src); err != nil {
			return "", 0, fmt.Errorf("unpacking the ramdisk: %w", err)
		}
	}
	info, err := os.Stat(filepath.Join(dir, ramdisk.InitramfsFile))
	if err != nil {
		return "", 0, err
	}
	return dir, info.Size(), nil
}

// transferRatio measures rates, in bytes a second, of bcd and of a peer that runs beside it, in turns, and gives the ratio.
func (s *session) transferRatio(ctx context.Context, name string, peer []string, port, peerPort string, fetch func(client, port string) (float64, error), what, version string) (ratio float64, err error) {
	if _, err := exec.LookPath(peer[0]); err != nil {
		return 0, app.Errorf(app.Unavailable, "no-peer", "%s is not installed", peer[0]).Do("run make setup-test")
	}
	err = s.withPair(ctx, func(client string) error {
		stop, err := s.inside(ctx, namespace, peer...)
		if err != nil {
			return err
		}
		defer func() { _ = stop() }()
		var failed error
		if err := s.until(ctx, "answer of "+peer[0], func() bool { _, failed = fetch(client, peerPort); return failed == nil }); err != nil {
			return errors.Join(err, failed)
		}
		var ratios, ours, theirs []float64
		for n := range s.Ratios {
			s.say("%s: turn %d of %d", name, n+1, s.Ratios)
			us, err := fastest(client, port, fetch)
			if err != nil {
				return err
			}
			them, err := fastest(client, peerPort, fetch)
			if err != nil {
				return err
			}
			ours, theirs, ratios = append(ours, us/1e6), append(theirs, them/1e6), append(ratios, us/them)
		}
		s.note("%s: rate of bcd / of its peer; %s, through a veth pair, the faster of %d loads, in turns; median of %s", name, what, transferTurn, list(ratios, 2))
		s.note("%s: MB/s of bcd: %s; of %s: %s", name, list(ours, 0), version, list(theirs, 0))
		ratio = median(ratios)
		return nil
	})
	return ratio, err
}

func fastest(client, port string, fetch func(client, port string) (float64, error)) (best float64, err error) {
	for range transferTurn {
		rate, err := fetch(client, port)
		if err != nil {
			return 0, err
		}
		best = max(best, rate)
	}
	return best, nil
}
