package bcx

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// process is one run of a plugin.
type process struct {
	cmd    *exec.Cmd
	stdin  io.Closer
	dir    string // of its socket
	conn   *Conn
	desc   Description
	grace  time.Duration
	exited chan struct{} // closed once it is over and its output read
	said   []string      // its last lines on stderr; valid once exited
	status error         // how it ended; valid once exited
}

// launch verifies, starts and greets the plugin, within ctx.
func launch(ctx context.Context, c HostConfig) (*process, error) {
	if err := checkPin(c.Command, c.Dir, c.SHA256); err != nil {
		return nil, err
	}
	host, err := NewIdentity()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "bcx")
	if err != nil {
		return nil, fmt.Errorf("making the socket's directory: %w", err)
	}
	p := &process{dir: dir, grace: c.ShutdownGrace, exited: make(chan struct{})}
	stdout, err := p.start(c, host)
	if err != nil {
		os.RemoveAll(dir)
		return nil, err
	}
	if err := p.greet(ctx, stdout, host, c.CallTimeout); err != nil {
		p.kill()
		<-p.exited
		if len(p.said) > 0 {
			err = fmt.Errorf("%w; its last words: %q", err, strings.Join(p.said, " / "))
		}
		return nil, err
	}
	go func() { _, _ = io.Copy(io.Discard, stdout) }() // ends with the process, see reap
	return p, nil
}

// start runs the command and gives its stdout, which reap closes.
func (p *process) start(c HostConfig, host *Identity) (io.Reader, error) {
	program, err := findProgram(c.Command[0], c.Dir)
	if err != nil {
		return nil, err
	}
	p.cmd = exec.Command(program, c.Command[1:]...)
	p.cmd.Dir, p.cmd.Env = c.Dir, c.environ(p.dir, host)
	ownGroup(p.cmd)
	stdout, out, err1 := os.Pipe()
	stderr, errOut, err2 := os.Pipe()
	in, stdin, err3 := os.Pipe()
	if err := errors.Join(err1, err2, err3); err != nil {
		return nil, fmt.Errorf("making pipes: %w", err)
	}
	p.cmd.Stdin, p.cmd.Stdout, p.cmd.Stderr, p.stdin = in, out, errOut, stdin
	err = p.cmd.Start()
	for _, theirs := range []io.Closer{in, out, errOut} {
		theirs.Close()
	}
	if err != nil {
		for _, ours := range []io.Closer{stdin, stdout, stderr} {
			ours.Close()
		}
		return nil, fmt.Errorf("starting the plugin: %w", err)
	}
	go p.reap(stdout, stderr, c.Logger)
	return NewOutput(stdout), nil
}

// reap waits for the end of the process and of everything it started in its group, and removes what was made for it.
func (p *process) reap(stdout, stderr *os.File, log *slog.Logger) {
	forwarded := make(chan []string, 1)
	go func() { forwarded <- forwardLog(NewOutput(stderr), log) }()
	p.status = p.cmd.Wait()
	killGroup(p.cmd)
	// What left the group may hold the pipes open; it is not waited for.
	soon := time.Now().Add(patience)
	_ = stdout.SetReadDeadline(soon)
	_ = stderr.SetReadDeadline(soon)
	p.said = <-forwarded
	for _, f := range []io.Closer{p.stdin, stdout, stderr} {
		f.Close()
	}
	os.RemoveAll(p.dir)
	close(p.exited)
}

// greet reads the handshake, connects and asks what the plugin serves.
func (p *process) greet(ctx context.Context, stdout io.Reader, host *Identity, callTimeout time.Duration) error {
	hs, err := ReadHandshake(ctx, stdout)
	if err != nil {
		return err
	}
	if hs.Network == "unix" {
		if err := hs.Within(p.dir); err != nil {
			return err
		}
	}
	if p.conn, err = Dial(ctx, DialConfig{Handshake: hs, Identity: host, CallTimeout: callTimeout}); err != nil {
		return err
	}
	if p.desc, err = p.conn.Describe(ctx); err != nil {
		p.conn.Close()
		return err
	}
	return nil
}

// stop asks the plugin to end, lets its calls go on for the grace, and ends it then.
func (p *process) stop() {
	p.stdin.Close()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	hurry := time.AfterFunc(p.grace, p.kill)
	defer hurry.Stop()
	<-p.exited
	p.conn.Close()
}

func (p *process) kill() { killGroup(p.cmd); _ = p.cmd.Process.Kill() }

// environ is what a plugin of this host gets: nothing of the host's own but the basics.
func (c HostConfig) environ(socketDir string, host *Identity) []string {
	var env []string
	for _, name := range []string{"HOME", "TMPDIR", "TMP", "TEMP", "LANG", "TZ", "SystemRoot", "windir"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	env = append(env, c.Env...)
	return append(env, Environ(os.Getenv("PATH"), socketDir, host)...)
}
