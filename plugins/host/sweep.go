package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// dirMark begins the name of every socket directory; this process's id follows.
const dirMark = "bcx-"

func dirPrefix() string { return dirMark + strconv.Itoa(os.Getpid()) + "-" }

// sweep removes the socket directories of hosts that were killed. A directory is one when its name holds the id of a
// process that is no more, and it is empty or holds sockets only.
func sweep(dir string) error {
	all, err := filepath.Glob(filepath.Join(dir, dirMark+"*-*"))
	if err != nil {
		return err
	}
	var errs []error
	for _, path := range all {
		id, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(path), dirMark), "-")
		pid, err := strconv.Atoi(id)
		if err != nil || pid == os.Getpid() {
			continue
		}
		if _, err := os.Lstat(fmt.Sprintf("/proc/%d", pid)); !errors.Is(err, os.ErrNotExist) {
			continue
		}
		errs = append(errs, sweepOne(path))
	}
	return errors.Join(errs...)
}

// sweepOne removes one directory, which others can name as they like: only what is plainly ours goes.
func sweepOne(path string) error {
	st, err := os.Lstat(path)
	if err != nil || !st.IsDir() || st.Mode().Perm() != 0o700 {
		return nil
	}
	if err := os.Lchown(path, os.Geteuid(), os.Getegid()); err != nil {
		return nil // another account's
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return fmt.Errorf("reading %s: %w", path, err)
	}
	for _, e := range entries {
		if e.Type() != os.ModeSocket {
			return nil
		}
	}
	return os.RemoveAll(path)
}
