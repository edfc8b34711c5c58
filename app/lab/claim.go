package lab

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
)

// claimDir keeps one file per running lab. It is a folder of the running system: a reboot empties it.
const claimDir = "/run/bcd-lab"

// owner is who holds a lab's name. A pid alone says nothing: pids are used again.
type owner struct {
	PID   int    `json:"pid"`
	Start string `json:"start"` // field 22 of /proc/PID/stat: start time in clock ticks since boot
}

// claim is a held name.
type claim struct{ path string }

// claimName takes a lab's name for this process. A name held by a living process is refused; one whose process is gone is
// taken over after what that process left was removed.
func claimName(name string, log *slog.Logger) (*claim, error) {
	if err := os.MkdirAll(claimDir, 0o700); err != nil {
		return nil, fmt.Errorf("making %s: %w", claimDir, err)
	}
	c := &claim{path: filepath.Join(claimDir, name+".json")}
	if o, err := readOwner(c.path); err == nil {
		if o.alive() {
			return nil, app.Errorf(app.Conflict, "lab-running", "the lab %q is running already, as process %d", name, o.PID).
				Do("stop it with Ctrl-C in its terminal, or with: kill %d", o.PID)
		}
		log.Info("removing what a killed lab left", "lab", name, "pid", o.PID)
	}
	if err := removeLeftovers(name, log); err != nil {
		return nil, err
	}
	self, err := me()
	if err != nil {
		return nil, err
	}
	b, _ := json.Marshal(self) // a struct of a number and a string: cannot fail
	if err := os.WriteFile(c.path, b, 0o600); err != nil {
		return nil, fmt.Errorf("claiming the lab's name: %w", err)
	}
	return c, nil
}

func (c *claim) release() error {
	if err := os.Remove(c.path); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("releasing the lab's name: %w", err)
	}
	_ = os.Remove(claimDir) // when it was the last
	return nil
}

func readOwner(path string) (owner, error) {
	var o owner
	b, err := os.ReadFile(path)
	if err == nil {
		err = json.Unmarshal(b, &o)
	}
	return o, err
}

func me() (owner, error) {
	start, err := startTime(os.Getpid())
	return owner{os.Getpid(), start}, err
}

// alive reports whether the very process that claimed the name still runs.
func (o owner) alive() bool {
	start, err := startTime(o.PID)
	return err == nil && o.PID > 0 && start == o.Start
}

// startTime reads when a process started, which tells it from a later one with the same pid.
func startTime(pid int) (string, error) {
	b, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(pid), "stat"))
	if err != nil {
		return "", err
	}
	// The name in parentheses may hold blanks and parentheses itself; state is the first field after it.
	fields := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
	if len(fields) < 20 {
		return "", fmt.Errorf("reading the start time of process %d: %d fields", pid, len(fields))
	}
	return fields[19], nil
}

// removeLeftovers ends the emulators that still live in a dead lab's namespace, and removes the namespace. Emulators die
// with their lab; this is for the case that they did not.
func removeLeftovers(name string, log *slog.Logger) error {
	var ns unix.Stat_t
	if unix.Stat(filepath.Join(namedNamespaces, name), &ns) != nil {
		return nil
	}
	paths, err := filepath.Glob("/proc/[0-9]*/ns/net")
	if err != nil {
		return err
	}
	for _, path := range paths {
		pid, _ := strconv.Atoi(strings.Split(path, "/")[2])
		if err := endEmulator(pid, ns, log); err != nil {
			return err
		}
	}
	return removeNamespace(name)
}

// endEmulator kills a process when it is an emulator inside the namespace. It is held by a pidfd before it is looked at, so
// that a process that takes over the pid meanwhile is never hit. Others, such as a person's shell, are left alone.
func endEmulator(pid int, ns unix.Stat_t, log *slog.Logger) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return nil // it is gone
	}
	defer unix.Close(fd)
	dir := filepath.Join("/proc", strconv.Itoa(pid))
	var own unix.Stat_t
	if unix.Stat(filepath.Join(dir, "ns/net"), &own) != nil || own.Ino != ns.Ino || own.Dev != ns.Dev {
		return nil
	}
	exe, err := os.Readlink(filepath.Join(dir, "exe"))
	if err != nil || !strings.HasPrefix(filepath.Base(exe), "qemu-system-") {
		return nil
	}
	log.Info("ending a virtual machine that a killed lab left", "pid", pid)
	if err := unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0); err != nil && !errors.Is(err, unix.ESRCH) {
		return fmt.Errorf("ending process %d: %w", pid, err)
	}
	return nil
}
