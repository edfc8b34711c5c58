package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// cgroupRoot is where cgroup v2 is mounted.
const cgroupRoot = "/sys/fs/cgroup"

// controllers are those that plugins are limited by.
var controllers = []string{"memory", "pids"}

// cgroups makes the cgroups of plugins under one directory.
type cgroups struct {
	dir       string
	memoryMax int64
	pidsMax   int64
}

// prepareCgroups makes the directory of plugins' cgroups and turns the controllers on in it and its parent. The kernel turns
// them on only below a cgroup without processes of its own, the root excepted: bcd, where it stands in the parent, goes to a
// leaf called main there. check sees that a directory is of cgroup v2: isCgroup2.
func prepareCgroups(root, proc string, check func(dir string) error, cfg Config) (*cgroups, error) {
	dir := filepath.Clean(cfg.Cgroup)
	parent := filepath.Dir(dir)
	if !strings.HasPrefix(dir, root+"/") {
		return nil, fmt.Errorf("it is not under %s", root)
	}
	if err := check(parent); err != nil {
		return nil, err
	}
	if err := leaveParent(root, proc, parent); err != nil {
		return nil, fmt.Errorf("leaving %s: %w", parent, delegated(err))
	}
	if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return nil, delegated(err)
	}
	for _, d := range []string{parent, dir} {
		if err := enable(d); err != nil {
			return nil, delegated(err)
		}
	}
	return &cgroups{dir, cfg.MemoryMax, cfg.PidsMax}, nil
}

func isCgroup2(dir string) error {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return &fs.PathError{Op: "looking at", Path: dir, Err: err}
	}
	if st.Type != unix.CGROUP2_SUPER_MAGIC {
		return fmt.Errorf("%s is not in a cgroup v2 hierarchy", dir)
	}
	return nil
}

// delegated adds the usual cause to a refused write.
func delegated(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, unix.EROFS):
		return fmt.Errorf("it is not delegated to bcd (Delegate=yes and ProtectControlGroups=no in its unit): %w", err)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("other processes are in the cgroup above it (DelegateSubgroup=main in bcd's unit): %w", err)
	}
	return err
}

// leaveParent moves this process into the leaf when it is in parent itself. The root is free of that rule.
func leaveParent(root, proc, parent string) error {
	b, err := os.ReadFile(filepath.Join(proc, "self", "cgroup"))
	if err != nil {
		return err
	}
	var own string
	for line := range strings.Lines(string(b)) {
		if p, ok := strings.CutPrefix(strings.TrimSuffix(line, "\n"), "0::"); ok {
			own = filepath.Join(root, p)
		}
	}
	if own != parent || parent == root {
		return nil
	}
	main := filepath.Join(parent, "main")
	if err := os.Mkdir(main, 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
		return err
	}
	return enterCgroup(main, os.Getpid())
}

// enable turns the controllers on for the children of a cgroup, one by one so that the one that is missing is named.
func enable(dir string) error {
	have, err := os.ReadFile(filepath.Join(dir, "cgroup.controllers"))
	if err != nil {
		return err
	}
	for _, c := range controllers {
		if !bytes.Contains(append(append([]byte(" "), bytes.TrimSpace(have)...), ' '), []byte(" "+c+" ")) {
			return fmt.Errorf("%s has no %s controller", dir, c)
		}
		if err := write(filepath.Join(dir, "cgroup.subtree_control"), "+"+c); err != nil {
			return err
		}
	}
	return nil
}

// write writes to a file of the kernel, which must be there.
func write(path, value string) error {
	f, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = f.WriteString(value)
	return errors.Join(err, f.Close())
}

// make makes a plugin's cgroup with its limits. What an earlier bcd left running in it ends first: it would count.
func (c *cgroups) make(ctx context.Context, name string) (string, error) {
	dir := filepath.Join(c.dir, "bcx-"+name)
	if err := removeCgroup(dir); err != nil {
		return "", err
	}
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := os.Mkdir(dir, 0o755); err != nil {
		return "", err
	}
	for file, limit := range map[string]int64{"memory.max": c.memoryMax, "pids.max": c.pidsMax} {
		if limit == 0 {
			continue
		}
		if err := write(filepath.Join(dir, file), strconv.FormatInt(limit, 10)); err != nil {
			return dir, err
		}
	}
	return dir, nil
}

// enterCgroup moves a process.
func enterCgroup(dir string, pid int) error {
	return write(filepath.Join(dir, "cgroup.procs"), strconv.Itoa(pid))
}

// killCgroup ends everything in a cgroup and below, and sees it empty; "" and one that is not there are none. Kernels before
// 5.14 cannot: there the processes are ended by uid and group alone.
func killCgroup(dir string) error {
	if dir == "" {
		return nil
	}
	if err := write(filepath.Join(dir, "cgroup.kill"), "1"); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return fmt.Errorf("killing what is in a plugin's cgroup: %w", err)
	}
	for wait := newPatience(killPatience); ; {
		b, err := os.ReadFile(filepath.Join(dir, "cgroup.events"))
		if err != nil || bytes.Contains(b, []byte("populated 0")) {
			return err
		}
		if !wait.more() {
			return fmt.Errorf("processes in %s do not end: they hang in the kernel", dir)
		}
	}
}

// removeCgroup ends what is in a cgroup and removes it; cgroups that the plugin could not make are not below it.
func removeCgroup(dir string) error {
	if err := killCgroup(dir); err != nil {
		return err
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("removing a plugin's cgroup: %w", err)
	}
	return nil
}
