package session

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	"github.com/better-compute/bcd/app"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Reasons the client gives besides those the server sends.
const (
	ReasonUnreachable = "site-unreachable"
	ReasonBadAnswer   = "site-answer"
)

// Timeouts of one call.
const (
	dialTimeout = 5 * time.Second
	callTimeout = 20 * time.Second
	pollTimeout = agentv1.PollSeconds*time.Second + 15*time.Second
)

// Client speaks the agent protocol to whichever of the site's URLs answers. It is safe for concurrent use.
type Client struct {
	urls  []string
	http  *http.Client
	clock *Clock
	next  atomic.Uint32 // index of the URL that answered last
}

// NewClient makes a client for the boot data. dial replaces the network when not nil.
func NewClient(d *agentv1.BootData, clock *Clock, dial func(ctx context.Context, network, addr string) (net.Conn, error)) (*Client, error) {
	cfg, err := TLSConfig(d.AgentPin)
	if err != nil {
		return nil, err
	}
	if dial == nil {
		dial = (&net.Dialer{Timeout: dialTimeout}).DialContext
	}
	t := &http.Transport{
		DialContext: dial, TLSClientConfig: cfg, TLSHandshakeTimeout: dialTimeout, ResponseHeaderTimeout: pollTimeout,
		IdleConnTimeout: time.Minute, MaxIdleConnsPerHost: 4, DisableCompression: true, MaxResponseHeaderBytes: 64 << 10,
	}
	noRedirect := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{urls: d.SiteURLs, http: &http.Client{Transport: t, CheckRedirect: noRedirect}, clock: clock}, nil
}

// Close drops the idle connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Session trades the token.
func (c *Client) Session(ctx context.Context, req agentv1.SessionRequest) (agentv1.SessionResponse, error) {
	var out agentv1.SessionResponse
	if err := c.call(ctx, agentv1.PathSession, "", callTimeout, req, &out); err != nil {
		return out, err
	}
	c.clock.Observe(out.ServerTime)
	return out, nil
}

// Poll waits for commands.
func (c *Client) Poll(ctx context.Context, secret string, req agentv1.PollRequest) (agentv1.PollResponse, error) {
	var out agentv1.PollResponse
	if err := c.call(ctx, agentv1.PathPoll, secret, pollTimeout, req, &out); err != nil {
		return out, err
	}
	c.clock.Observe(out.ServerTime)
	return out, nil
}

// Report sends a ProgressReport, ResultReport or LogReport to its path. Without an error the site has taken it.
func (c *Client) Report(ctx context.Context, path, secret string, report any) error {
	var ack agentv1.Ack
	return c.call(ctx, path, secret, callTimeout, report, &ack)
}

// Over reports whether err says that the session is no more.
func Over(err error) bool {
	return app.CodeOf(err) == app.Unauthenticated && !errIs(err, "pin-mismatch")
}

// Final reports whether err is the site's considered refusal of the request itself: sending it again changes nothing.
// Everything else (the site or the way to it is down, or busy, or broken) is worth another try.
func Final(err error) bool {
	if e, ok := app.AsError(err); ok && e.Retry {
		return false
	}
	switch app.CodeOf(err) {
	case app.InvalidInput, app.Conflict, app.Forbidden, app.NotFound, app.TooLarge:
		return true
	case app.Unauthenticated:
		return !errIs(err, "pin-mismatch")
	}
	return false
}

func errIs(err error, reason string) bool {
	e, ok := app.AsError(err)
	return ok && e.Reason == reason
}

// call posts in and decodes the answer into out. It tries the URL that answered last, and each other one when it is silent.
func (c *Client) call(ctx context.Context, path, secret string, limit time.Duration, in, out any) error {
	body, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encoding %s: %w", path, err)
	}
	if len(body) > agentv1.MaxBody {
		return app.Errorf(app.TooLarge, "report-too-large", "a report of %d bytes is over the limit of %d", len(body), agentv1.MaxBody)
	}
	var errs []error
	first := c.next.Load()
	for i := range c.urls {
		n := (int(first) + i) % len(c.urls)
		answered, err := c.post(ctx, c.urls[n]+path, secret, limit, body, out)
		if answered {
			c.next.Store(uint32(n))
			return err
		}
		errs = append(errs, err)
		if ctx.Err() != nil {
			break
		}
	}
	err = errors.Join(errs...)
	if e, ok := app.AsError(err); ok && e.Reason == "pin-mismatch" {
		return e
	}
	return app.Errorf(app.Unavailable, ReasonUnreachable, "the appliance cannot be reached: %w", err).Retryable().
		Do("nothing: the agent keeps trying")
}

// post makes one request to one URL. answered is false when no complete answer of the site came back.
func (c *Client) post(ctx context.Context, url, secret string, limit time.Duration, body []byte, out any) (answered bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return false, fmt.Errorf("making request: %w", err)
	}
	req.Header.Set("Content-Type", "application/json")
	if secret != "" {
		req.Header.Set("Authorization", "Bearer "+secret)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(io.LimitReader(resp.Body, 2*agentv1.MaxBody))
	if err != nil {
		return false, fmt.Errorf("reading answer: %w", err)
	}
	if resp.StatusCode != http.StatusOK {
		return true, answerError(resp.StatusCode, b)
	}
	if err := json.Unmarshal(b, out); err != nil {
		return true, app.Errorf(app.Unavailable, ReasonBadAnswer, "the appliance's answer cannot be read: %w", err).Retryable()
	}
	return true, nil
}

// answerError is the app.Error of a refusal, sent bare or as "error" of an object, else one made from the status.
func answerError(status int, body []byte) error {
	var wrapped struct{ Error *app.Error }
	if json.Unmarshal(body, &wrapped) == nil && wrapped.Error != nil && wrapped.Error.Code != "" {
		return wrapped.Error
	}
	var e app.Error
	if json.Unmarshal(body, &e) == nil && e.Code != "" {
		return &e
	}
	code := app.Unavailable
	switch {
	case status == http.StatusUnauthorized:
		code = app.Unauthenticated
	case status == http.StatusConflict:
		code = app.Conflict
	case status == http.StatusTooManyRequests:
		code = app.RateLimited
	case status >= 400 && status < 500:
		code = app.InvalidInput
	}
	return app.Errorf(code, "site-refused", "the appliance answered with status %d: %.200q", status, strings.TrimSpace(string(body)))
}
