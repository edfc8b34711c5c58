package cli

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/app"
	"github.com/better-compute/bcd/app/serial"
	"github.com/better-compute/bcd/cmd/bcd/internal/client"
	"github.com/better-compute/bcd/web/webtest"
)

// person sits at a terminal of the kernel, or holds both ends of a pipe.
type person struct {
	t       *testing.T
	shell   *shell
	keys    io.WriteCloser
	in, out *os.File // of the command; nil: pipes
	done    chan error

	mu     sync.Mutex
	seen   bytes.Buffer
	change chan struct{} // closed and replaced when more was seen
}

func newPerson(t *testing.T) *person {
	t.Helper()
	s := newShell(t)
	s.url = s.site.Serve() // as bcd serves: HTTP/2
	var err error
	if s.pin, err = client.SeePin(t.Context(), s.url); err != nil {
		t.Fatal(err)
	}
	s.login()
	for _, m := range []*app.Machine{
		{ID: "m-1", Name: "node-1", State: app.StateReady, BMC: &app.BMC{Driver: "ipmi", Address: "192.0.2.11"}, Drivers: map[string]app.Binding{"console": {Driver: "ipmi"}}},
		{ID: "m-2", Name: "node-2", State: app.StateReady},
	} {
		if err := s.site.Store.CreateMachine(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	return &person{t: t, shell: s, change: make(chan struct{}), done: make(chan error, 1)}
}

// Write takes what the person sees.
func (p *person) Write(b []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.seen.Write(b)
	close(p.change)
	p.change = make(chan struct{})
	return len(b), nil
}

// sees waits until the person has seen a text.
func (p *person) sees(text string) {
	p.t.Helper()
	late := time.NewTimer(2 * time.Minute) // far longer than anything takes: it names what hangs
	defer late.Stop()
	for {
		p.mu.Lock()
		all, change := p.seen.String(), p.change
		p.mu.Unlock()
		if strings.Contains(all, text) {
			return
		}
		select {
		case <-change:
		case <-late.C:
			p.t.Fatalf("%q is not in %q", text, all)
		}
	}
}

// sit gives the person a terminal.
func (p *person) sit() {
	p.t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	raw, err := master.SyscallConn()
	if err != nil {
		p.t.Fatal(err)
	}
	var n int
	if err := raw.Control(func(fd uintptr) {
		_ = unix.IoctlSetPointerInt(int(fd), unix.TIOCSPTLCK, 0)
		_ = unix.IoctlSetWinsize(int(fd), unix.TIOCSWINSZ, &unix.Winsize{Row: 50, Col: 132})
		n, err = unix.IoctlGetInt(int(fd), unix.TIOCGPTN)
	}); err != nil {
		p.t.Fatal(err)
	}
	slave, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		p.t.Fatal(err)
	}
	p.keys, p.in, p.out = master, slave, slave
	var reading sync.WaitGroup
	reading.Go(func() { _, _ = io.Copy(p, master) }) // until the last slave is closed
	p.t.Cleanup(func() {
		_ = master.Close()
		_ = slave.Close()
		reading.Wait()
	})
}

// run runs a command beside the test.
func (p *person) run(ctx context.Context, args ...string) {
	root := Group(&cobra.Command{Use: "bcd", SilenceErrors: true, SilenceUsage: true})
	root.AddGroup(&cobra.Group{ID: "client"})
	root.PersistentFlags().Bool("json", false, "")
	root.AddCommand(Commands()...)
	Usage(root)
	if p.in != nil {
		root.SetIn(p.in)
		root.SetOut(p.out)
		root.SetErr(p.out)
	} else {
		in, keys := io.Pipe()
		p.keys = keys
		root.SetIn(in)
		root.SetOut(p)
		root.SetErr(p)
	}
	root.SetArgs(args)
	go func() { p.done <- root.ExecuteContext(ctx) }()
}

// line waits for the machine's side.
func (p *person) line() *webtest.Line {
	p.t.Helper()
	l := p.shell.site.Lines.Next(p.t.Context())
	if l == nil {
		p.t.Fatal("no console was opened")
	}
	return l
}

func (p *person) types(text string) {
	p.t.Helper()
	if _, err := io.WriteString(p.keys, text); err != nil {
		p.t.Fatal(err)
	}
}

func (p *person) machineGets(l *webtest.Line, text string) {
	p.t.Helper()
	b := make([]byte, len(text))
	if _, err := io.ReadFull(l, b); err != nil || string(b) != text {
		p.t.Fatalf("the machine got %q, %v, want %q", b, err, text)
	}
}

func (p *person) modes() unix.Termios {
	p.t.Helper()
	m, err := unix.IoctlGetTermios(int(p.in.Fd()), unix.TCGETS)
	if err != nil {
		p.t.Fatal(err)
	}
	return *m
}

func TestConsoleInATerminal(t *testing.T) {
	p := newPerson(t)
	p.sit()
	before := p.modes()
	p.run(t.Context(), "machine", "console", "node-1")
	l := p.line()
	p.sees("connected to the serial console of node-1 through ipmi at 192.0.2.11 as admin\r\n")
	p.sees("~. at the start of a line leaves, ~? shows help\r\n")
	if now := p.modes(); now.Lflag&(unix.ECHO|unix.ICANON|unix.ISIG) != 0 {
		t.Error("the terminal is not raw")
	}
	if _, err := io.WriteString(l, "\x1b[31mlogin: "); err != nil {
		t.Fatal(err)
	}
	p.sees("\x1b[31mlogin: ")
	for typed, got := range map[string]string{"root\r": "root\r", "\x03": "\x03", "\x03~~": "\x03~", "a~.b\r": "a~.b\r", "\r~~.": "\r~.", "\r~x": "\r~x", "\xff\x00": "\xff\x00"} {
		p.types(typed)
		p.machineGets(l, got)
	}
	p.types("\r~?")
	p.machineGets(l, "\r")
	p.sees("stty rows 50 cols 132")
	p.types("~.")
	if err := <-p.done; err != nil {
		t.Errorf("leaving: %v", err)
	}
	<-l.Closed
	p.sees("\r\nthe console of node-1 is closed\r\n")
	p.sees(calm)
	if p.modes() != before {
		t.Error("the terminal is not as it was")
	}
}

// Whatever ends a console, the terminal is as it was and the exit code says who is at fault.
func TestWaysOutOfATerminal(t *testing.T) {
	for name, c := range map[string]struct {
		end  func(p *person, l *webtest.Line, interrupt func())
		says string
		code int
	}{
		"taken over": {func(p *person, _ *webtest.Line, _ func()) {
			m, err := p.shell.site.Store.Machine(t.Context(), "node-1")
			if err != nil {
				t.Fatal(err)
			}
			s, err := p.shell.site.Serials.Open(t.Context(), serial.Person{Name: "bob"}, m, true)
			if err != nil {
				t.Fatal(err)
			}
			_ = s.Close()
		}, "bob took the console of node-1 over", ExitFailed},
		"its driver": {func(_ *person, l *webtest.Line, _ func()) { l.HangUp(nil) }, "its driver ended the console", ExitFailed},
		"SIGTERM":    {func(_ *person, _ *webtest.Line, interrupt func()) { interrupt() }, "context canceled", ExitInterrupted},
		"SIGHUP":     {func(*person, *webtest.Line, func()) { _ = syscall.Kill(os.Getpid(), syscall.SIGHUP) }, "context canceled", ExitInterrupted},
		"~.":         {func(p *person, _ *webtest.Line, _ func()) { p.types("~.") }, "<nil>", 0},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPerson(t)
			p.sit()
			before := p.modes()
			ctx, interrupt := context.WithCancel(t.Context())
			defer interrupt()
			p.run(ctx, "machine", "console", "node-1")
			l := p.line()
			p.sees("~? shows help")
			c.end(p, l, interrupt)
			err := <-p.done
			if ExitCode(err) != c.code || !strings.HasPrefix(fmt.Sprint(err), c.says) {
				t.Errorf("exit %d, %v", ExitCode(err), err)
			}
			if p.modes() != before {
				t.Error("the terminal is not as it was")
			}
			<-l.Closed
		})
	}
}

func TestConsoleForScripts(t *testing.T) {
	p := newPerson(t)
	p.run(t.Context(), "machine", "console", "node-1", "--linger", "1ms")
	l := p.line()
	p.sees("connected to the serial console of node-1 through ipmi at 192.0.2.11 as admin\n")
	p.types("~.\nuptime\n\r\n")
	p.machineGets(l, "~.\ruptime\r\r")
	if _, err := io.WriteString(l, "up 3 days\r\n"); err != nil {
		t.Fatal(err)
	}
	p.sees("up 3 days\r\n")
	_ = p.keys.Close()
	if err := <-p.done; err != nil {
		t.Error(err)
	}
	<-l.Closed
	p.sees("the console of node-1 is closed\n")
}

func TestConsoleThatIsRefused(t *testing.T) {
	p := newPerson(t)
	m, err := p.shell.site.Store.Machine(t.Context(), "node-1")
	if err != nil {
		t.Fatal(err)
	}
	s, err := p.shell.site.Serials.Open(t.Context(), serial.Person{Name: "alice"}, m, false)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args, says, wayOut string
		code               int
	}{
		{"node-1", "alice has the console of node-1 open, since ", "bcd machine console node-1 --take", ExitFailed},
		{"node-2", "node-2 has no serial console", "bind a driver", ExitFailed},
		{"node-9", "node-9", "", ExitFailed},
		{"", "", "", ExitUsage},
		{"node-1 --linger -1s", "--linger", "", ExitUsage},
	} {
		_, err := p.shell.try("", append([]string{"machine", "console"}, strings.Fields(c.args)...)...)
		e, _ := app.AsError(err)
		if ExitCode(err) != c.code || e == nil || !strings.Contains(e.Message, c.says) || !strings.Contains(e.WayOut, c.wayOut) {
			t.Errorf("%s: %+v", c.args, err)
		}
	}
	p.run(t.Context(), "machine", "console", "node-1", "--take")
	<-s.Done()
	_ = p.line() // alice's
	l := p.line()
	p.sees("as admin")
	_ = p.keys.Close()
	l.HangUp(nil)
	if err := <-p.done; ExitCode(err) != ExitFailed {
		t.Error(err)
	}
}

// What runs beside the command cannot leave the terminal raw, whatever becomes of it.
func TestATerminalOutlivesWhatRunsBesideTheCommand(t *testing.T) {
	p := &person{t: t, change: make(chan struct{})}
	p.sit()
	before := p.modes()
	tty, err := openTerminal(p.in, p.out)
	if err != nil || tty == nil || p.modes() == before {
		t.Fatalf("%v, %v", tty, err)
	}
	tty.guard(runtime.Goexit)
	p.sees(calm)
	tty.restore() // has nothing left to do, and waits for what does it
	if p.modes() != before {
		t.Error("the terminal is not as it was")
	}
}

// However what is typed is cut, the same reaches the machine.
func FuzzEscapes(f *testing.F) {
	for _, s := range []string{"~.", "a\r~.b", "~~\n~?x", "a~.", "~a~.\r~"} {
		f.Add([]byte(s), byte(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, n byte) {
		helped := 0
		whole := escapes{lineStart: true, help: func() { helped++ }}
		want, left := whole.take(text)
		parts := escapes{lineStart: true, help: func() { helped-- }}
		var got []byte
		gone := false
		for rest := text; len(rest) > 0 && !gone; {
			k := min(len(rest), 1+int(n)%5)
			var some []byte
			some, gone = parts.take(rest[:k])
			got, rest = append(got, some...), rest[k:]
		}
		if !bytes.Equal(got, want) || gone != left || helped != 0 {
			t.Fatalf("%q gives %q %v whole, %q %v in parts", text, want, left, got, gone)
		}
	})
}

// A console that broke off, or ended in words of another version, has a way out too.
func TestTheWayOutOfAConsoleThatBroke(t *testing.T) {
	s := &consoleSession{cmd: &cobra.Command{}, name: "node-1"}
	broken := s.printing(&http.Response{Body: io.NopCloser(iotest.ErrReader(io.ErrUnexpectedEOF))})
	for want, err := range map[string]error{"bcd machine console node-1": broken, "bcd version show": endOf("{")} {
		if e, _ := app.AsError(err); e == nil || e.Reason != client.ReasonCutOff || !strings.Contains(e.WayOut, want) {
			t.Errorf("it says %+v, want %q", err, want)
		}
	}
}
