package figures

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log"
	"math/big"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"time"

	"github.com/better-compute/bcd/app/lab"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// connected is what the agent prints when it has its session.
var connected = regexp.MustCompile(`connected to the appliance`)

// direct boots the ramdisk without firmware and network loader: what is left is the kernel's time and ours.
func (s *session) direct(ctx context.Context) error {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	site, err := newSessions(l)
	if err != nil {
		return errors.Join(err, l.Close())
	}
	defer site.close()
	d := virtual.Direct{Kernel: filepath.Join(s.Work, ramdisk.KernelFile), Initrd: filepath.Join(s.Work, "initrd"), Cmdline: "console=ttyS0,115200 rdinit=/init"}
	if err := unpack(ramdisk.KernelFile, d.Kernel, nil); err != nil {
		return err
	}
	first, err := ramdisk.BootDataCPIO(site.boot())
	if err != nil {
		return err
	}
	if err := unpack(ramdisk.InitramfsFile, d.Initrd, first); err != nil {
		return err
	}
	var seconds []float64
	marks := &boots{}
	for n := range s.Boots {
		s.say("agent_seconds_direct: boot %d of %d", n+1, s.Boots)
		bctx, cancel := context.WithTimeout(ctx, 3*time.Minute)
		line, err := lab.DirectBoot(bctx, lab.Direct{Direct: d, Netdev: "user", MemoryMiB: 1280, OnLine: func(l virtual.Line) { marks.line(node, l) }}, connected)
		cancel()
		if err != nil {
			return err
		}
		seconds = append(seconds, line.SincePower.Seconds())
	}
	s.note("agent_seconds_direct: power-on to the agent's session; server ramdisk loaded by QEMU itself, 1 vCPU in software emulation, 1280 MiB, virtio-net with QEMU's DHCP; median of %s", list(seconds, 2))
	s.note("agent_seconds_direct: seconds after power-on in the last boot: %s", marks.last())
	s.put("agent_seconds_direct", median(seconds), 2)
	return nil
}

// unpack writes a file of the built-in server ramdisk behind a prefix.
func unpack(name, path string, prefix []byte) error {
	files, err := embed.FS(ramdisk.Server)
	if err != nil {
		return err
	}
	b, err := fs.ReadFile(files, name)
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(prefix, b...), 0o600)
}

// sessions is the first minute of an appliance: it gives every agent a session, and no work.
type sessions struct {
	srv  *http.Server
	cert tls.Certificate
	port string
	key  ed25519.PublicKey
}

func newSessions(l net.Listener) (*sessions, error) {
	pub, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, err
	}
	tmpl := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: time.Unix(0, 0), NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, pub, key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	s := &sessions{cert: tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, port: port, key: pub}
	mux := http.NewServeMux()
	mux.HandleFunc("POST "+agentv1.PathSession, func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(agentv1.SessionResponse{SessionID: "s-figures", Secret: rand.Text(), MachineID: "m-figures", WorkflowID: "w-figures", ServerTime: time.Now()})
	})
	s.srv = &http.Server{Handler: mux, TLSConfig: &tls.Config{Certificates: []tls.Certificate{s.cert}, MinVersion: tls.VersionTLS12}, ReadHeaderTimeout: 5 * time.Second, ErrorLog: log.New(io.Discard, "", 0)}
	go func() { _ = s.srv.ServeTLS(l, "", "") }() // ends with close
	return s, nil
}

func (s *sessions) close() { _ = s.srv.Close() }

// boot is the boot data of a machine on QEMU's own network, which knows this host as 10.0.2.2.
func (s *sessions) boot() agentv1.BootData {
	leaf, _ := x509.ParseCertificate(s.cert.Certificate[0]) // made above
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return agentv1.BootData{
		MachineID: "m-figures", WorkflowID: "w-figures", SiteURLs: []string{"https://10.0.2.2:" + s.port}, BootURLs: []string{"http://10.0.2.2:1"},
		AgentPin: hex.EncodeToString(sum[:]), CommandKey: base64.StdEncoding.EncodeToString(s.key), Token: rand.Text(), ServerTime: time.Now(), BootMAC: string(lab.MAC(254)),
	}
}
