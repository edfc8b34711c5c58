package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// procRoot is where the kernel shows processes.
const procRoot = "/proc"

// patience is how long one waits for processes to be gone: most of the killed are within a millisecond.
type patience struct {
	end  time.Time
	next time.Duration
}

// killPatience is for processes that were sent SIGKILL.
const killPatience = 5 * time.Second

func newPatience(limit time.Duration) *patience {
	return &patience{time.Now().Add(limit), 500 * time.Microsecond}
}

// more waits a little, twice as long each time up to 50 ms, and reports whether to look again.
func (p *patience) more() bool {
	if time.Now().After(p.end) {
		return false
	}
	time.Sleep(p.next)
	p.next = min(2*p.next, 50*time.Millisecond)
	return true
}

// living gives the processes of a charge that have not died: by uid where that is its own, else by process group.
func living(proc string, c charge) ([]int, error) {
	if !c.Own && c.Group <= 1 {
		return nil, nil // it was not started
	}
	entries, err := os.ReadDir(proc)
	if err != nil {
		return nil, fmt.Errorf("looking for processes: %w", err)
	}
	var pids []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		dir := filepath.Join(proc, e.Name())
		if c.Own {
			if uid, err := owner(dir); gone(err) || err == nil && uid != c.UID {
				continue
			}
		}
		state, group, err := status(dir)
		switch {
		case gone(err), state == 'Z', state == 'X', !c.Own && group != c.Group:
		case err != nil:
			return nil, err
		default:
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// gone reports whether an error means that the process ended meanwhile.
func gone(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ESRCH) }

// owner gives the real uid, from status: the directory's own is root's for a process that may not be looked into.
func owner(dir string) (int, error) {
	b, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(b, []byte("\nUid:"))
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0, fmt.Errorf("reading %s/status: no uid", dir)
	}
	return strconv.Atoi(string(f[0]))
}

// status gives a process's state letter and process group, from stat (proc_pid_stat(5)): the name in it, in brackets, may
// hold anything, brackets too.
func status(dir string) (state byte, group int, err error) {
	b, err := os.ReadFile(filepath.Join(dir, "stat"))
	if err != nil {
		return 0, 0, err
	}
	f := bytes.Fields(b[bytes.LastIndexByte(b, ')')+1:])
	if len(f) < 3 {
		return 0, 0, fmt.Errorf("reading %s/stat: it is cut short", dir)
	}
	group, err = strconv.Atoi(string(f[2]))
	return f[0][0], group, err
}
