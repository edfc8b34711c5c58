package sandbox

import (
	"context"
	"log/slog"
	"os"
	"os/exec"
)

// ShimCommand is the hidden first argument of the appliance's own binary that makes it the shim: RunShim takes the rest.
const ShimCommand = "__bcx-exec"

// Config is the [plugins] section of the configuration, as far as it confines. The zero value with Enabled set is the
// default.
type Config struct {
	Enabled    bool     // sandbox: no_new_privs and the system call filter; false leaves the uid and the cgroup
	User       string   // account every plugin runs as; "" gives each a uid of its own
	Privileged []string // plugins, by name, that run as root without shim or filter
	Cgroup     string   // directory under /sys/fs/cgroup in the appliance's delegated cgroup; "" none
	MemoryMax  int64    // bytes per plugin; 0 no limit
	PidsMax    int64    // tasks per plugin; 0 no limit
	Landlock   bool     // confine the file system where the kernel can
	ReadPaths  []string // further paths a plugin may read, and run programs from, under Landlock; absolute
	Logger     *slog.Logger
}

// Plugin is what is to be started.
type Plugin struct {
	Name      string
	Names     []string // every plugin of this host, sorted: uids are given in name order
	Exe       *os.File // the verified binary, open for reading; it becomes fd 3 and is run from there
	Args      []string // without argv[0]
	Env       []string // the whole environment
	SocketDir string   // 0700, made by the host; it is handed to the plugin's uid, and back by Close
}

// Facts is what is known of a started plugin's confinement, for people and for Health.
type Facts struct {
	UID        int      `json:"uid"`
	Confined   bool     `json:"confined"` // by no_new_privs and the filter
	Privileged bool     `json:"privileged,omitempty"`
	Landlock   int      `json:"landlock,omitempty"` // ABI in force, 0 none
	Cgroup     string   `json:"cgroup,omitempty"`
	Missing    []string `json:"missing,omitempty"` // sentences: what is not in force, and why
}

// Prepared is a plugin ready to start. Start it with Start, never with Cmd.Start: the signal on the parent's death hangs on
// the thread that forked.
type Prepared struct {
	Cmd   *exec.Cmd // stdio is the caller's to set
	Facts Facts
	start func() error
	kill  func() error
	reach func(socket string) error
	close func() error
}

// Start runs the plugin. It is called at most once.
func (p *Prepared) Start() error { return p.start() }

// Reach makes the plugin's socket, a path in its SocketDir, one that this process may connect to. Call it between the
// handshake and the first dial. As root it has nothing to do; with the capabilities of the unit alone the socket is another
// account's file, and is taken over.
func (p *Prepared) Reach(socket string) error { return p.reach(socket) }

// Kill ends the plugin and everything it started, at once, and says which processes did not end within five seconds. With a
// uid of its own that is everything of the uid; else its process group and its cgroup.
func (p *Prepared) Kill() error { return p.kill() }

// Close removes what the sandbox made for it and hands SocketDir back, after the process was waited for (or was never
// started). Every Prepared has to be closed.
func (p *Prepared) Close() error { return p.close() }

// ConfigError is why a plugin cannot be confined as configured: trying again does not help until the configuration, or the
// account or cgroup that it names, has changed.
type ConfigError struct{ Err error }

// Error gives the reason.
func (e *ConfigError) Error() string { return e.Err.Error() }

// Unwrap gives what it wraps.
func (e *ConfigError) Unwrap() error { return e.Err }

// Sandbox starts plugins.
type Sandbox interface {
	// Prepare makes the command of a plugin. It fails with a sentence when the plugin cannot be confined: a *ConfigError
	// when the configuration is why.
	Prepare(ctx context.Context, p Plugin) (*Prepared, error)
	// State says what the sandbox of this machine lacks, for Health; nil when it is whole.
	State() []string
}
