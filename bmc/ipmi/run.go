package ipmi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	maxOutput  = 1 << 20         // bytes kept of each stream of one run
	stragglers = 5 * time.Second // for what a finished ipmitool left holding its streams
	toolName   = "ipmitool"
	// Seconds after which ipmitool asks a silent BMC again: with 2 retries it gives up after about 10 s, where its own default
	// takes 20 s, and a quick command after about 6 s.
	patience, quickPatience = "2", "1"
)

var (
	toolDirs = []string{"/usr/bin", "/usr/sbin", "/usr/local/bin", "/usr/local/sbin"}
	toolEnv  = []string{"PATH=/usr/sbin:/usr/bin:/sbin:/bin"}
)

// command is one thing to have ipmitool do.
type command struct {
	words   []string
	verbose bool // say why a session cannot be opened
	quick   bool // give a silent BMC up sooner
}

func words(words ...string) command { return command{words: words} }

func (c command) String() string { return strings.Join(c.words, " ") }

// answer is what a run of ipmitool gave. Its texts are a machine's.
type answer struct {
	stdout, stderr string
	exit           int
	signal         string // that ended it, such as "segmentation fault"; "" none
}

func (a answer) failed() bool { return a.exit != 0 || a.signal != "" }

// toolPath finds ipmitool.
func (d *Driver) toolPath() (string, error) {
	if d.tool != "" {
		return d.tool, executable(d.tool)
	}
	for _, dir := range toolDirs {
		if path := filepath.Join(dir, toolName); executable(path) == nil {
			return path, nil
		}
	}
	return "", driver.Errorf(driver.CodeUnavailable, "ipmitool is not installed; install the package ipmitool on this host")
}

func executable(path string) error {
	info, err := os.Stat(path)
	if err == nil && (!info.Mode().IsRegular() || info.Mode()&0o111 == 0) {
		err = errors.New("it is not an executable file")
	}
	if err != nil {
		return driver.Errorf(driver.CodeUnavailable, "ipmitool cannot be run: %w", err)
	}
	return nil
}

// arguments are ipmitool's, none of them a secret.
func (l *login) arguments(c command) []string {
	args := []string{"-I", "lanplus", "-H", l.target.host, "-p", l.target.port, "-U", l.user, "-f", "/dev/fd/3", "-C", strconv.Itoa(l.suite)}
	if l.privilege != "" {
		args = append(args, "-L", l.privilege)
	}
	if l.key != nil {
		args = append(args, "-Y")
	}
	wait := patience
	if c.quick {
		wait = quickPatience
	}
	args = append(args, "-N", wait, "-R", strconv.Itoa(l.retries))
	if c.verbose {
		args = append(args, "-v")
	}
	return append(args, c.words...)
}

// process is an ipmitool about to run: the leader of a session of its own, without a terminal, so that it reads the BMC
// key from its standard input and a signal to its group reaches whatever it started. It dies with this process.
func (l *login) process(path string, args []string) (cmd *exec.Cmd, release func(), err error) {
	password, err := filled(l.password)
	if err != nil {
		return nil, nil, err
	}
	cmd = exec.Command(path, args...)
	cmd.Env = toolEnv
	cmd.Dir = "/"
	cmd.ExtraFiles = []*os.File{password} // descriptor 3
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
	return cmd, func() { _ = password.Close() }, nil
}

// filled gives the reading end of a pipe that holds a text, and nothing after it.
func filled(text string) (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("making a pipe: %w", err)
	}
	_, err = io.WriteString(w, text) // at most 20 bytes: the pipe takes them at once
	if err = errors.Join(err, w.Close()); err != nil {
		return nil, errors.Join(err, r.Close())
	}
	return r, nil
}

// execute runs ipmitool once. An error means that there is no answer: it could not start, ctx ended, or it took longer
// than a run may.
func (d *Driver) execute(ctx context.Context, l *login, c command) (answer, error) {
	path, err := d.toolPath()
	if err != nil {
		return answer{}, err
	}
	if err := ctx.Err(); err != nil {
		return answer{}, err
	}
	cmd, release, err := l.process(path, l.arguments(c))
	if err != nil {
		return answer{}, err
	}
	defer release()
	var stdout, stderr bounded
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &stdout, &stderr, stragglers
	if l.key != nil {
		cmd.Stdin = bytes.NewReader(append(bytes.Clone(l.key), '\n'))
	}
	limited, cancel := context.WithTimeout(ctx, d.runLimit)
	defer cancel()
	started := time.Now()
	err = runIn(limited, cmd)
	a := answer{stdout: stdout.String(), stderr: stderr.String()}
	d.log.Debug("ipmitool ran", "bmc", l.target.String(), "command", c.String(), "took", time.Since(started).Round(time.Millisecond), "error", err)
	switch {
	case ctx.Err() != nil:
		return a, ctx.Err()
	case limited.Err() != nil:
		return a, driver.Errorf(driver.CodeUnreachable, "the BMC at %s gave no answer to %q within %s", l.target, c, d.runLimit).Again()
	}
	return a.ended(err)
}

// ended reads how the process ended.
func (a answer) ended(err error) (answer, error) {
	var exit *exec.ExitError
	switch {
	case err == nil, errors.Is(err, exec.ErrWaitDelay):
		return a, nil
	case !errors.As(err, &exit):
		return a, driver.Errorf(driver.CodeUnavailable, "ipmitool cannot be run: %w", err)
	}
	a.exit = exit.ExitCode()
	if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		a.signal = status.Signal().String()
	}
	return a, nil
}

// runIn runs a process until it ends, or ends its whole group with ctx. The thread stays this goroutine's own meanwhile:
// the kernel sends the parent-death signal when the thread ends that started the process.
func runIn(ctx context.Context, cmd *exec.Cmd) error {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	if err := cmd.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { killGroup(cmd) })
	defer stop()
	err := cmd.Wait()
	if errors.Is(err, exec.ErrWaitDelay) || ctx.Err() != nil {
		killGroup(cmd)
	}
	return err
}

// killGroup ends a process and all that it started.
func killGroup(cmd *exec.Cmd) { _ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }

// bounded keeps the first maxOutput bytes written to it. It embeds no buffer, whose ReadFrom would keep everything.
type bounded struct{ kept bytes.Buffer }

func (b *bounded) Write(p []byte) (int, error) {
	if room := maxOutput - b.kept.Len(); room > 0 {
		b.kept.Write(p[:min(room, len(p))])
	}
	return len(p), nil
}

func (b *bounded) String() string { return b.kept.String() }
