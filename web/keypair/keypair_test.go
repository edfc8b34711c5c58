package keypair_test

import (
	"crypto/tls"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/keypair"
)

func config(t *testing.T) keypair.Config {
	t.Helper()
	dir := t.TempDir()
	return keypair.Config{KeyFile: filepath.Join(dir, "tls.key"), CertFile: filepath.Join(dir, "tls.crt"), Names: []string{"bcd.example", "192.0.2.1"}, Log: slog.New(slog.DiscardHandler)}
}

func open(t *testing.T, c keypair.Config) *keypair.Pair {
	t.Helper()
	p, err := keypair.Open(c)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// presented is the pin of the certificate that a client is shown.
func presented(t *testing.T, p *keypair.Pair) string {
	t.Helper()
	a, b := net.Pipe()
	srv := tls.Server(a, p.TLS())
	done := make(chan error, 1)
	go func() { done <- srv.Handshake() }()
	c := tls.Client(b, &tls.Config{InsecureSkipVerify: true})
	if err := c.Handshake(); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	leaf := c.ConnectionState().PeerCertificates[0]
	_ = a.Close()
	_ = b.Close()
	if !leaf.Equal(p.Leaf()) {
		t.Error("the certificate shown is not the one in use")
	}
	return p.SPKI()
}

func TestPairIsMadeOnceAndKept(t *testing.T) {
	c := config(t)
	p := open(t, c)
	if info, err := os.Stat(c.KeyFile); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("key file %v, %v", info, err)
	}
	for _, n := range []string{"bcd.example", "192.0.2.1", "localhost", "127.0.0.1"} {
		if err := p.Leaf().VerifyHostname(n); err != nil {
			t.Error(err)
		}
	}
	if again := open(t, c); again.SPKI() != p.SPKI() || !again.Leaf().Equal(p.Leaf()) || !again.SelfSigned() || len(p.SPKI()) != 64 {
		t.Error("the pair was not kept")
	}
	presented(t, p)
}

func TestOwnCertificateIsRenewedUnderTheSameKey(t *testing.T) {
	c := config(t)
	p := open(t, c)
	c.Now = func() time.Time { return time.Now().Add(4*365*24*time.Hour + time.Hour) }
	later := open(t, c)
	if later.SPKI() != p.SPKI() || later.Leaf().Equal(p.Leaf()) || later.Leaf().NotAfter.Before(c.Now().Add(4*365*24*time.Hour)) {
		t.Errorf("until %s", later.Leaf().NotAfter)
	}
}

func TestReplacedCertificateIsTakenUpWithoutARestart(t *testing.T) {
	c := config(t)
	now := time.Now()
	c.Now = func() time.Time { return now }
	p := open(t, c)
	first := presented(t, p)
	other := config(t)
	next := open(t, other)
	for from, to := range map[string]string{other.KeyFile: c.KeyFile, other.CertFile: c.CertFile} {
		b, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(to, b, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(to, now.Add(time.Minute), now.Add(time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	now = now.Add(time.Minute)
	if got := presented(t, p); got == first || got != next.SPKI() {
		t.Errorf("shown %s", got)
	}
	// Half of a replacement, or nonsense, keeps the old one in use.
	if err := os.WriteFile(c.CertFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Chtimes(c.CertFile, now.Add(time.Hour), now.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	now = now.Add(time.Minute)
	if got := presented(t, p); got != next.SPKI() {
		t.Errorf("shown %s", got)
	}
}

func TestKeyOthersMayReadIsRefused(t *testing.T) {
	c := config(t)
	open(t, c)
	if err := os.Chmod(c.KeyFile, 0o640); err != nil {
		t.Fatal(err)
	}
	_, err := keypair.Open(c)
	if e, ok := app.AsError(err); !ok || e.Reason != "tls-key-mode" || !strings.Contains(e.WayOut, "chmod 600") {
		t.Errorf("%v", err)
	}
	if err := os.Chmod(c.KeyFile, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(c.CertFile, []byte("nonsense"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := keypair.Open(c); app.CodeOf(err) != app.InvalidConfig {
		t.Errorf("%v", err)
	}
}
