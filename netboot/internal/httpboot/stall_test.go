package httpboot

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"
)

// A client that asks for a file and reads nothing is let go, and the record says how much it took. The file goes by sendfile.
func TestStalledReader(t *testing.T) {
	const size = 256 << 20 // more than any socket holds
	name := filepath.Join(t.TempDir(), "image")
	must(t, os.WriteFile(name, nil, 0o600))
	must(t, os.Truncate(name, size))
	ended := make(chan Transfer, 1)
	s := New(Config{
		Mounts: []Mount{{Prefix: "/iso/", Open: func(context.Context, string) (*os.File, error) { return os.Open(name) }}},
		Record: func(x Transfer) { ended <- x }, Log: slog.New(slog.DiscardHandler), Stall: 20 * time.Millisecond,
	})
	l, err := net.Listen("tcp4", "127.0.0.1:0")
	must(t, err)
	serve(t, s, l)
	c, err := net.Dial("tcp4", l.Addr().String())
	must(t, err)
	defer func() { _ = c.Close() }()
	_, err = io.WriteString(c, "GET /iso/image HTTP/1.1\r\nHost: bcd\r\n\r\n")
	must(t, err)
	if x := <-ended; x.Status != http.StatusOK || x.Bytes >= size {
		t.Errorf("%+v", x)
	}
	if n, _ := io.Copy(io.Discard, c); n >= size { // ends, as the server hung up
		t.Errorf("%d bytes came", n)
	}
}

// A client that announces a body and never sends it holds its connection for no longer than one that sends no header.
func TestBodyThatNeverComes(t *testing.T) {
	for _, request := range []string{"GET /ipxe/snponly.efi", "GET /none", "GET /a/../b", "PUT /ipxe/snponly.efi", "POST /own/"} {
		t.Run(request, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := New(Config{
					Loaders: fstest.MapFS{"snponly.efi": {Data: []byte("MZ loader")}}, Record: func(Transfer) {}, Log: slog.New(slog.DiscardHandler),
					Handlers: []Handler{{Prefix: "/own/", Handler: http.HandlerFunc(func(http.ResponseWriter, *http.Request) {})}},
				})
				server, client := net.Pipe()
				l := &oneListener{conn: server, closed: make(chan struct{})}
				serve(t, s, l)
				began := time.Now()
				_, err := io.WriteString(client, request+" HTTP/1.1\r\nHost: bcd\r\nContent-Length: 5000\r\n\r\n")
				must(t, err)
				in := bufio.NewReader(client)
				resp, err := http.ReadResponse(in, nil)
				must(t, err)
				_, _ = io.Copy(io.Discard, resp.Body)
				_, _ = io.Copy(io.Discard, in) // ends, as the server hung up
				if took := time.Since(began); took > headerTimeout+time.Second {
					t.Errorf("held for %v", took)
				}
			})
		})
	}
}

// A long answer to a request without a body is not cut by the limits on requests.
func TestSlowReaderOfALoader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		want := strings.Repeat("loader", 200_000) // two minutes
		s := New(Config{Loaders: fstest.MapFS{"snponly.efi": {Data: []byte(want)}}, Record: func(Transfer) {}, Log: slog.New(slog.DiscardHandler)})
		server, client := net.Pipe()
		serve(t, s, &oneListener{conn: server, closed: make(chan struct{})})
		_, err := io.WriteString(client, "GET /ipxe/snponly.efi HTTP/1.1\r\nHost: bcd\r\nConnection: close\r\n\r\n")
		must(t, err)
		resp, err := http.ReadResponse(bufio.NewReaderSize(client, 16), nil)
		must(t, err)
		var got strings.Builder
		for err == nil {
			time.Sleep(time.Second) // 10 kB/s
			_, err = io.CopyN(&got, resp.Body, 10_000)
		}
		if got.String() != want {
			t.Errorf("%d of %d bytes came: %v", got.Len(), len(want), err)
		}
	})
}

func serve(t *testing.T, s *Server, l net.Listener) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); must(t, <-ended) })
}

// oneListener has one connection, in memory.
type oneListener struct {
	conn   net.Conn
	closed chan struct{}
}

func (l *oneListener) Accept() (net.Conn, error) {
	if c := l.conn; c != nil {
		l.conn = nil
		return c, nil
	}
	<-l.closed
	return nil, net.ErrClosed
}

func (l *oneListener) Close() error   { close(l.closed); return nil }
func (l *oneListener) Addr() net.Addr { return &net.TCPAddr{} }
