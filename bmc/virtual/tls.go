package virtual

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/hex"
	"encoding/pem"
	"fmt"
	"log"
	"log/slog"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

const certFile = "bmc.pem"

// certificate gives the BMC's own certificate: the one kept in the machine's directory, so that its pin outlives a
// restart, else a new self-signed one.
func certificate(cfg Config) (tls.Certificate, error) {
	path := ""
	if cfg.Dir != "" {
		path = filepath.Join(cfg.Dir, certFile)
		if b, err := os.ReadFile(path); err == nil {
			return tls.X509KeyPair(b, b)
		}
	}
	b, err := newCertificate(cfg)
	if err != nil {
		return tls.Certificate{}, fmt.Errorf("making the certificate of BMC %s: %w", cfg.Name, err)
	}
	if path != "" {
		if err := os.WriteFile(path, b, 0o600); err != nil {
			return tls.Certificate{}, fmt.Errorf("keeping the certificate of BMC %s: %w", cfg.Name, err)
		}
	}
	return tls.X509KeyPair(b, b)
}

// newCertificate makes an ECDSA P-256 key and a certificate for the address the BMC listens on, as PEM.
func newCertificate(cfg Config) ([]byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, err
	}
	now := time.Now()
	tmpl := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: cfg.Name + "-bmc"},
		NotBefore: now.Add(-24 * time.Hour), NotAfter: now.AddDate(10, 0, 0),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		BasicConstraintsValid: true, DNSNames: []string{cfg.Name + "-bmc"},
	}
	if host, _, err := net.SplitHostPort(cfg.Listen); err == nil {
		if ip := net.ParseIP(host); ip != nil {
			tmpl.IPAddresses = []net.IP{ip}
		}
	}
	der, err := x509.CreateCertificate(rand.Reader, tmpl, tmpl, key.Public(), key)
	if err != nil {
		return nil, err
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, err
	}
	var out bytes.Buffer
	_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: der})
	_ = pem.Encode(&out, &pem.Block{Type: "PRIVATE KEY", Bytes: pkcs8})
	return out.Bytes(), nil
}

func spki(c tls.Certificate) string {
	leaf, err := x509.ParseCertificate(c.Certificate[0])
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(leaf.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// newErrorLog sends net/http's complaints about clients to the debug log.
func newErrorLog(l *slog.Logger) *log.Logger { return slog.NewLogLogger(l.Handler(), slog.LevelDebug) }
