package site

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/health"
	"github.com/better-compute/bcd/images/ramdisk"
	"github.com/better-compute/bcd/images/ramdisk/embed"
	"github.com/better-compute/bcd/netboot"
	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
	"github.com/better-compute/bcd/web/agentapi"
)

// kernelArgs are on every ramdisk's kernel line. Nothing secret may be on it: it is printed to consoles that are recorded.
const kernelArgs = "console=tty0 console=ttyS0,115200 rdinit=/init"

// bootFiles is the directory of kernel, initramfs and loaders.
type bootFiles struct {
	dir      string
	manifest *ramdisk.Manifest // nil: there is no ramdisk
}

// openBootFiles finds the ramdisk: the configured directory, else the one inside this binary, unpacked into the data
// directory so that its files are sent by the kernel.
func openBootFiles(dataDir, configured, flavour string) (*bootFiles, error) {
	if configured != "" {
		m, err := ramdisk.Verify(os.DirFS(configured))
		if err != nil {
			return nil, app.Errorf(app.InvalidConfig, "bad-ramdisk", "%s holds no whole ramdisk: %w", configured, err).At("netboot.ramdisk").
				Do("name a directory that bcd ramdisk build wrote, or leave it out for the ramdisk inside the program")
		}
		return &bootFiles{configured, m}, nil
	}
	if flavour == "" {
		flavour = ramdisk.Server
	}
	dir := filepath.Join(dataDir, "ramdisk", flavour)
	src, err := embed.FS(flavour)
	if errors.Is(err, embed.ErrNotEmbedded) {
		return &bootFiles{dir: dir}, os.MkdirAll(dir, 0o755)
	}
	if err != nil {
		return nil, err
	}
	if m, err := ramdisk.Verify(os.DirFS(dir)); err == nil {
		if want, err := ramdisk.ReadManifest(src); err == nil && want.Files[0].SHA256 == m.Files[0].SHA256 && same(want, m) {
			return &bootFiles{dir, m}, nil
		}
	}
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(dir), 0o755); err != nil {
		return nil, err
	}
	if err := os.CopyFS(dir, src); err != nil {
		return nil, app.Errorf(app.StorageFull, "ramdisk-not-unpacked", "the ramdisk cannot be unpacked: %w", err).Do("free some space in the data directory")
	}
	m, err := ramdisk.Verify(os.DirFS(dir))
	return &bootFiles{dir, m}, err
}

func same(a, b *ramdisk.Manifest) bool {
	x, xerr := json.Marshal(a)
	y, yerr := json.Marshal(b)
	return xerr == nil && yerr == nil && string(x) == string(y)
}

// health says when there is nothing to netboot into.
func (f *bootFiles) health(context.Context) ([]health.Warning, error) {
	if f.manifest != nil {
		return nil, nil
	}
	return []health.Warning{{Code: "no-ramdisk", Level: "error", Message: "this binary carries no ramdisk, so no machine can be commissioned or deployed",
		WayOut: "build it with make build, or name a directory that bcd ramdisk build wrote as [netboot] ramdisk in config.toml"}}, nil
}

func (s *Site) wireNetboot(ctx context.Context) (err error) {
	f := s.cfg.File
	if s.files, err = openBootFiles(s.dir, f.Netboot.Ramdisk, s.cfg.Flavour); err != nil {
		return err
	}
	if s.programs, err = openBootImages(s.files); err != nil {
		return err
	}
	s.health.Add("ramdisk", s.files.health)
	s.health.Add("ports", s.askedPorts)
	if s.cfg.Sockets == nil {
		s.cfg.Sockets = func(open func() error) error { return open() }
	}
	err = s.cfg.Sockets(func() (err error) {
		var lc net.ListenConfig
		s.agentsListener, err = lc.Listen(ctx, "tcp4", f.Listen.Agent)
		return err
	})
	if err != nil {
		return listenError("listen.agent", f.Listen.Agent, err)
	}
	s.isos = s.newISOReads()
	s.home = &home{key: s.key, agents: s.db, db: s.db, revoke: s.agents.Revoke, signal: func(m, n string, d any) { s.engine.Signal(m, n, d) }, record: s.emit, now: now}
	s.netboot, err = netboot.New(netboot.Config{
		Port: port67{s}, Store: s.db, Sockets: s.cfg.Sockets, HTTP: f.Listen.Boot, Loaders: s.loaders(), Log: s.log, Record: s.recordNetboot,
		Mounts: []netboot.Mount{
			{Prefix: "/ramdisk/", Open: func(_ context.Context, rest string) (*os.File, error) { return openBelow(s.files.dir, rest) }},
			{Prefix: "/images/", Open: s.catalog.OpenIndex},
			{Prefix: "/packs/", Quiet: true, Open: s.catalog.OpenPack},
			{Prefix: isoMount, Quiet: true, Open: s.isos.Open, Sent: s.isos.Sent},
		},
		Handlers: []netboot.Handler{{Prefix: homePath, Handler: s.home}, {Prefix: agentv1.PathStream, Handler: agentapi.Stream()}},
	})
	return err
}

// loaders are the operator's own builds first, then those beside the ramdisk.
func (s *Site) loaders() fs.FS {
	own := s.cfg.File.Netboot.Loaders
	if own == "" {
		return os.DirFS(s.files.dir)
	}
	return firstOf{os.DirFS(own), os.DirFS(s.files.dir)}
}

type firstOf []fs.FS

// Open opens a file in the first file system that has it.
func (f firstOf) Open(name string) (file fs.File, err error) {
	for _, x := range f {
		if file, err = x.Open(name); err == nil {
			return file, nil
		}
	}
	return nil, err
}

// openBelow opens a plain file of a directory, which has no subdirectories.
func openBelow(dir, name string) (*os.File, error) {
	if name == "" || strings.ContainsAny(name, "/\\") || !filepath.IsLocal(name) {
		return nil, fs.ErrNotExist
	}
	return os.Open(filepath.Join(dir, name))
}

// recordNetboot keeps an exchange on its machine's timeline, what a person should see in the audit trail too, and takes an
// installed system's request for an address as a sign of life.
func (s *Site) recordNetboot(e app.Event) {
	s.recorder.Event(e)
	if e.Level != "info" || e.Kind == "dhcp.rival" {
		s.bus.Emit(e)
	}
	if e.Kind != "dhcp.ack" || e.MachineID == "" {
		return
	}
	var x struct {
		Stage string `json:"stage"`
	}
	if json.Unmarshal(e.Data, &x) != nil || x.Stage != "os" {
		return
	}
	go func() { // it reads and writes the store, and recording must not wait
		ctx, cancel := context.WithTimeout(context.Background(), storeTime)
		defer cancel()
		if m, err := s.db.Machine(ctx, e.MachineID); err == nil {
			s.home.sawFrame(ctx, m)
		}
	}()
}

// port67 tells netboot who machines are and what they boot.
type port67 struct{ s *Site }

var _ netboot.Port = port67{}

// Target says what a machine boots now: the ramdisk, or a CD image, while it has a permission, else its disk.
func (p port67) Target(ctx context.Context, c netboot.Client) (netboot.Target, error) {
	m, q, err := p.find(ctx, c)
	if err != nil || m == nil {
		return netboot.Target{Kind: netboot.KindNone}, err
	}
	t := netboot.Target{MachineID: m.ID, Name: m.Name, Kind: netboot.KindDisk}
	if q != noQuestion {
		return t, nil
	}
	b, err := p.s.agents.Live(ctx, m.ID)
	if app.CodeOf(err) == app.NotFound {
		return t, nil
	}
	if err != nil {
		return t, err
	}
	if b.ISO != "" {
		// Once the image was started, the workflow is over: a machine that its installer restarts goes on to its disk.
		if !b.Media && m.WorkflowID == b.WorkflowID {
			t.Kind, t.ISO = netboot.KindISO, isoPath(b.Key)
		}
		return t, nil
	}
	args, err := p.kernelArgs(ctx, m)
	if err != nil {
		return t, err
	}
	t.Kind, t.Kernel, t.Cmdline, t.Program = netboot.KindRamdisk, "/ramdisk/"+ramdisk.KernelFile, args, p.s.programs.program(b)
	t.Initrds = []string{"/boot/" + b.Key + "/bootdata.cpio", "/ramdisk/" + ramdisk.InitramfsFile}
	return t, nil
}

func (p port67) kernelArgs(ctx context.Context, m *app.Machine) (string, error) {
	prof, err := p.s.registry.ProfileFor(ctx, m)
	if err != nil || prof == nil || prof.KernelArgs == "" {
		return kernelArgs, err
	}
	return kernelArgs + " " + prof.KernelArgs, nil
}

// Reservation gives machines of ours their address for good.
func (p port67) Reservation(ctx context.Context, mac app.MAC) (netboot.Reservation, error) {
	id, err := p.s.db.OwnerOf(ctx, mac)
	return netboot.Reservation{MachineID: id}, err
}

// Discovered keeps an unknown machine for a person to accept.
func (p port67) Discovered(ctx context.Context, d app.Discovery) {
	if err := p.s.db.PutDiscovery(ctx, &d); err != nil {
		p.s.log.Error("a discovered machine was not kept", "mac", d.MAC, "error", err)
	}
}

// BootData gives the first cpio of a boot.
func (p port67) BootData(ctx context.Context, key string) ([]byte, error) {
	d, err := p.s.agents.BootData(ctx, key)
	if err != nil {
		return nil, err
	}
	return ramdisk.BootDataCPIO(d)
}

// address is our own address as a machine's network sees it.
func (s *Site) address(m *app.Machine) (netip.Addr, error) {
	for _, n := range m.NICs {
		if a, ok := s.netboot.AddressFor(n.MAC); ok {
			return a, nil
		}
	}
	if a, ok := s.netboot.AddressFor(""); ok {
		return a, nil
	}
	return netip.Addr{}, app.Errorf(app.Conflict, "no-subnet-on", "no subnet is turned on, so no machine can netboot").
		Do("add the provisioning subnet and turn it on")
}
