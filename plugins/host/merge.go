package host

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/driver"
)

// Registry is where the plugins' drivers are made known; *drivers.Registry implements it.
type Registry interface {
	Register(d *driver.Driver, plugin string) error
	Unregister(id, version string)
	SetUp(id, version string, up bool, reason string)
}

// served is a driver of a plugin that is registered.
type served struct {
	driver   *driver.Driver
	manifest string // what it was defined from: another one is another driver
}

// merge makes the registry hold exactly the drivers a plugin serves now. One that cannot be taken is skipped and shown; a
// plugin of which none can be taken is refused.
func (p *plugin) merge(desc bcx.Description) error {
	now := map[string]*served{}
	var skipped []error
	for _, m := range desc.Drivers {
		s, err := p.define(m)
		if err != nil {
			skipped = append(skipped, err)
			continue
		}
		now[s.driver.ID()+"@"+s.driver.Version()] = s
	}
	p.leave(now)
	p.host.remember(p.src, desc.Drivers)
	for _, key := range sortedKeys(now) {
		s := now[key]
		if p.has(key) {
			p.host.cfg.Registry.SetUp(s.driver.ID(), s.driver.Version(), true, "")
			continue
		}
		if err := p.host.cfg.Registry.Register(s.driver, p.name); err != nil {
			skipped = append(skipped, err)
			continue
		}
		p.take(key, s)
	}
	return p.judge(skipped)
}

// recall registers what the plugin served when it ran last, as down.
func (p *plugin) recall() {
	for _, m := range p.host.memory.recall(p.src) {
		s, err := p.define(m)
		if err == nil {
			err = p.host.cfg.Registry.Register(s.driver, p.name)
		}
		if err != nil {
			p.host.log.Info("a driver that a plugin served is not known before it starts", "plugin", p.name, "driver", m.ID, "error", err)
			continue
		}
		p.host.cfg.Registry.SetUp(s.driver.ID(), s.driver.Version(), false, p.reason)
		p.take(s.driver.ID()+"@"+s.driver.Version(), s)
	}
}

// define makes a driver of a manifest.
func (p *plugin) define(m bcx.Manifest) (*served, error) {
	raw, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("reading the manifest of %s: %w", m.ID, err)
	}
	def := bcx.Remote(m, p.connection)
	if check := def.Validate; check != nil {
		def.Validate = func(ctx *driver.Context, config json.RawMessage) error {
			p.secrets.note(ctx)
			return p.secrets.refusal(check(ctx, config))
		}
	}
	for kind, factory := range def.Implements {
		def.Implements[kind] = p.counted(factory)
	}
	d, err := driver.Define(def)
	if err != nil {
		return nil, fmt.Errorf("the driver %s is wrong: %w", m.ID, err)
	}
	return &served{d, string(raw)}, nil
}

// leave takes out of the registry what the plugin no longer serves, or serves otherwise.
func (p *plugin) leave(now map[string]*served) {
	p.mu.Lock()
	var gone []*served
	for key, old := range p.served {
		if s := now[key]; s == nil || s.manifest != old.manifest {
			gone = append(gone, old)
			delete(p.served, key)
		}
	}
	p.mu.Unlock()
	for _, s := range gone {
		p.host.log.Info("a plugin no longer serves a driver as before", "plugin", p.name, "driver", s.driver.ID(), "version", s.driver.Version())
		p.host.cfg.Registry.Unregister(s.driver.ID(), s.driver.Version())
	}
}

func (p *plugin) has(key string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.served[key] != nil
}

func (p *plugin) take(key string, s *served) {
	p.mu.Lock()
	p.served[key] = s
	p.mu.Unlock()
	p.host.log.Debug("a plugin's driver is registered", "plugin", p.name, "driver", s.driver.ID(), "version", s.driver.Version(), "kinds", s.driver.Kinds())
}

// judge notes what was skipped and refuses a plugin of which nothing is left.
func (p *plugin) judge(skipped []error) error {
	p.mu.Lock()
	p.status.Skipped = nil
	for _, err := range skipped {
		p.status.Skipped = append(p.status.Skipped, clip(err.Error()))
	}
	none := len(p.served) == 0
	p.mu.Unlock()
	for _, err := range skipped {
		p.host.log.Warn("a plugin's driver is skipped", "plugin", p.name, "error", err)
	}
	if none {
		return refuse("none of its drivers can be taken: %w", errors.Join(skipped...))
	}
	return nil
}

// tellRegistry marks every driver of the plugin.
func (p *plugin) tellRegistry(up bool, reason string) {
	if up {
		reason = ""
	}
	p.mu.Lock()
	all := make([]*served, 0, len(p.served))
	for _, s := range p.served {
		all = append(all, s)
	}
	p.mu.Unlock()
	for _, s := range all {
		p.host.cfg.Registry.SetUp(s.driver.ID(), s.driver.Version(), up, reason)
	}
}

// counted makes an implementation whose calls are counted, so that a drain knows when the last has ended.
func (p *plugin) counted(f driver.Factory) driver.Factory {
	return func(config json.RawMessage) (any, error) {
		impl, err := f(config)
		if err != nil {
			return nil, err
		}
		inner, ok := impl.(driver.Invoker)
		if !ok {
			return nil, driver.Errorf(driver.CodeDriverError, "the proxy of the plugin %s takes no calls by name", p.name)
		}
		return &counting{p, inner}, nil
	}
}

type counting struct {
	p     *plugin
	inner driver.Invoker
}

// Invoke passes a call on and counts it while it runs; a stream, while it is open. Secrets of this and earlier calls are taken
// out of progress and errors.
func (c *counting) Invoke(ctx *driver.Context, operation string, args []json.RawMessage) (any, error) {
	c.p.secrets.note(ctx)
	c.p.entered()
	out, err := c.inner.Invoke(c.p.secrets.quiet(ctx), operation, args)
	if s, ok := out.(io.ReadWriteCloser); ok && err == nil {
		return &countedStream{ReadWriteCloser: s, p: c.p}, nil
	}
	c.p.left()
	return out, c.p.secrets.refusal(err)
}
