package bcxtest

import (
	"bufio"
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"io"
	"math/big"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/plugins/bcx"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// Process runs the part of the suite that looks at the plugin as a process: how it starts, whom it lets in, how it ends.
func Process(t *testing.T, p Plugin) {
	t.Run("by hand", func(t *testing.T) { byHand(t, p.Host.Command) })
	t.Run("certificate encodings", func(t *testing.T) { encodings(t, p.Host.Command) })
	t.Run("strangers", func(t *testing.T) { strangers(t, p.Host.Command) })
	t.Run("end", func(t *testing.T) { ends(t, p.Host.Command) })
}

// byHand starts the plugin without the cookie.
func byHand(t *testing.T, command []string) {
	c := exec.CommandContext(within(t), command[0], command[1:]...)
	c.Env = []string{"PATH=" + os.Getenv("PATH")}
	out, err := c.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 1 || !strings.Contains(string(out), "plugin") {
		t.Errorf("%v, %q: want exit code 1 and a sentence that it is a plugin", err, out)
	}
}

// self is a certificate and its key.
type self struct {
	der []byte
	key *ecdsa.PrivateKey
}

func (s self) base64() string { return base64.StdEncoding.EncodeToString(s.der) }

func (s self) pem() string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.der}))
}

// certificate makes a self-signed certificate of a key; nil makes a new key.
func certificate(t *testing.T, key *ecdsa.PrivateKey) self {
	t.Helper()
	var err error
	if key == nil {
		if key, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader); err != nil {
			t.Fatal(err)
		}
	}
	serial, err := rand.Int(rand.Reader, big.NewInt(1<<62))
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "host"}, NotBefore: time.Unix(0, 0),
		NotAfter: time.Now().AddDate(1, 0, 0), KeyUsage: x509.KeyUsageDigitalSignature, BasicConstraintsValid: true,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		t.Fatal(err)
	}
	return self{der, key}
}

// started is a plugin started by the test itself.
type started struct {
	cmd   *exec.Cmd
	stdin io.Closer
	out   *bufio.Reader
	hs    bcx.Handshake
	ended chan error
}

func launch(t *testing.T, command []string, clientCert string) *started {
	t.Helper()
	dir, err := os.MkdirTemp("", "bcx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	s := &started{cmd: exec.Command(command[0], command[1:]...), ended: make(chan error, 1)}
	s.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), bcx.EnvCookie + "=" + bcx.Cookie, bcx.EnvSocketDir + "=" + dir, bcx.EnvClientCert + "=" + clientCert}
	stdin, err1 := s.cmd.StdinPipe()
	stdout, out, err2 := os.Pipe()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	s.cmd.Stdout = out
	s.stdin, s.out = stdin, bufio.NewReader(stdout)
	err = child.Start(s.cmd)
	out.Close()
	if err != nil {
		t.Fatal(err)
	}
	go func() { s.ended <- s.cmd.Wait() }()
	t.Cleanup(func() { _ = s.cmd.Process.Kill(); stdout.Close() })
	_ = stdout.SetReadDeadline(time.Now().Add(limit))
	line, err := s.out.ReadString('\n')
	if err != nil {
		t.Fatalf("reading the handshake: %q, %v", line, err)
	}
	if s.hs, err = bcx.ParseHandshake(strings.TrimSuffix(line, "\n")); err == nil {
		err = s.hs.Within(dir)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// serving calls the plugin as who, trusting its certificate.
func (s *started) serving(t *testing.T, who self) error {
	t.Helper()
	config := &tls.Config{MinVersion: tls.VersionTLS13, ServerName: "localhost",
		Certificates:       []tls.Certificate{{Certificate: [][]byte{who.der}, PrivateKey: who.key}},
		InsecureSkipVerify: true, // the bytes are compared
		VerifyConnection: func(c tls.ConnectionState) error {
			if !bytes.Equal(c.PeerCertificates[0].Raw, s.hs.Certificate) {
				return errors.New("another certificate than the announced one")
			}
			return nil
		}}
	conn, err := grpc.NewClient("unix:"+s.hs.Address, grpc.WithTransportCredentials(credentials.NewTLS(config)))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, err = driverv1.NewDriverPluginClient(conn).Describe(within(t), &driverv1.DescribeRequest{})
	return err
}

// end waits for the plugin to end by itself.
func (s *started) end(t *testing.T, how string) {
	t.Helper()
	select {
	case err := <-s.ended:
		if err != nil {
			t.Errorf("%s: it ended with %v, want 0", how, err)
		}
	case <-within(t).Done():
		t.Errorf("%s: it goes on", how)
	}
}

func encodings(t *testing.T, command []string) {
	host := certificate(t, nil)
	for name, text := range map[string]string{
		"padded":   host.base64(),
		"unpadded": strings.TrimRight(host.base64(), "="),
		"PEM":      host.pem(),
	} {
		if err := launch(t, command, text).serving(t, host); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func strangers(t *testing.T, command []string) {
	host := certificate(t, nil)
	s := launch(t, command, host.base64())
	if err := s.serving(t, certificate(t, nil)); err == nil {
		t.Error("a stranger was let in")
	}
	if err := s.serving(t, certificate(t, host.key)); err == nil {
		t.Error("another certificate of the host's key was let in")
	}
	if err := s.serving(t, host); err != nil {
		t.Error("after them the host is kept out:", err)
	}
}

func ends(t *testing.T, command []string) {
	host := certificate(t, nil)
	s := launch(t, command, host.base64())
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	if err := s.serving(t, host); err != nil {
		t.Error("after SIGINT:", err)
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.end(t, "SIGTERM")
	if more, _ := io.ReadAll(s.out); len(more) > 0 {
		t.Errorf("it wrote more than its handshake to stdout: %q", more)
	}
	s = launch(t, command, host.base64())
	s.stdin.Close()
	s.end(t, "end of stdin")
}
