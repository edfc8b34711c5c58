package bcx

import (
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
	"fmt"
	"math/big"
	"strings"
	"time"
)

// Identity is the ephemeral self-signed P-256 certificate of one side of one plugin's life.
type Identity struct {
	certificate tls.Certificate
}

// NewIdentity makes a key and its certificate. The dates are wide on purpose: what counts is that the other side knows
// these very bytes, and a machine whose clock is wrong must be able to run plugins.
func NewIdentity() (*Identity, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 126))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "bcx"},
		DNSNames:              []string{"localhost"},
		NotBefore:             time.Unix(0, 0),
		NotAfter:              time.Date(2099, 12, 31, 23, 59, 59, 0, time.UTC),
		KeyUsage:              x509.KeyUsageDigitalSignature,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a certificate: %w", err)
	}
	return &Identity{tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}}, nil
}

// DER is the certificate.
func (i *Identity) DER() []byte { return bytes.Clone(i.certificate.Certificate[0]) }

// Encoded is the certificate as it travels in the environment and in the handshake line: base64 of the DER, unpadded.
func (i *Identity) Encoded() string { return base64.RawStdEncoding.EncodeToString(i.DER()) }

// Environ is the whole environment of a plugin: PATH and the three BCX variables.
func Environ(path, socketDir string, host *Identity) []string {
	return []string{"PATH=" + path, EnvCookie + "=" + Cookie, EnvSocketDir + "=" + socketDir, EnvClientCert + "=" + host.Encoded()}
}

// serverTLS accepts exactly the client certificate peer.
func (i *Identity) serverTLS(peer []byte) *tls.Config {
	c := i.tls(peer)
	c.ClientAuth = tls.RequireAnyClientCert
	return c
}

// clientTLS accepts exactly the server certificate peer. Chain and name are not asked: the bytes are.
func (i *Identity) clientTLS(peer []byte) *tls.Config {
	c := i.tls(peer)
	c.ServerName = "localhost"
	c.InsecureSkipVerify = true // replaced by VerifyConnection, which is stricter
	return c
}

func (i *Identity) tls(peer []byte) *tls.Config {
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		Certificates:           []tls.Certificate{i.certificate},
		SessionTicketsDisabled: true,
		VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) != 1 || !bytes.Equal(s.PeerCertificates[0].Raw, peer) {
				return errors.New("the other side shows another certificate than the one it announced")
			}
			return nil
		},
	}
}

// decodeCertificate reads a certificate as it travels: DER in base64 on one line, padded or not, or PEM.
func decodeCertificate(s string) ([]byte, error) {
	s = strings.TrimSpace(s)
	var der []byte
	if strings.HasPrefix(s, "-----BEGIN ") {
		block, _ := pem.Decode([]byte(s))
		if block == nil || block.Type != "CERTIFICATE" {
			return nil, errors.New("it is not a PEM certificate")
		}
		der = block.Bytes
	} else {
		var err error
		if der, err = base64.RawStdEncoding.DecodeString(strings.TrimRight(s, "=")); err != nil {
			return nil, errors.New("it is not base64")
		}
	}
	if _, err := x509.ParseCertificate(der); err != nil {
		return nil, fmt.Errorf("it is not an X.509 certificate: %w", err)
	}
	return der, nil
}
