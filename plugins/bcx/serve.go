package bcx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// Options are what a plugin tells about itself, and what tests replace. The zero value is a plugin without a version.
type Options struct {
	PluginVersion string                      // free text, at most 64 bytes
	Streams       []string                    // "<kind>.<operation>" that give a byte stream, besides those the kind itself declares so
	Health        func(context.Context) error // nil, or an error that says why the plugin cannot work; nil func: it always can
	Logger        *slog.Logger                // nil: JSON lines on Stderr, which the host forwards to its own log
	Network       string                      // "unix" (the default), or "tcp" on loopback (the default on Windows)
	ShutdownGrace time.Duration               // how long calls may go on once the plugin is asked to stop; 0: 5 s
	IgnoreSignals bool                        // leave SIGTERM, SIGINT and the end of stdin to the program
	Env           []string                    // nil: os.Environ()
	Stdin         io.Reader                   // nil: os.Stdin
	Stdout        io.Writer                   // nil: os.Stdout; nothing but the handshake line is written to it
	Stderr        io.Writer                   // nil: os.Stderr
}

// Main serves and ends the process: with 0 when the host asked it to stop, else with 1 and the reason on stderr.
func Main(o Options, defs ...driver.Definition) {
	if err := Serve(context.Background(), o, defs...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

// Serve introduces the plugin to its host and serves the definitions until ctx ends, SIGTERM comes or stdin ends; then it
// lets calls go on for the grace and returns nil. SIGINT is ignored: it is meant for the host. A definition may implement
// kinds that nobody registered; they are registered without operations, so that every operation goes to their Invoker.
// The error is ErrNotHosted when nobody hosts the program.
func Serve(ctx context.Context, o Options, defs ...driver.Definition) error {
	o = o.withDefaults()
	if o.getenv(EnvCookie) != Cookie {
		return ErrNotHosted
	}
	p, err := newPlugin(o, defs)
	if err != nil {
		return err
	}
	peer, err := decodeCertificate(o.getenv(EnvClientCert))
	if err != nil {
		return fmt.Errorf("reading %s: %w", EnvClientCert, err)
	}
	id, err := NewIdentity()
	if err != nil {
		return err
	}
	if !o.IgnoreSignals {
		var stop func()
		ctx, stop = o.untilAsked(ctx)
		defer stop()
	}
	l, err := o.listen()
	if err != nil {
		return err
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(id.serverTLS(peer))), grpc.MaxRecvMsgSize(maxRequest),
		grpc.MaxSendMsgSize(maxRequest), grpc.MaxConcurrentStreams(maxStreams), grpc.WaitForHandlers(false))
	driverv1.RegisterDriverPluginServer(server, p)
	line := Handshake{Network: l.Addr().Network(), Address: l.Addr().String(), Certificate: id.DER()}.String()
	if _, err := io.WriteString(o.Stdout, line+"\n"); err != nil {
		l.Close()
		return fmt.Errorf("writing the handshake: %w", err)
	}
	return serveUntil(ctx, server, l, o.ShutdownGrace)
}

// serveUntil serves until ctx ends, and then until the calls are done or the grace is over.
func serveUntil(ctx context.Context, server *grpc.Server, l net.Listener, grace time.Duration) error {
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("serving: %w", err)
	case <-ctx.Done():
	}
	hurry := time.AfterFunc(grace, server.Stop)
	defer hurry.Stop()
	server.GracefulStop()
	<-served
	return nil
}

func (o Options) withDefaults() Options {
	if o.Env == nil {
		o.Env = os.Environ()
	}
	if o.Stdin == nil {
		o.Stdin = os.Stdin
	}
	if o.Stdout == nil {
		o.Stdout = os.Stdout
	}
	if o.Stderr == nil {
		o.Stderr = os.Stderr
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.NewJSONHandler(o.Stderr, nil))
	}
	if o.Network == "" {
		o.Network = defaultNetwork
	}
	if o.ShutdownGrace == 0 {
		o.ShutdownGrace = 5 * time.Second
	}
	return o
}

// getenv gives the last value of a variable, as the operating system does.
func (o Options) getenv(name string) string {
	value := ""
	for _, kv := range o.Env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// maxSocketPath is what fits into sockaddr_un with its zero byte, on the system with the least room (104 bytes on BSD).
const maxSocketPath = 103

func (o Options) listen() (net.Listener, error) {
	switch o.Network {
	case "tcp":
		return net.Listen("tcp", "127.0.0.1:0")
	case "unix":
		dir := o.getenv(EnvSocketDir)
		if !filepath.IsAbs(dir) {
			return nil, fmt.Errorf("%s is not an absolute path", EnvSocketDir)
		}
		path := filepath.Join(dir, SocketName)
		if len(path) > maxSocketPath {
			return nil, fmt.Errorf("the path of the socket is %d bytes long; the system takes %d: the host must choose a shorter directory", len(path), maxSocketPath)
		}
		return net.Listen("unix", path)
	}
	return nil, fmt.Errorf("the network %q is neither unix nor tcp", o.Network)
}

// untilAsked gives a context that ends when the host asks the plugin to stop. Its stop function must be called.
func (o Options) untilAsked(ctx context.Context) (context.Context, func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, os.Interrupt)
	go func() {
		for {
			select {
			case s := <-signals:
				if s != os.Interrupt {
					cancel(errors.New("terminated"))
				}
			case <-ctx.Done():
				return
			}
		}
	}()
	go func() {
		_, _ = io.Copy(io.Discard, o.Stdin) // ends with the pipe, or with the process
		cancel(errors.New("the host is gone"))
	}()
	return ctx, func() { signal.Stop(signals); cancel(nil) }
}
