package sandbox

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"sync"

	"golang.org/x/sys/unix"
)

// run is one plugin from Prepare to Close.
type run struct {
	sandbox  *confiner
	plugin   Plugin
	identity identity
	order    order
	cmd      *exec.Cmd
	cgroup   string // directory, "" none

	mu       sync.Mutex // protects the following
	handed   bool       // the socket directory
	forking  bool       // holds an acquire of the forker
	id       int        // of the charge; 0 holds no acquire of the warden
	charge   charge
	started  bool
	finished bool
}

// prepare begins with the cgroup, since what an earlier bcd left in it may have the uid.
func (r *run) prepare(ctx context.Context) (err error) {
	s := r.sandbox
	if s.cgroups != nil {
		if r.cgroup, err = s.cgroups.make(ctx, r.plugin.Name); err != nil {
			return fmt.Errorf("making the cgroup of plugin %s: %w", r.plugin.Name, err)
		}
	}
	if r.identity, err = s.identify(ctx, r.plugin); err != nil {
		return fmt.Errorf("finding a uid for plugin %s: %w", r.plugin.Name, err)
	}
	id := r.identity
	confine := s.cfg.Enabled && !id.privileged
	r.order = order{
		gate:     s.cgroups != nil,
		confine:  confine,
		landlock: confine && s.landlock > 0,
		files:    files{socketDir: r.plugin.SocketDir, readPaths: s.cfg.ReadPaths, shared: id.same},
		argv:     append([]string{r.plugin.Name}, r.plugin.Args...),
	}
	if err := r.runnable(); err != nil {
		return err
	}
	r.command()
	if err := r.handOver(); err != nil {
		return err
	}
	if err := s.forker.acquire(); err != nil {
		return err
	}
	r.forking = true
	if r.id, err = s.warden.acquire(id.guard); err != nil {
		return err
	}
	r.charge = charge{Name: r.plugin.Name, UID: id.uid, Own: id.own, Cgroup: r.cgroup, Socket: r.plugin.SocketDir}
	if id.same {
		r.charge.UID = -1
	}
	return nil
}

// start has the guard know of the plugin before there is one.
func (r *run) start() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.started || r.finished {
		return fmt.Errorf("plugin %s was started before", r.plugin.Name)
	}
	if err := r.sandbox.warden.keep(r.id, r.charge); err != nil {
		return err
	}
	r.started = true
	if r.identity.privileged {
		r.sandbox.cfg.Logger.Warn("a privileged plugin starts: it runs as root, without the sandbox", "plugin", r.plugin.Name)
	}
	if err := r.fork(); err != nil {
		return fmt.Errorf("starting plugin %s: %w", r.plugin.Name, err)
	}
	return nil
}

// fork starts the process, tells the guard its group, puts it into its cgroup and gives it leave to run.
func (r *run) fork() error {
	var leave *os.File
	if r.order.gate {
		wait, l, err := os.Pipe()
		if err != nil {
			return err
		}
		defer wait.Close()
		defer l.Close()
		leave = l
		r.cmd.ExtraFiles = append(r.cmd.ExtraFiles, wait)
	}
	if err := r.sandbox.forker.start(r.cmd); err != nil {
		return err
	}
	err := r.admit(leave)
	if err != nil {
		_ = r.cmd.Process.Kill()
		_ = r.cmd.Wait()
	}
	return err
}

func (r *run) admit(leave *os.File) error {
	r.charge.Group = r.cmd.Process.Pid
	if err := r.sandbox.warden.keep(r.id, r.charge); err != nil {
		return err
	}
	if leave == nil {
		return nil
	}
	if err := enterCgroup(r.cgroup, r.cmd.Process.Pid); err != nil {
		return err
	}
	_, err := leave.Write([]byte{1})
	return err
}

func (r *run) kill() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.started || r.finished {
		return nil
	}
	return r.sandbox.warden.kill(r.id)
}

// reach takes the socket over by its descriptor, so that it is the file looked at which changes hands.
func (r *run) reach(socket string) error {
	if r.identity.same || r.sandbox.override {
		return nil
	}
	if filepath.Dir(socket) != r.plugin.SocketDir {
		return fmt.Errorf("the socket %q of plugin %s is not in its socket directory", socket, r.plugin.Name)
	}
	fd, err := unix.Open(socket, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("taking over the socket of plugin %s: %w", r.plugin.Name, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("looking at the socket of plugin %s: %w", r.plugin.Name, err)
	}
	if st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return fmt.Errorf("what plugin %s names is no socket", r.plugin.Name)
	}
	if err := unix.Fchownat(fd, "", os.Getuid(), -1, unix.AT_EMPTY_PATH); err != nil {
		return fmt.Errorf("taking over the socket of plugin %s: %w", r.plugin.Name, err)
	}
	return nil
}

// close undoes prepare; what the plugin left running ends first.
func (r *run) close() error {
	err := r.kill()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.finished {
		return nil
	}
	r.finished = true
	errs := []error{err}
	if r.cgroup != "" {
		errs = append(errs, removeCgroup(r.cgroup))
	}
	if r.id != 0 {
		errs = append(errs, r.sandbox.warden.release(r.id))
	}
	if r.forking {
		r.sandbox.forker.release()
	}
	if r.handed {
		errs = append(errs, takeBack(r.plugin.SocketDir))
	}
	return errors.Join(append(errs, r.identity.claim.release())...)
}

// takeBack makes the directories under dir, and itself, this process's own again, so that it may remove them; nothing runs
// that could change them meanwhile.
func takeBack(dir string) error {
	if !filepath.IsAbs(dir) || filepath.Dir(dir) == dir {
		return fmt.Errorf("%q is no socket directory", dir)
	}
	root, err := os.OpenRoot(filepath.Dir(dir))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer root.Close()
	return takeBackIn(root, filepath.Base(dir))
}

func takeBackIn(root *os.Root, name string) error {
	err := root.Lchown(name, os.Getuid(), os.Getgid())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	if err := root.Chmod(name, 0o700); err != nil {
		return err
	}
	sub, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer sub.Close()
	d, err := sub.Open(".")
	if err != nil {
		return err
	}
	entries, err := d.ReadDir(-1)
	errs := []error{err, d.Close()}
	for _, e := range entries {
		if e.IsDir() {
			errs = append(errs, takeBackIn(sub, e.Name()))
		}
	}
	return errors.Join(errs...)
}
