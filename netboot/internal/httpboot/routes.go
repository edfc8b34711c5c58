package httpboot

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/netip"
	"regexp"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
)

// maxLoader bounds a loader that cannot seek and is read whole, in bytes.
const maxLoader = 16 << 20

var keyRE = regexp.MustCompile(`^[A-Za-z0-9_-]{1,128}$`)

// keyed takes a path below /boot/KEY/ apart. What looks like one may hold a key even when there is nothing behind it.
func keyed(p string) (key, file string, ok bool) {
	rest, ok := strings.CutPrefix(p, "/boot/")
	if !ok {
		return "", "", false
	}
	key, file, ok = strings.Cut(rest, "/")
	return key, file, ok && key != ""
}

// script answers iPXE. Every client gets a script: after an error status iPXE would drop the machine to a prompt.
func (s *Server) script(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	req := ScriptRequest{Remote: remoteOf(r), Base: baseOf(r)}
	for _, v := range append(q["mac"], q["macs"]...) {
		if m, err := app.ParseMAC(v); err == nil && len(req.MACs) < 16 {
			req.MACs = append(req.MACs, m)
		}
	}
	if u, err := app.ParseUUID(q.Get("uuid")); err == nil {
		req.UUID = u
	}
	body := s.cfg.Script(r.Context(), req)
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Length", fmt.Sprint(len(body)))
	if r.Method == http.MethodGet {
		_, _ = io.WriteString(w, body)
	}
}

// bootData serves the trust data of one boot, the same bytes however often they are asked for.
func (s *Server) bootData(w http.ResponseWriter, r *http.Request, key string) {
	b, err := s.cfg.BootData(r.Context(), key)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	h := sha256.Sum256(b)
	w.Header().Set("ETag", `"`+hex.EncodeToString(h[:16])+`"`)
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("Content-Type", "application/octet-stream")
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(b))
}

func (s *Server) loader(w http.ResponseWriter, r *http.Request, name string) {
	f, err := s.cfg.Loaders.Open(name)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer func() { _ = f.Close() }()
	s.serve(w, r, f)
}

func (s *Server) mounted(w http.ResponseWriter, r *http.Request, m Mount, rest string) {
	if rest == "" && strings.HasSuffix(m.Prefix, "/") {
		fail(w, http.StatusNotFound, "there is nothing here")
		return
	}
	f, err := m.Open(r.Context(), rest)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	defer func() { _ = f.Close() }()
	if rec, ok := w.(*recorder); ok && m.Sent != nil {
		rec.sent = func(n int64) { m.Sent(rest, n) }
	}
	s.serve(w, r, f)
}

// serve sends a regular file with ranges and an ETag made of size and time of change.
func (s *Server) serve(w http.ResponseWriter, r *http.Request, f fs.File) {
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() {
		fail(w, http.StatusNotFound, "there is nothing here")
		return
	}
	w.Header().Set("ETag", fmt.Sprintf(`"%x-%x"`, info.Size(), info.ModTime().UnixNano()))
	w.Header().Set("Content-Type", "application/octet-stream")
	if rec, ok := w.(*recorder); ok {
		rec.size = info.Size()
	}
	content, ok := f.(io.ReadSeeker)
	if !ok {
		b, err := io.ReadAll(io.LimitReader(f, maxLoader))
		if err != nil {
			s.refuse(w, r, err)
			return
		}
		content = bytes.NewReader(b)
	}
	http.ServeContent(w, r, "", info.ModTime(), content)
}

// refuse answers an error: what is not for people's eyes is logged and becomes a plain 500.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrInvalid), app.CodeOf(err) == app.NotFound:
		fail(w, http.StatusNotFound, "there is nothing here")
	case app.CodeOf(err) == app.Forbidden, app.CodeOf(err) == app.Conflict:
		fail(w, http.StatusForbidden, "this is not served any more")
	case app.CodeOf(err) == app.Unavailable:
		w.Header().Set("Retry-After", "5")
		fail(w, http.StatusServiceUnavailable, "try again")
	default:
		s.cfg.Log.Error("answering boot request failed", "error", err)
		fail(w, http.StatusInternalServerError, "this failed")
	}
}

func remoteOf(r *http.Request) netip.Addr {
	ap, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return netip.Addr{}
	}
	return ap.Addr().Unmap().WithZone("")
}

// baseOf is our address as the client reached it: the connection's own, not the Host header, which anyone may write.
func baseOf(r *http.Request) string {
	a, ok := r.Context().Value(http.LocalAddrContextKey).(net.Addr)
	if !ok {
		return ""
	}
	ap, err := netip.ParseAddrPort(a.String())
	if err != nil {
		return ""
	}
	return "http://" + netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port()).String()
}
