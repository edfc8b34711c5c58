package lab

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/bmc/virtual"
	"github.com/better-compute/bcd/images/osimage"
)

// AdminUser is the console's first user.
const AdminUser = "admin"

// Appliance says how the lab wants its appliance started.
type Appliance struct {
	DataDir string   // empty and the appliance's own
	Console string   // address of console and API, in the host's namespace
	Network *Network // where everything for machines listens: open those sockets in Network.Do
	Log     *slog.Logger
}

// Site is a running appliance as its operator sees it.
type Site interface {
	URL() string       // of console and API
	SPKI() string      // lower-case hex SHA-256 of its key
	SetupCode() string // for the first administrator
	Wait() error       // until it has ended, which the context it was started with brings about
}

// Config describes a lab.
type Config struct {
	Work    string // folder; built images stay in it for later runs, the rest is removed at the end
	Auto    bool   // end after the drive; else stay up until ctx ends
	Console string // address for the console on the host; default "127.0.0.1:8443"
	Image   osimage.Options
	Network NetworkConfig
	Start   func(ctx context.Context, a Appliance) (Site, error) // starts the appliance; required
	Out     io.Writer                                            // for a person; required
	Log     *slog.Logger                                         // default: discard
}

// lab is one run.
type lab struct {
	Config
	begun time.Time
	mu    sync.Mutex // protects Out
}

// Run builds the image, makes the rack, starts the appliance, drives the main job through the public API, and then stays up
// until ctx ends, or with Auto ends. When it returns, no process, namespace or mount is left, and in Work only the images.
func Run(ctx context.Context, cfg Config) (err error) {
	if os.Geteuid() != 0 {
		return app.Errorf(app.Forbidden, "need-root", "the lab makes a network namespace and a Debian image, which needs root").Do("run it as root")
	}
	if cfg.Console == "" {
		cfg.Console = "127.0.0.1:8443"
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	if cfg.Work, err = filepath.Abs(cfg.Work); err != nil {
		return fmt.Errorf("resolving the work folder: %w", err)
	}
	l := &lab{Config: cfg, begun: time.Now()}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()

	img, err := l.image(ctx)
	if err != nil {
		return err
	}
	var screen console
	rack, err := NewRack(RackConfig{
		Dir: filepath.Join(cfg.Work, "machines"), Network: cfg.Network, Log: cfg.Log, OnLine: screen.line,
		Machines: []MachineSpec{{Name: "bios-1", Firmware: app.FirmwareBIOS, Bus: virtual.VirtIO}, {Name: "uefi-1", Firmware: app.FirmwareUEFI, Bus: virtual.NVMe}},
	})
	if err != nil {
		return err
	}
	data := filepath.Join(cfg.Work, "data")
	// In this order: the appliance first, which speaks to the machines; then the machines; then their network.
	defer func() {
		err = errors.Join(err, rack.Close(), os.RemoveAll(data), removeEmpty(filepath.Join(cfg.Work, "machines")))
	}()
	racked := make(chan error, 1)
	go func() { racked <- rack.Run(ctx) }()
	defer func() { cancel(); err = errors.Join(err, <-racked) }()
	l.say("network %s with machines %s", rack.Network.Name(), "bios-1 (BIOS) and uefi-1 (UEFI)")

	if err := os.RemoveAll(data); err != nil { // of a killed lab
		return fmt.Errorf("clearing the appliance's folder: %w", err)
	}
	if err := os.MkdirAll(data, 0o700); err != nil {
		return fmt.Errorf("making the appliance's folder: %w", err)
	}
	site, err := cfg.Start(ctx, Appliance{DataDir: data, Console: cfg.Console, Network: rack.Network, Log: cfg.Log})
	if err != nil {
		return fmt.Errorf("starting the appliance: %w", err)
	}
	gone := make(chan struct{})
	var siteErr error
	go func() { defer close(gone); siteErr = site.Wait(); cancel() }()
	defer func() { cancel(); <-gone; err = errors.Join(err, siteErr) }()
	screen.show(site)
	l.say("appliance up at %s", site.URL())
	return l.work(ctx, site, rack, img)
}

// console passes what machines print on to the appliance, once it is up, for their timelines.
type console struct {
	to atomic.Pointer[func(machine, text string)]
}

func (c *console) show(s Site) {
	if x, ok := s.(interface{ ConsoleLine(machine, text string) }); ok {
		to := x.ConsoleLine
		c.to.Store(&to)
	}
}

func (c *console) line(machine string, l virtual.Line) {
	if to := c.to.Load(); to != nil {
		(*to)(machine, l.Text)
	}
}

// work drives the main job and then waits as the configuration says.
func (l *lab) work(ctx context.Context, site Site, rack *Rack, img *osimage.Image) error {
	client := NewClient(site.URL(), site.SPKI())
	defer client.Close()
	password := rand.Text()
	if err := client.Setup(ctx, site.SetupCode(), AdminUser, password); err != nil {
		return fmt.Errorf("setting up the first administrator: %w", err)
	}
	d := &Driver{API: client, Rack: rack, Say: l.say}
	deployed, released, err := d.Run(ctx, img.Path, []Plan{{Machine: "bios-1", Release: true}, {Machine: "uefi-1", Kexec: true}})
	if ctx.Err() != nil && !l.Auto { // Ctrl-C
		return nil
	}
	if err == nil && !l.Auto {
		l.print("\nThe lab stays up. Console: %s   user: %s   password: %s\nKey (SHA-256): %s\nCtrl-C ends it and leaves nothing behind.\n",
			site.URL(), AdminUser, password, site.SPKI())
		<-ctx.Done()
		return nil
	}
	if err != nil {
		return err
	}
	l.print("lab: %d machines deployed, %d released\n", deployed, released)
	return nil
}

// Run takes the whole main job: network, image, and all machines at once through their plans. It counts the machines
// deployed and released.
func (d *Driver) Run(ctx context.Context, image string, plans []Plan) (deployed, released int, err error) {
	g, both := errgroup.WithContext(ctx)
	g.Go(func() error { return d.PrepareNetwork(both) })
	g.Go(func() error { _, err := d.ImportImage(both, image); return err })
	if err := g.Wait(); err != nil {
		return 0, 0, err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	type outcome struct {
		deployed, released bool
		err                error
	}
	ended := make(chan outcome, len(plans))
	for _, p := range plans {
		go func() {
			var o outcome
			o.err = d.explain(p.Machine, d.Machine(ctx, p))
			o.deployed = o.err == nil
			if o.deployed && p.Release {
				o.err = d.explain(p.Machine, d.Release(ctx, p.Machine))
				o.released = o.err == nil
			}
			if o.err != nil {
				cancel() // the others need not go on
			}
			ended <- o
		}()
	}
	var errs []error
	for range plans {
		o := <-ended
		if o.deployed {
			deployed++
		}
		if o.released {
			released++
		}
		errs = append(errs, o.err)
	}
	return deployed, released, errors.Join(errs...)
}

// image gives the Debian image, built at the first run.
func (l *lab) image(ctx context.Context) (*osimage.Image, error) {
	img, err := osimage.Build(ctx, osimage.Config{
		Options: l.Image, Cache: filepath.Join(l.Work, "images"), Log: l.Log,
		Step: func(name string) { l.say("building the Debian image: %s", name) },
	})
	if err != nil {
		return nil, fmt.Errorf("building the Debian image: %w", err)
	}
	l.say("image with kernel %s: %d MiB used of %d MiB", img.Kernel, img.Used>>20, img.RawBytes>>20)
	return img, nil
}

// say prints one line with the time since the start.
func (l *lab) say(format string, args ...any) {
	l.print("%7.1f s  %s\n", time.Since(l.begun).Seconds(), fmt.Sprintf(format, args...))
}

func (l *lab) print(format string, args ...any) {
	l.mu.Lock()
	defer l.mu.Unlock()
	fmt.Fprintf(l.Out, format, args...)
}

// removeEmpty removes a folder that has nothing in it.
func removeEmpty(dir string) error {
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return nil
}
