package catalog

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// A transfer that is cut is taken up again, tries times without a byte between.
const (
	tries     = 6
	firstWait = time.Second
	longWait  = 30 * time.Second
	stall     = 60 * time.Second // without a byte, after which a connection is given up
)

// pause waits, or gives the cause of an ended context.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func checkURL(s string) (string, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https"):
		return "", app.Invalid("url", "is not an http or https URL")
	case u.User != nil:
		return "", app.Invalid("url", "carries a login").Do("serve the image without one: URLs are shown and logged")
	}
	return u.String(), nil
}

// fetch opens a URL. The first answer decides what the file is: later ones must be of the same ETag or date.
func (c *Catalog) fetch(ctx context.Context, u string, m *meter) (io.ReadCloser, error) {
	d := &download{c: c, ctx: ctx, url: u, total: -1}
	if err := d.open(); err != nil {
		return nil, err
	}
	if d.total > 0 {
		if err := c.room(d.total); err != nil {
			d.Close()
			return nil, err
		}
		m.expect(d.total)
	}
	return d, nil
}

// download is a body that survives its connection.
type download struct {
	c     *Catalog
	ctx   context.Context
	url   string
	body  io.ReadCloser
	stop  context.CancelCauseFunc
	timer *time.Timer
	off   int64
	total int64  // -1: unknown
	same  string // for If-Range: a strong ETag or a date; "": cannot be resumed
	fails int    // since the last byte
}

func (d *download) Read(b []byte) (int, error) {
	for {
		n, err := d.body.Read(b)
		if n > 0 {
			d.fails = 0
			d.timer.Reset(stall)
			d.off += int64(n)
		}
		switch {
		case err == io.EOF && d.total >= 0 && d.off < d.total:
			err = io.ErrUnexpectedEOF
		case err == io.EOF || err == nil:
			return n, err
		}
		if n > 0 {
			return n, nil
		}
		if err := d.resume(err); err != nil {
			return 0, err
		}
	}
}

// resume opens the rest of the file after a failure.
func (d *download) resume(cause error) error {
	for {
		if d.ctx.Err() != nil {
			return context.Cause(d.ctx)
		}
		d.Close()
		if d.same == "" {
			return d.failed("was cut and the server does not say how to go on", cause)
		}
		if d.fails++; d.fails > tries {
			return d.failed(fmt.Sprintf("was cut %d times without a byte between", d.fails), cause)
		}
		d.c.cfg.Log.Info("import from a URL goes on", "offset", d.off, "err", cause)
		if err := d.c.cfg.Pause(d.ctx, min(firstWait<<(d.fails-1), longWait)); err != nil {
			return err
		}
		err := d.open()
		if err == nil {
			return nil
		}
		if e, ok := app.AsError(err); ok && !e.Retry {
			return err
		}
		cause = err
	}
}

func (d *download) failed(what string, cause error) error {
	return app.Errorf(app.Unavailable, "fetch-failed", "the transfer %s after %d bytes: %w", what, d.off, cause).Retryable().Do("import the image again")
}

// open asks for the file from d.off on.
func (d *download) open() error {
	ctx, stop := context.WithCancelCause(d.ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, d.url, nil)
	if err != nil {
		stop(nil)
		return err
	}
	req.Header.Set("Accept-Encoding", "identity") // the digest is over the file, not over a transfer coding
	if d.off > 0 {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", d.off))
		req.Header.Set("If-Range", d.same)
	}
	d.timer = time.AfterFunc(stall, func() { stop(errors.New("no byte came for 60 s")) })
	resp, err := d.c.cfg.Client.Do(req) //nolint:bodyclose // Close closes it as d.body
	if err != nil {
		d.timer.Stop()
		stop(nil)
		if _, ok := app.AsError(err); ok { // the dialer's refusal
			return err
		}
		return app.Errorf(app.Unavailable, "fetch-failed", "the image cannot be fetched: %w", err).Retryable().Do("check the address, and that the appliance may reach it")
	}
	d.body, d.stop = resp.Body, stop
	if err := d.accept(resp); err != nil {
		d.Close()
		return err
	}
	return nil
}

func (d *download) accept(resp *http.Response) error {
	switch {
	case d.off == 0 && resp.StatusCode == http.StatusOK:
		d.total = resp.ContentLength
		if etag := resp.Header.Get("ETag"); etag != "" && !strings.HasPrefix(etag, "W/") {
			d.same = etag
		} else {
			d.same = resp.Header.Get("Last-Modified")
		}
		return nil
	case d.off > 0 && resp.StatusCode == http.StatusPartialContent:
		if !strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-", d.off)) {
			return app.Errorf(app.Unavailable, "fetch-failed", "the server answered with other bytes than were asked for").Do("import the image again")
		}
		return nil
	case d.off > 0 && resp.StatusCode == http.StatusOK:
		return app.Errorf(app.Unavailable, "fetch-changed", "the file changed on the server during the import").Do("import the image again")
	case resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests:
		return app.Errorf(app.Unavailable, "fetch-failed", "the server answered %s", resp.Status).Retryable().Do("import the image again later")
	}
	return app.Errorf(app.InvalidInput, "fetch-refused", "the server answered %s", resp.Status).At("url").Do("check the address of the image")
}

// Close ends the connection.
func (d *download) Close() error {
	d.timer.Stop()
	err := d.body.Close()
	d.stop(nil)
	return err
}
