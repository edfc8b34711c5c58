// Package webtest builds the whole web face over any store, with fakes for the use cases behind it, for tests.
package webtest

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/app/event"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/web"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console"
	"github.com/better-compute/bcd/web/keypair"
)

// Store is everything the faces keep.
type Store interface {
	app.MachineStore
	app.NetworkStore
	app.ImageStore
	app.EventStore
	app.ProfileStore
	app.SettingStore
	app.AccessStore
	app.SecretStore
	app.ApprovalStore
	app.BMCOperationStore
	app.BootOrderStore
	app.KexecStore
	app.CertificateStore
	app.PortQuestionStore
}

// Password is the password of every user that As makes.
const Password = "correct horse battery"

// Site is a web face under test.
type Site struct {
	T       testing.TB
	Store   Store
	Access  *access.Service
	Secrets *secret.Vault
	Bus     *event.Bus
	Records *recorder.Recorder
	API     *api.API
	Server  *web.Server
	Service *Service
	Lines   *Lines
	Serials *serial.Consoles
	Catalog *Catalog
	Flows   *Flows
	Drivers *Drivers
	Plugins *Plugins
	Health  *Health
	Wire    *Wire
	Clock   *Clock
	Logs    *Buffer
}

// New builds a site over a store. The bus runs until the test ends.
func New(t testing.TB, s Store) *Site {
	t.Helper()
	x := &Site{T: t, Store: s, Clock: &Clock{}, Logs: &Buffer{}, Flows: &Flows{}, Health: &Health{}, Wire: &Wire{}, Plugins: &Plugins{}, Drivers: &Drivers{}}
	log := slog.New(slog.NewJSONHandler(x.Logs, nil))
	x.Bus = event.New(event.Config{Store: s, Log: log})
	x.Records = recorder.New(recorder.Config{Log: log, Now: x.Clock.Now, Names: recorder.Names{Loaders: []string{"snponly.efi"}, Kernel: "vmlinuz", Initramfs: "initramfs.zst"}})
	x.Access = access.New(access.Config{Store: s, Settings: s, Now: x.Clock.Now, Params: access.Params{Memory: 64, Time: 1, Threads: 1},
		Audit: func(_ context.Context, e app.Event) { x.Bus.Emit(e) }})
	var err error
	if x.Secrets, err = secret.Open(secret.Config{KeyFile: filepath.Join(t.TempDir(), "secret.key"), Store: s}); err != nil {
		t.Fatal(err)
	}
	x.Service, x.Catalog = &Service{Store: s}, &Catalog{Store: s}
	x.serials()
	x.API, err = api.New(api.Config{Machines: s, Network: s, Images: s, Events: s, Profiles: s, Settings: s, Workflows: x.Flows, Access: x.Access,
		Secrets: x.Secrets, Bus: x.Bus, Recorder: x.Records, Service: x.Service, Catalog: x.Catalog, Drivers: x.Drivers, Bindings: keeper(t, x, log), Consoles: x.Serials, Approvals: s, Operations: s, BootOrders: s, Kexec: s, Certificates: s, Plugins: x.Plugins, Health: x.Health, Wire: x.Wire, Version: "test", Log: log})
	if err != nil {
		t.Fatal(err)
	}
	x.Server = web.New(web.Config{API: x.API, Console: console.New(console.Config{API: x.API, Log: log}), Access: x.Access, Log: log})
	x.run()
	return x
}

// run runs bus and recorder until the test ends.
func (x *Site) run() {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 3)
	go func() { done <- x.Serials.Run(ctx) }()
	go func() { done <- x.Bus.Run(ctx) }()
	go func() { done <- x.Records.Run(ctx) }()
	x.T.Cleanup(func() {
		cancel()
		for range cap(done) {
			if err := <-done; err != nil {
				x.T.Error(err)
			}
		}
	})
}

// As makes a user of a role, named like the role, if there is none, and gives a session cookie's value.
func (x *Site) As(role app.Role) string {
	x.T.Helper()
	ctx := context.Background()
	if _, err := x.Store.User(ctx, string(role)); err != nil {
		if _, err := x.Access.CreateUser(ctx, "test", string(role), Password, role); err != nil {
			x.T.Fatal(err)
		}
	}
	l, err := x.Access.Login(ctx, string(role), Password, "192.0.2.1:1")
	if err != nil {
		x.T.Fatal(err)
	}
	return l.Cookie
}

// Do sends one request with a session cookie ("" for none). A body that starts with "{" goes as JSON, another as a form.
func (x *Site) Do(method, target, cookie, body string) *httptest.ResponseRecorder {
	r := httptest.NewRequest(method, "https://bcd.example"+target, strings.NewReader(body))
	switch {
	case strings.HasPrefix(target, "/api/"):
		r.Header.Set("Content-Type", "application/json")
	case body != "":
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	if cookie != "" {
		r.AddCookie(&http.Cookie{Name: api.CookieName, Value: cookie})
	}
	return x.Send(r)
}

// Send sends one request.
func (x *Site) Send(r *http.Request) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	x.Server.Handler().ServeHTTP(w, r)
	return w
}

// Clock is time.Now, moved on by Add, until Stop.
type Clock struct {
	mu      sync.Mutex
	off     time.Duration
	stopped time.Time
}

// Now is the moved time.
func (c *Clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.stopped.IsZero() {
		return c.stopped.Add(c.off)
	}
	return time.Now().Add(c.off)
}

// Stop makes the time stand still but for Add: for tests of what is said of a moment ago.
func (c *Clock) Stop() { c.mu.Lock(); defer c.mu.Unlock(); c.stopped = time.Now() }

// Add moves the clock.
func (c *Clock) Add(d time.Duration) { c.mu.Lock(); defer c.mu.Unlock(); c.off += d }

// Buffer is a log that can be read while it is written.
type Buffer struct {
	mu sync.Mutex
	b  strings.Builder
}

// Write appends.
func (b *Buffer) Write(p []byte) (int, error) { b.mu.Lock(); defer b.mu.Unlock(); return b.b.Write(p) }

// String is what was written so far.
func (b *Buffer) String() string { b.mu.Lock(); defer b.mu.Unlock(); return b.b.String() }

// Catalog counts what is uploaded.
type Catalog struct {
	Taken atomic.Int64 // bytes of uploads so far, of one that runs too
	Store Store
	Err   error
	Read  int64
	In    api.ImportInput
	URL   string
}

func (c *Catalog) row(ctx context.Context, in api.ImportInput, state string) (*app.Image, error) {
	img := &app.Image{ID: app.NewID("img"), Name: in.Name, State: state, Format: in.Format, SourceSHA: in.SHA256, SourceSize: c.Read, RawBytes: c.Read, Created: time.Now()}
	return img, c.Store.CreateImage(ctx, img)
}

// Upload reads all of the body.
func (c *Catalog) Upload(ctx context.Context, _ string, in api.ImportInput, body io.Reader, _ int64) (*app.Image, error) {
	c.In = in
	if c.Err != nil {
		return nil, c.Err
	}
	n, err := io.Copy(counter{&c.Taken}, body)
	if c.Read = n; err != nil {
		return nil, err
	}
	return c.row(ctx, in, "ready")
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(p []byte) (int, error) { c.n.Add(int64(len(p))); return len(p), nil }

// Fetch stores an importing row.
func (c *Catalog) Fetch(ctx context.Context, _ string, in api.ImportInput, url string) (*app.Image, error) {
	c.In, c.URL = in, url
	return c.row(ctx, in, "importing")
}

// ImportPath stores an importing row.
func (c *Catalog) ImportPath(ctx context.Context, _ string, in api.ImportInput, path string) (*app.Image, error) {
	c.In, c.URL = in, path
	return c.row(ctx, in, "importing")
}

// Delete removes the row.
func (c *Catalog) Delete(ctx context.Context, _, id string) error {
	return c.Store.DeleteImage(ctx, id)
}

// Drivers is two drivers, one of them in two versions.
type Drivers struct {
	mu    sync.Mutex
	picks []string
}

// PickDriver notes the pick and who made it.
func (d *Drivers) PickDriver(_ context.Context, actor, id, version string) error {
	if id != "redfish" || version != "" && version != "1.0.0" {
		return app.Missing("driver", id+"@"+version)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.picks = append(d.picks, actor+" "+id+"@"+version)
	return nil
}

// Picks lists what was picked.
func (d *Drivers) Picks() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	return append([]string(nil), d.picks...)
}

// SiteLabels are three.
func (*Drivers) SiteLabels(context.Context) map[string]string {
	return map[string]string{"bc.dev/driver.redfish": "1.0.0", "bc.dev/driver-kind.redfish.power": "1", "bc.dev/cap.tls-pin": "1"}
}

// ListDrivers filters by kind.
func (*Drivers) ListDrivers(_ context.Context, kind string) ([]api.Driver, error) {
	all := []api.Driver{
		{ID: "ipxe", Version: "1.0.0", RunsOn: "site", Kinds: []string{"boot"}, Capabilities: []string{}, Active: true, Source: "built-in"},
		{ID: "redfish", Version: "0.9.0", RunsOn: "site", Kinds: []string{"power"}, Capabilities: []string{}, Source: "built-in"},
		{ID: "redfish", Version: "1.0.0", RunsOn: "site", Kinds: []string{"inspect", "management", "power"}, Capabilities: []string{"tls-pin"}, Active: true, Picked: true, Source: "built-in",
			Operations: map[string][]string{"power": {"getPower", "setPower"}}, RetrySafe: map[string][]string{"power": {"getPower"}}},
	}
	var out []api.Driver
	for _, d := range all {
		for _, k := range d.Kinds {
			if kind == "" || kind == k {
				out = append(out, d)
				break
			}
		}
	}
	return out, nil
}

// Health answers with List.
type Health struct{ List []api.Warning }

// Warnings gives List.
func (h *Health) Warnings(context.Context) ([]api.Warning, error) { return h.List, nil }

// Serve serves the site over TLS on loopback until the test ends, and gives its address.
func (x *Site) Serve() string {
	x.T.Helper()
	dir := x.T.TempDir()
	pair, err := keypair.Open(keypair.Config{KeyFile: filepath.Join(dir, "tls.key"), CertFile: filepath.Join(dir, "tls.crt"), Log: x.Server.Log})
	if err != nil {
		x.T.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		x.T.Fatal(err)
	}
	c := x.Server.Config
	c.Listener, c.Pair = l, pair
	srv := web.New(c)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- srv.Run(ctx) }()
	x.T.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			x.T.Error(err)
		}
	})
	return "https://" + l.Addr().String()
}
