package host

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/plugins/bcx"
	"github.com/better-compute/bcd/plugins/sandbox"
)

// deathLimit is how long a killed process may take to be gone.
const deathLimit = 5 * time.Second

// process is one run of a plugin: its process, pipes, socket directory and connection.
type process struct {
	prepared *sandbox.Prepared
	stdin    *os.File // our end: its closing asks the plugin to stop
	stdout   *os.File
	stderr   *os.File
	dir      string // of its socket
	conn     *bcx.Conn
	exited   chan struct{} // closed once the process was waited for
	exit     error         // why it ended, once exited is closed
	readers  sync.WaitGroup
}

// launch starts a plugin and shakes hands with it. What failed leaves nothing behind.
func (p *plugin) launch(ctx context.Context) (_ *process, err error) {
	h := p.host
	exe, err := p.src.open(ctx, h.cfg.Dir)
	if err != nil {
		return nil, err
	}
	defer exe.Close() // the plugin has its own descriptor by then
	dir, err := os.MkdirTemp(h.cfg.RunDir, dirPrefix())
	if err != nil {
		return nil, fmt.Errorf("making the socket's directory: %w", err)
	}
	run := &process{dir: dir, exited: make(chan struct{})}
	defer func() {
		if err != nil {
			err = errors.Join(err, run.end(ctx, 0))
		}
	}()
	id, err := bcx.NewIdentity()
	if err != nil {
		return nil, err
	}
	run.prepared, err = h.cfg.Sandbox.Prepare(ctx, sandbox.Plugin{
		Name: p.name, Names: h.names(), Exe: exe, Args: p.src.args, Env: bcx.Environ(h.cfg.Path, dir, id), SocketDir: dir,
	})
	if err != nil {
		return nil, fmt.Errorf("confining it: %w", err)
	}
	if err := run.start(p.lines); err != nil {
		return nil, err
	}
	p.started(run)
	limited, done := h.within(ctx, h.cfg.StartLimit)
	defer done()
	return run, run.greet(limited, id)
}

// start runs the process with pipes for its standard streams.
func (r *process) start(log *lines) (err error) {
	var theirs []*os.File
	defer func() {
		for _, f := range theirs {
			err = errors.Join(err, f.Close())
		}
	}()
	pipe := func(ours **os.File, write bool) (*os.File, error) {
		rd, wr, err := os.Pipe()
		if err != nil {
			return nil, fmt.Errorf("making a pipe: %w", err)
		}
		if write {
			rd, wr = wr, rd
		}
		*ours = rd
		theirs = append(theirs, wr)
		return wr, nil
	}
	cmd := r.prepared.Cmd
	for _, p := range []struct {
		ours   **os.File
		theirs func(*os.File)
		write  bool
	}{
		{&r.stdin, func(f *os.File) { cmd.Stdin = f }, true},
		{&r.stdout, func(f *os.File) { cmd.Stdout = f }, false},
		{&r.stderr, func(f *os.File) { cmd.Stderr = f }, false},
	} {
		f, err := pipe(p.ours, p.write)
		if err != nil {
			return err
		}
		p.theirs(f)
	}
	if err := r.prepared.Start(); err != nil {
		return fmt.Errorf("starting its process: %w", err)
	}
	go func() {
		r.exit = cmd.Wait()
		close(r.exited)
	}()
	r.readers.Go(func() { log.drain(bcx.NewOutput(r.stderr)) })
	return nil
}

// pid is the process id, 0 before the start.
func (r *process) pid() int {
	if r.prepared == nil || r.prepared.Cmd.Process == nil {
		return 0
	}
	return r.prepared.Cmd.Process.Pid
}

// greet reads the handshake and connects.
func (r *process) greet(ctx context.Context, id *bcx.Identity) error {
	ctx, gone := context.WithCancelCause(ctx)
	defer gone(nil)
	defer context.AfterFunc(ctx, func() { _ = r.stdout.SetReadDeadline(time.Unix(1, 0)) })() // frees the reader of a silent plugin
	heard, watched := make(chan struct{}), make(chan struct{})
	defer close(watched)
	go func() {
		select {
		case <-r.exited:
		case <-watched:
			return
		}
		// What it said before is read to its end first; a child may hold the pipe open.
		_ = r.stdout.SetReadDeadline(time.Now().Add(drainLimit))
		select {
		case <-heard:
			gone(r.ending())
		case <-watched:
		}
	}()
	out := bcx.NewOutput(r.stdout)
	hs, err := bcx.ReadHandshake(ctx, out)
	close(heard)
	if err != nil {
		return r.because(ctx, err)
	}
	r.readers.Go(func() { _, _ = io.Copy(io.Discard, out) }) // nothing is said there after the handshake
	if err := hs.Within(r.dir); err != nil {
		return err
	}
	if err := r.prepared.Reach(hs.Address); err != nil {
		return fmt.Errorf("reaching its socket: %w", err)
	}
	r.conn, err = bcx.Dial(ctx, bcx.DialConfig{Handshake: hs, Identity: id})
	return r.because(ctx, err)
}

// because prefers the end of the process, which may follow in a moment, to what the end led to. What a plugin printed in place
// of its handshake is kept beside it: it is often the reason.
func (r *process) because(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	t := time.NewTimer(drainLimit)
	defer t.Stop()
	select {
	case <-r.exited:
	case <-t.C:
	case <-ctx.Done():
	}
	if r.ended() {
		<-r.exited // it is being waited for
	}
	switch {
	case r.alive():
		return err
	case errors.Is(err, bcx.ErrHandshake), errors.Is(err, bcx.ErrProtocol):
		return fmt.Errorf("%w; %w", err, r.ending())
	}
	return r.ending()
}

// ending says how the process ended, after exited.
func (r *process) ending() error {
	if r.exit == nil {
		return errors.New("its process ended by itself")
	}
	return fmt.Errorf("its process ended: %w", r.exit)
}

// alive reports whether the process was not yet waited for.
func (r *process) alive() bool {
	if r.pid() == 0 {
		return false
	}
	select {
	case <-r.exited:
		return false
	default:
		return true
	}
}

// ended reports whether the process has ended, also when nobody has come to wait for it yet.
func (r *process) ended() bool {
	if !r.alive() {
		return false
	}
	var info unix.Siginfo
	err := unix.Waitid(unix.P_PID, r.pid(), &info, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil)
	return errors.Is(err, unix.ECHILD) || err == nil && info.Signo != 0
}

// end asks the process to stop, kills it and what it started after the grace, and clears away what it had. It works in
// every state of a start, and after the process ended by itself.
func (r *process) end(ctx context.Context, grace time.Duration) error {
	var errs []error
	if !r.alive() {
		errs = append(errs, r.disconnect()) // calls in flight fail now
	}
	if r.stdin != nil {
		errs = append(errs, r.stdin.Close())
	}
	if r.alive() && grace > 0 {
		// An error means that it ended this instant, or that it may not be told; then the kill says so.
		_ = r.prepared.Cmd.Process.Signal(syscall.SIGTERM)
		t := time.NewTimer(grace)
		select {
		case <-r.exited:
		case <-t.C:
		}
		t.Stop()
	}
	if r.pid() != 0 {
		errs = append(errs, r.kill())
	}
	errs = append(errs, r.disconnect())
	for _, f := range []*os.File{r.stdout, r.stderr} {
		if f != nil {
			_ = f.SetReadDeadline(time.Now().Add(drainLimit)) // what it said last is still in the pipe; a child may hold it open
		}
	}
	r.readers.Wait()
	for _, f := range []*os.File{r.stdout, r.stderr} {
		if f != nil {
			errs = append(errs, f.Close())
		}
	}
	if r.prepared != nil {
		errs = append(errs, r.prepared.Close()) // the directory is ours again
	}
	errs = append(errs, os.RemoveAll(r.dir))
	return errors.Join(errs...)
}

// disconnect closes the connection of an ended process, so that calls in flight fail. The end of the process breaks it
// anyway, which those calls should see as the reason; a child that holds the socket open may not keep them waiting.
func (r *process) disconnect() error {
	if r.conn == nil {
		return nil
	}
	t := time.NewTimer(drainLimit)
	defer t.Stop()
	select {
	case <-r.conn.Lost():
	case <-t.C:
	}
	conn := r.conn
	r.conn = nil
	return conn.Close()
}

// drainLimit bounds the reading of what an ended plugin left in its pipes.
const drainLimit = 200 * time.Millisecond

// kill ends the process and everything it started, and waits for the process.
func (r *process) kill() error {
	err := r.prepared.Kill()
	t := time.NewTimer(deathLimit)
	defer t.Stop()
	select {
	case <-r.exited:
		return err
	case <-t.C:
		return errors.Join(fmt.Errorf("the process %d did not end within %s of being killed", r.pid(), deathLimit), err)
	}
}
