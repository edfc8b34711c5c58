package sandbox

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

// probeArg makes the test binary a plugin, or a host, that does what the next argument names.
const probeArg = "sandbox-probe"

func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case ShimCommand:
			os.Exit(RunShim(os.Args[2:]))
		case probeArg:
			os.Exit(probe(os.Args[2], os.Args[3:]))
		}
	}
	if os.Getpid() == 1 {
		guest(m)
	}
	goleak.VerifyTestMain(m)
}

// probe runs one and prints what it gives as JSON.
func probe(name string, args []string) int {
	p, ok := probes[name]
	if !ok {
		fmt.Fprintln(os.Stderr, "no probe", name)
		return 2
	}
	v, err := p(args)
	if err == nil && v != nil {
		err = json.NewEncoder(os.Stdout).Encode(v)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

func needRoot(t testing.TB) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("left out: uids for plugins need root")
	}
}

func open(t testing.TB, cfg Config) *confiner {
	t.Helper()
	cfg.Logger = slog.New(slog.NewTextHandler(t.Output(), nil))
	s, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return s.(*confiner)
}

// plugin is the test binary as a plugin that runs a probe.
func plugin(t testing.TB, name, probe string, args ...string) Plugin {
	t.Helper()
	return program(t, name, "/proc/self/exe", append([]string{probeArg, probe}, args...)...)
}

// program is any executable as a plugin.
func program(t testing.TB, name, path string, args ...string) Plugin {
	t.Helper()
	exe, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { exe.Close() })
	return Plugin{Name: name, Names: []string{"alpha", "beta", name}, Exe: exe, Args: args, Env: []string{"PATH=/usr/bin:/bin"}, SocketDir: socketDir(t)}
}

// socketDir is one as the host makes it, where every uid gets through to it.
func socketDir(t testing.TB) string {
	t.Helper()
	dir, err := os.MkdirTemp("", "bcx")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// prepare closes what it prepared when the test ends.
func prepare(t testing.TB, s Sandbox, p Plugin) *Prepared {
	t.Helper()
	r, err := s.Prepare(t.Context(), p)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	return r
}

// run lets a plugin run to its end and gives its output.
func output(t testing.TB, s Sandbox, p Plugin) (string, *os.ProcessState) {
	t.Helper()
	r := prepare(t, s, p)
	var out bytes.Buffer
	r.Cmd.Stdout, r.Cmd.Stderr = &out, t.Output()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	_ = r.Cmd.Wait()
	return out.String(), r.Cmd.ProcessState
}

// result reads what a probe printed.
func result[T any](t testing.TB, s Sandbox, p Plugin) T {
	t.Helper()
	out, state := output(t, s, p)
	if !state.Success() {
		t.Fatalf("the plugin ended with %s", state)
	}
	return decode[T](t, out)
}

func decode[T any](t testing.TB, s string) T {
	t.Helper()
	var v T
	if err := json.Unmarshal([]byte(s), &v); err != nil {
		t.Fatalf("the plugin printed %q: %v", s, err)
	}
	return v
}

// live is a plugin that goes on running; it prints one line when it is ready.
type live struct {
	*Prepared
	in  io.WriteCloser
	out *json.Decoder
}

func start(t testing.TB, s Sandbox, p Plugin) *live {
	t.Helper()
	r := prepare(t, s, p)
	in, err1 := r.Cmd.StdinPipe()
	out, err2 := r.Cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	r.Cmd.Stderr = t.Output()
	if err := r.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Kill(); err != nil {
			t.Error(err)
		}
		_ = r.Cmd.Wait()
	})
	return &live{r, in, json.NewDecoder(out)}
}

// next reads what the plugin prints next.
func next[T any](t testing.TB, l *live) T {
	t.Helper()
	var v T
	if err := l.out.Decode(&v); err != nil {
		t.Fatal(err)
	}
	return v
}

// script writes an executable that everybody may read.
func script(t testing.TB, text string) string {
	t.Helper()
	p := filepath.Join(t.TempDir(), "plugin")
	if err := os.WriteFile(p, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return p
}

func needProgram(t testing.TB, name string) string {
	t.Helper()
	p, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("left out: %s is not installed", name)
	}
	return p
}
