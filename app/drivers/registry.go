package drivers

import (
	"cmp"
	"context"
	"log/slog"
	"net"
	"net/netip"
	"regexp"
	"slices"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/secret"
	"github.com/better-compute/bcd/plugins/driver"
)

// Secrets opens secret references; *secret.Vault implements it.
type Secrets interface {
	Resolve(ctx context.Context, ref string) (secret.Value, error)
}

// Profiles finds hardware profiles and pools; app.ProfileStore implements it.
type Profiles interface {
	Profile(ctx context.Context, name string) (*app.Profile, error)
	Pool(ctx context.Context, name string) (*app.Pool, error)
}

// Config is what a Registry needs. Secrets and Profiles are required.
type Config struct {
	Secrets  Secrets
	Profiles Profiles
	Logger   *slog.Logger // nil: discarded
	// BMCDrivers is [bmc_drivers] of the configuration: by driver id, the operations it serves, such as "power.getPower".
	// It wins over what a driver says of itself.
	BMCDrivers map[string][]string
	// LookupIP resolves a BMC's host name, so that its addresses are known to IsBMC; nil: the system's resolver.
	LookupIP func(ctx context.Context, host string) ([]netip.Addr, error)
	// CallTimeout bounds a call whose context has no deadline of its own; default 10 min.
	CallTimeout time.Duration
	Journal     app.BMCOperationStore // journals operations on BMCs; nil: nothing is written down
	Settings    app.SettingStore      // keeps the operator's picks among versions; nil: they end with the process
	Record      func(app.Event)       // takes changes on BMCs for the timeline; nil: none
	Changed     func()                // told after a driver came, went, rose or fell; nil: nobody
	Now         func() time.Time      // nil: time.Now
}

// Registry holds the drivers of this process. It is safe for concurrent use.
type Registry struct {
	cfg   Config
	log   *slog.Logger
	lanes lanes
	bmcs  addresses

	mu      sync.RWMutex
	entries map[string]*entry // by id@version
	picks   map[string]string // the operator's version by id, registered or not

	picking sync.Mutex // one pick at a time, from the store to picks
}

type entry struct {
	driver *driver.Driver
	plugin string // name of the plugin that serves it; "" for a built-in one
	up     bool
	reason string // why it is down
}

// New makes an empty Registry.
func New(cfg Config) *Registry {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if cfg.LookupIP == nil {
		cfg.LookupIP = func(ctx context.Context, host string) ([]netip.Addr, error) {
			return net.DefaultResolver.LookupNetIP(ctx, "ip", host)
		}
	}
	if cfg.CallTimeout <= 0 {
		cfg.CallTimeout = 10 * time.Minute
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	return &Registry{cfg: cfg, log: cfg.Logger, entries: map[string]*entry{}, picks: map[string]string{}}
}

// changed tells whoever checks bindings. mu must not be held.
func (r *Registry) changed() {
	if r.cfg.Changed != nil {
		r.cfg.Changed()
	}
}

// idsLocked are the ids of all drivers. mu must be held.
func (r *Registry) idsLocked() map[string]bool {
	ids := map[string]bool{}
	for _, e := range r.entries {
		ids[e.driver.ID()] = true
	}
	return ids
}

func keyOf(d *driver.Driver) string { return d.ID() + "@" + d.Version() }

// Register adds a driver. plugin is the name of the plugin that serves it, or "" for a built-in one. A second driver of
// the same id and version, and a plugin's driver with the id of a built-in one, registered yet or not, are INVALID_CONFIG.
func (r *Registry) Register(d *driver.Driver, plugin string) error {
	err := r.register(d, plugin)
	if err == nil {
		r.changed()
	}
	return err
}

func (r *Registry) register(d *driver.Driver, plugin string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.entries[keyOf(d)]; taken {
		return app.Errorf(app.InvalidConfig, "driver-registered", "the driver %s is registered already", keyOf(d)).
			Do("give it another id or version")
	}
	if plugin != "" && r.builtInLocked(d.ID()) {
		return app.Errorf(app.InvalidConfig, "driver-id-built-in", "the plugin %q cannot serve %q: that driver is built in", plugin, d.ID()).
			Do("give the plugin's driver another id")
	}
	r.entries[keyOf(d)] = &entry{driver: d, plugin: plugin, up: true}
	return nil
}

// builtInLocked reports whether an id is reserved for a built-in driver or taken by one. mu must be held.
func (r *Registry) builtInLocked(id string) bool {
	if slices.Contains(reserved, id) {
		return true
	}
	for _, e := range r.entries {
		if e.driver.ID() == id && e.plugin == "" {
			return true
		}
	}
	return false
}

// Unregister removes a driver, when its plugin was removed.
func (r *Registry) Unregister(id, version string) {
	r.mu.Lock()
	delete(r.entries, id+"@"+version)
	r.mu.Unlock()
	r.changed()
}

// SetUp says whether the plugin behind a driver runs; reason tells why not. A driver that is down stays registered.
func (r *Registry) SetUp(id, version string, up bool, reason string) {
	r.mu.Lock()
	e := r.entries[id+"@"+version]
	news := e != nil && e.up != up
	if e != nil {
		e.up, e.reason = up, reason
	}
	r.mu.Unlock()
	if news {
		r.changed()
	}
}

// active gives a copy of the active version's entry, or nil.
func (r *Registry) active(id string) *entry {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return r.activeLocked(id)
}

func (r *Registry) activeLocked(id string) *entry {
	best := r.entries[id+"@"+r.picks[id]]
	if best == nil {
		for _, e := range r.entries {
			if e.driver.ID() == id && (best == nil || compareVersions(e.driver.Version(), best.driver.Version()) > 0) {
				best = e
			}
		}
	}
	if best == nil {
		return nil
	}
	c := *best
	return &c
}

// Driver gives the active version of a driver.
func (r *Registry) Driver(id string) (*driver.Driver, error) {
	if e := r.active(id); e != nil {
		return e.driver, nil
	}
	return nil, app.Missing("driver", id)
}

// Entry is a driver as drivers.list shows it: its declaration, never a configuration or a credential.
type Entry struct {
	ID           string              `json:"id"`
	Version      string              `json:"version"`
	RunsOn       string              `json:"runsOn"`
	Kinds        []string            `json:"kinds"`
	Capabilities []string            `json:"capabilities"`
	Operations   map[string][]string `json:"operations"` // by kind, as far as they are known
	RetrySafe    map[string][]string `json:"retrySafe"`
	Active       bool                `json:"active"`
	Picked       bool                `json:"picked,omitempty"` // by the operator, to stay when a higher version comes
	Up           bool                `json:"up"`
	Reason       string              `json:"reason,omitempty"` // why it is down
	Plugin       string              `json:"plugin,omitempty"`
}

// operations lists by kind, sorted, what a driver serves. Of a kind that nobody registered only the retry-safe ones are known.
func operations(d *driver.Driver) map[string][]string {
	out := map[string][]string{}
	for _, kind := range d.Kinds() {
		k, _ := driver.LookupKind(kind)
		names := d.RetrySafe()[kind]
		for _, op := range k.Operations {
			if d.Serves(kind, op.Name) {
				names = append(names, op.Name)
			}
		}
		slices.Sort(names)
		out[kind] = slices.Compact(names)
	}
	return out
}

var kindRE = regexp.MustCompile(`^[a-z0-9-]{1,32}$`)

// List gives the drivers that implement a kind, all for "", sorted by id and then version.
func (r *Registry) List(kind string) ([]Entry, error) {
	if kind != "" && !kindRE.MatchString(kind) {
		return nil, app.Invalid("kind", "is no driver kind").Do("use lower-case letters, digits and hyphens")
	}
	r.mu.RLock()
	defer r.mu.RUnlock()
	out := []Entry{}
	for _, e := range r.entries {
		d := e.driver
		if kind != "" && !d.Has(kind) {
			continue
		}
		out = append(out, Entry{
			ID: d.ID(), Version: d.Version(), RunsOn: d.RunsOn(), Kinds: d.Kinds(),
			Capabilities: append([]string{}, d.Capabilities()...), Operations: operations(d), RetrySafe: d.RetrySafe(),
			Active: r.activeLocked(d.ID()).driver == d, Picked: r.picks[d.ID()] == d.Version(), Up: e.up, Reason: e.reason, Plugin: e.plugin,
		})
	}
	slices.SortFunc(out, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.ID, b.ID), compareVersions(a.Version, b.Version), cmp.Compare(a.Version, b.Version))
	})
	return out, nil
}
