// Package client calls an appliance's API from the command line: over TLS with the appliance's key pinned, with an API
// token, and with errors as the people's errors they are.
package client

import (
	"bytes"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// Login is how the command line reaches an appliance. It is kept in a file of mode 0600.
type Login struct {
	URL   string `json:"url"`
	Token string `json:"token"`
	Pin   string `json:"tlsSpkiSha256"` // hex SHA-256 of the appliance's SubjectPublicKeyInfo; "" means the system's CAs
}

// Reasons of errors that came from the way to the appliance, not from it.
const (
	ReasonUnreachable = "appliance-unreachable"
	ReasonCutOff      = "appliance-cut-off"
)

// maxAnswer bounds what is read of an answer, in bytes.
const maxAnswer = 64 << 20

// File is where the login is kept: $XDG_CONFIG_HOME/bcd/login.json.
func File() (string, error) {
	dir, err := os.UserConfigDir()
	if err != nil {
		return "", fmt.Errorf("finding the configuration directory: %w", err)
	}
	return filepath.Join(dir, "bcd", "login.json"), nil
}

// Load reads the login: BCD_URL, BCD_TOKEN and BCD_PIN before the file.
func Load() (Login, error) {
	l := Login{URL: os.Getenv("BCD_URL"), Token: os.Getenv("BCD_TOKEN"), Pin: os.Getenv("BCD_PIN")}
	if l.URL != "" {
		return l, nil
	}
	file, err := File()
	if err != nil {
		return l, err
	}
	b, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) {
		return l, app.Errorf(app.Unauthenticated, "no-login", "no appliance is known here").Do("run: bcd login https://<appliance>:8443")
	}
	if err != nil {
		return l, fmt.Errorf("reading the login: %w", err)
	}
	if err := json.Unmarshal(b, &l); err != nil {
		return l, app.Errorf(app.InvalidConfig, "bad-login", "%s is damaged", file).Do("run bcd login again")
	}
	return l, nil
}

// Save writes the login.
func (l Login) Save() error {
	file, err := File()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return fmt.Errorf("saving the login: %w", err)
	}
	b, err := json.MarshalIndent(l, "", "  ")
	if err != nil {
		return err
	}
	tmp := file + ".new"
	if err := os.WriteFile(tmp, b, 0o600); err != nil {
		return fmt.Errorf("saving the login: %w", err)
	}
	return os.Rename(tmp, file)
}

// Client calls one appliance.
type Client struct {
	Login
	HTTP *http.Client
}

// New makes a client that accepts only the pinned key.
func New(l Login) (*Client, error) {
	u, err := url.Parse(l.URL)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return nil, app.Invalid("url", "%q is not an https URL", l.URL).Do("give it as https://<appliance>:8443")
	}
	l.URL = strings.TrimRight(l.URL, "/")
	tr := &http.Transport{TLSClientConfig: PinnedTLS(l.Pin), TLSHandshakeTimeout: 10 * time.Second, ForceAttemptHTTP2: true}
	return &Client{Login: l, HTTP: &http.Client{Transport: tr}}, nil
}

// PinnedTLS accepts a server by its key's SHA-256 instead of by a CA; with no pin the system's CAs decide.
func PinnedTLS(pin string) *tls.Config {
	if pin == "" {
		return &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return &tls.Config{
		MinVersion:         tls.VersionTLS12,
		InsecureSkipVerify: true, //nolint:gosec // VerifyConnection below is the verification
		VerifyConnection: func(cs tls.ConnectionState) error {
			if got := Pin(cs); got != strings.ToLower(pin) {
				return app.Errorf(app.Unauthenticated, "tls-pin-mismatch", "the appliance shows the key %s, %s is pinned", got, pin).
					Do("if its key was replaced on purpose, run bcd login again")
			}
			return nil
		},
	}
}

// Pin is the hex SHA-256 of the key a server showed.
func Pin(cs tls.ConnectionState) string {
	if len(cs.PeerCertificates) == 0 {
		return ""
	}
	sum := sha256.Sum256(cs.PeerCertificates[0].RawSubjectPublicKeyInfo)
	return hex.EncodeToString(sum[:])
}

// SeePin connects once and reports the key the server shows. Nothing is sent to it.
func SeePin(ctx context.Context, base string) (string, error) {
	u, err := url.Parse(base)
	if err != nil || u.Scheme != "https" || u.Host == "" {
		return "", app.Invalid("url", "%q is not an https URL", base).Do("give it as https://<appliance>:8443")
	}
	host := u.Host
	if u.Port() == "" {
		host += ":443"
	}
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true, MinVersion: tls.VersionTLS12}} //nolint:gosec // only the key is looked at
	conn, err := d.DialContext(ctx, "tcp", host)
	if err != nil {
		return "", app.Errorf(app.Unavailable, ReasonUnreachable, "%s cannot be reached: %w", host, err)
	}
	defer conn.Close()
	return Pin(conn.(*tls.Conn).ConnectionState()), nil
}

// Do sends in as JSON, or raw when it is an io.Reader, and gives the answer's bytes.
func (c *Client) Do(ctx context.Context, method, path string, query url.Values, in any) (json.RawMessage, error) {
	resp, err := c.Open(ctx, method, path, query, in, nil)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer))
	if err != nil {
		return nil, app.Errorf(app.Unavailable, ReasonCutOff, "the answer was cut off: %w", err).Retryable()
	}
	return body, nil
}

// Open is Do with the answer still to be read. An answer that is an error comes back as an error.
func (c *Client) Open(ctx context.Context, method, path string, query url.Values, in any, header http.Header) (*http.Response, error) {
	body, isJSON, err := encode(in)
	if err != nil {
		return nil, err
	}
	target := c.URL + path
	if len(query) > 0 {
		target += "?" + query.Encode()
	}
	req, err := http.NewRequestWithContext(ctx, method, target, body)
	if err != nil {
		return nil, fmt.Errorf("making the request: %w", err)
	}
	for k, v := range header {
		req.Header[k] = v
	}
	if isJSON {
		req.Header.Set("Content-Type", "application/json")
	}
	if n := header.Get("Content-Length"); n != "" {
		_, _ = fmt.Sscan(n, &req.ContentLength)
	}
	if c.Token != "" {
		req.Header.Set("Authorization", "Bearer "+c.Token)
	}
	resp, err := c.HTTP.Do(req)
	if err != nil {
		if e, ok := app.AsError(err); ok {
			return nil, e
		}
		return nil, app.Errorf(app.Unavailable, ReasonUnreachable, "%s cannot be reached: %w", c.URL, err).Retryable()
	}
	if resp.StatusCode >= 400 {
		defer resp.Body.Close()
		return nil, fault(resp)
	}
	return resp, nil
}

func encode(in any) (io.Reader, bool, error) {
	switch v := in.(type) {
	case nil:
		return nil, false, nil
	case io.Reader:
		return v, false, nil
	}
	b, err := json.Marshal(in)
	return bytes.NewReader(b), true, err
}

// fault reads the error document of an answer.
func fault(resp *http.Response) error {
	b, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	var body struct {
		Error *app.Error `json:"error"`
	}
	if json.Unmarshal(b, &body) == nil && body.Error != nil && body.Error.Message != "" {
		return body.Error
	}
	return app.Errorf(app.Internal, "http-status", "the appliance answered %s", resp.Status)
}
