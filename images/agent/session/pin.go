package session

import (
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"

	"github.com/better-compute/bcd/app"
)

// TLSConfig trusts exactly the server whose SubjectPublicKeyInfo has the SHA-256 digest pin (hex), whatever name, issuer or
// validity its certificate states: the machine's clock may be years off and no CA is involved. The pin is required.
func TLSConfig(pin string) (*tls.Config, error) {
	want, err := parsePin(pin)
	if err != nil {
		return nil, app.Errorf(app.InvalidConfig, "pin-missing", "the appliance's key cannot be checked: %w", err)
	}
	return &tls.Config{
		MinVersion: tls.VersionTLS13,
		// The chain is not verified because the key itself is: VerifyConnection runs on every handshake, resumed ones included.
		InsecureSkipVerify: true,
		VerifyConnection: func(cs tls.ConnectionState) error {
			if len(cs.PeerCertificates) == 0 {
				return errPin(errors.New("it sent no certificate"))
			}
			got := sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo)
			if subtle.ConstantTimeCompare(got[:], want) != 1 {
				return errPin(errors.New("its key is another one"))
			}
			return nil
		},
	}, nil
}

func errPin(why error) error {
	return app.Errorf(app.Unauthenticated, "pin-mismatch", "the server is not the appliance this machine booted from: %w", why).
		Do("look for a proxy or another host with the appliance's address")
}
