package bcx

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// evil is a plugin that does whatever its functions do.
type evil struct {
	driverv1.UnimplementedDriverPluginServer
	describe func() *driverv1.DescribeResponse
	validate func() *driverv1.ValidateResponse
	invoke   func(grpc.ServerStreamingServer[driverv1.InvokeResponse]) error
	stream   func(duplex) error
	health   func() *driverv1.HealthResponse
}

func (e *evil) Describe(context.Context, *driverv1.DescribeRequest) (*driverv1.DescribeResponse, error) {
	return e.describe(), nil
}

func (e *evil) Validate(context.Context, *driverv1.ValidateRequest) (*driverv1.ValidateResponse, error) {
	return e.validate(), nil
}

func (e *evil) Invoke(_ *driverv1.InvokeRequest, s grpc.ServerStreamingServer[driverv1.InvokeResponse]) error {
	return e.invoke(s)
}

func (e *evil) Stream(s duplex) error { return e.stream(s) }

func (e *evil) Health(context.Context, *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	return e.health(), nil
}

// dialEvil serves it and connects.
func dialEvil(t *testing.T, e *evil) *Conn {
	t.Helper()
	plugin, host := identities(t)
	l := listen(t)
	server := grpc.NewServer(grpc.Creds(credentials.NewTLS(plugin.serverTLS(host.DER()))), grpc.MaxSendMsgSize(64<<20))
	driverv1.RegisterDriverPluginServer(server, e)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(l) }()
	conn, err := Dial(withTimeout(t), DialConfig{Identity: host,
		Handshake: Handshake{Network: "unix", Address: l.Addr().String(), Certificate: plugin.DER()}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(); server.Stop(); <-served })
	return conn
}

func identities(t *testing.T) (plugin, host *Identity) {
	t.Helper()
	plugin, err1 := NewIdentity()
	host, err2 := NewIdentity()
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	return plugin, host
}

func listen(t *testing.T) net.Listener {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(shortDir(t), SocketName))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	return l
}

func resulted(s string) *driverv1.InvokeResponse {
	return &driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_ResultJson{ResultJson: s}}
}

func anyCall() Request { return Request{DriverID: "echo", Call: call("power", "getPower", "")} }

func TestHostileAnswers(t *testing.T) {
	type stream = grpc.ServerStreamingServer[driverv1.InvokeResponse]
	// all sends messages one after the other.
	all := func(messages ...*driverv1.InvokeResponse) func(stream) error {
		return func(s stream) error {
			for _, m := range messages {
				if err := s.Send(m); err != nil {
					return err
				}
			}
			return nil
		}
	}
	raw := func(code, message string) *driverv1.InvokeResponse {
		return &driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_Error{Error: &driverv1.DriverError{Code: code, Message: message}}}
	}
	for name, c := range map[string]struct {
		do      func(stream) error
		code    string // "" for success
		message string // part of the error
	}{
		"nothing at all":        {all(), "driver-error", "without a result"},
		"an empty message":      {all(&driverv1.InvokeResponse{}), "driver-error", "empty message"},
		"result after error":    {all(raw("busy", "x"), resulted("1")), "driver-error", "went on after the end"},
		"error after result":    {all(resulted("1"), raw("busy", "x")), "driver-error", "went on after the end"},
		"two results":           {all(resulted("1"), resulted("2")), "driver-error", "went on after the end"},
		"progress after result": {all(resulted("1"), progressed(driver.Progress{})), "driver-error", "went on after the end"},
		"no JSON":               {all(resulted("{on\x1b[2J")), "bmc-error", `not JSON: "{on [2J"`},
		"an empty result":       {all(resulted("")), "", ""},
		"endless headers": {func(s stream) error {
			_ = s.SetHeader(metadata.Pairs("x", strings.Repeat("a", 1<<20)))
			return s.Send(resulted("1"))
		}, "driver-error", ""},
		"a status":               {func(stream) error { return status.Error(codes.Internal, "oops\n\x00") }, "driver-error", "oops"},
		"a status after result":  {func(s stream) error { _ = s.Send(resulted("1")); return status.Error(codes.Internal, "oops") }, "", ""},
		"silence after result":   {func(s stream) error { _ = s.Send(resulted("1")); <-s.Context().Done(); return nil }, "", ""},
		"unimplemented":          {func(stream) error { return status.Error(codes.Unimplemented, "") }, "unsupported-operation", ""},
		"a code that is none":    {all(raw("Not A Code\n", "x")), "driver-error", "x"},
		"a code that is long":    {all(raw(strings.Repeat("a", 65), "x")), "driver-error", "x"},
		"no message":             {all(raw("busy", "\x1b\n")), "busy", "without a reason"},
		"a message that is long": {all(raw("busy", strings.Repeat("a\u202e\x07", 1<<19))), "busy", "a a a"},
		"a result that is long":  {all(resulted(`"` + strings.Repeat("a", maxPayload) + `"`)), "bmc-error", "the limit is"},
		"a result beyond all":    {all(resulted(`"` + strings.Repeat("a", 20<<20) + `"`)), "bmc-error", "too large"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialEvil(t, &evil{invoke: c.do})
			_, err := conn.Invoke(driver.NewContext(withTimeout(t)), anyCall())
			if codeOf(err) != c.code || err != nil && !strings.Contains(err.Error(), c.message) {
				t.Errorf("%v, want code %q with %q", err, c.code, c.message)
			}
			if err != nil && (len(err.Error()) > maxText+100 || strings.ContainsAny(err.Error(), "\x00\x07\x1b\n\u202e")) {
				t.Errorf("%d bytes of hostile text came through: %.80q", len(err.Error()), err.Error())
			}
		})
	}
}

func TestEndlessProgress(t *testing.T) {
	conn := dialEvil(t, &evil{invoke: func(s grpc.ServerStreamingServer[driverv1.InvokeResponse]) error {
		for {
			if err := s.Send(progressed(driver.Progress{Phase: "x", Message: "y"})); err != nil {
				return err
			}
		}
	}})
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	c := driver.NewContext(ctx)
	var heard atomic.Int64
	c.OnProgress = func(driver.Progress) { heard.Add(1) }
	began := time.Now()
	_, err := conn.Invoke(c, anyCall())
	if code := codeOf(err); code != driver.CodeTimeout && code != driver.CodeDriverError {
		t.Error(err)
	}
	if n := heard.Load(); n > 1001+int64(50*time.Since(began).Seconds()) {
		t.Errorf("%d messages reached the caller", n)
	}
}

func TestDeadlineEndsASilentPlugin(t *testing.T) {
	conn := dialEvil(t, &evil{
		invoke: func(s grpc.ServerStreamingServer[driverv1.InvokeResponse]) error { <-s.Context().Done(); return nil },
		stream: func(s duplex) error { <-s.Context().Done(); return nil },
	})
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := conn.Invoke(driver.NewContext(ctx), anyCall()); codeOf(err) != driver.CodeTimeout {
		t.Error("Invoke:", err)
	}
	ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	if _, err := conn.Stream(driver.NewContext(ctx), anyCall()); codeOf(err) != driver.CodeTimeout {
		t.Error("Stream:", err)
	}
	conn.timeout = 20 * time.Millisecond // a host's own limit, where the context has none
	if _, err := conn.Invoke(driver.NewContext(t.Context()), anyCall()); codeOf(err) != driver.CodeTimeout {
		t.Error("Invoke with a limit of the host's:", err)
	}
	if _, err := conn.Stream(driver.NewContext(t.Context()), anyCall()); codeOf(err) != driver.CodeTimeout {
		t.Error("Stream with a limit of the host's:", err)
	}
}

func TestHostileStreams(t *testing.T) {
	for name, c := range map[string]struct {
		do   func(duplex) error
		open string // code of the error of opening
		read string // code of the error of reading
	}{
		"refused":                   {func(s duplex) error { return s.Send(closed(driver.Errorf("busy", "x"))) }, "busy", ""},
		"closed at once":            {func(s duplex) error { return s.Send(closed(nil)) }, "driver-error", ""},
		"ended at once":             {func(duplex) error { return nil }, "driver-error", ""},
		"data instead of an answer": {func(s duplex) error { return s.Send(dataFrame([]byte("x"))) }, "driver-error", ""},
		"open from the plugin": {func(s duplex) error {
			return s.Send(&driverv1.StreamFrame{Frame: &driverv1.StreamFrame_Open{Open: &driverv1.InvokeRequest{}}})
		}, "driver-error", ""},
		"an empty frame":  {func(s duplex) error { _ = s.Send(dataFrame(nil)); return s.Send(&driverv1.StreamFrame{}) }, "", "driver-error"},
		"a frame too big": {func(s duplex) error { _ = s.Send(dataFrame(nil)); return s.Send(dataFrame(make([]byte, 8<<20))) }, "", "bmc-error"},
		"an error in the end": {func(s duplex) error {
			_ = s.Send(dataFrame(nil))
			return s.Send(closed(driver.Errorf("acme-line-cut", "the line was cut")))
		}, "", "acme-line-cut"},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialEvil(t, &evil{stream: c.do})
			s, err := conn.Stream(driver.NewContext(withTimeout(t)), anyCall())
			if codeOf(err) != c.open {
				t.Fatalf("opening: %v, want %q", err, c.open)
			}
			if err != nil {
				return
			}
			defer s.Close()
			if _, err := io.ReadAll(s); codeOf(err) != c.read {
				t.Errorf("reading: %v, want %q", err, c.read)
			}
		})
	}
}

// TestStuckStream closes a stream whose plugin neither reads nor ends.
func TestStuckStream(t *testing.T) {
	conn := dialEvil(t, &evil{stream: func(s duplex) error {
		_, _ = s.Recv()
		_ = s.Send(dataFrame(nil))
		<-s.Context().Done()
		return nil
	}})
	s, err := conn.Stream(driver.NewContext(withTimeout(t)), anyCall())
	if err != nil {
		t.Fatal(err)
	}
	wrote := make(chan error, 1)
	go func() { _, err := s.Write(bytes.Repeat([]byte("x"), 8<<20)); wrote <- err }()
	if err := s.Close(); err != nil {
		t.Error(err)
	}
	if err := <-wrote; err == nil {
		t.Error("a write nobody read succeeded")
	}
}

func TestHostileManifests(t *testing.T) {
	good := func() *driverv1.DescribeResponse {
		return &driverv1.DescribeResponse{ProtocolVersion: 1, Drivers: []*driverv1.DriverManifest{
			{Id: "acme", Version: "1.0.0", Kinds: []string{"power"}, RunsOn: "site"}}}
	}
	if _, err := dialEvil(t, &evil{describe: good}).Describe(withTimeout(t)); err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(*driverv1.DescribeResponse){
		"another protocol":    func(r *driverv1.DescribeResponse) { r.ProtocolVersion = 2 },
		"no driver":           func(r *driverv1.DescribeResponse) { r.Drivers = nil },
		"a driver twice":      func(r *driverv1.DescribeResponse) { r.Drivers = append(r.Drivers, r.Drivers[0]) },
		"too many drivers":    func(r *driverv1.DescribeResponse) { r.Drivers = make([]*driverv1.DriverManifest, 65) },
		"an id with a path":   func(r *driverv1.DescribeResponse) { r.Drivers[0].Id = "../x" },
		"no version":          func(r *driverv1.DescribeResponse) { r.Drivers[0].Version = "" },
		"no kinds":            func(r *driverv1.DescribeResponse) { r.Drivers[0].Kinds = nil },
		"a kind that is none": func(r *driverv1.DescribeResponse) { r.Drivers[0].Kinds = []string{"Power\n"} },
		"runs nowhere":        func(r *driverv1.DescribeResponse) { r.Drivers[0].RunsOn = "" },
		"no schema":           func(r *driverv1.DescribeResponse) { r.Drivers[0].ConfigSchemaJson = "nonsense" },
		"a schema from afar":  func(r *driverv1.DescribeResponse) { r.Drivers[0].ConfigSchemaJson = `{"$ref":"file:///etc/passwd"}` },
		"a huge schema": func(r *driverv1.DescribeResponse) {
			r.Drivers[0].ConfigSchemaJson = strings.Repeat(" ", 300<<10) + "{}"
		},
		"a foreign operation":  func(r *driverv1.DescribeResponse) { r.Drivers[0].RetrySafeOperations = []string{"raid.clear"} },
		"a stream of no kind":  func(r *driverv1.DescribeResponse) { r.Drivers[0].Capabilities = []string{"bcx.stream:console.open"} },
		"endless capabilities": func(r *driverv1.DescribeResponse) { r.Drivers[0].Capabilities = make([]string, 300) },
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialEvil(t, &evil{describe: func() *driverv1.DescribeResponse { r := good(); change(r); return r }})
			d, err := conn.Describe(withTimeout(t))
			if err == nil {
				t.Fatalf("it was taken: %+v", d)
			}
			if (name == "another protocol") != errors.Is(err, ErrProtocol) {
				t.Error(err)
			}
		})
	}
	t.Run("an operation of a newer contract", func(t *testing.T) {
		r := good()
		r.Drivers[0].RetrySafeOperations = []string{"power.getPower", "power.getWatts"}
		d, err := dialEvil(t, &evil{describe: func() *driverv1.DescribeResponse { return r }}).Describe(withTimeout(t))
		if err != nil || len(d.Drivers[0].RetrySafe["power"]) != 1 {
			t.Error(d, err)
		}
	})
}

func TestHostileValidate(t *testing.T) {
	issue := &driverv1.Issue{Pointer: "/a\n", Message: "b\x1b", Code: "Not A Code"}
	for name, c := range map[string]struct {
		answer *driverv1.ValidateResponse
		issues int
		code   string
	}{
		"valid with issues":      {&driverv1.ValidateResponse{Valid: true, Issues: []*driverv1.Issue{issue}}, 0, "driver-error"},
		"invalid without issues": {&driverv1.ValidateResponse{}, 1, ""},
		"endless issues":         {&driverv1.ValidateResponse{Issues: bytesOf(issue, 1000)}, maxIssues, ""},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dialEvil(t, &evil{validate: func() *driverv1.ValidateResponse { return c.answer }})
			issues, err := conn.Validate(driver.NewContext(withTimeout(t)), "echo", config, nil)
			if len(issues) != c.issues || codeOf(err) != c.code {
				t.Errorf("%d issues, %v", len(issues), err)
			}
			for _, i := range issues {
				if strings.ContainsAny(i.String(), "\n\x1b") || i.Code == "Not A Code" {
					t.Errorf("hostile text came through: %q", i)
				}
			}
		})
	}
}

func bytesOf(i *driverv1.Issue, n int) []*driverv1.Issue {
	out := make([]*driverv1.Issue, n)
	for j := range out {
		out[j] = i
	}
	return out
}

func TestHealthWithoutAReason(t *testing.T) {
	for _, s := range []driverv1.HealthResponse_Status{0, 2, 77} {
		conn := dialEvil(t, &evil{health: func() *driverv1.HealthResponse { return &driverv1.HealthResponse{Status: s} }})
		if err := conn.Health(withTimeout(t)); codeOf(err) != driver.CodeUnavailable || err.Error() == "" {
			t.Error(s, err)
		}
	}
}

// A call that meets this side's own closing of the connection blames no plugin.
func TestCallAfterClose(t *testing.T) {
	c := dialEvil(t, &evil{})
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	if err := c.Health(withTimeout(t)); codeOf(err) != driver.CodeUnreachable || !driver.AsError(err).Retryable {
		t.Errorf("%v", err)
	}
}
