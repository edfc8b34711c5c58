// Package httpboot is the plain HTTP listener that machines boot from: loaders, scripts, boot data, and whatever files
// and handlers are mounted on it.
//
// Firmware is the client: it follows no redirects, breaks on some headers and comes from networks that nobody trusts.
// So there is no mux that redirects, paths are resolved once and strictly, and files leave by sendfile.
package httpboot

import (
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/listen"
	"github.com/better-compute/bcd/netboot/internal/bootfile"
)

// Limits of the listener.
const (
	maxConns       = 4096
	maxConnsClient = 256 // of one address, behind which a router may hide a rack; an agent fetches a handful of files at once
	maxHeader      = 16 << 10
	maxBody        = 1 << 20 // of a request to a mounted handler
	headerTimeout  = 10 * time.Second
	idleTimeout    = time.Minute
	stallTimeout   = time.Minute // of a client that takes nothing in; one that reads 10 kB/s, as some BMCs do, is far from it
)

// Mount serves the files below a path prefix. A prefix that ends in "/" stands for what is below it, any other for
// that one path.
type Mount struct {
	Prefix string
	// Open opens the file behind the rest of the path, which holds no "..", empty or encoded parts. The caller closes it.
	Open  func(ctx context.Context, rest string) (*os.File, error)
	Quiet bool // do not record each transfer: for many small files
	// Sent is told of bytes that left, while they leave. It must be quick, and is called by several goroutines; nil: nobody is.
	Sent func(rest string, n int64)
}

// Handler serves everything at or below a path prefix itself, any method. The body is bounded in size and time.
type Handler struct {
	Prefix  string
	Handler http.Handler
}

// ScriptRequest is what iPXE told of itself when it asked for its script.
type ScriptRequest struct {
	MACs   []app.MAC
	UUID   app.UUID
	Remote netip.Addr
	Base   string // "http://192.0.2.1:8080": our address as the client sees it
}

// Transfer is one finished answer.
type Transfer struct {
	Method, Path string // hostile text
	Remote       netip.Addr
	Status       int
	Bytes        int64
	Size         int64 // of the whole file, when known
	Took         time.Duration
	Agent        string // User-Agent, hostile text
	MachineID    string // whose the file is; "" when it is nobody's own
	Begun        bool   // it has only begun: another follows when it ends
}

// Config is what a Server needs. Mounts and Handlers may be empty.
type Config struct {
	Loaders  fs.FS
	Script   func(ctx context.Context, r ScriptRequest) string
	BootData func(ctx context.Context, key string) ([]byte, error)
	Image    func(ctx context.Context, key, file string) (Image, error) // file is Program or CD
	Mounts   []Mount
	Handlers []Handler
	Record   func(Transfer)
	Stall    time.Duration // how long a client may take in nothing before it is let go; a minute when 0
	Log      *slog.Logger
}

// Server answers HTTP.
type Server struct{ cfg Config }

// New makes a Server.
func New(cfg Config) *Server {
	if cfg.Stall == 0 {
		cfg.Stall = stallTimeout
	}
	return &Server{cfg: cfg}
}

// Serve answers on l until ctx ends, and closes it.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	srv := &http.Server{
		Handler: s, ReadHeaderTimeout: headerTimeout, IdleTimeout: idleTimeout, MaxHeaderBytes: maxHeader,
		ErrorLog:    slog.NewLogLogger(s.cfg.Log.Handler(), slog.LevelDebug),
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	err := srv.Serve(listen.Moving(listen.Limit(l, maxConns, maxConnsClient), s.cfg.Stall))
	if errors.Is(err, http.ErrServerClosed) || ctx.Err() != nil {
		return nil
	}
	return err
}

// ServeHTTP finds what a path means. It never redirects.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	p, ok := resolve(r)
	rec := &recorder{ResponseWriter: w, start: time.Now(), name: s.public(p)}
	if r.ContentLength != 0 { // without a body the deadline would end the answer: net/http goes on reading to notice who left
		_ = http.NewResponseController(rec).SetReadDeadline(rec.start.Add(headerTimeout))
	}
	quiet := false
	switch {
	case !ok:
		fail(rec, http.StatusBadRequest, "this path is not accepted")
	case s.handler(p) != nil:
		r.Body = http.MaxBytesReader(rec, r.Body, maxBody)
		s.handler(p).ServeHTTP(rec, r)
	case r.Method != http.MethodGet && r.Method != http.MethodHead:
		rec.Header().Set("Allow", "GET, HEAD")
		fail(rec, http.StatusMethodNotAllowed, "only GET and HEAD are answered here")
	default:
		quiet = s.file(rec, r, p)
	}
	if !quiet || rec.status >= 400 {
		s.cfg.Record(rec.transfer(r))
	}
}

// public is the path as it may be recorded: without the key of boot data and without what a handler's path holds, both
// of which open something. A path that was not accepted may hold either in some disguise.
func (s *Server) public(p string) string {
	if p == "" {
		return "(not accepted)"
	}
	for _, h := range s.cfg.Handlers {
		if under(p, h.Prefix) {
			return h.Prefix
		}
	}
	return clip(HideKey(p))
}

func (s *Server) handler(p string) http.Handler {
	for _, h := range s.cfg.Handlers {
		if under(p, h.Prefix) {
			return h.Handler
		}
	}
	return nil
}

// file serves a GET or HEAD and reports whether it should go unrecorded.
func (s *Server) file(w http.ResponseWriter, r *http.Request, p string) (quiet bool) {
	switch {
	case p == "/boot/script":
		s.script(w, r)
		return false
	case strings.HasPrefix(p, "/ipxe/"):
		s.loader(w, r, strings.TrimPrefix(p, "/ipxe/"))
		return false
	}
	if p == bootfile.ExitPath {
		s.exit(w, r)
		return false
	}
	if key, file, ok := keyed(p); ok && keyRE.MatchString(key) {
		switch file {
		case "bootdata.cpio":
			s.bootData(w, r, key)
			return false
		case Program, CD:
			s.image(w, r, key, file)
			return !telling(w)
		}
	}
	for _, m := range s.cfg.Mounts {
		if under(p, m.Prefix) {
			s.mounted(w, r, m, strings.TrimPrefix(p, m.Prefix))
			return m.Quiet
		}
	}
	fail(w, http.StatusNotFound, "there is nothing here")
	return false
}

func under(p, prefix string) bool {
	return p == prefix || strings.HasSuffix(prefix, "/") && strings.HasPrefix(p, prefix)
}

// resolve turns a request target into the path that everything below decides on. Empty and "." parts vanish, as some
// firmware writes them; "..", encoded separators, backslashes and control characters are refused.
func resolve(r *http.Request) (string, bool) {
	raw := r.URL.EscapedPath()
	low := strings.ToLower(raw)
	for _, bad := range []string{"%2f", "%5c", "%00", "%2e", `\`} {
		if strings.Contains(low, bad) {
			return "", false
		}
	}
	p := r.URL.Path
	if !strings.HasPrefix(p, "/") || len(p) > 2048 {
		return "", false
	}
	var out strings.Builder
	for part := range strings.SplitSeq(p, "/") {
		switch part {
		case "", ".":
			continue
		case "..":
			return "", false
		}
		if strings.IndexFunc(part, func(c rune) bool { return c < ' ' || c == 0x7f }) >= 0 {
			return "", false
		}
		out.WriteString("/" + part)
	}
	if out.Len() == 0 || strings.HasSuffix(p, "/") {
		out.WriteString("/")
	}
	return out.String(), true
}

func fail(w http.ResponseWriter, status int, message string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.WriteHeader(status)
	_, _ = w.Write([]byte(message + "\n"))
}
