package virtual

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"runtime"
	"time"
)

const (
	maxImageURL  = 512
	maxMedium    = 8 << 30 // bytes of an image
	maxFetches   = 4       // waiting
	fetchTimeout = 10 * time.Minute
	fetchConnect = time.Minute // a loaded host, or one that stands still for a while, is none that does not answer
)

// download copies an image into a file of its own, whole or not at all.
func (m *Machine) download(ctx context.Context, job fetch) (string, error) {
	tr := &http.Transport{
		Proxy: nil, DialContext: m.dial, TLSClientConfig: imageTLS(job), TLSHandshakeTimeout: fetchConnect,
		ResponseHeaderTimeout: fetchConnect, DisableKeepAlives: true,
	}
	defer tr.CloseIdleConnections()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, job.image, nil)
	if err != nil {
		return "", err
	}
	req.Header.Set("User-Agent", "virtual-bmc")
	if job.user != "" {
		req.SetBasicAuth(job.user, job.password)
	}
	res, err := (&http.Client{Transport: tr}).Do(req)
	if err != nil {
		return "", fmt.Errorf("fetching the image: %w", err)
	}
	defer res.Body.Close()
	switch {
	case res.StatusCode != http.StatusOK:
		return "", fmt.Errorf("fetching the image: the server answers %s", res.Status)
	case res.ContentLength > maxMedium:
		return "", fmt.Errorf("the image has %d bytes, more than a drive takes", res.ContentLength)
	}
	return m.keep(res.Body)
}

// keep writes an image to a file in the machine's directory.
func (m *Machine) keep(body io.Reader) (name string, err error) {
	f, err := os.CreateTemp(m.cfg.Dir, "medium-*.img") // a Fake without a directory: the system's
	if err != nil {
		return "", fmt.Errorf("keeping the image: %w", err)
	}
	n, err := io.Copy(f, io.LimitReader(body, maxMedium+1))
	switch {
	case err != nil:
		err = fmt.Errorf("fetching the image: %w", err)
	case n > maxMedium:
		err = fmt.Errorf("the image has more than %d bytes", int64(maxMedium))
	case n == 0:
		err = errors.New("the image is empty")
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return "", errors.Join(err, os.Remove(f.Name()))
	}
	return f.Name(), nil
}

// imageTLS is how an image server's certificate is looked at: not at all, as most BMCs do, or strictly.
func imageTLS(job fetch) *tls.Config {
	return &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: !job.strict, RootCAs: job.roots}
}

// dial connects from the machine's network namespace, where the BMC of a server would have its port. In a namespace only
// addresses work, not names.
func (m *Machine) dial(ctx context.Context, network, address string) (net.Conn, error) {
	d := net.Dialer{Timeout: fetchConnect, FallbackDelay: -1} // on this thread alone
	if m.cfg.Netns == "" {
		return d.DialContext(ctx, network, address)
	}
	type dialed struct {
		conn net.Conn
		err  error
	}
	done := make(chan dialed, 1)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, and its namespace with it
		if err := enter(m.cfg.Netns); err != nil {
			done <- dialed{nil, err}
			return
		}
		c, err := d.DialContext(ctx, network, address)
		done <- dialed{c, err}
	}()
	r := <-done
	return r.conn, r.err
}
