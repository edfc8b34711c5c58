// Package keypair keeps the TLS keys of the appliance's listeners: made at first start, self-signed, known by the digest
// of their public key, and replaceable by the owner's own certificate without a restart.
package keypair

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
)

const (
	validity   = 5 * 365 * 24 * time.Hour
	renewAhead = 365 * 24 * time.Hour
	checkEvery = 10 * time.Second // for a replaced certificate
)

// Config is where a pair lives and what its certificate names.
type Config struct {
	KeyFile  string           // PEM, mode 0600
	CertFile string           // PEM; a certificate not signed by the key itself is the owner's and never overwritten
	Names    []string         // host names and IP addresses of a certificate that is made here
	Log      *slog.Logger     // required
	Now      func() time.Time // default time.Now
}

// Pair is a key with its certificate. It is safe for concurrent use.
type Pair struct {
	Config
	mu      sync.Mutex // protects the rest
	cert    *tls.Certificate
	stamp   time.Time // newest modification of the two files
	checked time.Time
}

// Open reads the pair, making what is missing. A self-signed certificate near its end is renewed under the same key, so
// that pins hold.
func Open(c Config) (*Pair, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	p := &Pair{Config: c}
	if err := p.ensure(); err != nil {
		return nil, err
	}
	cert, err := p.load()
	if err != nil {
		return nil, err
	}
	if ours(cert.Leaf) && c.Now().After(cert.Leaf.NotAfter.Add(-renewAhead)) {
		if err := p.sign(); err != nil {
			return nil, err
		}
		if cert, err = p.load(); err != nil {
			return nil, err
		}
	}
	p.cert, p.stamp = cert, p.modified()
	return p, nil
}

// ours reports whether a certificate signed itself.
func ours(c *x509.Certificate) bool { return c.CheckSignatureFrom(c) == nil }

// Leaf is the certificate in use.
func (p *Pair) Leaf() *x509.Certificate { p.mu.Lock(); defer p.mu.Unlock(); return p.cert.Leaf }

// SPKI is the lower-case hex SHA-256 of the SubjectPublicKeyInfo in use: what clients pin.
func (p *Pair) SPKI() string {
	sum := sha256.Sum256(p.Leaf().RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// SelfSigned reports whether the certificate in use was made here.
func (p *Pair) SelfSigned() bool { return ours(p.Leaf()) }

// TLS is the server configuration of the pair. A certificate replaced on disk is taken up within seconds; one that does
// not fit its key is logged and the old one stays.
func (p *Pair) TLS(protocols ...string) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, NextProtos: protocols,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return p.current(), nil }}
}

func (p *Pair) current() *tls.Certificate {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Now()
	if now.Sub(p.checked) < checkEvery {
		return p.cert
	}
	p.checked = now
	if at := p.modified(); !at.Equal(p.stamp) {
		p.stamp = at
		if cert, err := p.load(); err != nil {
			p.Log.Error("taking up the replaced certificate", "error", err)
		} else {
			p.cert = cert
			p.Log.Info("took up a replaced certificate", "file", p.CertFile)
		}
	}
	return p.cert
}

func (p *Pair) modified() time.Time {
	var last time.Time
	for _, f := range []string{p.CertFile, p.KeyFile} {
		if info, err := os.Stat(f); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return last
}

func (p *Pair) load() (*tls.Certificate, error) {
	info, err := os.Stat(p.KeyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the mode of %s: %w", p.KeyFile, err)
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, app.Errorf(app.InvalidConfig, "tls-key-mode", "the TLS key %s has mode %04o, others than its owner may reach it",
			p.KeyFile, info.Mode().Perm()).Do("run: chmod 600 %s", p.KeyFile)
	}
	cert, err := tls.LoadX509KeyPair(p.CertFile, p.KeyFile)
	if err != nil {
		return nil, app.Errorf(app.InvalidConfig, "tls-pair", "%s and %s are not a certificate and its key: %w", p.CertFile, p.KeyFile, err).
			Do("put a matching PEM pair there, or remove both and restart to have a new one made")
	}
	return &cert, nil
}

// ensure makes the key and the certificate that are not there.
func (p *Pair) ensure() error {
	_, err := os.Stat(p.KeyFile)
	if errors.Is(err, fs.ErrNotExist) {
		if err := p.makeKey(); err != nil {
			return err
		}
		return p.sign()
	}
	if err != nil {
		return fmt.Errorf("looking for the TLS key: %w", err)
	}
	if _, err := os.Stat(p.CertFile); errors.Is(err, fs.ErrNotExist) {
		return p.sign()
	}
	return nil
}

func (p *Pair) makeKey() error {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fmt.Errorf("making a TLS key: %w", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the TLS key: %w", err)
	}
	return replace(p.KeyFile, "PRIVATE KEY", der)
}

// sign makes a certificate for the key that is there.
func (p *Pair) sign() error {
	raw, err := os.ReadFile(p.KeyFile)
	if err != nil {
		return fmt.Errorf("reading the TLS key: %w", err)
	}
	bad := app.Errorf(app.InvalidConfig, "tls-key", "%s is no PKCS#8 ECDSA key in PEM", p.KeyFile).Do("remove it and restart, or put the certificate beside it as %s", p.CertFile)
	block, _ := pem.Decode(raw)
	if block == nil {
		return bad
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	key, ok := parsed.(*ecdsa.PrivateKey)
	if err != nil || !ok {
		return bad
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return fmt.Errorf("choosing a serial number: %w", err)
	}
	now := p.Now()
	t := &x509.Certificate{SerialNumber: serial, Subject: pkix.Name{CommonName: "bcd"}, NotBefore: now.Add(-24 * time.Hour), NotAfter: now.Add(validity),
		KeyUsage: x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}, BasicConstraintsValid: true, IsCA: true, MaxPathLenZero: true}
	for _, n := range append([]string{"localhost", "127.0.0.1", "::1"}, p.Names...) {
		if ip := net.ParseIP(n); ip != nil {
			t.IPAddresses = append(t.IPAddresses, ip)
		} else if n != "" {
			t.DNSNames = append(t.DNSNames, n)
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, t, t, key.Public(), key)
	if err != nil {
		return fmt.Errorf("signing the certificate: %w", err)
	}
	return replace(p.CertFile, "CERTIFICATE", der)
}

// replace writes a PEM file whole, mode 0600.
func replace(path, kind string, der []byte) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".pem-*")
	if err != nil {
		return fmt.Errorf("creating %s: %w", path, err)
	}
	defer func() { _ = os.Remove(f.Name()) }()
	err = pem.Encode(f, &pem.Block{Type: kind, Bytes: der})
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		return fmt.Errorf("writing %s: %w", path, err)
	}
	return os.Rename(f.Name(), path)
}
