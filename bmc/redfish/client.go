package redfish

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	maxBody      = 4 << 20 // bytes of one answer; the largest recorded resource has 300 KB
	maxRedirects = 3
	maxConns     = 2 // to one BMC; most serve few at a time
	maxLink      = 1024
)

// client speaks HTTPS to one BMC. It stays on one origin, knows nothing of sessions, and bounds everything.
type client struct {
	target target
	pin    string // lower-case hex, or "" when a certificate authority must vouch
	first  bool   // a probe: take the first key seen as the pin
	limits limits
	http   *http.Client

	mu   sync.Mutex
	seen *x509.Certificate // the certificate that answered last
	ok   bool              // a certificate authority vouches for it
}

// response is an answer, read whole.
type response struct {
	status int
	header http.Header
	body   []byte
	path   string // after redirects
}

func newClient(t target, pin string, first bool, l limits) *client {
	c := &client{target: t, pin: strings.ToLower(pin), first: first, limits: l}
	c.http = &http.Client{
		Timeout:       l.request,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		Transport: &http.Transport{
			Proxy:                 nil, // a proxy's answer must never pass for a BMC's
			DialContext:           (&net.Dialer{Timeout: l.connect}).DialContext,
			TLSHandshakeTimeout:   l.handshake,
			ResponseHeaderTimeout: l.request,
			MaxConnsPerHost:       maxConns,
			MaxIdleConnsPerHost:   maxConns,
			IdleConnTimeout:       20 * time.Second, // below what BMCs keep; they reset instead of closing
			DisableCompression:    true,             // compression turns entity tags weak on some
			TLSClientConfig:       c.tlsConfig(),
		},
	}
	return c
}

// tlsConfig checks the peer itself: by the pin when there is one, else by the host's certificate authorities. BMC
// certificates rarely carry the right name, so the pinned key, not the name, is what identifies them.
func (c *client) tlsConfig() *tls.Config {
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		ServerName:         c.target.host,
		InsecureSkipVerify: true, // VerifyConnection stands in for it, on every connection
		VerifyConnection:   c.verify,
	}
}

// verify runs on every connection before a request is sent.
func (c *client) verify(s tls.ConnectionState) error {
	if len(s.PeerCertificates) == 0 {
		return driver.Errorf(driver.CodeUntrusted, "the BMC showed no certificate")
	}
	leaf := s.PeerCertificates[0]
	trusted := vouched(s, c.target.host)
	got := spki(leaf)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.seen, c.ok = leaf, trusted
	switch {
	case c.pin == "" && c.first:
		c.pin = got // from here on this client accepts this key only
	case c.pin == "" && !trusted:
		return driver.Errorf(driver.CodeUntrusted, "no key is pinned for this BMC and no certificate authority vouches for "+
			"its certificate; test the connection and accept the key with SHA-256 %s if it is the BMC's", got)
	case c.pin != "" && c.pin != got:
		return driver.Errorf(driver.CodePinMismatch, "the BMC answered with another key than the pinned one: pinned %s, "+
			"seen %s", c.pin, got)
	}
	return nil
}

// vouched reports whether the host's certificate authorities accept the chain for the name.
func vouched(s tls.ConnectionState, host string) bool {
	between := x509.NewCertPool()
	for _, cert := range s.PeerCertificates[1:] {
		between.AddCert(cert)
	}
	_, err := s.PeerCertificates[0].Verify(x509.VerifyOptions{DNSName: host, Intermediates: between})
	return err == nil
}

// spki is the pin of a certificate: hex SHA-256 of its SubjectPublicKeyInfo.
func spki(cert *x509.Certificate) string {
	sum := sha256.Sum256(cert.RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

func (c *client) close() { c.http.CloseIdleConnections() }

// resolve turns a link from a BMC's document into a path on the BMC's own origin. Links elsewhere are refused: following
// them would hand the session to whoever is named.
func (c *client) resolve(link string) (string, error) {
	if len(link) > maxLink {
		return "", driver.Errorf(driver.CodeBMCError, "the BMC gave a link of %d bytes", len(link))
	}
	u, err := url.Parse(link)
	if err != nil || u.Opaque != "" || u.User != nil {
		return "", driver.Errorf(driver.CodeBMCError, "the BMC gave a link that is no address: %q", clip(link, 80))
	}
	if u.IsAbs() || u.Host != "" {
		port := u.Port()
		if port == "" {
			port = "443"
		}
		if u.Scheme != "https" || "https://"+net.JoinHostPort(strings.ToLower(u.Hostname()), port) != c.target.origin {
			return "", driver.Errorf(driver.CodeBMCError, "the BMC points to another host, which is not followed: %q", clip(link, 80))
		}
	}
	if !strings.HasPrefix(u.Path, "/") {
		return "", driver.Errorf(driver.CodeBMCError, "the BMC gave a link that is no path: %q", clip(link, 80))
	}
	u.Scheme, u.Host, u.Fragment = "", "", ""
	return u.RequestURI(), nil
}

// do sends one request and reads the answer, following redirects on the same origin with the same method. header may be
// nil. An answer of any status is returned; errors are *driver.Error.
func (c *client) do(ctx context.Context, method, link string, body any, header http.Header) (*response, error) {
	var payload []byte
	if body != nil {
		var err error
		if payload, err = json.Marshal(body); err != nil {
			return nil, driver.Errorf(driver.CodeInvalidArgs, "the request cannot be written as JSON: %w", err)
		}
	}
	for range maxRedirects + 1 {
		p, err := c.resolve(link)
		if err != nil {
			return nil, err
		}
		r, err := c.once(ctx, method, p, payload, header)
		if err != nil {
			return nil, err
		}
		if r.status == http.StatusNotAcceptable && method == http.MethodGet && header.Get("Accept-Encoding") == "" {
			r, err = c.once(ctx, method, p, payload, http.Header{"Accept-Encoding": {"gzip"}})
			return r, err
		}
		next := r.header.Get("Location")
		switch r.status {
		case http.StatusMovedPermanently, http.StatusTemporaryRedirect, http.StatusPermanentRedirect:
		case http.StatusFound, http.StatusSeeOther:
			if method != http.MethodGet {
				return r, nil
			}
		default:
			return r, nil
		}
		link = relative(p, next)
	}
	return nil, driver.Errorf(driver.CodeBMCError, "the BMC redirects in circles at %s", clip(link, 80))
}

// relative resolves a Location header against the path that gave it.
func relative(base, location string) string {
	b, err1 := url.Parse(base)
	l, err2 := url.Parse(location)
	if err1 != nil || err2 != nil {
		return location
	}
	return b.ResolveReference(l).String()
}

func (c *client) once(ctx context.Context, method, path string, payload []byte, header http.Header) (*response, error) {
	req, err := http.NewRequestWithContext(ctx, method, c.target.origin+path, bytes.NewReader(payload))
	if err != nil {
		return nil, driver.Errorf(driver.CodeBMCError, "the BMC gave an address that cannot be asked: %q", clip(path, 80))
	}
	req.Header.Set("Accept", "application/json")
	req.Header.Set("Accept-Encoding", "identity") // a compressed answer has another entity tag
	req.Header.Set("OData-Version", "4.0")        // makes iLO 4 leave out its older members
	req.Header.Set("User-Agent", "bcd")
	if payload != nil {
		req.Header.Set("Content-Type", "application/json")
	} else {
		req.Body, req.ContentLength, req.GetBody = http.NoBody, 0, nil
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if req.Header.Get("Accept-Encoding") == "gzip" {
		req.Header.Del("Accept-Encoding")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxBody+1))
	if err != nil {
		return nil, c.transportError(ctx, err)
	}
	if len(b) > maxBody {
		return nil, driver.Errorf(driver.CodeBMCError, "the BMC's answer at %s is longer than %d bytes", clip(path, 80), maxBody)
	}
	return &response{status: res.StatusCode, header: res.Header, body: b, path: path}, nil
}

// transportError words a failure to connect or to read. The error never holds the request, which may carry a password.
func (c *client) transportError(ctx context.Context, err error) error {
	var known *driver.Error
	var op *net.OpError
	var dns *net.DNSError
	var record tls.RecordHeaderError
	var alert tls.AlertError
	var whole *url.Error
	if errors.As(err, &whole) {
		err = whole.Err // its own text repeats the address
	}
	at := c.target.origin
	switch {
	case errors.As(err, &known):
		return known
	case errors.Is(ctx.Err(), context.Canceled):
		return driver.Errorf(driver.CodeCancelled, "the request to %s was cancelled", at)
	case errors.As(err, &dns):
		return driver.Errorf(driver.CodeUnreachable, "the BMC's name %q does not resolve: %s", c.target.host, dns.Err).Again()
	case errors.As(err, &record):
		return driver.Errorf(driver.CodeUnreachable, "%s does not speak TLS; check the port", at)
	case strings.Contains(err.Error(), "failed to parse certificate"):
		return driver.Errorf("tls-failed", "the certificate of %s cannot be read: %s; let the BMC make a new one", at, clip(tlsReason(err), 120))
	case errors.As(err, &alert), strings.Contains(err.Error(), "tls: "):
		return driver.Errorf("tls-failed", "no secure connection to %s: %s; the BMC may speak only TLS that is no longer safe, "+
			"update its firmware", at, clip(tlsReason(err), 120))
	case ctx.Err() != nil, isTimeout(err):
		return driver.Errorf(driver.CodeTimeout, "the BMC at %s did not answer in time", at).Again()
	case errors.As(err, &op) && op.Op == "dial":
		return driver.Errorf(driver.CodeUnreachable, "no connection to the BMC at %s: %s", at, c.dialReason(op)).Again()
	}
	return driver.Errorf(driver.CodeUnreachable, "the connection to the BMC at %s broke: %w", at, err).Again()
}

func isTimeout(err error) bool {
	var t net.Error
	return errors.As(err, &t) && t.Timeout()
}

func (c *client) dialReason(op *net.OpError) string {
	if op.Timeout() {
		return fmt.Sprintf("nothing answered within %s", c.limits.connect)
	}
	return clip(op.Err.Error(), 120)
}

func tlsReason(err error) string {
	s := err.Error()
	if i := strings.Index(s, "tls: "); i >= 0 {
		return s[i+len("tls: "):]
	}
	return s
}
