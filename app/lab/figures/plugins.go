package figures

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"sync"
	"sync/atomic"
	"time"

	"github.com/better-compute/bcd/bmc/ipmi"
	"github.com/better-compute/bcd/plugins/driver"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/plugins/sandbox"
)

const (
	pluginStarts  = 15
	pluginCalls   = 2000
	pluginCallers = 64
	callingTime   = 5 * time.Second
	pluginCrowd   = 16 // plugins beside the first, which show what one costs the host
)

// registry keeps the drivers that plugins register.
type registry struct{ got chan *driver.Driver }

// Register keeps the driver.
func (r registry) Register(d *driver.Driver, _ string) error { r.got <- d; return nil }

// Unregister has nothing to do.
func (registry) Unregister(string, string) {}

// SetUp has nothing to do.
func (registry) SetUp(string, string, bool, string) {}

// hosted is the bundled plugin, running.
type hosted struct {
	host   *host.Host
	driver *driver.Driver // of one of them
	start  time.Duration  // until the first answers
	stop   func() error
}

// hostPlugin runs the bundled plugin as a site does, under as many names as asked for, and calls each once.
func (s *session) hostPlugin(ctx context.Context, confined sandbox.Sandbox, names int) (_ *hosted, err error) {
	r := registry{make(chan *driver.Driver, names)}
	var bundled []host.Bundled
	for n := range names {
		bundled = append(bundled, host.Bundled{Name: fmt.Sprintf("%s-%d", s.Plugin.Name, n), Args: s.Plugin.Args})
	}
	h, err := host.New(host.Config{Bundled: bundled, Sandbox: confined, Registry: r, Logger: s.Log})
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	begun := time.Now()
	go func() { ended <- h.Run(ctx) }()
	x := &hosted{host: h, stop: func() error { cancel(); return <-ended }}
	defer func() {
		if err != nil {
			err = errors.Join(err, x.stop())
		}
	}()
	for range names {
		select {
		case x.driver = <-r.got:
		case <-time.After(time.Minute):
			return nil, fmt.Errorf("the plugin does not start: %+v", h.List())
		}
		if err := refused(ctx, x.driver); err != nil {
			return nil, err
		}
	}
	x.start = time.Since(begun)
	return x, nil
}

// refused makes a call that goes all the way to the driver and comes back without a BMC: it has none to reach with a pin.
func refused(ctx context.Context, d *driver.Driver) error {
	_, err := d.Invoke(driver.NewContext(ctx), driver.Call{Kind: "power", Operation: "getPower",
		Config: json.RawMessage(`{"address":"192.0.2.1","tlsSpkiSha256":"00"}`)})
	if e := driver.AsError(err); e == nil || e.Code != "pin-unsupported" {
		return fmt.Errorf("the call that is refused gave %w", err)
	}
	return nil
}

// plugins measures what a driver costs in a process of its own.
func (s *session) plugins(ctx context.Context) error {
	if s.Plugin.Name == "" {
		return errors.New("this program has no plugin inside")
	}
	confined, err := sandbox.New(sandbox.Config{Enabled: true, Landlock: true, Logger: s.Log})
	if err != nil {
		return err
	}
	s.say("plugins: starting %s %d times", s.Plugin.Name, pluginStarts)
	var starts []float64
	for range pluginStarts {
		x, err := s.hostPlugin(ctx, confined, 1)
		if err != nil {
			return err
		}
		starts = append(starts, x.start.Seconds()*1000)
		if err := x.stop(); err != nil {
			return err
		}
	}
	s.note("plugin_start_ms: median of %d starts of the bundled %s, confined: sandbox, handshake, Describe, first answer; %s", pluginStarts, s.Plugin.Name, list(starts, 0))
	s.put("plugin_start_ms", median(starts), 1)
	if !s.wantsAny("plugin_invoke_added_ms", "plugin_calls_per_second", "plugin_rss_bytes", "plugin_host_bytes") {
		return nil
	}
	x, err := s.hostPlugin(ctx, confined, 1)
	if err != nil {
		return err
	}
	if err := errors.Join(s.pluginFigures(ctx, x), x.stop()); err != nil {
		return err
	}
	return s.hostMemory(ctx, confined)
}

// hostMemory measures what a plugin costs the process that hosts it.
func (s *session) hostMemory(ctx context.Context, confined sandbox.Sandbox) error {
	var held []float64
	for _, names := range []int{1, 1 + pluginCrowd} {
		x, err := s.hostPlugin(ctx, confined, names)
		if err != nil {
			return err
		}
		debug.FreeOSMemory()
		anon, err := memoryOf(os.Getpid(), "RssAnon")
		if err := errors.Join(err, x.stop()); err != nil {
			return err
		}
		held = append(held, float64(anon))
	}
	s.note("plugin_host_bytes: private memory of the process that hosts %d plugins less that of one, for each: connection, log, descriptions", 1+pluginCrowd)
	s.put("plugin_host_bytes", (held[1]-held[0])/pluginCrowd, 0)
	return nil
}

func (s *session) pluginFigures(ctx context.Context, x *hosted) error {
	here, err := driver.Define(ipmi.New(ipmi.Config{}).Definition())
	if err != nil {
		return err
	}
	there, own := make([]float64, 0, pluginCalls), make([]float64, 0, pluginCalls)
	for range pluginCalls {
		for _, of := range []struct {
			driver *driver.Driver
			took   *[]float64
		}{{x.driver, &there}, {here, &own}} {
			begun := time.Now()
			if err := refused(ctx, of.driver); err != nil {
				return err
			}
			*of.took = append(*of.took, time.Since(begun).Seconds()*1000)
		}
	}
	s.note("plugin_invoke_added_ms: medians of %d calls that the driver refuses, in the plugin %.3f ms, in this process %.3f ms", pluginCalls, median(there), median(own))
	s.put("plugin_invoke_added_ms", median(there)-median(own), 3)
	rate, err := callRate(ctx, x.driver)
	if err != nil {
		return err
	}
	s.note("plugin_calls_per_second: %d callers for %s, over one connection to one plugin", pluginCallers, callingTime)
	s.put("plugin_calls_per_second", rate, 0)
	p := x.host.List()[0]
	anon, err := memoryOf(p.PID, "RssAnon")
	if err != nil {
		return err
	}
	s.note("plugin_rss_bytes: VmRSS of the plugin's process after these calls; %d bytes of it are private, the others pages of the program file, which it shares with `bcd site`", anon)
	s.put("plugin_rss_bytes", float64(p.Memory), 0)
	return nil
}

// callRate is how many calls a second come back with many callers.
func callRate(ctx context.Context, d *driver.Driver) (float64, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var n atomic.Int64
	var callers sync.WaitGroup
	begun := time.Now()
	for range pluginCallers {
		callers.Go(func() {
			for ctx.Err() == nil && time.Since(begun) < callingTime {
				if err := refused(ctx, d); err != nil {
					cancel(err)
					return
				}
				n.Add(1)
			}
		})
	}
	callers.Wait()
	return float64(n.Load()) / time.Since(begun).Seconds(), context.Cause(ctx)
}
