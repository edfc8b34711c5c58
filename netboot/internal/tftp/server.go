// Package tftp serves a small set of boot files by TFTP, read-only, to clients of every quality.
package tftp

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"path"
	"strings"
	"time"

	"github.com/pin/tftp/v3"
)

// Limits of the server.
const (
	maxTransfers = 256              // at once; more wait
	maxWait      = 10 * time.Second // for one of them to end
	maxBlock     = 1468             // bytes of data that fit an Ethernet frame
	timeout      = time.Second      // for one acknowledgement
	retries      = 6
)

// Transfer is one finished request.
type Transfer struct {
	Name   string // as asked for, hostile text
	Remote netip.Addr
	Bytes  int64
	Took   time.Duration
	Err    error // nil: every byte was acknowledged
}

// Config is what a Server needs. All fields must be set.
type Config struct {
	Files  fs.FS
	Record func(Transfer)
	Log    *slog.Logger
}

// Server answers read requests; writes are refused.
type Server struct {
	cfg   Config
	slots chan struct{}
	gate  gate
}

var errBusy = errors.New("the server is busy")

// New makes a Server.
func New(cfg Config) *Server {
	return &Server{cfg: cfg, slots: make(chan struct{}, maxTransfers), gate: gate{from: map[netip.Addr]int{}}}
}

// Serve answers on conn until ctx ends, and closes it. Each transfer has a socket of its own, opened by the calling
// goroutine: one that is locked to a thread in a network namespace serves that namespace.
func (s *Server) Serve(ctx context.Context, conn net.PacketConn) error {
	srv := tftp.NewServer(s.read(ctx), nil)
	srv.SetTimeout(timeout)
	srv.SetRetries(retries)
	srv.SetBlockSize(maxBlock)
	srv.SetBackoff(func(int) time.Duration { return 0 }) // the timeout has passed already
	stopped := make(chan struct{})
	stop := context.AfterFunc(ctx, func() { srv.Shutdown(); close(stopped) })
	err := srv.Serve(conn)
	if stop() {
		srv.Shutdown()
	} else {
		<-stopped
	}
	return err
}

// read is the handler of one transfer.
func (s *Server) read(ctx context.Context) func(string, io.ReaderFrom) error {
	return func(asked string, rf io.ReaderFrom) error {
		t := Transfer{Name: asked}
		out, ok := rf.(tftp.OutgoingTransfer)
		if ok {
			peer := out.RemoteAddr()
			a, _ := netip.AddrFromSlice(peer.IP)
			t.Remote = a.Unmap()
		}
		leave, ok := s.gate.enter(t.Remote)
		if !ok {
			return errBusy
		}
		defer leave()
		wait, cancel := context.WithTimeout(ctx, maxWait)
		defer cancel()
		select {
		case s.slots <- struct{}{}:
			defer func() { <-s.slots }()
		case <-wait.Done():
			return errBusy
		}
		start := time.Now()
		err := s.send(ctx, &t, out, rf)
		t.Took = time.Since(start)
		if t.Err = err; !isProbe(err) {
			s.cfg.Record(t)
		}
		return err
	}
}

func (s *Server) send(ctx context.Context, t *Transfer, out tftp.OutgoingTransfer, rf io.ReaderFrom) (err error) {
	name := cleanName(t.Name)
	f, err := s.cfg.Files.Open(name)
	if err != nil {
		return errors.New("file not found")
	}
	if !strings.HasSuffix(t.Name, name) {
		s.cfg.Log.Info("correcting file name", "asked", t.Name, "served", name, "client", t.Remote)
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return errors.New("file not found")
	}
	if out != nil {
		out.SetSize(info.Size())
	}
	defer func() { // the library trusts the lengths of a client's option values
		if p := recover(); p != nil {
			err = fmt.Errorf("answering the client's options: %v", p)
		}
	}()
	t.Bytes, err = rf.ReadFrom(untilDone{ctx, f})
	return err
}

// untilDone reads until its context ends. It hides Seek: the size is known, and files need not be able to.
type untilDone struct {
	ctx context.Context
	r   io.Reader
}

// Read reads from the file.
func (u untilDone) Read(b []byte) (int, error) {
	if err := u.ctx.Err(); err != nil {
		return 0, errors.New("the server is stopping")
	}
	return u.r.Read(b)
}

// isProbe reports a client that asked for the size and stopped there, as EDK2 does before it fetches a file: it answers
// the option acknowledgement, block 0, with an error.
func isProbe(err error) bool {
	return err != nil && strings.HasPrefix(err.Error(), "sending block 0: code=")
}

// cleanName finds the file meant by a client's spelling: Windows boot managers write backslashes and a leading one, and
// some ROMs (seen on Jetway boards and a ThinkPad) send the END octet of the option that named the file along.
func cleanName(s string) string {
	s = strings.TrimRightFunc(s, func(r rune) bool { return r <= ' ' || r >= 0x7f })
	s = strings.TrimLeft(path.Clean("/"+strings.ReplaceAll(s, `\`, "/")), "/")
	if s == "" {
		return "."
	}
	return s
}
