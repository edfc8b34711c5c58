// Package site wires the appliance: it is the one room that knows every adapter. A Site is a list of components, started in
// order and stopped in reverse.
package site

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/access"
	"github.com/better-compute/bcd/app/agent"
	"github.com/better-compute/bcd/app/drivers"
	"github.com/better-compute/bcd/app/event"
	"github.com/better-compute/bcd/app/health"
	"github.com/better-compute/bcd/app/metal"
	"github.com/better-compute/bcd/app/metal/deploy"
	"github.com/better-compute/bcd/app/recorder"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/app/workflow"
	"github.com/better-compute/bcd/bmc/redfish"
	"github.com/better-compute/bcd/images/catalog"
	"github.com/better-compute/bcd/netboot"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/store"
	"github.com/better-compute/bcd/web"
	"github.com/better-compute/bcd/web/agentapi"
	"github.com/better-compute/bcd/web/api"
	"github.com/better-compute/bcd/web/console"
	"github.com/better-compute/bcd/web/keypair"
)

// imagesDir is below the data directory.
const imagesDir = "images"

// Config of a Site. File and Log are required.
type Config struct {
	File    File
	Version string
	Log     *slog.Logger
	// Terminal shows what only the person at the host may see: the setup code and the console's key. nil: nothing.
	Terminal io.Writer
	// Sockets opens the sockets of the provisioning side in another network namespace; nil: this process's. The console
	// is always opened in this one.
	Sockets netboot.Sockets
	// Journal wraps the store of the workflow engine; nil: it is used as it is. A test of the whole site stops the process
	// there, at an instant of its choice.
	Journal func(workflow.Store) workflow.Store
	// Builtins are the plugins inside this executable, by what [plugins] builtin calls them. Only the program's own main can
	// be them, so there are none unless it says so; and only it can be the sandbox's shim.
	Builtins map[string]host.Bundled
	// Silence is how long nothing may be heard of a system that was just installed before its machine is reset; 0: as built in.
	Silence time.Duration
	// AgentLate is how long an agent may be silent until its machine's power is asked for; 0: as built in.
	AgentLate time.Duration
	// Patience, when not 0, takes the place of each limit of an exchange with a BMC and of those for a plugin to start and to
	// say that it is well. It is for hosts that stand still now and then.
	Patience time.Duration
	// Flavour of the built-in ramdisk: "server" (default) or "lab".
	Flavour string
}

// Site is an appliance.
type Site struct {
	cfg   Config
	log   *slog.Logger
	dir   string // of the data
	key   []byte
	files *bootFiles

	db       *store.DB
	bus      *event.Bus
	recorder *recorder.Recorder
	consoles consoles
	serials  *serial.Consoles
	asked    questions
	vault    *secret.Vault
	access   *access.Service
	redfish  *redfish.Driver
	registry *drivers.Registry
	bindings *drivers.Keeper
	engine   *workflow.Engine
	agents   *agent.Service
	catalog  *catalog.Catalog
	netboot  *netboot.Server
	programs *bootImages
	isos     *isoReads
	health   *health.Service
	plugins  *host.Host
	home     *home
	ports    *metal.Ports
	service  *service
	api      *api.API

	pair, agentPair         *keypair.Pair
	console, agentsListener net.Listener
	parts                   []part
	setupCode               string
}

// New opens store, keys and listeners and wires the components. On an error nothing stays open.
func New(ctx context.Context, cfg Config) (_ *Site, err error) {
	s := &Site{cfg: cfg, log: cfg.Log, dir: cfg.File.Site.DataDir}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.close())
		}
	}()
	for _, step := range []func(context.Context) error{s.openData, s.openKeys, s.wireCore, s.wirePlugins, s.wireNetboot, s.wireMachines, s.wireWeb} {
		if err := step(ctx); err != nil {
			return nil, err
		}
	}
	return s, nil
}

func (s *Site) openData(ctx context.Context) (err error) {
	for _, d := range []string{s.dir, filepath.Join(s.dir, keysDir), filepath.Join(s.dir, imagesDir)} {
		if err := os.MkdirAll(d, 0o700); err != nil {
			return app.Errorf(app.InvalidConfig, "data-dir", "the data directory cannot be made: %w", err).At("site.data_dir").Do("run bcd install, or name another directory")
		}
	}
	if s.db, err = store.Open(ctx, store.Config{Path: filepath.Join(s.dir, databaseName), Log: s.log}); err != nil {
		return err
	}
	if err := removeLeftovers(s.dir); err != nil {
		return fmt.Errorf("removing what an earlier backup left: %w", err)
	}
	s.bus = event.New(event.Config{Store: s.db, Log: s.log})
	s.add("events", s.bus.Run)
	s.openRecorder()
	return nil
}

func (s *Site) openKeys(ctx context.Context) (err error) {
	keys := filepath.Join(s.dir, keysDir)
	if err := checkKeys(ctx, s.db, keys); err != nil {
		return err
	}
	if s.key, err = loadKey(keys, "site.key"); err != nil {
		return err
	}
	if err := s.openVault(keys); err != nil {
		return err
	}
	if err := rememberKeys(ctx, s.db, keys); err != nil {
		return err
	}
	host, err := os.Hostname()
	if err != nil {
		host = "bcd"
	}
	s.pair, err = keypair.Open(keypair.Config{KeyFile: filepath.Join(keys, "console.key"), CertFile: filepath.Join(keys, "console.crt"),
		Names: append([]string{host, "localhost"}, ownAddresses()...), Log: s.log})
	if err != nil {
		return err
	}
	s.agentPair, err = keypair.Open(keypair.Config{KeyFile: filepath.Join(keys, "agent.key"), CertFile: filepath.Join(keys, "agent.crt"), Names: []string{host}, Log: s.log})
	return err
}

// free is how much may be written to the file system of the data, in bytes.
func (s *Site) free() (int64, error) {
	var st syscall.Statfs_t
	if err := syscall.Statfs(s.dir, &st); err != nil {
		return 0, fmt.Errorf("looking at the file system of %s: %w", s.dir, err)
	}
	return int64(st.Bavail) * st.Bsize, nil
}

// ownAddresses are for the console's certificate.
func ownAddresses() []string {
	out := []string{"127.0.0.1", "::1"}
	addrs, err := net.InterfaceAddrs()
	if err != nil {
		return out
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && !p.Addr().IsLoopback() && !p.Addr().IsLinkLocalUnicast() {
			out = append(out, p.Addr().String())
		}
	}
	return out
}

func (s *Site) wireCore(ctx context.Context) error {
	s.access = access.New(access.Config{Store: s.db, Settings: s.db, Audit: func(_ context.Context, e app.Event) { s.bus.Emit(e) }})
	s.redfish = redfish.New(redfish.Config{Logger: s.log, Patience: s.cfg.Patience})
	if err := s.wireDrivers(ctx); err != nil {
		return err
	}
	s.agents = agent.New(agent.Config{
		Store: s.db, SiteKey: s.key, URLs: s.urls, AgentPin: s.agentPair.SPKI(), Log: s.log, Advertised: s.advertised, Record: s.emit, Identify: s.identify,
		Signal: func(machine, name string, data any) { s.engine.Signal(machine, name, data) },
		Power:  s.powerOf, Late: s.cfg.AgentLate,
	})
	var journal workflow.Store = s.db
	if s.cfg.Journal != nil {
		journal = s.cfg.Journal(journal)
	}
	s.engine = workflow.NewEngine(workflow.Config{Store: journal, Agents: s.agents, Log: s.log, Record: s.emit, Await: s.awaitDrivers})
	if err := s.registerDrivers(); err != nil {
		return err
	}
	var err error
	s.catalog, err = catalog.New(ctx, catalog.Config{Dir: filepath.Join(s.dir, imagesDir), Store: s.db, Log: s.log, Client: s.fetcher(), InUse: s.imageUse, Loaders: imageLoaders})
	if err != nil {
		return err
	}
	s.health = &health.Service{}
	s.health.Add("networks", health.Network(s.db))
	s.health.Add("address pools", health.Pools(s.db, now))
	s.health.Add("bindings", s.bindingHealth)
	s.health.Add("approvals", s.approvalHealth)
	s.health.Add("machines", health.Machines(s.db))
	s.health.Add("boot orders", health.BootOrders(s.db, s.db))
	s.health.Add("images", health.Images(s.db))
	s.health.Add("flight recorder", s.recorderHealth)
	s.health.Add("disk", health.Space(s.free, catalog.DefaultReserve))
	return s.rememberBMCs(ctx)
}

// rememberBMCs tells the registry every BMC address there is, so that no fetch for a user ever goes to one.
func (s *Site) rememberBMCs(ctx context.Context) error {
	after := ""
	for {
		page, err := s.db.ListMachines(ctx, app.MachineFilter{After: after, Limit: 1000})
		if err != nil {
			return err
		}
		for i := range page.Items {
			s.registry.RememberMachine(ctx, &page.Items[i])
		}
		if after = page.Next; after == "" {
			return nil
		}
	}
}

// imageUse names the deploy that needs an image's bytes now.
func (s *Site) imageUse(ctx context.Context, imageID string) (string, error) {
	active, err := s.engine.List(ctx, workflow.Filter{Active: true, Limit: 1000})
	if err != nil {
		return "", err
	}
	for _, w := range active {
		var in struct {
			ImageID string `json:"imageId"`
		}
		if w.Verb == deploy.Verb && json.Unmarshal(w.Input, &in) == nil && in.ImageID == imageID || deploy.Writes(&w, imageID) {
			return "the " + w.Verb + " of machine " + w.MachineID, nil
		}
	}
	return s.isoUse(ctx, imageID)
}

// urls are our base addresses at one local address, for a machine on its network.
func (s *Site) urls(address string) (siteURLs, bootURLs []string) {
	ap := netip.MustParseAddrPort(s.agentsListener.Addr().String())
	a, err := netip.ParseAddr(address)
	if err != nil {
		return nil, nil
	}
	agents := a
	if !ap.Addr().IsUnspecified() {
		agents = ap.Addr() // it listens there only
	}
	return []string{"https://" + netip.AddrPortFrom(agents, ap.Port()).String()}, []string{s.netboot.URL(a, "")}
}

func (s *Site) wireWeb(ctx context.Context) (err error) {
	s.api, err = api.New(api.Config{
		Machines: s.db, Network: s.db, Images: s.db, Events: s.db, Profiles: s.db, Settings: s.db, Workflows: s.engine, Access: s.access,
		Secrets: s.vault, Bus: s.bus, Recorder: s.recorder, Service: s.service, Catalog: images{s.catalog, s.bus.Emit}, Drivers: listing{s.registry, s.bus.Emit}, Bindings: s.bindings, Consoles: s.serials, Approvals: s.db, Operations: s.db, BootOrders: s.db, Kexec: s.db, Certificates: s.db,
		DestructiveBatch: s.cfg.File.Site.DestructiveBatch, SiteName: s.cfg.File.Site.Name, Key: s.pair.SPKI, Plugins: hosted{s.plugins, s.bus.Emit}, Health: warnings{s.health},
		Wire:    s.netboot,
		Version: s.cfg.Version, Log: s.log,
	})
	if err != nil {
		return err
	}
	var lc net.ListenConfig
	if s.console, err = lc.Listen(ctx, "tcp", s.cfg.File.Listen.Console); err != nil {
		return listenError("listen.console", s.cfg.File.Listen.Console, err)
	}
	srv := web.New(web.Config{Listener: s.console, Pair: s.pair, API: s.api, Console: console.New(console.Config{API: s.api, Log: s.log}), Access: s.access, Log: s.log})
	s.add("agents", agentapi.New(agentapi.Config{Listener: s.agentsListener, TLS: s.agentPair.TLS("http/1.1"), Agents: s.agents, Log: s.log}).Run)
	// Workflows that are taken up ask for the addresses machines see us at, so netboot is up before them.
	s.parts = append(s.parts, part{"netboot", s.netboot.Run, s.netboot.Ready()})
	s.add("images", s.catalog.Run)
	s.add("bindings", s.bindings.Run)
	s.add("workflows", s.engine.Run)
	s.add("console", srv.Run)
	s.add("serial", s.serials.Run)
	l := &local{s.dir, s.db, s.access, s.takeUp, make(chan struct{})}
	s.parts = append(s.parts, part{"local", l.run, l.up})
	return nil
}

func listenError(field, addr string, err error) error {
	e := app.Errorf(app.InvalidConfig, "cannot-listen", "%s cannot be opened: %w", addr, err).At(field)
	switch {
	case errors.Is(err, syscall.EADDRNOTAVAIL):
		return e.Do("this host has no such address now: correct it, leave it out to listen on all, or bring its network up first")
	case errors.Is(err, syscall.EACCES):
		return e.Do("run bcd install, whose service may open that port, or choose one above 1023")
	}
	return e.Do("run bcd check: it names the process that holds the port")
}

// greet shows the person at the terminal how to get in.
func (s *Site) greet(ctx context.Context) error {
	code, err := s.access.NewSetupCode(ctx)
	s.setupCode = code
	if err != nil || s.cfg.Terminal == nil {
		return err
	}
	fmt.Fprintf(s.cfg.Terminal, "console: %s\nconsole key (SHA-256): %s\n", s.URL(), s.pair.SPKI())
	if code != "" {
		fmt.Fprintf(s.cfg.Terminal, "setup code: %s\n", code)
	}
	return nil
}

// URL is the console's address.
func (s *Site) URL() string {
	host, port, err := net.SplitHostPort(s.console.Addr().String())
	if ip, perr := netip.ParseAddr(host); err != nil || perr != nil || ip.IsUnspecified() {
		host = "localhost"
	}
	return "https://" + net.JoinHostPort(host, port)
}

// SetupCode makes the first administrator; "" when there is one. It is known once Run has started.
func (s *Site) SetupCode() string { return s.setupCode }

// SPKI is the console key's pin, hex.
func (s *Site) SPKI() string { return s.pair.SPKI() }

// close closes what New opened; components have ended.
func (s *Site) close() error {
	var errs []error
	for _, l := range []net.Listener{s.console, s.agentsListener} {
		if l != nil {
			if err := l.Close(); err != nil && !strings.Contains(err.Error(), "use of closed") {
				errs = append(errs, err)
			}
		}
	}
	if s.redfish != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
		defer cancel()
		errs = append(errs, s.redfish.Close(ctx))
	}
	if s.programs != nil {
		errs = append(errs, s.programs.close())
	}
	if s.db != nil {
		errs = append(errs, s.db.Close())
	}
	return errors.Join(errs...)
}
