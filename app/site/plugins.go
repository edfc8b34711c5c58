package site

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/health"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/plugins/sandbox"
	"github.com/better-compute/bcd/web/api"
)

// pluginsName is the file, in the data directory, that keeps what the plugins served last.
const pluginsName = "plugins.json"

// wirePlugins makes the plugin host. It runs nothing yet.
func (s *Site) wirePlugins(context.Context) error {
	f := &s.cfg.File.Plugins
	confined, err := sandbox.New(f.sandbox(s.log))
	if err != nil {
		return app.Errorf(app.InvalidConfig, "bad-plugins", "plugins cannot be confined as configured: %w", err).At("plugins")
	}
	var bundled []host.Bundled
	if b, here := s.cfg.Builtins[f.builtin()]; here {
		bundled = append(bundled, b)
	}
	s.plugins, err = host.New(host.Config{Dir: f.Dir, Bundled: bundled, Sandbox: confined, Registry: s.registry, Memory: filepath.Join(s.dir, pluginsName), Logger: s.log, Record: s.bus.Emit,
		StartLimit: s.cfg.Patience, HealthLimit: s.cfg.Patience})
	if err != nil {
		return err
	}
	s.health.Add("plugins", s.pluginHealth(confined))
	s.parts = append(s.parts, part{"plugins", s.plugins.Run, s.plugins.Loaded()}) // before anybody asks what drivers there are
	return nil
}

// ReloadPlugins takes changed pins up.
func (s *Site) ReloadPlugins() error {
	err := s.plugins.Reload()
	level := "info"
	message := "the pins of the plugins were read again"
	if err != nil {
		level, message = "error", "the pins of the plugins cannot be read: "+err.Error()
	}
	s.bus.Emit(app.Event{Time: now().UTC(), Kind: "plugins.reloaded", Level: level, Message: message})
	return err
}

// takeUp takes changed pins up and says how the plugin of a name does then; "" asks for none.
func (s *Site) takeUp(ctx context.Context, plugin string) (string, error) {
	if err := s.ReloadPlugins(); err != nil {
		return "", app.Errorf(app.InvalidConfig, "bad-pins", "the pins cannot be taken up: %v", err).Do("mend that; what ran before still runs")
	}
	if plugin == "" {
		return "", nil
	}
	p, err := s.plugins.Await(ctx, plugin)
	if err != nil {
		return "", err
	}
	if p.State != host.Running {
		return "", app.Errorf(app.Unavailable, "plugin-down", "the plugin %s is %s: %s", p.Name, p.State, p.Reason).Do("see bcd plugin logs %s", p.Name)
	}
	said := "the plugin " + p.Name + " runs and serves"
	for _, d := range p.Drivers {
		said += fmt.Sprintf(" %s %s (%s)", d.ID, d.Version, strings.Join(d.Kinds, ", "))
	}
	return said, nil
}

type pluginsInput struct {
	Plugin string `json:"plugin"`
}

type pluginsOutput struct {
	Said string `json:"said"`
}

func (l *local) plugins(w http.ResponseWriter, r *http.Request) {
	var in pluginsInput
	if err := json.NewDecoder(io.LimitReader(r.Body, 4096)).Decode(&in); err != nil {
		fail(w, app.Invalid("plugin", "is missing"))
		return
	}
	said, err := l.takeUp(r.Context(), in.Plugin)
	if err != nil {
		fail(w, err)
		return
	}
	_ = json.NewEncoder(w).Encode(pluginsOutput{said}) // the caller went away: it can ask again
}

// TakeUpPlugins asks the site that runs on dataDir to take changed pins up, and how the plugin of a name does then.
func TakeUpPlugins(ctx context.Context, dataDir, plugin string) (string, error) {
	body, err := ask(ctx, dataDir, "/plugins", pluginsInput{plugin})
	if err != nil {
		return "", err
	}
	defer body.Close()
	var out pluginsOutput
	if err := json.NewDecoder(io.LimitReader(body, 1<<16)).Decode(&out); err != nil {
		return "", fmt.Errorf("reading the answer: %w", err)
	}
	return out.Said, nil
}

// awaitDrivers waits, before a workflow is taken up, until each driver its machine may call has answered or failed, whatever
// other plugins do: the plugins start beside the rest, and a driver that is a second late is not one that is missing.
func (s *Site) awaitDrivers(ctx context.Context, machineID string) {
	m, err := s.db.Machine(ctx, machineID)
	if err != nil {
		return // the step finds out, and says so
	}
	needs, told := s.registry.Needs(ctx, m), false
	for {
		starting, changed := s.plugins.Starting(ctx)
		needed := s.registry.Awaits(needs, starting)
		if needed == "" {
			return
		}
		if !told {
			s.log.Info("a workflow waits for a driver of its machine", "machine", m.Name, "driver", needed, "plugins", starting)
			told = true
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return
		}
	}
}

// pluginHealth warns of plugins that do not run, of pins that are not used, and of what the sandbox lacks.
func (s *Site) pluginHealth(confined sandbox.Sandbox) health.Check {
	return func(context.Context) ([]health.Warning, error) {
		var out []health.Warning
		warn := func(code, level, wayOut, format string, args ...any) {
			out = append(out, health.Warning{Code: code, Level: level, Message: fmt.Sprintf(format, args...), WayOut: wayOut})
		}
		all := s.plugins.List()
		for _, p := range all {
			switch {
			case p.State == host.Refused:
				warn("plugin-refused", "error", p.WayOut, "the plugin %s is not run: %s", p.Name, p.Reason)
			case p.State == host.BackOff:
				warn("plugin-down", "error", "look at its log with bcd plugin logs "+p.Name, "the plugin %s is down and is started again: %s", p.Name, p.Reason)
			case p.State == host.Running && !p.Serving && p.Bundled: // a site without such machines can do without
				warn("plugin-cannot-work", "info", `give it what it needs, or write builtin = "" below [plugins] in config.toml`, "the plugin %s, which is inside bcd, cannot work: %s", p.Name, p.Message)
			case p.State == host.Running && !p.Serving:
				warn("plugin-cannot-work", "warn", "give it what it needs: it is asked again every few seconds", "the plugin %s cannot work: %s", p.Name, p.Message)
			}
			for _, why := range p.Skipped {
				warn("driver-skipped", "warn", "give that driver another id, or remove the other one", "a driver of the plugin %s is not used: %s", p.Name, why)
			}
		}
		for _, i := range s.plugins.Issues() {
			warn("pins", "warn", "correct the file pins in the plugins directory, then send bcd a SIGHUP", "%s", i)
		}
		if len(all) == 0 {
			return out, nil // then nothing has to be confined
		}
		for _, lack := range confined.State() {
			warn("sandbox", "warn", "run bcd by the unit that bcd install writes, and turn on what config.toml turns off below [plugins]", "plugins are confined less than they could be: %s", lack)
		}
		return out, nil
	}
}

// hosted is the plugin host as the faces see it.
type hosted struct {
	h      *host.Host
	record func(app.Event)
}

// ListPlugins tells of every plugin.
func (x hosted) ListPlugins(context.Context) ([]api.Plugin, error) {
	var out []api.Plugin
	for _, p := range x.h.List() {
		out = append(out, shown(p))
	}
	return out, nil
}

func shown(p host.Status) api.Plugin {
	out := api.Plugin{
		Name: p.Name, Bundled: p.Bundled, SHA256: p.SHA256, State: string(p.State), Reason: p.Reason, WayOut: p.WayOut, Serving: p.Serving, Message: p.Message, Since: p.Since,
		Next: given(p.Next), PID: p.PID, Memory: p.Memory, Restarts: p.Restarts, LastErr: p.LastErr, LastAt: given(p.LastAt), Version: p.Version, Calls: p.Calls,
		Drivers: []api.PluginDriver{}, Skipped: p.Skipped,
		Sandbox: api.PluginSandbox{Confined: p.Sandbox.Confined, Privileged: p.Sandbox.Privileged, Landlock: p.Sandbox.Landlock, Cgroup: p.Sandbox.Cgroup, Missing: p.Sandbox.Missing},
	}
	if p.PID != 0 {
		out.UID = &p.Sandbox.UID
	}
	for _, d := range p.Drivers {
		out.Drivers = append(out.Drivers, api.PluginDriver(d))
	}
	return out
}

// given is nil for a time that is not known.
func given(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// PluginLogs gives the last lines of a plugin's log.
func (x hosted) PluginLogs(_ context.Context, name string, n int) ([]api.PluginLine, error) {
	lines, err := x.h.Logs(name, n)
	out := make([]api.PluginLine, 0, len(lines))
	for _, l := range lines {
		out = append(out, api.PluginLine(l))
	}
	return out, err
}

// RestartPlugin starts a plugin again.
func (x hosted) RestartPlugin(_ context.Context, actor, name string) error {
	err := x.h.Restart(name)
	if err == nil {
		x.record(app.Event{Time: now().UTC(), Kind: "plugin.restarted", Level: "info", Actor: actor, Message: "the plugin " + strings.ToValidUTF8(name, "?") + " was told to start again"})
	}
	return err
}
