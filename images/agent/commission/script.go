package commission

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	agentv1 "github.com/better-compute/bcd/proto/bettercompute/agent/v1"
)

// Bounds of what a script says, in bytes.
const (
	keptOut  = 20 << 10
	keptErr  = 10 << 10
	maxLine  = 8 << 10 // of the last line, when it is JSON
	ownLimit = 64      // values
)

// script runs what an operator wrote: exit status 0 is a pass, 1 a failure, any other an error of the script. Its last line
// may be a verdict in JSON. The worse of the two counts.
func (t *Tester) script(ctx context.Context, r *run) error {
	path, err := t.scriptFile(r.order.Script)
	if err != nil {
		return fmt.Errorf("the script cannot be kept: %w", err)
	}
	defer os.Remove(path)
	stdout, stderr := newTail(keptOut), newTail(keptErr)
	begun := time.Now()
	stop := everySecond(ctx, func() {
		r.progress(int64(time.Since(begun).Seconds()), 0, "s", clip(lastLine(stdout.String()), maxText))
	})
	err = t.shell(ctx, path, stdout, stderr)
	stop()
	r.log.line("%s", said(stdout.String(), stderr.String()))
	r.did()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.out.Result, r.out.Message = outcome(ctx, err)
	if v, ok := readVerdict(lastLine(stdout.String())); ok {
		r.accept(v)
	}
	return nil
}

// said is what a script wrote: its standard error stands under a heading, and there is none when there was no such output.
func said(stdout, stderr string) string {
	stdout, stderr = strings.TrimSpace(stdout), strings.TrimSpace(stderr)
	if stderr == "" {
		return stdout
	}
	return stdout + "\n--- standard error\n" + stderr
}

func (t *Tester) scriptFile(text string) (string, error) {
	f, err := os.CreateTemp(t.cfg.Temp, "commission-*.sh")
	if err != nil {
		return "", err
	}
	_, err = f.WriteString(text)
	if err = errors.Join(err, f.Close()); err != nil {
		_ = os.Remove(f.Name())
	}
	return f.Name(), err
}

// shell runs a script in a process namespace of its own: when its first process ends, or is killed, the kernel kills every
// process it has started, whatever those did to hide.
func (t *Tester) shell(ctx context.Context, path string, stdout, stderr *tail) error {
	argv := append(slices.Clone(t.cfg.Shell), path)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Env = []string{"PATH=/bbin:/bin:/sbin:/usr/bin:/usr/sbin", "HOME=/root", "TERM=dumb"}
	cmd.Dir = os.TempDir()
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Cloneflags: syscall.CLONE_NEWPID, Pdeathsig: syscall.SIGKILL}
	cmd.WaitDelay = 5 * time.Second
	runtime.LockOSThread() // the death signal comes when the parent's thread ends
	defer runtime.UnlockOSThread()
	return cmd.Run()
}

// outcome is what the end of a script says.
func outcome(ctx context.Context, err error) (result, message string) {
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		return agentv1.TestError, "the script ran out of time and was killed with all it had started"
	case err == nil:
		return agentv1.TestPassed, ""
	case errors.As(err, &exit) && exit.ExitCode() == 1:
		return agentv1.TestFailed, "the script ended with status 1"
	case errors.As(err, &exit) && exit.ExitCode() > 1:
		return agentv1.TestError, fmt.Sprintf("the script ended with status %d: 0 is a pass and 1 a failure", exit.ExitCode())
	case errors.As(err, &exit):
		return agentv1.TestError, "the script was ended by a signal: " + exit.String()
	}
	return agentv1.TestError, fmt.Sprintf("the script did not run: %v", err)
}

// verdict is what the last line of a script may say.
type verdict struct {
	Result  string         `json:"result"`
	Values  map[string]any `json:"values"`
	Message string         `json:"message"`
}

func lastLine(s string) string {
	s = strings.TrimRight(s, "\n \t")
	return s[strings.LastIndexByte(s, '\n')+1:]
}

// readVerdict reads a line. It is none unless its result is one that there is.
func readVerdict(line string) (v verdict, ok bool) {
	line = strings.TrimSpace(line)
	if !strings.HasPrefix(line, "{") || len(line) > maxLine || json.Unmarshal([]byte(line), &v) != nil {
		return verdict{}, false
	}
	return v, slices.Contains(worse, v.Result)
}

// worse are the outcomes, from the best to the worst.
var worse = []string{agentv1.TestPassed, agentv1.TestNotRun, agentv1.TestFailed, agentv1.TestError}

// accept takes a script's own verdict over, unless its end was worse. r.mu is held.
func (r *run) accept(v verdict) {
	if slices.Index(worse, v.Result) >= slices.Index(worse, r.out.Result) {
		r.out.Result, r.out.Message = v.Result, v.Message
	} else if v.Message != "" {
		r.out.Message += ": " + v.Message
	}
	names := slices.Sorted(maps.Keys(v.Values))
	for _, name := range names[:min(len(names), ownLimit)] {
		at := agentv1.TestValue{Name: clip(name, maxText)}
		switch x := v.Values[name].(type) {
		case float64:
			at.Value = math.Round(x*1000) / 1000
		default:
			at.Text = clip(fmt.Sprint(x), maxText)
		}
		r.out.Values = append(r.out.Values, at)
	}
}
