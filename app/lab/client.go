package lab

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
	"net/http/cookiejar"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/problem"
)

// Client calls the appliance's public JSON API as a person's program would: over TLS with the pinned key, logged in by a
// session cookie. It may be used from any goroutine.
type Client struct {
	url  string
	http *http.Client
}

// NewClient makes a client of the appliance at url ("https://127.0.0.1:8443"), which shows the key spki: lower-case hex
// SHA-256 of its SubjectPublicKeyInfo.
func NewClient(url, spki string) *Client {
	jar, _ := cookiejar.New(nil) // never fails
	return &Client{url: strings.TrimSuffix(url, "/"), http: &http.Client{
		Jar: jar, Timeout: time.Minute,
		Transport: &http.Transport{TLSClientConfig: &tls.Config{
			InsecureSkipVerify: true, // a self-signed certificate has no chain: the key is checked instead
			VerifyConnection: func(s tls.ConnectionState) error {
				sum := sha256.Sum256(s.PeerCertificates[0].RawSubjectPublicKeyInfo)
				if got := hex.EncodeToString(sum[:]); got != spki {
					return fmt.Errorf("the appliance showed the key %s, not %s", got, spki)
				}
				return nil
			},
		}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Close gives up idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// maxReply bounds one answer.
const maxReply = 16 << 20

// Call sends in as JSON (nil: no body) and reads the answer into out (nil: none is wanted). A refusal is an *app.Error, as
// the API said it.
func (c *Client) Call(ctx context.Context, method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("encoding the body of %s %s: %w", method, path, err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, body)
	if err != nil {
		return err
	}
	if in != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	res, err := c.http.Do(req)
	if err != nil {
		return fmt.Errorf("calling the appliance: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	if err != nil {
		return fmt.Errorf("reading the answer to %s %s: %w", method, path, err)
	}
	if res.StatusCode >= 300 {
		return refusal(method, path, res.Status, b)
	}
	if out == nil {
		return nil
	}
	if err := json.Unmarshal(b, out); err != nil {
		return fmt.Errorf("decoding the answer to %s %s: %w", method, path, err)
	}
	return nil
}

// Get reads the page at path as it is, at most 16 MiB of it.
func (c *Client) Get(ctx context.Context, path string) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, c.url+path, nil)
	if err != nil {
		return nil, err
	}
	res, err := c.http.Do(req)
	if err != nil {
		return nil, fmt.Errorf("calling the appliance: %w", err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(io.LimitReader(res.Body, maxReply))
	if err != nil {
		return nil, fmt.Errorf("reading %s: %w", path, err)
	}
	if res.StatusCode != http.StatusOK {
		return nil, refusal(http.MethodGet, path, res.Status, b)
	}
	return b, nil
}

// refusal turns an error answer back into the error it was.
func refusal(method, path, status string, body []byte) error {
	var p problem.Body
	if json.Unmarshal(body, &p) == nil && p.Error.Message != "" {
		return &p.Error.Error
	}
	return app.Errorf(app.Unavailable, "unreadable-answer", "%s %s was answered %s", method, path, status)
}

// Setup creates the first administrator with the code from the terminal and stays logged in.
func (c *Client) Setup(ctx context.Context, code, user, password string) error {
	return c.Call(ctx, http.MethodPost, "/api/v1/setup", api.SetupInput{Code: code, Name: user, Password: password}, nil)
}

// Login logs in as a user that exists.
func (c *Client) Login(ctx context.Context, user, password string) error {
	return c.Call(ctx, http.MethodPost, "/api/v1/session", api.LoginInput{Name: user, Password: password}, nil)
}

// errStopped is a wait that ended before what it waited for.
var errStopped = errors.New("stopped waiting")

// poll calls look every interval until it says done or fails, or ctx ends.
func poll(ctx context.Context, interval time.Duration, look func() (done bool, err error)) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return errors.Join(errStopped, context.Cause(ctx))
		}
	}
}
