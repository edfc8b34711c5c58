package host

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/better-compute/bcd/plugins/driver"
)

// scripted pins a shell script as a plugin.
func (b *bench) scripted(name, script string) {
	b.t.Helper()
	b.file(name, "#!/bin/sh\n"+script+"\n")
}

// Case 51: what a plugin prints in place of its handshake, or before it, keeps it from running, and the reason shows that
// line, bounded and harmless, with how the plugin ended. A foreign version is refused for good, also by a plugin that ends.
func TestTextBeforeTheHandshake(t *testing.T) {
	for name, c := range map[string]struct {
		script string
		state  State
		says   []string
	}{
		"a greeting, then the handshake": {`echo hello; echo "bcx|1|unix|$BCX_SOCKET_DIR/plugin.sock|grpc|AAAA"; cat`, BackOff, []string{`not a handshake: "hello"`}},
		"a usage text, and the end":      {`echo 'usage: acme FILE'; echo more; exit 3`, BackOff, []string{`not a handshake: "usage: acme FILE"`, "exit status 3"}},
		"half a line, and the end":       {`printf 'no licence found'; exit 3`, BackOff, []string{`after "no licence found"`, "exit status 3"}},
		"nothing, and the end":           {`exit 3`, BackOff, []string{"exit status 3"}},
		"a terminal's commands":          {`printf '\033[2J\033]0;owned\007\n'; exit 1`, BackOff, []string{"not a handshake", "exit status 1"}},
		"a field is missing":             {`echo 'bcx|1|unix|/x'; cat`, BackOff, []string{`malformed: "bcx|1|unix|/x"`}},
		"a line of a megabyte":           {`head -c 1048576 /dev/zero | tr '\0' x; cat`, BackOff, []string{"longer than 8192 bytes", `"xxx`}},
		"another version, and the end":   {`echo 'bcx|2|unix|/x|grpc|AAAA'; exit 0`, Refused, []string{`version "2"`}},
		"a child that holds its output":  {`sleep 3600 & exit 4`, BackOff, []string{"exit status 4"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newBench(t)
			b.cfg.StartLimit = limit
			b.scripted("acme", c.script)
			b.start()
			s := b.status("acme")
			if s.State != c.state || s.PID != 0 || s.Serving || len(s.Reason) > maxSentence+len("…") || strings.ContainsAny(s.Reason, "\x1b\x07\n") {
				t.Errorf("it stands at %+v", s)
			}
			for _, want := range c.says {
				if !strings.Contains(s.Reason, want) {
					t.Errorf("the reason is %q, want %q in it", s.Reason, want)
				}
			}
			if up, _ := b.events.Load("plugin.up"); up != nil || b.reg.keys() != "" {
				t.Errorf("it was said to run: %v, registered %q", up, b.reg.keys())
			}
			if dirs, err := os.ReadDir(b.run); err != nil || len(dirs) != 0 {
				t.Errorf("left behind: %v, %v", dirs, err)
			}
		})
	}
}

// Case 53: the process id that an earlier host left in the name of a socket's directory belongs to another process by now,
// which nobody may touch. The plugin is started afresh.
func TestAReusedProcessIDIsLeftAlone(t *testing.T) {
	other := exec.Command("sleep", "600")
	if err := other.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() { _ = other.Process.Kill(); _ = other.Wait() }()
	b := newBench(t, "a:good=alpha@1.0.0")
	left := filepath.Join(b.run, dirMark+strconv.Itoa(other.Process.Pid)+"-1")
	if err := os.Mkdir(left, 0o700); err != nil {
		t.Fatal(err)
	}
	b.start()
	if s := b.status("a"); s.State != Running || s.PID == other.Process.Pid {
		t.Errorf("the plugin stands at %+v", s)
	}
	b.stop()
	if err := other.Process.Signal(syscall.Signal(0)); err != nil {
		t.Errorf("the other process: %v", err)
	}
}

// Case 55: a plugin that panics in a call takes that call with it, as unreachable; its last words are in its log;
// the next call works after the back-off, and one that does so at every start is shown as down, with what it ended by.
func TestPanicInACall(t *testing.T) {
	b := newBench(t, "a:good=alpha@1.0.0").start()
	for i, wait := range []time.Duration{time.Second, 2 * time.Second} {
		b.await("a", func(s Status) bool { return s.State == Running && s.Restarts == i })
		_, err := b.call(t.Context(), "alpha@1.0.0", "panic", "")
		e := driver.AsError(err)
		if e == nil || e.Code != driver.CodeUnreachable {
			t.Errorf("the call ended with %v", err)
		}
		s := b.awaitState("a", BackOff)
		if !strings.Contains(s.Reason, "exit status 2") || s.LastErr != s.Reason {
			t.Errorf("it stands at %+v", s)
		}
		lines, err := b.Logs("a", 500)
		said := ""
		for _, l := range lines {
			said += l.Message + "\n"
		}
		if err != nil || strings.Count(said, "panic: boom") != i+1 {
			t.Errorf("its log is %q, %v", said, err)
		}
		b.clock.asleep(t, wait)
		b.clock.advance(wait)
	}
	b.await("a", func(s Status) bool { return s.State == Running && s.Restarts == 2 })
	if _, err := b.call(t.Context(), "alpha@1.0.0", "ping", ""); err != nil {
		t.Error(err)
	}
}
