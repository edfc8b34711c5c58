package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// confiner is the sandbox of Linux.
type confiner struct {
	cfg      Config
	capable  bool // bcd can give plugins uids
	override bool // bcd may use what belongs to them all the same
	landlock int  // the kernel's ABI, 0 none or not wanted
	cgroups  *cgroups
	broken   error // why no plugin may run
	state    []string
	forker   forker
	warden   warden
}

// New looks at what this process may do and at what the kernel has, and prepares the cgroup. It fails when the configuration
// is wrong in itself; when it is right but cannot be had here, every Prepare fails and State says why.
func New(cfg Config) (Sandbox, error) {
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	if err := cfg.check(); err != nil {
		return nil, err
	}
	caps, err := threadCapabilities()
	if err != nil {
		return nil, err
	}
	s := &confiner{cfg: cfg, capable: caps.effective(asRoot...), override: caps.effective(unix.CAP_DAC_OVERRIDE)}
	s.warden = warden{log: cfg.Logger, charges: map[int]charge{}}
	if cfg.Landlock && cfg.Enabled {
		s.landlock = landlockVersion()
	}
	if cfg.Cgroup != "" {
		if s.cgroups, err = prepareCgroups(cgroupRoot, procRoot, isCgroup2, cfg); err != nil {
			s.broken = &ConfigError{fmt.Errorf("no plugin runs, since their cgroup %s cannot be used: %w", cfg.Cgroup, err)}
			cfg.Logger.Error(s.broken.Error())
		}
	}
	s.state = s.missing()
	return s, nil
}

func (c Config) check() error {
	var errs []error
	if c.User != "" {
		errs = append(errs, checkUser(c.User))
	}
	if c.MemoryMax < 0 || c.PidsMax < 0 {
		errs = append(errs, errors.New("memory_max and pids_max in [plugins] must not be negative"))
	}
	if c.Cgroup == "" && (c.MemoryMax > 0 || c.PidsMax > 0) {
		errs = append(errs, errors.New("memory_max and pids_max in [plugins] need cgroup"))
	}
	for _, p := range c.ReadPaths {
		if !filepath.IsAbs(p) {
			errs = append(errs, fmt.Errorf("read_paths in [plugins] must be absolute: %q", p))
		}
	}
	return errors.Join(errs...)
}

// missing says what plugins go without on this machine.
func (s *confiner) missing() []string {
	var m []string
	if s.broken != nil {
		m = append(m, s.broken.Error())
	}
	if !s.capable {
		m = append(m, "plugins share bcd's uid: bcd lacks CAP_SETUID, CAP_SETGID, CAP_KILL or CAP_CHOWN")
	}
	switch {
	case !s.cfg.Enabled:
		m = append(m, "plugins run without no_new_privs, system call filter and Landlock: sandbox = false in [plugins]")
	case filterArch[runtime.GOARCH] == 0:
		m = append(m, "plugins run without a system call filter: there is none for "+runtime.GOARCH)
	}
	if (!s.capable || s.cfg.User != "") && s.cgroups == nil {
		m = append(m, "what plugins start in a session of its own may outlive them: they have no uid of their own and no cgroup to be killed by")
	}
	if s.cfg.Enabled && s.cfg.Landlock && s.landlock == 0 {
		m = append(m, "plugins see the whole file system: the kernel has no Landlock")
	}
	return m
}

// State implements Sandbox.
func (s *confiner) State() []string { return slices.Clone(s.state) }

// identity is who a plugin runs as.
type identity struct {
	uid, gid   int
	own        bool // no other process has the uid
	same       bool // bcd's
	guard      int  // the guard's uid for killing, 0 where it uses bcd's own
	privileged bool
	claim      *claim // of an own uid
}

// ownUID gives a plugin its uid and a claim to it, past those that others on this machine have.
func ownUID(ctx context.Context, p Plugin) (uid int, guard int, c *claim, err error) {
	others := map[int]bool{}
	taken := func(id int) (bool, error) {
		if others[id] {
			return true, nil
		}
		return accountHas(id)
	}
	for {
		if err := ctx.Err(); err != nil {
			return 0, 0, nil, err
		}
		given, err := uids(p.Names, taken)
		if err != nil {
			return 0, 0, nil, err
		}
		uid := given[p.Name]
		c, err := claimUID(uid)
		if !errors.Is(err, errClaimed) {
			return uid, given[guardName], c, err
		}
		others[uid] = true
	}
}

func (s *confiner) identify(ctx context.Context, p Plugin) (identity, error) {
	shared := identity{uid: os.Getuid(), gid: os.Getgid(), same: true, privileged: slices.Contains(s.cfg.Privileged, p.Name)}
	if !s.capable {
		return shared, nil
	}
	if !shared.privileged && s.cfg.User == "" {
		uid, guard, claim, err := ownUID(ctx, p)
		return identity{uid: uid, gid: uid, own: true, guard: guard, claim: claim}, err
	}
	given, err := uids(nil, accountHas)
	if err != nil {
		return identity{}, err
	}
	guard := given[guardName]
	if shared.privileged {
		return identity{guard: guard, privileged: true, same: os.Getuid() == 0}, nil
	}
	uid, gid, err := account(s.cfg.User)
	return identity{uid: uid, gid: gid, guard: guard, same: uid == os.Getuid()}, err
}

// Prepare implements Sandbox.
func (s *confiner) Prepare(ctx context.Context, p Plugin) (*Prepared, error) {
	if s.broken != nil {
		return nil, s.broken
	}
	if p.Exe == nil || p.Name == "" || !slices.Contains(p.Names, p.Name) || !filepath.IsAbs(p.SocketDir) {
		return nil, fmt.Errorf("plugin %q needs a name among the names, a binary and a socket directory", p.Name)
	}
	r := &run{sandbox: s, plugin: p}
	if err := r.prepare(ctx); err != nil {
		return nil, errors.Join(err, r.close())
	}
	return &Prepared{Cmd: r.cmd, Facts: s.facts(r), start: r.start, kill: r.kill, reach: r.reach, close: r.close}, nil
}

func (s *confiner) facts(r *run) Facts {
	f := Facts{UID: r.identity.uid, Privileged: r.identity.privileged, Cgroup: r.cgroup}
	if !r.identity.privileged {
		f.Missing = s.State()
		if s.capable && r.identity.same {
			f.Missing = append(f.Missing, "it runs under bcd's own account, which user in [plugins] names")
		}
		f.Confined = r.order.confine && filterArch[runtime.GOARCH] != 0
	} else if r.identity.uid != 0 {
		f.Missing = []string{"it does not run as root, which privileged asks for: bcd lacks CAP_SETUID, CAP_SETGID, CAP_KILL or CAP_CHOWN"}
	}
	if r.order.landlock {
		f.Landlock = s.landlock
	}
	return f
}

// command makes the command: the shim where there is something for it to do, else the binary itself, from its descriptor.
func (r *run) command() {
	o := r.order
	r.cmd = &exec.Cmd{Path: exePath, Args: o.argv}
	if o.gate || o.confine {
		r.cmd = &exec.Cmd{Path: selfExe, Args: append([]string{"bcd", ShimCommand}, o.args()...)}
	}
	r.cmd.Env = append([]string{}, r.plugin.Env...) // not nil, which would be bcd's own
	r.cmd.Dir = "/"
	r.cmd.ExtraFiles = []*os.File{r.plugin.Exe}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: unix.SIGKILL}
	if !r.identity.same {
		r.cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(r.identity.uid), Gid: uint32(r.identity.gid)}
	}
}

// runnable sees that the plugin's account may run what it has to: the shim, which is bcd's own binary, and the plugin's.
func (r *run) runnable() error {
	if r.identity.same || r.identity.privileged {
		return nil
	}
	for _, f := range []struct {
		what string
		stat func() (fs.FileInfo, error)
	}{{"bcd's binary", func() (fs.FileInfo, error) { return os.Stat(selfExe) }}, {"the binary of plugin " + r.plugin.Name, r.plugin.Exe.Stat}} {
		i, err := f.stat()
		if err != nil {
			return fmt.Errorf("looking at %s: %w", f.what, err)
		}
		if i.Mode()&0o005 != 0o005 {
			return fmt.Errorf("uid %d cannot run %s, whose mode is %04o: make it 0755", r.identity.uid, f.what, i.Mode().Perm())
		}
	}
	return nil
}

// handOver gives the socket directory to the plugin. A bcd without root's leave to use it keeps itself in by the group.
func (r *run) handOver() error {
	dir := r.plugin.SocketDir
	i, err := os.Lstat(dir)
	if err != nil || !i.IsDir() {
		return fmt.Errorf("the socket directory of plugin %s is none: %w", r.plugin.Name, errors.Join(err, unix.ENOTDIR))
	}
	if r.identity.same {
		return nil
	}
	r.handed = true
	gid, mode := r.identity.gid, fs.FileMode(0o700)
	if !r.sandbox.override {
		gid, mode = os.Getgid(), 0o770
	}
	if err := errors.Join(os.Chmod(dir, mode), os.Lchown(dir, r.identity.uid, gid)); err != nil {
		return fmt.Errorf("handing plugin %s its socket directory: %w", r.plugin.Name, err)
	}
	return reachable(dir, r.identity)
}

// reachable sees that the plugin gets through to its socket directory.
func reachable(dir string, id identity) error {
	for p := filepath.Dir(dir); ; p = filepath.Dir(p) {
		var st unix.Stat_t
		if err := unix.Stat(p, &st); err != nil {
			return fmt.Errorf("looking at %s: %w", p, err)
		}
		bits := st.Mode
		switch {
		case int(st.Uid) == id.uid:
			bits >>= 6
		case int(st.Gid) == id.gid:
			bits >>= 3
		}
		if bits&1 == 0 && id.uid != 0 {
			return fmt.Errorf("uid %d cannot get through %s to its socket directory: give that directory mode 0711", id.uid, p)
		}
		if p == "/" {
			return nil
		}
	}
}
