// Package tftp serves a small set of boot files by TFTP, read-only, to clients of every quality.
//
// Each transfer has a port of its own, as RFC 1350 wants. Clients behind a firewall that does not follow TFTP can be
// answered from the server's port alone.
package tftp

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/netip"
	"path"
	"strings"
	"sync"
	"time"

	"golang.org/x/net/ipv4"
)

// Limits of the server.
const (
	maxTransfers = 256              // at once; more wait
	maxWait      = 10 * time.Second // for one of them to end
	maxBlock     = 1468             // bytes of data that fit an Ethernet frame
	maxWindow    = 16               // packets before an acknowledgement: ROMs have small buffers
	maxTimeout   = 10               // seconds that a client may ask for
	maxNetascii  = 16 << 20         // bytes of a file that is sent as text
	readAhead    = 32 << 10         // bytes of a file that are read at once
	timeout      = time.Second      // for one acknowledgement
	retries      = 6
)

// Transfer is one finished request.
type Transfer struct {
	Name    string // as asked for, hostile text
	Remote  netip.Addr
	Bytes   int64 // acknowledged
	Size    int64 // of the file
	Block   int   // bytes of data in a packet
	Retries int   // times that a packet was sent again
	Took    time.Duration
	Err     error // nil: every byte was acknowledged
}

// Config is what a Server needs. All fields but SinglePort and Block must be set.
type Config struct {
	Files  fs.FS
	Record func(Transfer)
	Log    *slog.Logger
	// SinglePort reports a client that is to be answered from the server's port; nil: none is.
	SinglePort func(client netip.Addr) bool
	// Block bounds the bytes of data in a client's packets, for paths that drop large ones; 0, or a nil func: Ethernet does.
	Block func(client netip.Addr) int
}

// Server answers read requests; writes are refused.
type Server struct {
	cfg   Config
	slots chan struct{}
	gate  gate
	tries int // retries, more in tests that may be held up

	mu        sync.Mutex // protects what follows
	corrected map[string]bool
}

var (
	errBusy     = errors.New("the server is busy")
	errNotFound = errors.New("file not found")
)

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.SinglePort == nil {
		cfg.SinglePort = func(netip.Addr) bool { return false }
	}
	if cfg.Block == nil {
		cfg.Block = func(netip.Addr) int { return 0 }
	}
	return &Server{cfg: cfg, slots: make(chan struct{}, maxTransfers), gate: gate{from: map[netip.Addr]int{}}, tries: retries, corrected: map[string]bool{}}
}

// listener is one port that is served.
type listener struct {
	*Server
	conn   *net.UDPConn
	pc     *ipv4.PacketConn
	device string
	wg     sync.WaitGroup // of transfers

	mu     sync.Mutex // protects what follows
	active map[netip.AddrPort]*active
}

// active is a transfer under way.
type active struct {
	request []byte // as it came: a client that hears nothing sends it again
	stop    context.CancelFunc
	inbox   chan []byte // of a client that is answered from the server's port; else nil
}

// Serve answers on conn until ctx ends, and closes it. Sockets of transfers are bound to device, unless that is "", and are
// opened by the calling goroutine: one that is locked to a thread in a network namespace serves that namespace.
func (s *Server) Serve(ctx context.Context, conn *net.UDPConn, device string) error {
	ctx, cancel := context.WithCancel(ctx)
	l := &listener{Server: s, conn: conn, pc: ipv4.NewPacketConn(conn), device: device, active: map[netip.AddrPort]*active{}}
	defer l.wg.Wait()
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	defer func() { _ = conn.Close() }()
	if err := l.pc.SetControlMessage(ipv4.FlagDst|ipv4.FlagInterface, true); err != nil {
		return fmt.Errorf("asking for packet information: %w", err)
	}
	buf := make([]byte, maxRequest+2)
	for {
		n, cm, src, err := l.pc.ReadFrom(buf)
		if err != nil {
			if ctx.Err() != nil || errors.Is(err, net.ErrClosed) {
				return nil
			}
			return fmt.Errorf("reading TFTP: %w", err)
		}
		from := src.(*net.UDPAddr).AddrPort()
		l.datagram(ctx, bytes.Clone(buf[:n]), netip.AddrPortFrom(from.Addr().Unmap(), from.Port()), cm)
	}
}

// datagram handles one datagram that came to the server's port.
func (l *listener) datagram(ctx context.Context, b []byte, from netip.AddrPort, cm *ipv4.ControlMessage) {
	if len(b) < 4 {
		return
	}
	switch binary.BigEndian.Uint16(b) {
	case opRead:
		l.request(ctx, b, from, cm)
	case opWrite:
		l.refuse(from, cm, codeViolation, "nothing is written here")
	case opAck, opError:
		l.mu.Lock()
		if a := l.active[from]; a != nil && a.inbox != nil {
			select {
			case a.inbox <- b:
			default: // it is sent again
			}
		}
		l.mu.Unlock()
	}
}

// request starts a transfer. A request that is sent again while the first is under way is let pass, as that one is
// answered already; another one from the same port means that the client started anew.
func (l *listener) request(ctx context.Context, b []byte, from netip.AddrPort, cm *ipv4.ControlMessage) {
	req, ok := parseRead(b[2:])
	if !ok {
		l.refuse(from, cm, codeIllegal, "this request is not understood")
		return
	}
	req.bound(l.cfg.Block(from.Addr()))
	l.mu.Lock()
	old := l.active[from]
	if old != nil && bytes.Equal(old.request, b) {
		l.mu.Unlock()
		return
	}
	l.mu.Unlock()
	if old != nil {
		old.stop()
	}
	leave, ok := l.gate.enter(from.Addr())
	if !ok {
		l.refuse(from, cm, codeOther, errBusy.Error())
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	a := &active{request: b, stop: cancel}
	p, err := l.peer(ctx, a, from, cm)
	if err != nil {
		cancel()
		leave()
		l.cfg.Log.Warn("TFTP client cannot be answered", "client", from, "error", err)
		return
	}
	l.mu.Lock()
	l.active[from] = a
	l.mu.Unlock()
	l.wg.Go(func() {
		defer cancel()
		defer leave()
		defer p.close()
		defer context.AfterFunc(ctx, p.stop)()
		l.transfer(ctx, req, from.Addr(), p)
		l.mu.Lock()
		if l.active[from] == a {
			delete(l.active, from)
		}
		l.mu.Unlock()
	})
}

// peer makes the way to a client: the server's port until ctx ends, or a socket of its own.
func (l *listener) peer(ctx context.Context, a *active, from netip.AddrPort, cm *ipv4.ControlMessage) (peer, error) {
	if l.cfg.SinglePort(from.Addr()) {
		a.inbox = make(chan []byte, 2*maxWindow)
		return sharedPeer{to: func(b []byte) error { return l.write(b, from, cm) }, from: a.inbox, ended: ctx.Done()}, nil
	}
	var local netip.Addr
	if cm != nil {
		local, _ = netip.AddrFromSlice(cm.Dst.To4())
	}
	return newSocketPeer(l.device, local, from)
}

// write answers from the server's port, from the address that the client wrote to.
func (l *listener) write(b []byte, to netip.AddrPort, cm *ipv4.ControlMessage) error {
	var out *ipv4.ControlMessage
	if cm != nil {
		out = &ipv4.ControlMessage{IfIndex: cm.IfIndex}
		if !cm.Dst.Equal(net.IPv4bcast) {
			out.Src = cm.Dst
		}
	}
	_, err := l.pc.WriteTo(b, out, net.UDPAddrFromAddrPort(to))
	return err
}

func (l *listener) refuse(to netip.AddrPort, cm *ipv4.ControlMessage, code uint16, message string) {
	if err := l.write(errorPacket(code, message), to, cm); err != nil {
		l.cfg.Log.Debug("refusing a TFTP request failed", "client", to, "error", err)
	}
}

// transfer waits for its turn, sends one file and records what became of it.
func (s *Server) transfer(ctx context.Context, req readRequest, client netip.Addr, p peer) {
	wait, cancel := context.WithTimeout(ctx, maxWait)
	defer cancel()
	select {
	case s.slots <- struct{}{}:
		defer func() { <-s.slots }()
	case <-wait.Done():
		_ = p.send(errorPacket(codeOther, errBusy.Error()))
		return
	}
	t := Transfer{Name: req.name, Remote: client, Block: req.block}
	start := time.Now()
	t.Err = s.send(ctx, &t, req, p)
	t.Took = time.Since(start)
	if !errors.Is(t.Err, errProbe) {
		s.cfg.Record(t)
	}
}

func (s *Server) send(ctx context.Context, t *Transfer, req readRequest, p peer) error {
	f, size, err := s.open(req, t.Remote)
	if err != nil {
		_ = p.send(errorPacket(codeNotFound, errNotFound.Error()))
		return err
	}
	defer func() { _ = f.Close() }()
	t.Size = size
	out := &sender{peer: p, in: bufio.NewReaderSize(f, readAhead), req: req, tries: s.tries}
	err = out.run(req.oack(size))
	t.Bytes, t.Retries = out.bytes, out.retries
	var gone *clientError
	if err != nil && ctx.Err() != nil {
		return fmt.Errorf("the transfer was ended: %w", err)
	}
	if err != nil && !errors.As(err, &gone) {
		_ = p.send(errorPacket(codeOther, "the transfer failed"))
	}
	return err
}

// open finds the file that a client means, and its size as it will be sent.
func (s *Server) open(req readRequest, client netip.Addr) (io.ReadCloser, int64, error) {
	name := cleanName(req.name)
	f, err := s.cfg.Files.Open(name)
	if err != nil {
		return nil, 0, errNotFound
	}
	info, err := f.Stat()
	if err != nil || info.IsDir() {
		return nil, 0, errors.Join(errNotFound, f.Close())
	}
	s.noteCorrection(req.name, name, client)
	if !req.netascii {
		return f, info.Size(), nil
	}
	defer func() { _ = f.Close() }()
	b, err := io.ReadAll(io.LimitReader(f, maxNetascii))
	if err != nil {
		return nil, 0, fmt.Errorf("reading the file: %w", err)
	}
	b = netascii(b)
	return io.NopCloser(bytes.NewReader(b)), int64(len(b)), nil
}

// maxCorrections bounds the odd spellings that are remembered as told.
const maxCorrections = 256

// noteCorrection tells of a spelling that had to be guessed at, once.
func (s *Server) noteCorrection(asked, served string, client netip.Addr) {
	if strings.HasSuffix(asked, served) {
		return
	}
	s.mu.Lock()
	told := s.corrected[asked] || len(s.corrected) >= maxCorrections
	if !told {
		s.corrected[asked] = true
	}
	s.mu.Unlock()
	if !told {
		s.cfg.Log.Info("correcting file name", "asked", asked, "served", served, "client", client)
	}
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
