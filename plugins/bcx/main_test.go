package bcx

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

// envRole makes the test binary a plugin: one of roles, run instead of the tests.
const envRole = "BCX_TEST_ROLE"

var roles = map[string]func(){
	"echo":  func() { Main(Options{PluginVersion: "test"}, echoDefinition()) },
	"crash": func() { fmt.Fprintln(os.Stderr, "no license found"); os.Exit(3) },
	"hang":  func() { select {} },
	"chatty": func() {
		fmt.Println("Welcome to Acme!")
		select {}
	},
	// changing describes another version of its driver in every run but the first, which leaves a file behind.
	"changing": func() {
		def := echoDefinition()
		if _, err := os.Stat(os.Getenv("BCX_TEST_MARK")); err == nil {
			def.Version = "9.9.9"
		} else if err := os.WriteFile(os.Getenv("BCX_TEST_MARK"), nil, 0o600); err != nil {
			panic(err)
		}
		Main(Options{PluginVersion: "test"}, def)
	},
	"endless line": func() { _, _ = io.Copy(os.Stdout, zeros{}) },
	"version 2":    func() { fmt.Println("bcx|2|unix|/run/x|grpc|AAAA"); select {} },
	"elsewhere": func() {
		id, _ := NewIdentity()
		fmt.Println(Handshake{Network: "unix", Address: "/run/another/plugin.sock", Certificate: id.DER()})
		select {}
	},
}

func init() {
	roles["loud"] = func() { // refers to roles itself
		n := int64(32 << 20)
		if os.Getenv("BCX_TEST_LOUD") == "full" {
			n = 512 << 20
		}
		_, _ = io.CopyN(os.Stderr, zeros{}, n)
		_, _ = io.CopyN(os.Stderr, lines{}, n)
		roles["echo"]()
	}
}

// zeros is an endless line, lines are endless lines.
type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

type lines struct{}

func (lines) Read(b []byte) (int, error) {
	return copy(b, strings.Repeat("the fan is stuck\n", len(b)/17+1)), nil
}

func TestMain(m *testing.M) {
	if role := os.Getenv(envRole); role != "" && os.Getenv(EnvCookie) == Cookie {
		roles[role]()
		return
	}
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/better-compute/bcd/plugins/bcx.(*echo).Invoke")) // the operation that never ends
}

// inRole is the configuration of a host that runs the test binary in a role.
func inRole(t *testing.T, role string) HostConfig {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	sum, err := SHA256File(self)
	if err != nil {
		t.Fatal(err)
	}
	return HostConfig{Command: []string{self}, SHA256: sum, Env: []string{envRole + "=" + role}, StartTimeout: limit}
}
