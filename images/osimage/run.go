package osimage

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/app"
)

// command is one tool to run.
type command struct {
	root  string   // directory to run in as its root, "" for the host; args[0] is then absolute
	stdin string   //
	env   []string // besides the host's
	args  []string
}

// run runs a command to its end and gives its output. The command lives in a mount namespace of its own and dies with ctx
// and with this process, together with what it started.
func (c command) run(ctx context.Context) (string, error) {
	runtime.LockOSThread() // the parent-death signal is bound to the thread
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, c.args[0], c.args[1:]...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	cmd.Stdin = strings.NewReader(c.stdin)
	cmd.Env = append(append(os.Environ(), "LC_ALL=C", "DEBIAN_FRONTEND=noninteractive"), c.env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	if os.Geteuid() == 0 {
		cmd.SysProcAttr.Unshareflags = syscall.CLONE_NEWNS
	}
	if c.root != "" {
		cmd.SysProcAttr.Chroot = c.root
		cmd.Dir = "/"
	}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.WaitDelay = 5 * time.Second
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return "", fmt.Errorf("running %s: %w", c.args[0], cause)
		}
		return "", fmt.Errorf("running %s: %w: %s", strings.Join(c.args, " "), err, lastLines(out.String(), 20))
	}
	return out.String(), nil
}

// lastLines bounds a tool's output to what a person reads.
func lastLines(s string, n int) string {
	l := strings.Split(strings.TrimSpace(s), "\n")
	return strings.Join(l[max(0, len(l)-n):], "\n")
}

// tools are the host's programs a build needs, with the Debian package of each.
var tools = map[string]string{
	"mmdebstrap": "mmdebstrap", "sfdisk": "fdisk", "mkfs.vfat": "dosfstools", "mmd": "mtools", "mcopy": "mtools", "mke2fs": "e2fsprogs",
}

// ready says what a build lacks on this host, in one error.
func ready() error {
	if os.Geteuid() != 0 {
		return app.Errorf(app.Forbidden, "need-root", "building an operating-system image needs root: its files belong to many users").
			Do("run it as root, or import an image that exists")
	}
	var lacks []string
	for tool, pkg := range tools {
		if _, err := exec.LookPath(tool); errors.Is(err, exec.ErrNotFound) {
			lacks = append(lacks, pkg)
		}
	}
	if lacks != nil {
		return app.Errorf(app.Unavailable, "tools-missing", "building an operating-system image needs tools that are not installed").
			Do("apt-get install %s", strings.Join(lacks, " "))
	}
	return nil
}
