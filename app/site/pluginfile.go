package site

import (
	"errors"
	"log/slog"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/plugins/host"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// PluginsFile is the section [plugins] of config.toml. What a plugin may do is said here and nowhere else.
type PluginsFile struct {
	Dir        string   `toml:"dir"`        // directory of plugins and their pins; none by default
	User       string   `toml:"user"`       // account every plugin runs as; by default each has a uid of its own
	Privileged string   `toml:"privileged"` // plugins that run as root and unfiltered, by name, separated by commas
	Sandbox    *bool    `toml:"sandbox"`    // default true
	Cgroup     string   `toml:"cgroup"`     // directory under /sys/fs/cgroup
	MemoryMax  int64    `toml:"memory_max"` // bytes for each plugin; 0 no limit
	PidsMax    int64    `toml:"pids_max"`   // tasks of each plugin; 0 no limit
	Landlock   *bool    `toml:"landlock"`   // default true
	ReadPaths  []string `toml:"read_paths"` // what plugins may read besides the system's programs and libraries
	Builtin    *string  `toml:"builtin"`    // bundled plugins; default "ipmi", "" for none
}

// cgroupRoot is where cgroup v2 is mounted.
const cgroupRoot = "/sys/fs/cgroup"

// leastMemory is what a plugin in Go or JavaScript needs to start, in bytes, and leastTasks its threads.
const (
	leastMemory = 32 << 20
	leastTasks  = 24
)

// accountRE is what useradd takes for a name, or a number.
var accountRE = regexp.MustCompile(`^([a-z_][a-z0-9_-]{0,31}\$?|[0-9]{1,10})$`)

// Builtin is the one name that builtin may have.
const Builtin = "ipmi"

func (p *PluginsFile) validate() error {
	var errs []error
	bad := func(key, wayOut, format string, args ...any) {
		errs = append(errs, app.Errorf(app.InvalidConfig, "bad-plugins", format, args...).At("plugins."+key).Do("%s", wayOut))
	}
	if p.Dir != "" && !filepath.IsAbs(p.Dir) {
		bad("dir", "write the whole path", "%q is no absolute path", p.Dir)
	}
	switch {
	case p.User == "":
	case p.User == "root" || strings.Trim(p.User, "0") == "":
		bad("user", "name another account, or list the plugins that need it under privileged", "plugins cannot all run as root")
	case !accountRE.MatchString(p.User):
		bad("user", "name an account of this host", "%q is no account's name", p.User)
	}
	for _, name := range p.privileged() {
		if host.CheckName(name) != nil {
			bad("privileged", "name plugins as in the pins file, separated by commas", "%q is no plugin's name", name)
		}
	}
	if c := p.Cgroup; c != "" && (filepath.Clean(c) != c || !strings.HasPrefix(c, cgroupRoot+"/")) {
		bad("cgroup", "name a directory in bcd's own cgroup, such as /sys/fs/cgroup/system.slice/bcd.service/plugins", "%q is not below %s", c, cgroupRoot)
	}
	if p.MemoryMax != 0 && p.MemoryMax < leastMemory {
		bad("memory_max", "give at least 33554432 bytes, or 0 for no limit", "no plugin starts with %d bytes", p.MemoryMax)
	}
	if p.PidsMax != 0 && p.PidsMax < leastTasks {
		bad("pids_max", "give at least 24, or 0 for no limit", "no plugin starts with %d tasks", p.PidsMax)
	}
	if p.Cgroup == "" && (p.MemoryMax != 0 || p.PidsMax != 0) {
		bad("cgroup", "name the cgroup too, or remove the limits", "limits need a cgroup to hold them")
	}
	for _, path := range p.ReadPaths {
		if !filepath.IsAbs(path) {
			bad("read_paths", "write the whole path", "%q is no absolute path", path)
		}
	}
	if b := p.builtin(); b != "" && b != Builtin {
		bad("builtin", `write "ipmi", or "" for none`, "no plugin %q is inside this program", p.builtin())
	}
	return errors.Join(errs...)
}

func (p *PluginsFile) privileged() []string {
	var out []string
	for name := range strings.SplitSeq(p.Privileged, ",") {
		if name = strings.TrimSpace(name); name != "" && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	return out
}

func (p *PluginsFile) builtin() string {
	if p.Builtin == nil {
		return Builtin
	}
	return *p.Builtin
}

func on(b *bool) bool { return b == nil || *b }

func (p *PluginsFile) sandbox(log *slog.Logger) sandbox.Config {
	return sandbox.Config{
		Enabled: on(p.Sandbox), User: p.User, Privileged: p.privileged(), Cgroup: p.Cgroup, MemoryMax: p.MemoryMax, PidsMax: p.PidsMax,
		Landlock: on(p.Landlock) && on(p.Sandbox), ReadPaths: p.ReadPaths, Logger: log,
	}
}
