package disk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync/atomic"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/images/chunk"
)

// Waits of the fetcher. A connection that is cut or refused is tried again until the context ends: the appliance may be
// restarting. Only what cannot get better by waiting (a missing file, bytes that never match) gives up, after denials.
const (
	firstWait = 200 * time.Millisecond
	longWait  = 5 * time.Second
	stall     = 20 * time.Second // without a byte, after which a request is given up and made again
	denials   = 8
)

// fetcher reads files below the boot URLs. It may be used concurrently.
type fetcher struct {
	client  *http.Client
	bases   []*url.URL
	log     *slog.Logger
	pause   func(context.Context, time.Duration) error
	turn    atomic.Uint32 // which base URL is used: moves on after a failure
	fetched atomic.Int64  // body bytes
}

func newFetcher(cfg *Config) (*fetcher, error) {
	f := &fetcher{client: cfg.Client, log: cfg.Log, pause: cfg.Pause}
	for _, b := range cfg.BootURLs {
		u, err := url.Parse(b)
		if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") {
			return nil, app.Errorf(app.InvalidInput, "boot-url", "%q is not a boot URL", b)
		}
		f.bases = append(f.bases, u)
	}
	if len(f.bases) == 0 {
		return nil, app.Errorf(app.InvalidInput, "boot-url", "no boot URL is known, so no image can be fetched")
	}
	return f, nil
}

// defaultClient keeps one connection per worker open. Compression and proxies would only stand in the way.
func defaultClient(workers int) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext:           (&net.Dialer{Timeout: 5 * time.Second, KeepAlive: 10 * time.Second}).DialContext,
		MaxIdleConnsPerHost:   workers,
		DisableCompression:    true,
		ResponseHeaderTimeout: stall,
		ReadBufferSize:        64 << 10,
	}}
}

// pause waits, or gives the error of an ended context.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// url gives the address of a path below the current base.
func (f *fetcher) url(p string) string {
	base := *f.bases[int(f.turn.Load())%len(f.bases)]
	base.Path = path.Join("/", base.Path, p)
	return base.String()
}

// denied is an answer that another try may not change.
type denied struct{ err error }

func (d denied) Error() string { return d.err.Error() }
func (d denied) Unwrap() error { return d.err }

// again runs try until it succeeds, was denied limit times, or ctx ends. It goes to the next boot URL after each failure.
func (f *fetcher) again(ctx context.Context, what string, limit int, try func() error) error {
	wait, refused := firstWait, 0
	for {
		err := try()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if _, final := app.AsError(err); final {
			return err
		}
		if _, ok := errors.AsType[denied](err); ok {
			if refused++; refused >= limit {
				return app.Errorf(app.Unavailable, "fetch-failed", "%s cannot be had from the appliance: %w", what, err).Retryable().
					Do("check that the image is still ready on the appliance, and import it again if it is damaged")
			}
		}
		f.turn.Add(1)
		f.log.Info("fetching again", "what", what, "err", err, "wait", wait)
		if f.pause(ctx, wait) != nil {
			return context.Cause(ctx)
		}
		wait = min(2*wait, longWait)
	}
}

// index fetches and checks a chunk index against the digest that the signed command pins.
func (f *fetcher) index(ctx context.Context, p, digest string, limit int) (x *chunk.Index, err error) {
	err = f.again(ctx, "the chunk index", limit, func() error {
		body, err := f.get(ctx, p, -1, 0)
		if err != nil {
			return err
		}
		defer body.Close()
		b, err := io.ReadAll(io.LimitReader(body, chunk.MaxIndexBytes+1))
		f.fetched.Add(int64(len(b)))
		if err != nil {
			return err
		}
		if got := chunk.Digest(b); !strings.EqualFold(got, digest) {
			return denied{fmt.Errorf("its SHA-256 is %s, the order says %s", got, digest)}
		}
		x, err = chunk.ParseIndex(b)
		if err != nil {
			return err
		}
		return nil
	})
	return x, err
}

// bytes fills b from offset off of a file. It goes on where a cut connection stopped.
func (f *fetcher) bytes(ctx context.Context, p string, off int64, b []byte) error {
	have := 0
	return f.again(ctx, path.Base(p), denials, func() error {
		body, err := f.get(ctx, p, off+int64(have), len(b)-have)
		if err != nil {
			return err
		}
		defer body.Close()
		n, err := io.ReadFull(body, b[have:])
		have += n
		f.fetched.Add(int64(n))
		return err
	})
}

// get starts a request for n bytes at off, or for the whole file when off is negative. The body fails when no byte comes
// for the time of stall.
func (f *fetcher) get(ctx context.Context, p string, off int64, n int) (io.ReadCloser, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.url(p), nil)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	want := http.StatusOK
	if off >= 0 {
		want = http.StatusPartialContent
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-%d", off, off+int64(n)-1))
	}
	resp, err := f.client.Do(req)
	if err != nil {
		cancel(nil)
		return nil, err
	}
	if resp.StatusCode == want && want == http.StatusPartialContent &&
		!strings.HasPrefix(resp.Header.Get("Content-Range"), fmt.Sprintf("bytes %d-%d/", off, off+int64(n)-1)) {
		err = denied{fmt.Errorf("%s answered with Content-Range %q", req.URL.Host, resp.Header.Get("Content-Range"))}
	}
	if resp.StatusCode != want {
		err = fmt.Errorf("%s answered %s", req.URL.Host, resp.Status)
		if resp.StatusCode < 500 && resp.StatusCode != http.StatusTooManyRequests {
			err = denied{err}
		}
	}
	if err != nil {
		resp.Body.Close()
		cancel(nil)
		return nil, err
	}
	w := &watched{ReadCloser: resp.Body, cancel: cancel}
	w.timer = time.AfterFunc(stall, func() { cancel(errStalled) })
	return w, nil
}

var errStalled = errors.New("no byte came for 20 s")

// watched is a body whose silence ends the request.
type watched struct {
	io.ReadCloser
	timer  *time.Timer
	cancel context.CancelCauseFunc
}

func (w *watched) Read(b []byte) (int, error) {
	n, err := w.ReadCloser.Read(b)
	if n > 0 {
		w.timer.Reset(stall)
	}
	return n, err
}

func (w *watched) Close() error {
	w.timer.Stop()
	err := w.ReadCloser.Close()
	w.cancel(nil)
	return err
}
