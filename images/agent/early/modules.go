package early

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/u-root/u-root/pkg/kmodule"
	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
)

// parallelLoads is how many drivers may initialise at once. A RAID controller may take a minute, and no network port
// shall wait for it.
const parallelLoads = 8

// modules loads drivers, each once.
type modules struct {
	aliases *aliases
	probe   func(name string) error // loads a module and what it needs
	log     *slog.Logger

	mu     sync.Mutex
	seen   map[string]bool  // modaliases that were looked up
	asked  map[string]bool  // modules that a load was started for
	loaded []string         // in the order they came up
	failed map[string]error // absent devices apart
}

// openModules reads the tables of the running kernel below lib ("/lib/modules").
func openModules(lib string, log *slog.Logger) (*modules, error) {
	release, err := kernelRelease()
	if err != nil {
		return nil, err
	}
	f, err := os.Open(filepath.Join(lib, release, "modules.alias"))
	if err != nil {
		return nil, fmt.Errorf("opening the modules of kernel %s: %w", release, err)
	}
	defer f.Close()
	a, err := readAliases(f)
	if err != nil {
		return nil, err
	}
	p, err := kmodule.NewProber(kmodule.ProbeOpts{KVer: release})
	if err != nil {
		return nil, fmt.Errorf("reading module dependencies: %w", err)
	}
	return newModules(a, func(name string) error { return p.Probe(name, "") }, log), nil
}

func newModules(a *aliases, probe func(string) error, log *slog.Logger) *modules {
	return &modules{aliases: a, probe: probe, log: log, seen: map[string]bool{}, asked: map[string]bool{}, failed: map[string]error{}}
}

func kernelRelease() (string, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return "", fmt.Errorf("asking the kernel's release: %w", err)
	}
	return unix.ByteSliceToString(u.Release[:]), nil
}

// wanted gives the modules of aliases not seen before that no load was started for.
func (m *modules) wanted(modaliases []string) []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	var names []string
	for _, a := range modaliases {
		if a == "" || m.seen[a] {
			continue
		}
		m.seen[a] = true
		for _, n := range m.aliases.lookup(a) {
			if !m.asked[n] {
				m.asked[n] = true
				names = append(names, n)
			}
		}
	}
	return names
}

// plug loads what devices with these modaliases want, and gives how many modules came up.
func (m *modules) plug(modaliases []string) int { return m.loadAll(m.wanted(modaliases)) }

// load loads modules by name, unless a load was started before.
func (m *modules) load(names ...string) int {
	m.mu.Lock()
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return m.asked[n] })
	for _, n := range names {
		m.asked[n] = true
	}
	m.mu.Unlock()
	return m.loadAll(names)
}

func (m *modules) loadAll(names []string) int {
	var g errgroup.Group
	g.SetLimit(parallelLoads)
	before := m.count()
	for _, n := range names {
		g.Go(func() error { m.loadOne(n); return nil })
	}
	_ = g.Wait() // failures are kept by name
	return m.count() - before
}

func (m *modules) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.loaded)
}

func (m *modules) loadOne(name string) {
	start := time.Now()
	err := m.probe(name)
	took := time.Since(start).Round(time.Millisecond)
	m.mu.Lock()
	defer m.mu.Unlock()
	switch {
	case err == nil:
		m.loaded = append(m.loaded, name)
		m.log.Info("driver loaded", "driver", name, "took", took)
	case errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENXIO):
		m.log.Debug("driver found no device", "driver", name)
	default:
		m.failed[name] = err
		m.log.Warn("driver failed", "driver", name, "error", err, "took", took)
	}
}

// coldplug looks at every device the kernel knows, again after each round that loaded something: a new bus has new
// devices. The rounds are bounded; what comes later is announced by uevents.
func (m *modules) coldplug(sys string) {
	for range 10 {
		if m.plug(modaliases(sys)) == 0 {
			return
		}
	}
}

// modaliases reads the modalias of each device below sys, processors left out: they would load ciphers and sensors that
// test themselves for seconds and that the kernel asks for by name when it needs them.
func modaliases(sys string) []string {
	var list []string
	_ = filepath.WalkDir(filepath.Join(sys, "devices"), func(p string, d fs.DirEntry, err error) error {
		if err != nil { // devices come and go while we walk
			return nil
		}
		if d.Name() != "modalias" || d.IsDir() {
			return nil
		}
		if b, err := os.ReadFile(p); err == nil && !strings.HasPrefix(string(b), "cpu:") {
			list = append(list, strings.TrimSpace(string(b)))
		}
		return nil
	})
	return list
}

// Modprobe serves the kernel's request_module(), which runs "modprobe -q -- NAME": it loads the modules of an alias or a
// name. An unknown name is an error, as modprobe's exit code says.
func Modprobe(args []string, log *slog.Logger) error {
	m, err := openModules("/lib/modules", log)
	if err != nil {
		return err
	}
	return m.byRequest(args)
}

func (m *modules) byRequest(args []string) error {
	for _, a := range args {
		if strings.HasPrefix(a, "-") {
			continue
		}
		names := m.aliases.lookup(a)
		if len(names) == 0 {
			names = []string{kernelName(a)}
		}
		var errs []error
		for _, n := range names {
			errs = append(errs, m.probe(n))
		}
		if !slices.Contains(errs, nil) {
			return fmt.Errorf("loading %q: %w", a, errors.Join(errs...))
		}
	}
	return nil
}
