package bcx

import (
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/netip"
	"path/filepath"
	"strconv"
	"strings"
)

// Handshake is the line by which a plugin says where it listens and with which certificate:
//
//	bcx|1|unix|<socket path>|grpc|<base64 DER certificate>
type Handshake struct {
	Network     string // "unix", or "tcp" on loopback where there are no Unix sockets
	Address     string // path, or address and port
	Certificate []byte // DER
}

// String gives the line without its end.
func (h Handshake) String() string {
	return fmt.Sprintf("bcx|%d|%s|%s|grpc|%s", ProtocolVersion, h.Network, h.Address, base64.RawStdEncoding.EncodeToString(h.Certificate))
}

// ParseHandshake reads a line without its end. The error is ErrProtocol for another version, else ErrHandshake.
func ParseHandshake(line string) (Handshake, error) {
	fail := func(why string) (Handshake, error) {
		return Handshake{}, fmt.Errorf("%w: %s: %q", ErrHandshake, why, clean(line, 120))
	}
	if len(line) > maxHandshake {
		return fail("its first line is too long")
	}
	f := strings.Split(line, "|")
	if len(f) < 2 || f[0] != "bcx" {
		return fail("its first line is not a handshake")
	}
	if f[1] != strconv.Itoa(ProtocolVersion) {
		return Handshake{}, fmt.Errorf("%w: version %q instead of %d", ErrProtocol, clean(f[1], 20), ProtocolVersion)
	}
	if len(f) != 6 || f[4] != "grpc" {
		return fail("its handshake is malformed")
	}
	h := Handshake{Network: f[2], Address: f[3]}
	switch h.Network {
	case "unix":
		if !filepath.IsAbs(h.Address) || filepath.Clean(h.Address) != h.Address || strings.ContainsRune(h.Address, 0) {
			return fail("its socket is not an absolute path")
		}
	case "tcp":
		if a, err := netip.ParseAddrPort(h.Address); err != nil || !a.Addr().IsLoopback() || a.Port() == 0 {
			return fail("its address is not on loopback")
		}
	default:
		return fail("its network is neither unix nor tcp")
	}
	var err error
	if h.Certificate, err = decodeCertificate(f[5]); err != nil {
		return fail("its certificate cannot be read: " + err.Error())
	}
	return h, nil
}

// Within says whether the plugin listens on a Unix socket directly in dir, as a host that made dir demands.
func (h Handshake) Within(dir string) error {
	if h.Network != "unix" || filepath.Dir(h.Address) != filepath.Clean(dir) {
		return fmt.Errorf("%w: it listens on %s %q, outside the directory it was given", ErrHandshake, h.Network, clean(h.Address, 120))
	}
	return nil
}

// ReadHandshake reads the first line of a plugin's output, at most 8 KiB, and ends with ctx. What follows on r is the
// caller's to discard; when ctx ends first, the caller closes r (or ends the process) to release the read.
func ReadHandshake(ctx context.Context, r io.Reader) (Handshake, error) {
	type answer struct {
		line string
		err  error
	}
	read := make(chan answer, 1)
	go func() {
		line, err := firstLine(r)
		read <- answer{line, err}
	}()
	late := func() error { return fmt.Errorf("%w in time: %w", ErrHandshake, context.Cause(ctx)) }
	select {
	case <-ctx.Done():
		return Handshake{}, late()
	case a := <-read:
		switch {
		case a.err != nil && ctx.Err() != nil: // the caller released the read
			return Handshake{}, late()
		case a.err != nil:
			return Handshake{}, a.err
		}
		return ParseHandshake(a.line)
	}
}

// firstLine reads up to the first line feed.
func firstLine(r io.Reader) (string, error) {
	buf := make([]byte, 0, maxHandshake+1)
	for {
		n, err := r.Read(buf[len(buf):cap(buf)])
		fresh := buf[len(buf) : len(buf)+n]
		buf = buf[:len(buf)+n]
		if i := bytes.IndexByte(fresh, '\n'); i >= 0 {
			line := buf[:len(buf)-n+i]
			return string(bytes.TrimSuffix(line, []byte("\r"))), nil
		}
		switch {
		case len(buf) == cap(buf):
			return "", fmt.Errorf("%w: its first line is longer than %d bytes: %q", ErrHandshake, maxHandshake, clean(string(buf), 120))
		case err == io.EOF && len(buf) > 0:
			return "", fmt.Errorf("%w: it ended before its handshake, after %q", ErrHandshake, clean(string(buf), 120))
		case err == io.EOF:
			return "", fmt.Errorf("%w: it ended before its handshake", ErrHandshake)
		case err != nil:
			return "", fmt.Errorf("%w: reading its handshake: %w", ErrHandshake, err)
		}
	}
}
