package bcx

import (
	"bytes"
	"crypto/tls"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// TestGarbage talks to plugins that speak TLS, and then nonsense instead of HTTP/2.
func TestGarbage(t *testing.T) {
	for name, c := range map[string]struct {
		tls   bool
		bytes []byte
	}{
		"not TLS":       {false, []byte("220 mail.example.net ESMTP\r\n")},
		"not HTTP/2":    {true, bytes.Repeat([]byte("\x00\xff garbage"), 1000)},
		"closes":        {true, nil},
		"closes before": {false, nil},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, host := identities(t)
			l := listen(t)
			served := make(chan struct{})
			go func() {
				defer close(served)
				conn, err := l.Accept()
				if err != nil {
					return
				}
				if c.tls {
					config := plugin.serverTLS(host.DER())
					config.NextProtos = []string{"h2"}
					conn = tls.Server(conn, config)
				}
				_, _ = conn.Write(c.bytes)
				conn.Close()
			}()
			ctx := withTimeout(t)
			conn, err := Dial(ctx, DialConfig{Identity: host, Handshake: Handshake{Network: "unix", Address: l.Addr().String(), Certificate: plugin.DER()}})
			if err == nil {
				_, err = conn.Invoke(driver.NewContext(ctx), anyCall())
				conn.Close()
			}
			if err == nil || ctx.Err() != nil {
				t.Errorf("%v after %v", err, ctx.Err())
			}
			l.Close()
			<-served
		})
	}
}

// TestBrokenMessages answers calls with bytes that are no protobuf, or another message's.
func TestBrokenMessages(t *testing.T) {
	for name, answer := range map[string][]byte{
		"no protobuf":     []byte("\xff\xff\xff\xff"),
		"not UTF-8":       protowire.AppendString(protowire.AppendTag(nil, 2, protowire.BytesType), "\xff"),
		"another's":       marshal(t, &driverv1.HealthResponse{Status: driverv1.HealthResponse_SERVING}),
		"unknown fields":  protowire.AppendString(protowire.AppendTag(nil, 1000, protowire.BytesType), "x"),
		"truncated bytes": {0x12, 0x7f, 'x'},
	} {
		t.Run(name, func(t *testing.T) {
			plugin, host := identities(t)
			l := listen(t)
			server := grpc.NewServer(grpc.Creds(credentials.NewTLS(plugin.serverTLS(host.DER()))), grpc.ForceServerCodecV2(rawCodec{}),
				grpc.UnknownServiceHandler(func(_ any, s grpc.ServerStream) error { return s.SendMsg(answer) }))
			served := make(chan struct{})
			go func() { defer close(served); _ = server.Serve(l) }()
			t.Cleanup(func() { server.Stop(); <-served })
			conn, err := Dial(withTimeout(t), DialConfig{Identity: host, Handshake: Handshake{Network: "unix", Address: l.Addr().String(), Certificate: plugin.DER()}})
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := conn.Invoke(driver.NewContext(withTimeout(t)), anyCall()); codeOf(err) != driver.CodeDriverError {
				t.Error("Invoke:", err)
			}
			if _, err := conn.Stream(driver.NewContext(withTimeout(t)), anyCall()); codeOf(err) != driver.CodeDriverError {
				t.Error("Stream:", err)
			}
			if _, err := conn.Describe(withTimeout(t)); err == nil {
				t.Error("Describe took it")
			}
		})
	}
}

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// rawCodec sends bytes as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
