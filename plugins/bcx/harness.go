package bcx

import (
	"context"
	"log/slog"
	"os"
	"regexp"
	"strings"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// T is what Harness needs of *testing.T.
type T interface {
	Helper()
	Name() string
	Cleanup(func())
	Fatalf(format string, args ...any)
	Logf(format string, args ...any)
}

// envHarness tells the test binary, run again, which test it is to be a plugin in.
const envHarness = "BCX_HARNESS"

// Running is a plugin that runs for a test.
type Running struct {
	Host    *Host
	Drivers []*driver.Driver // by id
}

// Driver finds a driver by id; it is nil when the plugin serves none.
func (r *Running) Driver(id string) *driver.Driver {
	for _, d := range r.Drivers {
		if d.ID() == id {
			return d
		}
	}
	return nil
}

// Harness runs a definition as a real plugin: the test binary is started again as a process of its own, comes to this very
// call in this very test, and serves the definition there. The returned driver reaches it over the wire, with everything
// that lies between: processes, certificates, JSON. The plugin ends with the test.
//
// What the test does before the call happens in both processes: call it first, and write nothing to stdout before.
func Harness(t T, def driver.Definition) *driver.Driver {
	t.Helper()
	return HarnessWith(t, Options{}, HostConfig{}, def).Drivers[0]
}

// HarnessWith is Harness with options of the plugin and of its host (whose Command, SHA256 and Dir are the harness's own),
// for any number of definitions.
func HarnessWith(t T, o Options, c HostConfig, defs ...driver.Definition) *Running {
	t.Helper()
	if os.Getenv(EnvCookie) == Cookie && os.Getenv(envHarness) == t.Name() {
		Main(o, defs...)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatalf("finding the test binary: %v", err)
	}
	sum, err := SHA256File(self)
	if err != nil {
		t.Fatalf("%v", err)
	}
	c.Command, c.SHA256, c.Dir = []string{self, "-test.run=" + only(t.Name()), "-test.count=1"}, sum, ""
	c.Env = append([]string{envHarness + "=" + t.Name()}, c.Env...)
	if c.Logger == nil {
		c.Logger = slog.New(slog.NewTextHandler(logWriter{t}, nil))
	}
	h := NewHost(c)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	drivers, err := h.Start(ctx)
	if err != nil {
		t.Fatalf("starting the plugin: %v", err)
	}
	t.Cleanup(func() { _ = h.Close() })
	return &Running{Host: h, Drivers: drivers}
}

// only is the pattern of exactly one test.
func only(name string) string {
	parts := strings.Split(name, "/")
	for i, p := range parts {
		parts[i] = "^" + regexp.QuoteMeta(p) + "$"
	}
	return strings.Join(parts, "/")
}

// logWriter writes log lines to a test's log.
type logWriter struct{ t T }

func (w logWriter) Write(b []byte) (int, error) {
	w.t.Logf("%s", strings.TrimRight(string(b), "\n"))
	return len(b), nil
}
