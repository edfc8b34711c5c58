package bcx

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// DialConfig says whom to reach and as whom.
type DialConfig struct {
	Handshake   Handshake
	Identity    *Identity     // the host's, whose certificate the plugin was given
	CallTimeout time.Duration // deadline of calls whose context has none; 0: none
}

// Conn is the one connection to a running plugin. It is safe for concurrent use.
type Conn struct {
	grpc    *grpc.ClientConn
	plugin  driverv1.DriverPluginClient
	timeout time.Duration
	lost    chan struct{}
	close   func() // closes lost, once
}

// Dial connects and waits for both certificates to be proven, at most until ctx ends.
func Dial(ctx context.Context, c DialConfig) (*Conn, error) {
	raw, err := new(net.Dialer).DialContext(ctx, c.Handshake.Network, c.Handshake.Address)
	if err != nil {
		return nil, fmt.Errorf("reaching the plugin: %w", err)
	}
	conn := &Conn{timeout: c.CallTimeout, lost: make(chan struct{})}
	conn.close = sync.OnceFunc(func() { close(conn.lost) })
	once := &onceDialer{conn: &watched{Conn: raw, closed: conn.close}}
	conn.grpc, err = grpc.NewClient("passthrough:plugin",
		grpc.WithTransportCredentials(credentials.NewTLS(c.Identity.clientTLS(c.Handshake.Certificate))),
		grpc.WithContextDialer(once.dial),
		grpc.WithDisableServiceConfig(),
		grpc.WithIdleTimeout(0),
		grpc.WithMaxHeaderListSize(maxHeaders),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: backoff.Config{BaseDelay: time.Minute, MaxDelay: time.Minute}}),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer), grpc.MaxCallSendMsgSize(maxRequest)))
	if err != nil {
		raw.Close()
		return nil, fmt.Errorf("reaching the plugin: %w", err)
	}
	conn.plugin = driverv1.NewDriverPluginClient(conn.grpc)
	if err := conn.ready(ctx); err != nil {
		conn.Close()
		raw.Close()
		return nil, err
	}
	return conn, nil
}

// ready waits for the first connection. Its failure is final.
func (c *Conn) ready(ctx context.Context) error {
	c.grpc.Connect()
	for {
		switch s := c.grpc.GetState(); s {
		case connectivity.Ready:
			return nil
		case connectivity.TransientFailure, connectivity.Shutdown:
			_, err := c.plugin.Health(ctx, &driverv1.HealthRequest{}) // its failure carries the reason
			return unconnected(status.Convert(err).Message())
		default:
			if !c.grpc.WaitForStateChange(ctx, s) {
				return fmt.Errorf("reaching the plugin: %w", context.Cause(ctx))
			}
		}
	}
}

// unconnected words gRPC's reason for a first connection that failed: connection error: desc = "transport: authentication
// handshake failed: ...".
func unconnected(reason string) error {
	if _, quoted, ok := strings.Cut(reason, "desc = "); ok {
		if bare, err := strconv.Unquote(quoted); err == nil {
			reason = bare
		}
	}
	reason = strings.TrimPrefix(reason, "transport: ")
	if tls, ok := strings.CutPrefix(reason, "authentication handshake failed: "); ok {
		return fmt.Errorf("the plugin could not be authenticated: %s", clean(tls, maxText))
	}
	return fmt.Errorf("the plugin does not speak gRPC: %s", clean(reason, maxText))
}

// Lost is closed once the connection is gone, by Close too.
func (c *Conn) Lost() <-chan struct{} { return c.lost }

// Close ends the connection; calls under way fail.
func (c *Conn) Close() error {
	c.close() // before gRPC tells the calls under way, so that none blames the plugin
	return c.grpc.Close()
}

// Describe asks what the plugin serves and checks the answer. The error is ErrProtocol when it speaks another version.
func (c *Conn) Describe(ctx context.Context) (Description, error) {
	r, err := c.plugin.Describe(ctx, &driverv1.DescribeRequest{})
	if err != nil {
		return Description{}, c.failure(ctx, err)
	}
	return describe(r)
}

// Health asks whether the plugin can work: nil, or an error with its own words; unavailable when it says it cannot.
func (c *Conn) Health(ctx context.Context) error {
	r, err := c.plugin.Health(ctx, &driverv1.HealthRequest{})
	if err != nil {
		return c.failure(ctx, err)
	}
	if r.GetStatus() == driverv1.HealthResponse_SERVING {
		return nil
	}
	why := clean(r.GetMessage(), maxText)
	if why == "" {
		why = "the plugin says it cannot work, without a reason"
	}
	return driver.Errorf(driver.CodeUnavailable, "%s", why).Again()
}

// failure words what gRPC reports of a call. caller is the context the call was made for.
func (c *Conn) failure(caller context.Context, err error) *driver.Error {
	if ended := caller.Err(); ended != nil {
		return driver.AsError(ended)
	}
	var already *driver.Error
	if errors.As(err, &already) {
		return already
	}
	s := status.Convert(err)
	said := clean(s.Message(), 512)
	switch s.Code() {
	case codes.DeadlineExceeded:
		return driver.AsError(context.DeadlineExceeded)
	case codes.Unavailable:
		return driver.Errorf(driver.CodeUnreachable, "the connection to the plugin broke").Again()
	case codes.Unimplemented:
		return driver.Errorf(driver.CodeUnsupported, "the plugin does not serve this call")
	case codes.ResourceExhausted:
		return driver.Errorf(driver.CodeBMCError, "the plugin's answer is too large: %s", said)
	case codes.Canceled:
		select {
		case <-c.lost:
			return driver.Errorf(driver.CodeUnreachable, "the connection to the plugin was closed").Again()
		default:
		}
	}
	return driver.Errorf(driver.CodeDriverError, "the plugin does not keep to the protocol: %s", said)
}

// onceDialer hands out one connection once: a plugin that broke its connection is not called again, its process is over.
type onceDialer struct {
	mu   sync.Mutex
	conn net.Conn
}

func (o *onceDialer) dial(context.Context, string) (net.Conn, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.conn == nil {
		return nil, errors.New("the connection to the plugin is gone")
	}
	c := o.conn
	o.conn = nil
	return c, nil
}

// watched tells of its closing.
type watched struct {
	net.Conn
	closed func()
}

func (w *watched) Close() error {
	w.closed()
	return w.Conn.Close()
}
