package host

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
	driverv1 "github.com/better-compute/bcd/proto/bettercompute/driver/v1"
)

// trailer stands between the test binary and the mode of a copy of it.
const trailer = "\n#mode:"

// mode is what this process is to behave like: "name:mode" of a bundled plugin, or what stands behind the end of the file
// it runs from, which is descriptor 3.
func mode() string {
	if len(os.Args) > 2 && os.Args[1] == modeArg {
		_, m, _ := strings.Cut(os.Args[2], ":")
		return m
	}
	f := os.NewFile(3, "self")
	st, err := f.Stat()
	if err != nil {
		return "crash"
	}
	end := make([]byte, 200)
	if _, err := f.ReadAt(end, st.Size()-200); err != nil {
		return "crash"
	}
	_, m, _ := strings.Cut(string(end), trailer)
	return strings.TrimSpace(m)
}

// behave plays a plugin, good or bad.
func behave(mode string) {
	mode, arg, _ := strings.Cut(mode, "=")
	switch mode {
	case "good":
		serveGood(bcx.Options{PluginVersion: "7"}, arg)
	case "sick":
		serveGood(bcx.Options{Health: func(context.Context) error {
			return errors.New("ipmitool is not installed")
		}}, arg)
	case "stubborn":
		serveGood(bcx.Options{IgnoreSignals: true, Stdin: strings.NewReader("")}, arg)
	case "crash":
		fmt.Fprintln(os.Stderr, "cannot find my configuration")
		os.Exit(3)
	case "silent":
		select {}
	case "flood":
		line := strings.Repeat("x", 1<<10) + "\n"
		chunk := []byte(strings.Repeat(line, 1<<10))
		for range 1 << 10 { // 1 GiB
			if _, err := os.Stderr.Write(chunk); err != nil {
				break
			}
		}
		serveGood(bcx.Options{}, arg)
	case "endless-line":
		for {
			if _, err := os.Stdout.WriteString(strings.Repeat("x", 4096)); err != nil {
				os.Exit(1)
			}
		}
	case "foreign":
		fmt.Println("bcx|2|unix|/nowhere|grpc|AAAA")
		_, _ = io.Copy(io.Discard, os.Stdin)
	case "child":
		// What it starts must not outlive it.
		cmd := exec.Command("/bin/sleep", "3600")
		if err := cmd.Start(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		serveGood(bcx.Options{}, arg)
	default:
		raw(mode)
	}
}

// serveGood serves "id@version" with operations for tests.
func serveGood(o bcx.Options, arg string) {
	id, version, _ := strings.Cut(arg, "@")
	bcx.Main(o, driver.Definition{
		ID: id, Version: version, RunsOn: driver.RunsOnSite,
		Implements: map[string]driver.Factory{"acme-test": func(json.RawMessage) (any, error) { return operations{}, nil }},
		RetrySafe:  map[string][]string{"acme-test": {"ping", "hang", "echo"}},
	})
}

type operations struct{}

func (operations) Invoke(ctx *driver.Context, op string, args []json.RawMessage) (any, error) {
	switch op {
	case "ping":
		return os.Getpid(), nil
	case "echo":
		return args, nil
	case "environ":
		return os.Environ(), nil
	case "hang":
		<-ctx.Done()
		return nil, ctx.Err()
	case "progress":
		for ctx.Err() == nil {
			ctx.Emit(driver.Progress{Phase: "busy", Message: strings.Repeat("still ", 100)})
		}
		return nil, ctx.Err()
	case "say":
		fmt.Fprintln(os.Stderr, string(args[0]))
		return nil, nil
	case "tell":
		password, err := ctx.Secret("password")
		if err != nil {
			return nil, err
		}
		fmt.Fprintln(os.Stderr, "the password is "+password)
		fmt.Fprintf(os.Stderr, `{"level":"WARN","msg":"login","header":"Basic %s"}`+"\n", base64.StdEncoding.EncodeToString([]byte("admin:"+password)))
		ctx.Emit(driver.Progress{Phase: "login", Message: "trying " + password})
		return nil, driver.Errorf("bmc-error", "the BMC says: wrong password %s", password)
	case "exit":
		os.Exit(9)
	case "panic": // where the SDK cannot catch it
		go panic("boom")
		select {}
	}
	return nil, driver.Errorf(driver.CodeUnsupported, "no operation %s", op)
}

// raw plays the plugins that break the protocol.
func raw(mode string) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	check(err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC), DNSNames: []string{"localhost"}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	check(err)
	shown := der
	path := filepath.Join(os.Getenv(bcx.EnvSocketDir), bcx.SocketName)
	switch mode {
	case "wrong-certificate":
		other, err := bcx.NewIdentity()
		check(err)
		shown = other.DER()
	case "outside":
		fmt.Printf("bcx|1|unix|/tmp/plugin.sock|grpc|%s\n", base64.RawStdEncoding.EncodeToString(shown))
		_, _ = io.Copy(io.Discard, os.Stdin)
		return
	}
	l, err := net.Listen("unix", path)
	check(err)
	fmt.Printf("bcx|1|unix|%s|grpc|%s\n", path, base64.RawStdEncoding.EncodeToString(shown))
	if mode == "garbage" {
		for {
			c, err := l.Accept()
			check(err)
			_, _ = c.Write([]byte(strings.Repeat("\x00\xff garbage ", 1000)))
		}
	}
	config := &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}, ClientAuth: tls.RequireAnyClientCert}
	if mode == "garbage-frames" {
		config.NextProtos = []string{"h2"}
		for secure := tls.NewListener(l, config); ; {
			c, err := secure.Accept()
			check(err)
			_, _ = c.Write([]byte(strings.Repeat("\x00\xff garbage ", 1000)))
		}
	}
	s := grpc.NewServer(grpc.Creds(credentials.NewTLS(config)))
	driverv1.RegisterDriverPluginServer(s, &rawPlugin{mode: mode})
	go func() {
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	}()
	check(s.Serve(l))
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

type rawPlugin struct {
	driverv1.UnimplementedDriverPluginServer
	mode string
}

func (p *rawPlugin) Describe(_ context.Context, _ *driverv1.DescribeRequest) (*driverv1.DescribeResponse, error) {
	m := &driverv1.DriverManifest{Id: "acme", Version: "1.0.0", RunsOn: "site", Kinds: []string{"acme-test"}}
	r := &driverv1.DescribeResponse{Drivers: []*driverv1.DriverManifest{m}, ProtocolVersion: 1}
	switch p.mode {
	case "version-two":
		r.ProtocolVersion = 2
	case "describe-hangs":
		fmt.Fprintln(os.Stderr, "asked what I serve")
		select {} // past every deadline
	case "no-driver":
		r.Drivers = nil
	case "bad-id":
		m.Id = "../etc"
	case "built-in-id":
		m.Id = "redfish"
	}
	return r, nil
}

func (p *rawPlugin) Health(context.Context, *driverv1.HealthRequest) (*driverv1.HealthResponse, error) {
	if p.mode == "health-hangs" {
		select {}
	}
	return &driverv1.HealthResponse{Status: driverv1.HealthResponse_SERVING}, nil
}

func (p *rawPlugin) Invoke(_ *driverv1.InvokeRequest, s grpc.ServerStreamingServer[driverv1.InvokeResponse]) error {
	result := &driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_ResultJson{ResultJson: "1"}}
	failure := &driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_Error{Error: &driverv1.DriverError{Code: "busy", Message: "busy"}}}
	switch p.mode {
	case "result-after-error":
		return errors.Join(s.Send(failure), s.Send(result))
	case "endless-progress":
		for {
			if err := s.Send(&driverv1.InvokeResponse{Event: &driverv1.InvokeResponse_Progress{Progress: &driverv1.Progress{Phase: "x"}}}); err != nil {
				return err
			}
		}
	}
	return s.Send(result)
}
