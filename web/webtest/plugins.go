package webtest

import (
	"context"
	"sync"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/web/api"
)

// Plugins is a plugin host with two plugins, one of which is down. Text is put wherever a plugin can say something.
type Plugins struct {
	Text string

	mu        sync.Mutex
	restarted []string
}

// ListPlugins lists the two.
func (p *Plugins) ListPlugins(context.Context) ([]api.Plugin, error) {
	uid, at := 2147352577, time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	const sum = "9f3e0c6a5bd4f4f9c9f5a2b0a1d3c4e5f60718293a4b5c6d7e8f901234567890"
	return []api.Plugin{
		{Name: "acme-bmc", SHA256: sum, State: "running", Serving: true, Since: at, PID: 4242, UID: &uid, Memory: 12 << 20, Version: "1.0.0" + p.Text,
			Drivers: []api.PluginDriver{{ID: "acme", Version: "1.0.0", Kinds: []string{"power"}}}, Skipped: []string{"the driver redfish is built in" + p.Text},
			Sandbox: api.PluginSandbox{Confined: true, Landlock: 5}},
		{Name: "bcx-ipmi", Bundled: true, SHA256: sum, State: "refused", Reason: "its file has another SHA-256" + p.Text, WayOut: "install bcd anew", Since: at, Restarts: 3,
			LastErr: "its process ended" + p.Text, LastAt: &at, Drivers: []api.PluginDriver{}, Sandbox: api.PluginSandbox{Missing: []string{"no Landlock in this kernel"}}},
	}, nil
}

// PluginLogs gives one line.
func (p *Plugins) PluginLogs(_ context.Context, name string, _ int) ([]api.PluginLine, error) {
	if name != "acme-bmc" && name != "bcx-ipmi" {
		return nil, app.Missing("plugin", name)
	}
	return []api.PluginLine{{Time: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Level: "WARN", Message: "hello" + p.Text, Attrs: map[string]string{"port": "623" + p.Text}}}, nil
}

// RestartPlugin notes the name.
func (p *Plugins) RestartPlugin(_ context.Context, _, name string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.restarted = append(p.restarted, name)
	return nil
}

// Restarted lists what was started again.
func (p *Plugins) Restarted() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.restarted...)
}
