package commission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync/atomic"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// plainClient reads from the site and nowhere else: no proxy, no compression, no redirect.
func plainClient() *http.Client {
	return &http.Client{
		Transport: &http.Transport{
			DialContext:        (&net.Dialer{Timeout: 5 * time.Second}).DialContext,
			DisableCompression: true, DisableKeepAlives: true, ResponseHeaderTimeout: 10 * time.Second, ReadBufferSize: 256 << 10,
		},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

// throughput receives a stream that the site makes up, from the first of its addresses that answers.
func (t *Tester) throughput(ctx context.Context, r *run) error {
	var errs []error
	for _, base := range t.cfg.BootURLs {
		bytes, took, err := t.receive(ctx, r, base)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", base, err))
			r.log.line("%s: %v", base, err)
			continue
		}
		r.did()
		r.value(base, "received", "MB", float64(bytes)/1e6)
		r.atLeast(base, "rate", "MB/s", float64(bytes)/1e6/max(took.Seconds(), 1e-6), "minMBps")
		return nil
	}
	if len(errs) == 0 {
		return cannot("no address of the site is known")
	}
	return cannot("the site sends no stream: %v", errors.Join(errs...))
}

// receive takes in bytes until there are enough or the time is up, which is no error.
func (t *Tester) receive(ctx context.Context, r *run, base string) (n int64, took time.Duration, err error) {
	most := int64(r.with["megabytes"] * 1e6)
	short, cancel := context.WithCancel(ctx)
	defer cancel()
	url := fmt.Sprintf("%s%s?bytes=%d", strings.TrimRight(base, "/"), agentv1.PathStream, most)
	req, err := http.NewRequestWithContext(short, http.MethodGet, url, nil)
	if err != nil {
		return 0, 0, err
	}
	res, err := t.cfg.Client.Do(req)
	if err != nil {
		return 0, 0, err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return 0, 0, fmt.Errorf("it answers %s", res.Status)
	}
	begun := time.Now()
	enough := time.AfterFunc(time.Duration(r.with["seconds"]*float64(time.Second)), cancel)
	defer enough.Stop()
	var got atomic.Int64
	stop := everySecond(short, func() { r.progress(got.Load(), most, "bytes", "") })
	defer stop()
	_, err = io.Copy(counter{&got}, io.LimitReader(res.Body, most))
	took = time.Since(begun)
	if n = got.Load(); n > 0 && short.Err() != nil && ctx.Err() == nil {
		return n, took, nil
	}
	if err == nil && n < most {
		err = io.ErrUnexpectedEOF
	}
	return n, took, err
}

type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}
