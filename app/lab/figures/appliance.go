package figures

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/child"
	"github.com/better-compute/bcd/app/lab"
)

// namespace is the network of the figures' appliance and machines.
const namespace = "bcdfigures"

// appliance is `bcd site` as a process of its own, with an administrator logged in.
type appliance struct {
	*lab.Client
	cmd *exec.Cmd
	dir string
}

// start runs an appliance whose machines live in the network namespace. It logs to a file in the work folder.
func (s *session) start(ctx context.Context, seed func(dataDir string) error) (*appliance, error) {
	dir, err := os.MkdirTemp(s.Work, "site-")
	if err != nil {
		return nil, err
	}
	a := &appliance{dir: dir}
	data, config := filepath.Join(dir, "data"), filepath.Join(dir, "config.toml")
	text := fmt.Sprintf("[site]\nname = \"figures\"\ndata_dir = %q\n[listen]\nconsole = \"127.0.0.1:0\"\n", data)
	if err := errors.Join(os.WriteFile(config, []byte(text), 0o600), os.Mkdir(data, 0o700)); err != nil {
		return nil, err
	}
	if seed != nil {
		if err := seed(data); err != nil {
			return nil, err
		}
	}
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		return nil, err
	}
	defer log.Close() // the process has its own
	a.cmd = exec.CommandContext(ctx, s.Binary, "site", "--config", config, "--netns", namespace)
	a.cmd.Stderr = log
	a.cmd.Cancel = func() error { return a.cmd.Process.Signal(syscall.SIGTERM) }
	a.cmd.WaitDelay = 20 * time.Second
	out, err := a.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := child.Start(a.cmd); err != nil {
		return nil, fmt.Errorf("starting the appliance: %w", err)
	}
	if err := a.login(ctx, out); err != nil {
		said, _ := os.ReadFile(filepath.Join(dir, "log"))
		return nil, errors.Join(fmt.Errorf("%w\nthe appliance said:\n%s", err, bytes.TrimSpace(said)), a.stop())
	}
	return a, nil
}

// login reads what the appliance shows at its start and makes its first administrator.
func (a *appliance) login(ctx context.Context, out io.Reader) error {
	shown := map[string]string{}
	for lines := bufio.NewScanner(out); shown["setup code"] == "" && lines.Scan(); {
		if k, v, ok := strings.Cut(lines.Text(), ": "); ok {
			shown[k] = v
		}
	}
	if shown["setup code"] == "" {
		return app.Errorf(app.Unavailable, "no-setup-code", "the appliance ended before it showed its setup code")
	}
	a.Client = lab.NewClient(shown["console"], shown["console key (SHA-256)"])
	return a.Setup(ctx, shown["setup code"], lab.AdminUser, rand.Text()) // waits in the listener's queue until the console is served
}

// stop ends the process and removes what it kept.
func (a *appliance) stop() error {
	if a.Client != nil {
		a.Close()
	}
	_ = a.cmd.Process.Signal(syscall.SIGTERM) // it may have ended by itself: Wait tells
	err := a.cmd.Wait()
	if err != nil {
		err = fmt.Errorf("the appliance ended badly: %w", err)
	}
	return errors.Join(err, os.RemoveAll(a.dir))
}

// memory reads a line of the process's status in bytes: "VmRSS", "RssAnon", or "VmHWM", the highest VmRSS since forget.
func (a *appliance) memory(name string) (int64, error) {
	return memoryOf(a.cmd.Process.Pid, name)
}

func memoryOf(pid int, name string) (int64, error) {
	path := filepath.Join("/proc", strconv.Itoa(pid), "status")
	kib, _, ok := strings.Cut(field(path, name), " ")
	n, err := strconv.ParseInt(kib, 10, 64)
	if !ok || err != nil {
		return 0, fmt.Errorf("%s has no %s", path, name)
	}
	return n << 10, nil
}

// forget makes VmHWM start anew from the present VmRSS.
func (a *appliance) forget() error {
	return os.WriteFile(filepath.Join("/proc", strconv.Itoa(a.cmd.Process.Pid), "clear_refs"), []byte("5"), 0)
}
