package commission

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// inNamespace skips a test of what needs a process namespace where the kernel gives none.
func inNamespace(t *testing.T) {
	t.Helper()
	cmd := exec.Command("/bin/true")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWPID}
	if err := cmd.Run(); errors.Is(err, os.ErrPermission) {
		t.Skipf("left out: making a process namespace needs root, as the ramdisk's agent has: %v", err)
	}
}

func TestScript(t *testing.T) {
	inNamespace(t)
	for name, c := range map[string]struct {
		script, result, message string
		values                  int
	}{
		"passes":                     {"echo fine", agentv1.TestPassed, "", 0},
		"fails":                      {"exit 1", agentv1.TestFailed, "status 1", 0},
		"goes wrong":                 {"exit 3", agentv1.TestError, "status 3", 0},
		"is no shell script":         {"no-such-program", agentv1.TestError, "status 127", 0},
		"kills itself":               {"kill -9 $$; echo still here; exec /bin/sh -c 'exit 4'", agentv1.TestError, "status 4", 0}, // its first process is safe from itself
		"says values":                {`echo noise; echo '{"result":"pass","values":{"fan":4200,"name":"x"},"message":"all fans turn"}'`, agentv1.TestPassed, "all fans turn", 2},
		"says that it fails":         {`echo '{"result":"fail","message":"a fan stands"}'`, agentv1.TestFailed, "a fan stands", 0},
		"says that it was not run":   {`echo '{"result":"not-run","message":"no fan"}'`, agentv1.TestNotRun, "no fan", 0},
		"says pass and ends with 1":  {`echo '{"result":"pass","message":"well"}'; exit 1`, agentv1.TestFailed, "status 1: well", 0},
		"says fail and ends with 7":  {`echo '{"result":"fail"}'; exit 7`, agentv1.TestError, "status 7", 0},
		"says what there is not":     {`echo '{"result":"excellent"}'`, agentv1.TestPassed, "", 0},
		"says broken JSON":           {`echo '{"result":"fail"'`, agentv1.TestPassed, "", 0},
		"is root and has little":     {`[ "$(id -u)" = 0 ] && [ -z "$BCD_SECRET" ] && [ "$HOME" = /root ]`, agentv1.TestPassed, "", 0},
		"says its verdict not last":  {`echo '{"result":"fail"}'; echo done`, agentv1.TestPassed, "", 0},
		"cannot hide on the console": {`printf '\033[2Jx\n'`, agentv1.TestPassed, "", 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("BCD_SECRET", "of the agent")
			r := ask(t, Config{Shell: []string{"/bin/sh"}}, agentv1.Test{Test: "script", Script: c.script})
			outcomeIs(t, r, c.result, c.message)
			if len(r.Values) != c.values || strings.Contains(r.Log, "\x1b") {
				t.Errorf("%+v", r)
			}
		})
	}
}

func TestScriptsOutputIsBounded(t *testing.T) {
	inNamespace(t)
	script := `i=0; while [ $i -lt 20000 ]; do echo "line $i"; echo "error $i" >&2; i=$((i+1)); done; echo '{"result":"fail","message":"the last line counts"}'`
	r := ask(t, Config{Shell: []string{"/bin/sh"}}, agentv1.Test{Test: "script", Script: script})
	outcomeIs(t, r, agentv1.TestFailed, "the last line counts")
	if len(r.Log) > agentv1.MaxTestLog || !strings.Contains(r.Log, "line 19999") || !strings.Contains(r.Log, "error 19999") || !strings.Contains(r.Log, "not kept") {
		t.Errorf("%d bytes of log", len(r.Log))
	}
}

// What a script writes to its standard error stands under a heading; when that is nothing, no heading stands either.
func TestScriptsStandardErrorHasAHeading(t *testing.T) {
	inNamespace(t)
	for script, want := range map[string]string{
		"echo fine":                   "fine\n",
		"echo fine; echo >&2":         "fine\n",
		"echo fine; echo strange >&2": "fine\n--- standard error\nstrange\n",
		"echo strange >&2":            "--- standard error\nstrange\n",
	} {
		if r := ask(t, Config{Shell: []string{"/bin/sh"}}, agentv1.Test{Test: "script", Script: script}); !strings.HasSuffix(r.Log, want) || strings.Contains(r.Log, "standard error") != strings.Contains(want, "standard error") {
			t.Errorf("%s: the log says %q, want %q", script, r.Log, want)
		}
	}
}

// A script that takes too long is killed, and nothing of it stays.
func TestScriptRunsOutOfTime(t *testing.T) {
	inNamespace(t)
	temp := t.TempDir()
	r := ask(t, Config{Shell: []string{"/bin/sh"}, Temp: temp}, agentv1.Test{Test: "script", Script: "echo waiting; sleep 600", Seconds: 1})
	outcomeIs(t, r, agentv1.TestError, "ran out of time and was killed")
	if left, err := os.ReadDir(temp); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A script is killed with everything it has started, however that hides.
func TestScriptIsKilledWithItsChildren(t *testing.T) {
	inNamespace(t)
	held := filepath.Join(t.TempDir(), "held")
	if err := syscall.Mkfifo(held, 0o600); err != nil {
		t.Fatal(err)
	}
	// The child, in a session of its own, holds the pipe's writing end, which ends with the last process that has it.
	script := "setsid sh -c 'exec 3>" + held + "; echo child >&3; trap \"\" TERM; while :; do sleep 600; done' >/dev/null 2>&1 &\nsleep 600"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan string, 1)
	go func() {
		f, err := os.Open(held)
		if err != nil {
			cancel()
			ended <- err.Error()
			return
		}
		defer f.Close()
		line := make([]byte, len("child\n"))
		_, err = io.ReadFull(f, line)
		cancel()
		rest, rerr := io.ReadAll(f)
		ended <- fmt.Sprintf("%s%s%v %v", line, rest, err, rerr)
	}()
	_, err := New(Config{Log: slog.New(slog.DiscardHandler), Shell: []string{"/bin/sh"}}).Run(ctx, agentv1.Test{Test: "script", Script: script}, func(agentv1.ProgressReport) {})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("it ended with %v", err)
	}
	if got := <-ended; got != "child\n<nil> <nil>" {
		t.Errorf("the child: %q", got)
	}
}

func FuzzVerdict(f *testing.F) {
	f.Add(`{"result":"pass","values":{"a":1,"b":[2]},"message":"m"}`)
	f.Add(`{"result":"fail","values":{"":null}}`)
	f.Add("text\n{")
	f.Fuzz(func(t *testing.T, s string) {
		v, ok := readVerdict(lastLine(s))
		if !ok {
			return
		}
		r := &run{log: newTail(10)}
		r.out.Result = agentv1.TestFailed
		r.accept(v)
		if r.out.Result == agentv1.TestPassed || r.out.Result == agentv1.TestNotRun {
			t.Errorf("%q makes a failure %s", s, r.out.Result)
		}
		if len(r.out.Values) > ownLimit {
			t.Errorf("%d values", len(r.out.Values))
		}
	})
}
