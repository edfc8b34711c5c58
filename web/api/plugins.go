package api

import (
	"context"
	"strconv"
	"time"

	"github.com/better-compute/bcd/app"
)

// Plugin is a driver plugin and how it runs.
type Plugin struct {
	Name     string         `json:"name"`
	Bundled  bool           `json:"bundled,omitempty"` // inside the program itself
	SHA256   string         `json:"sha256"`            // the pin
	State    string         `json:"state"`             // "starting", "running", "stopping", "backoff", "refused", "stopped"
	Reason   string         `json:"reason,omitempty"`  // why it does not run
	WayOut   string         `json:"wayOut,omitempty"`  // what helps when it is refused
	Serving  bool           `json:"serving"`           // it runs and says that it can work
	Message  string         `json:"message,omitempty"` // what it says when it cannot
	Since    time.Time      `json:"since"`             // of the state
	Next     *time.Time     `json:"nextStart,omitempty"`
	PID      int            `json:"pid,omitempty"`
	UID      *int           `json:"uid,omitempty"`         // while it runs
	Memory   int64          `json:"memoryBytes,omitempty"` // resident
	Restarts int            `json:"restarts"`
	LastErr  string         `json:"lastError,omitempty"`
	LastAt   *time.Time     `json:"lastErrorAt,omitempty"`
	Version  string         `json:"version,omitempty"` // its own, free text
	Calls    int            `json:"calls"`             // in flight
	Drivers  []PluginDriver `json:"drivers"`
	Skipped  []string       `json:"skipped,omitempty"` // sentences: drivers it serves that were not taken
	Sandbox  PluginSandbox  `json:"sandbox"`
}

// PluginDriver is a driver that a plugin serves.
type PluginDriver struct {
	ID      string   `json:"id"`
	Version string   `json:"version"`
	Kinds   []string `json:"kinds"`
}

// PluginSandbox says how a plugin is confined.
type PluginSandbox struct {
	Confined   bool     `json:"confined"` // no new privileges, and a system call filter
	Privileged bool     `json:"privileged,omitempty"`
	Landlock   int      `json:"landlock,omitempty"` // version in force
	Cgroup     string   `json:"cgroup,omitempty"`
	Missing    []string `json:"missing,omitempty"` // sentences
}

// PluginLine is a line of a plugin's log.
type PluginLine struct {
	Time    time.Time         `json:"time"`
	Level   string            `json:"level"`
	Message string            `json:"message"`
	Attrs   map[string]string `json:"attrs,omitempty"`
}

// Plugins is the plugin host.
type Plugins interface {
	// ListPlugins tells of every plugin, by name.
	ListPlugins(ctx context.Context) ([]Plugin, error)
	// PluginLogs gives the last n lines a plugin wrote, oldest first.
	PluginLogs(ctx context.Context, name string, n int) ([]PluginLine, error)
	// RestartPlugin starts a plugin again, after its calls in flight have had a while to end.
	RestartPlugin(ctx context.Context, actor, name string) error
}

// Lines of a plugin's log in one answer.
const (
	defaultPluginLines = 100
	maxPluginLines     = 500
)

func (a *API) pluginRoutes() []Route {
	return []Route{
		on(Route{ID: "plugins.list", Method: "GET", Path: "/api/v1/plugins", Permission: app.PermDriversRead,
			Summary: "List driver plugins: state, process, drivers, confinement.", CLI: CLI{"plugin", "list"}},
			func(c *Call, _ none) (List[Plugin], error) { return list(a.Plugins.ListPlugins(c)) }),
		on(Route{ID: "plugins.logs", Method: "GET", Path: "/api/v1/plugins/{name}/logs", Permission: app.PermDriversRead,
			Summary: "Show what a plugin wrote to its log last.", Query: []Param{{"lines", "integer", "how many, 1 to 500; 100 unless told"}},
			CLI: CLI{"plugin", "logs"}}, a.pluginLogs),
		on(Route{ID: "plugins.restart", Method: "POST", Path: "/api/v1/plugins/{name}/restart", Permission: app.PermPluginsWrite,
			Summary: "Start a plugin again; calls in flight have 5 seconds to end.", CLI: CLI{"plugin", "restart"}},
			func(c *Call, _ none) (none, error) {
				return none{}, a.Plugins.RestartPlugin(c, c.actor(), c.Path["name"])
			}),
	}
}

func (a *API) pluginLogs(c *Call, _ none) (List[PluginLine], error) {
	n := defaultPluginLines
	if s := c.Query.Get("lines"); s != "" {
		var err error
		if n, err = strconv.Atoi(s); err != nil || n < 1 || n > maxPluginLines {
			return List[PluginLine]{}, app.Invalid("lines", "must be a number from 1 to %d", maxPluginLines)
		}
	}
	return list(a.Plugins.PluginLogs(c, c.Path["name"], n))
}
