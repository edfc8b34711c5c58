package cli

import (
	"context"
	"crypto/sha256"
	"crypto/sha512"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
)

// uploadCommand streams a file to the appliance. Its digest is computed first, so that the appliance can tell a whole image.
func uploadCommand() *cobra.Command {
	var format, digest, long string
	cmd := &cobra.Command{Use: "upload <name> <file>", Short: "Upload an image.", Args: cobra.ExactArgs(2)}
	cmd.Flags().StringVar(&format, "format", "", "raw, qcow2, iso, rootfs or oci, also with .gz, .xz or .zst; found out when absent")
	cmd.Flags().StringVar(&digest, "sha256", "", "the digest its publisher states; checked before anything is sent")
	cmd.Flags().StringVar(&long, "sha512", "", "the same, where its publisher states a SHA-512")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := connect()
		if err != nil {
			return err
		}
		f, err := os.Open(args[1])
		if err != nil {
			return app.Invalid("file", "%v", err)
		}
		defer f.Close()
		st, err := f.Stat()
		if err != nil {
			return fmt.Errorf("reading %s: %w", args[1], err)
		}
		h, l := sha256.New(), sha512.New()
		if _, err := io.Copy(io.MultiWriter(h, l), &meter{r: f, total: st.Size(), out: cmd.ErrOrStderr(), what: "reading"}); err != nil {
			return fmt.Errorf("reading %s: %w", args[1], err)
		}
		if got := hex.EncodeToString(h.Sum(nil)); digest != "" && !strings.EqualFold(got, strings.TrimSpace(digest)) {
			return app.Errorf(app.InvalidInput, "digest-mismatch", "the file has SHA-256 %s, %s was stated", got, digest).Do("download it again")
		}
		if got := hex.EncodeToString(l.Sum(nil)); long != "" && !strings.EqualFold(got, strings.TrimSpace(long)) {
			return app.Errorf(app.InvalidInput, "digest-mismatch", "the file has SHA-512 %s, %s was stated", got, long).Do("download it again")
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return fmt.Errorf("reading %s: %w", args[1], err)
		}
		header := http.Header{
			"Content-Type":   {"application/octet-stream"},
			"Content-Length": {strconv.FormatInt(st.Size(), 10)},
			"Content-Digest": {"sha-256=:" + base64.StdEncoding.EncodeToString(h.Sum(nil)) + ":"},
		}
		if format != "" {
			header.Set("Bcd-Image-Format", format)
		}
		resp, err := send(cmd, c, args[0], &meter{r: f, total: st.Size(), out: cmd.ErrOrStderr(), what: "sending", ended: make(chan struct{})}, header)
		if err != nil {
			return err
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(io.LimitReader(resp.Body, maxFile))
		if err != nil {
			return fmt.Errorf("reading the answer: %w", err)
		}
		return report(cmd, route("images.upload"), nil, body)
	}
	return cmd
}

// send uploads, and shows how far the appliance is with what it does once all was sent.
func send(cmd *cobra.Command, c *client.Client, name string, body *meter, header http.Header) (*http.Response, error) {
	ctx, stop := context.WithCancel(cmd.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer stop()
	ended := body.ended // the sender takes it away when it is closed
	wg.Go(func() { (&imageProgress{out: body.out}).follow(ctx, c, name, ended) })
	return c.Open(cmd.Context(), "PUT", "/api/v1/images/"+url.PathEscape(name), nil, body, header)
}

// meter shows how far a stream is, once a second.
type meter struct {
	r           io.Reader
	done, total int64
	out         io.Writer
	what        string
	begun, last time.Time
	ended       chan struct{} // nil, or closed when all was read
}

func (m *meter) Read(p []byte) (int, error) {
	now := time.Now()
	if m.begun.IsZero() {
		m.begun, m.last = now, now
	}
	n, err := m.r.Read(p)
	m.done += int64(n)
	if now.Sub(m.last) >= time.Second || err == io.EOF && !m.last.Equal(m.begun) {
		m.last = now
		fmt.Fprintf(m.out, "%s: %s\n", m.what, amount(m.done, m.total, float64(m.done)/now.Sub(m.begun).Seconds()))
	}
	if m.ended != nil && m.done >= m.total {
		close(m.ended)
		m.ended = nil
	}
	return n, err
}
