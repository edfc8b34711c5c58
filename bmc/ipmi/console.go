package ipmi

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

const (
	solTries = 3                // activations, each but the first after a take-over
	solPause = time.Second      // after a take-over, for BMCs that free the payload late
	solEnd   = 10 * time.Second // for ipmitool to end the payload and its session after Close
	solReady = "[SOL Session operational"
	maxBegin = 4096 // bytes that ipmitool may print before solReady
	// solEscape is what ipmitool takes commands after, at the beginning of a line. No UTF-8 text holds this byte; the
	// stream doubles it where it stands for itself.
	solEscape = 0xff
)

// console implements driver.Console.
type console struct{ *operations }

// Open opens the serial console. A session that another program left on it is ended first: a BMC has one console.
func (c console) Open(ctx *driver.Context) (io.ReadWriteCloser, error) {
	l, err := c.login(ctx)
	if err != nil {
		return nil, err
	}
	for tries := 1; ; tries++ {
		s, a, err := c.activate(ctx, l)
		if err != nil {
			return nil, err
		}
		if s != nil {
			return s, nil
		}
		if !takenElsewhere(a.stderr) || tries == solTries {
			return nil, c.refusal(ctx, l, a)
		}
		ctx.Log().Info("console taken over", "bmc", l.target.String())
		if _, err := c.ask(ctx, l, words("sol", "deactivate")); err != nil { // that nothing was active any more is fine
			return nil, err
		}
		if err := c.wait(ctx, solPause); err != nil {
			return nil, err
		}
	}
}

func takenElsewhere(text string) bool {
	return strings.Contains(text, "SOL payload already active on another session") || strings.Contains(text, "SOL payload activation limit reached")
}

// refusal words why the console did not open.
func (c console) refusal(ctx *driver.Context, l *login, a answer) error {
	switch {
	case strings.Contains(a.stderr, noSession):
		_, err := c.demand(ctx, l, words("chassis", "power", "status")) // says why no session opens
		if err == nil {
			err = driver.Errorf(driver.CodeUnreachable, "the BMC at %s opened no session for the console, and does now: try again", l.target).Again()
		}
		return err
	case takenElsewhere(a.stderr):
		return driver.Errorf(driver.CodeBusy, "the console of the BMC at %s is in use and was not given up; end the other session", l.target).Again()
	case strings.Contains(a.stderr, "SOL payload disabled"), strings.Contains(a.stderr, "SOL payload type disabled"):
		return driver.Errorf(CodeConsoleOff, "the BMC at %s has serial over LAN turned off; turn it on in its settings, and let %s use it", l.target, l.user)
	}
	return l.fault(words("sol", "activate"), a)
}

// activate runs "sol activate" until its session stands. Without a stream, the answer is what it ended with.
func (c console) activate(ctx *driver.Context, l *login) (*stream, answer, error) {
	path, err := c.toolPath()
	if err != nil {
		return nil, answer{}, err
	}
	opening, cancel := context.WithTimeout(ctx, c.runLimit)
	defer cancel()
	s, err := c.start(l, path)
	if err != nil {
		return nil, answer{}, driver.Errorf(driver.CodeUnavailable, "the console cannot be opened: %w", err)
	}
	select {
	case ready := <-s.ready:
		if ready {
			go s.endWith(ctx)
			return s, answer{}, nil
		}
		_ = s.Close()
		a, err := answer{stdout: s.begin.String(), stderr: s.stderr.String()}.ended(s.exit)
		return nil, a, err
	case <-opening.Done():
		killGroup(s.cmd)
		_ = s.Close()
		if ctx.Err() != nil {
			return nil, answer{}, ctx.Err()
		}
		return nil, answer{}, driver.Errorf(driver.CodeUnreachable, "the BMC at %s did not open the console within %s", l.target, c.runLimit).Again()
	}
}

// stream is an open console: ipmitool with a pipe as its input and a terminal as its output, since it says that the
// session stands at once only to a terminal.
type stream struct {
	cmd    *exec.Cmd
	input  *os.File // ours
	master *os.File
	stderr bounded
	begin  bytes.Buffer // what it printed before the session stood
	r      *io.PipeReader
	w      *io.PipeWriter
	ready  chan bool     // one value: whether the session stands
	done   chan struct{} // closed when the process is gone; exit is set then
	exit   error

	writing sync.Mutex // the order of written bytes; guards escape
	escape  escaper
	closing sync.Once
}

// start starts ipmitool and what carries its output.
func (c console) start(l *login, path string) (*stream, error) {
	args := l.arguments(words("sol", "activate"))
	cmd, release, err := l.process(path, append([]string{"-e", string([]byte{solEscape})}, args...))
	if err != nil {
		return nil, err
	}
	defer release()
	master, slave, err := openTerminal()
	if err != nil {
		return nil, err
	}
	defer func() { _ = slave.Close() }()
	in, input, err := os.Pipe()
	if err != nil {
		return nil, errors.Join(err, master.Close())
	}
	defer func() { _ = in.Close() }()
	s := &stream{cmd: cmd, input: input, master: master, ready: make(chan bool, 1), done: make(chan struct{}), escape: escaper{lineStart: true}}
	s.r, s.w = io.Pipe()
	cmd.Stdin, cmd.Stdout, cmd.Stderr, cmd.WaitDelay = in, slave, &s.stderr, stragglers
	started := make(chan error)
	go s.run(started)
	if err := <-started; err != nil {
		return nil, errors.Join(err, master.Close(), input.Close())
	}
	if l.key != nil {
		if _, err := input.Write(append(bytes.Clone(l.key), '\n')); err != nil {
			_ = s.Close()
			return nil, err
		}
	}
	go s.pump()
	return s, nil
}

// run keeps the process's thread for as long as it lives; see runIn.
func (s *stream) run(started chan<- error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	err := s.cmd.Start()
	started <- err
	if err == nil {
		s.exit = s.cmd.Wait()
		close(s.done)
	}
}

// pump carries the console's output until ipmitool ends. After Close it goes on, so that ipmitool is never stuck with
// output that nobody reads.
func (s *stream) pump() {
	stands := s.await()
	s.ready <- stands
	if stands {
		_, _ = io.Copy(s.w, s.master) // ends with EIO when ipmitool is gone, or when the reader closed
		_, _ = io.Copy(io.Discard, s.master)
	}
	<-s.done
	_ = s.master.Close()
	if s.exit != nil {
		s.w.CloseWithError(driver.Errorf(driver.CodeUnreachable, "the console ended: %s", s.why()).Again())
	}
	_ = s.w.Close()
}

// await reads until the session stands; what follows is the console's.
func (s *stream) await() bool {
	one := make([]byte, 1)
	for s.begin.Len() < maxBegin {
		n, err := s.master.Read(one)
		s.begin.Write(one[:n])
		if err != nil {
			return false
		}
		if one[0] != '\n' {
			continue
		}
		if lines := bytes.Split(bytes.TrimRight(s.begin.Bytes(), "\n"), []byte("\n")); bytes.HasPrefix(lines[len(lines)-1], []byte(solReady)) {
			return true
		}
	}
	killGroup(s.cmd)
	return false
}

func (s *stream) why() string {
	for line := range strings.Lines(s.stderr.String()) {
		if line = clean(line, 200); line != "" && !strings.Contains(line, "tcgetattr") && !strings.HasPrefix(line, "Key:") {
			return line
		}
	}
	return "ipmitool " + s.exit.Error()
}

// endWith closes the stream when the caller gives up. A deadline bounds the opening only.
func (s *stream) endWith(ctx context.Context) {
	select {
	case <-s.done:
	case <-ctx.Done():
		if errors.Is(ctx.Err(), context.Canceled) {
			_ = s.Close()
		}
	}
}

// Read gives what the machine prints.
func (s *stream) Read(p []byte) (int, error) { return s.r.Read(p) }

// Write types to the machine, every byte as it is.
func (s *stream) Write(p []byte) (int, error) {
	s.writing.Lock()
	defer s.writing.Unlock()
	if _, err := s.input.Write(s.escape.encode(p)); err != nil {
		return 0, io.ErrClosedPipe
	}
	return len(p), nil
}

// Close ends the console's session on the BMC and returns when ipmitool is gone. The end of its input is what it ends
// cleanly at.
func (s *stream) Close() error {
	s.closing.Do(func() {
		_ = s.r.Close()
		_ = s.input.Close()
		late := time.AfterFunc(solEnd, func() { killGroup(s.cmd) })
		<-s.done
		late.Stop()
	})
	return nil
}

// escaper follows ipmitool's reading of what is typed: after a line end, and at the very beginning, the escape byte
// starts a command, and two of them are one for the machine.
type escaper struct{ lineStart bool }

func (e *escaper) encode(p []byte) []byte {
	out := make([]byte, 0, len(p)+1)
	for _, b := range p {
		if b == solEscape && e.lineStart {
			out = append(out, b)
		}
		out = append(out, b)
		e.lineStart = b == '\r' || b == '\n'
	}
	return out
}
