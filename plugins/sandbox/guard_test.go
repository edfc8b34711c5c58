package sandbox

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// watched are processes that a test waits for to end, by descriptors, which no later process of the pid can mislead.
type watched []unix.PollFd

func watch(t testing.TB, pids []int) watched {
	t.Helper()
	var w watched
	for _, pid := range pids {
		fd, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			t.Fatalf("process %d: %v", pid, err)
		}
		t.Cleanup(func() { unix.Close(fd) })
		w = append(w, unix.PollFd{Fd: int32(fd), Events: unix.POLLIN})
	}
	return w
}

// gone waits for all to end.
func (w watched) gone(t testing.TB) {
	t.Helper()
	for i := range w {
		for {
			n, err := unix.Poll(w[i:i+1], 60_000)
			if err == unix.EINTR {
				continue
			}
			if n != 1 || err != nil {
				t.Errorf("process %d of %d lives on: %v", i, len(w), err)
			}
			break
		}
	}
}

// startHost runs a bcd of its own with one plugin.
func startHost(t *testing.T, cfg Config, attr *exec.Cmd, probe string) (*exec.Cmd, *json.Decoder) {
	t.Helper()
	b, err := json.Marshal(cfg)
	if err != nil {
		t.Fatal(err)
	}
	cmd := attr
	cmd.Path, cmd.Args = "/proc/self/exe", []string{"bcd", probeArg, "host", string(b), cmd.Dir, "alpha", probe}
	cmd.Dir, cmd.Env = "/", []string{}
	cmd.Stderr = t.Output()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd, json.NewDecoder(out)
}

// TestDiesWithBcd kills bcd with SIGKILL: the plugin dies, and all it started, in whatever session and under whatever parent.
func TestDiesWithBcd(t *testing.T) {
	needRoot(t)
	for name, cfg := range map[string]Config{"confined": {Enabled: true, Landlock: true}, "unconfined": {}} {
		t.Run(name, func(t *testing.T) {
			bcd, out := startHost(t, cfg, &exec.Cmd{Dir: socketDir(t)}, "family")
			var pids []int
			if err := out.Decode(&pids); err != nil {
				t.Fatal(err)
			}
			w := watch(t, pids)
			if len(w) != 4 {
				t.Fatalf("the plugin has the processes %v", pids)
			}
			if err := bcd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			w.gone(t)
		})
	}
}

// TestKillEndsAll ends a plugin by Kill, and by Close after it died by itself.
func TestKillEndsAll(t *testing.T) {
	needRoot(t)
	s := open(t, Config{Enabled: true, Landlock: true})
	for name, end := range map[string]func(*live) error{
		"kill":  func(l *live) error { return l.Kill() },
		"crash": func(l *live) error { _ = l.Cmd.Process.Kill(); _ = l.Cmd.Wait(); return l.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			l := start(t, s, plugin(t, "alpha", "family"))
			w := watch(t, next[[]int](t, l))
			if err := end(l); err != nil {
				t.Fatal(err)
			}
			w.gone(t)
		})
	}
}

// TestKillUnderOneAccount ends the process group and leaves the account's other plugins alone.
func TestKillUnderOneAccount(t *testing.T) {
	needRoot(t)
	for _, cfg := range []Config{{Enabled: true, User: "games"}, {Enabled: true, Privileged: []string{"alpha", "beta"}}} {
		s := open(t, cfg)
		one, two := start(t, s, plugin(t, "alpha", "family")), start(t, s, plugin(t, "beta", "wait"))
		pids := next[[]int](t, one)
		next[string](t, two)
		w := watch(t, pids[:2]) // itself and the child in its group
		t.Cleanup(func() {
			for _, pid := range pids[2:] {
				_ = unix.Kill(pid, unix.SIGKILL)
			}
		})
		if err := one.Kill(); err != nil {
			t.Fatal(err)
		}
		w.gone(t)
		if err := two.Cmd.Process.Signal(unix.Signal(0)); err != nil {
			t.Errorf("the other plugin died too: %v", err)
		}
	}
}

// heard is a log that a test waits on.
type heard struct {
	slog.Handler
	lines chan string
}

func (h heard) Enabled(context.Context, slog.Level) bool { return true }

func (h heard) Handle(_ context.Context, r slog.Record) error {
	h.lines <- r.Message
	return nil
}

// TestGuardComesBack kills the guard: another takes over all that the first had in its care, by itself or with the next
// request, whichever comes first.
func TestGuardComesBack(t *testing.T) {
	needRoot(t)
	for name, wait := range map[string]bool{"by itself": true, "with the next request": false} {
		t.Run(name, func(t *testing.T) {
			s := open(t, Config{Enabled: true})
			lines := make(chan string, 16)
			s.warden.log = slog.New(heard{slog.DiscardHandler, lines})
			l := start(t, s, plugin(t, "alpha", "family"))
			w := watch(t, next[[]int](t, l))
			s.warden.mu.Lock()
			first := s.warden.guard
			s.warden.mu.Unlock()
			if err := first.cmd.Process.Kill(); err != nil {
				t.Fatal(err)
			}
			<-first.ended
			if wait {
				if got := <-lines; !strings.Contains(got, "took over") {
					t.Fatal(got)
				}
				s.warden.mu.Lock()
				second := s.warden.guard
				s.warden.mu.Unlock()
				second.in.Close() // what the end of bcd looks like to it
			} else if err := l.Kill(); err != nil {
				t.Fatal(err)
			}
			w.gone(t)
		})
	}
}

// TestGuardReachesOneUIDOnly asks for everybody's death under a uid that nobody has.
func TestGuardReachesOneUIDOnly(t *testing.T) {
	needRoot(t)
	cmd := exec.Command("/proc/self/exe", ShimCommand, "guard", fmt.Sprint(firstUID))
	cmd.Stdin = bytes.NewReader([]byte(fmt.Sprintf(`{"op":"keep","id":1,"charge":{"name":"alpha","uid":%d,"own":true}} {"op":"kill","id":1} {"op":"kill","id":2} {"op":"dance"} `, firstUID+1)))
	out, err := cmd.Output()
	if want := "{}\n{}\n{\"error\":\"no plugin 2 is in the guard's care\"}\n{\"error\":\"unknown request \\\"dance\\\"\"}\n"; err != nil || string(out) != want {
		t.Errorf("%v %s", err, out)
	}
}

// TestFirstThreadKeepsItsUID makes many killers, some of which the first thread would run: its uid is what other processes see,
// and another bcd's guard would kill by.
func TestFirstThreadKeepsItsUID(t *testing.T) {
	needRoot(t)
	const n = 50
	done := make(chan error)
	for range n {
		go func() {
			k, err := startKiller(lastUID - 1)
			if err == nil {
				err = errors.Join(k.kill(lastUID-2, -1), k.kill(lastUID-3, -1))
				k.stop()
			}
			done <- err
		}()
	}
	for range n {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	if uid, err := owner("/proc/self"); uid != 0 || err != nil {
		t.Errorf("the process has uid %d: %v", uid, err)
	}
}

// TestKillerIsNobody has it refuse to act as root, and end nobody under a uid that nobody has.
func TestKillerIsNobody(t *testing.T) {
	needRoot(t)
	k, err := startKiller(lastUID - 1)
	if err != nil {
		t.Fatal(err)
	}
	defer k.stop()
	for _, uid := range []int{0, -1} {
		if err := k.kill(uid, os.Getppid()); err == nil {
			t.Errorf("it acted as %d", uid)
		}
	}
	for _, pid := range []int{-1, os.Getppid(), 1} {
		if err := k.kill(lastUID-2, pid); err != nil {
			t.Error(err)
		}
	}
	if _, err := startKiller(0); err == nil {
		t.Error("it took root's uid for its own")
	}
}

// TestLiving reads processes whose names are made to mislead, from files.
func TestLiving(t *testing.T) {
	proc := t.TempDir()
	for pid, p := range map[string]struct{ stat, uid string }{
		"10": {"10 (a) Z 1 99 (b) S 1 7 7 0", "5"},
		"11": {"11 (plugin) Z 1 7 7 0", "5"},
		"12": {"12 (plugin) S 1 7 7 0", "5"},
		"13": {"13 (plugin) S 1 8 8 0", "6"},
		"14": {"14 (x\nUid:\t5) S 1 9 9 0", "6"},
		"me": {"15 (not a process) S 1 7 7 0", "5"},
	} {
		dir := filepath.Join(proc, pid)
		status := "Name:\tx\nUmask:\t0022\nUid:\t" + p.uid + "\t0\t0\t0\nGid:\t1\t1\t1\t1\n"
		if os.Mkdir(dir, 0o755) != nil || os.WriteFile(filepath.Join(dir, "stat"), []byte(p.stat), 0o644) != nil || os.WriteFile(filepath.Join(dir, "status"), []byte(status), 0o644) != nil {
			t.Fatal("writing files")
		}
	}
	for _, tt := range []struct {
		charge charge
		want   string
	}{
		{charge{Own: true, UID: 5}, "[10 12]"},
		{charge{UID: 5, Group: 7}, "[10 12]"},
		{charge{UID: 6, Group: 8}, "[13]"},
		{charge{UID: 6}, "[]"},
		{charge{UID: 6, Group: 1}, "[]"},
	} {
		if got, err := living(proc, tt.charge); err != nil || fmt.Sprint(got) != tt.want {
			t.Errorf("%+v: %v %v, want %s", tt.charge, got, err, tt.want)
		}
	}
}
