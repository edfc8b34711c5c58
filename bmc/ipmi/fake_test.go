package ipmi

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// fakeAnswer is what the fake ipmitool does for a command.
type fakeAnswer struct {
	Stdout, Stderr string
	Exit           int
	Hang           bool // until killed, with a child that hangs too
}

// fakeCall is what the fake ipmitool saw of one run.
type fakeCall struct {
	Args     []string
	Cmdline  string // of /proc/self/cmdline
	Environ  string // of /proc/self/environ
	Password string // read from descriptor 3
	Stdin    string
	Words    string // the command
	Pid      int
	Child    int // process id of the child of a run that hangs
}

// fake is a directory with an ipmitool in it: a link to this test binary, which knows by its name what to be.
type fake struct{ dir string }

func newFake(t *testing.T, answers map[string]fakeAnswer) *fake {
	t.Helper()
	f := &fake{dir: t.TempDir()}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	raw, err := json.Marshal(answers)
	if err != nil {
		t.Fatal(err)
	}
	for _, err := range []error{
		os.Symlink(self, f.tool()),
		os.WriteFile(filepath.Join(f.dir, "answers"), raw, 0o600),
		os.Mkdir(filepath.Join(f.dir, "calls"), 0o700),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return f
}

func (f *fake) tool() string { return filepath.Join(f.dir, toolName) }

// calls are the runs until now, in order.
func (f *fake) calls(t *testing.T) []fakeCall {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(f.dir, "calls", "[0-9]*"))
	if err != nil {
		t.Fatal(err)
	}
	var out []fakeCall
	for _, name := range files {
		raw, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var c fakeCall
		if err := json.Unmarshal(raw, &c); err != nil {
			t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

// fakeMain is the fake ipmitool.
func fakeMain(dir string, args []string) int {
	c := fakeCall{Args: args, Pid: os.Getpid()}
	read := func(path string) string { b, _ := os.ReadFile(path); return string(b) }
	c.Cmdline, c.Environ = read("/proc/self/cmdline"), read("/proc/self/environ")
	hasKey := false
	for i, a := range args {
		switch a {
		case "-f":
			c.Password = read(args[i+1])
		case "-Y":
			hasKey = true
		}
	}
	if hasKey {
		b, _ := io.ReadAll(os.Stdin)
		c.Stdin = string(b)
	}
	for i := 0; i < len(args); i++ {
		if !strings.HasPrefix(args[i], "-") {
			c.Words = strings.Join(args[i:], " ")
			break
		}
		if args[i] != "-v" && args[i] != "-Y" {
			i++
		}
	}
	var answers map[string]fakeAnswer
	if err := json.Unmarshal([]byte(read(filepath.Join(dir, "answers"))), &answers); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	a, known := answers[c.Words]
	if !known {
		a = fakeAnswer{Stderr: "the fake ipmitool knows no answer to " + c.Words, Exit: 98}
	}
	if a.Hang {
		child := exec.Command("/bin/sleep", "600")
		child.Stdout, child.Stderr = os.Stdout, os.Stderr
		if err := child.Start(); err != nil {
			return 97
		}
		c.Child = child.Process.Pid
	}
	if err := note(dir, c); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 96
	}
	if a.Hang {
		select {}
	}
	_, _ = io.WriteString(os.Stdout, a.Stdout)
	_, _ = io.WriteString(os.Stderr, a.Stderr)
	return a.Exit
}

// note writes what a run saw, whole or not at all.
func note(dir string, c fakeCall) error {
	raw, err := json.Marshal(c)
	if err != nil {
		return err
	}
	for n := 0; ; n++ {
		temporary := filepath.Join(dir, "calls", fmt.Sprintf("new-%d", c.Pid))
		if err := os.WriteFile(temporary, raw, 0o600); err != nil {
			return err
		}
		err := os.Link(temporary, filepath.Join(dir, "calls", fmt.Sprintf("%03d", n)))
		_ = os.Remove(temporary)
		if !os.IsExist(err) {
			return err
		}
	}
}
