package host

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cyclesEnv asks for as many start and kill cycles.
const cyclesEnv = "BCD_PLUGIN_CYCLES"

func kill(t *testing.T, pid int) {
	t.Helper()
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
}

// descendants are the processes below this one, whoever's child they became.
func descendants(t *testing.T) []int {
	t.Helper()
	entries, err := os.ReadDir("/proc")
	if err != nil {
		t.Fatal(err)
	}
	parent := map[int]int{}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it ended
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if f[0] == "Z" {
			continue
		}
		parent[pid], _ = strconv.Atoi(f[1])
	}
	var out []int
	for pid := range parent {
		for p := parent[pid]; p > 1; p = parent[p] {
			if p == os.Getpid() {
				out = append(out, pid)
				break
			}
		}
	}
	slices.Sort(out)
	return out
}

// gone checks that no process of a list is left. A dead one that became somebody else's child is theirs to bury.
func gone(t *testing.T, pids []int) {
	t.Helper()
	for _, pid := range pids {
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue
		}
		f := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
		if f[0] != "Z" || f[1] == strconv.Itoa(os.Getpid()) {
			t.Errorf("the process %d is left: %s", pid, stat)
		}
	}
}

func descriptors(t *testing.T) int {
	t.Helper()
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(all)
}

// Plugins that are started and killed over and over leave no process, socket, directory or descriptor behind. A thousand
// times with BCD_PLUGIN_CYCLES=1000.
func TestNothingIsLeftOfKilledPlugins(t *testing.T) {
	cycles := 50
	if s := os.Getenv(cyclesEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		cycles = n
	}
	b := newBench(t, "a:good=alpha@1.0.0").start()
	first := b.status("a")
	open, below := descriptors(t), descendants(t)
	began := time.Now()
	for i := range cycles {
		s := b.await("a", func(s Status) bool { return s.State == Running && s.Restarts == i })
		kill(t, s.PID)
		b.await("a", func(s Status) bool { return s.State == BackOff })
		b.clock.asleep(t, time.Second)
		if err := b.Restart("a"); err != nil { // does not wait for the back-off, which grows no more either
			t.Fatal(err)
		}
	}
	s := b.await("a", func(s Status) bool { return s.State == Running && s.Restarts == cycles })
	t.Logf("%d cycles in %s", cycles, time.Since(began))
	b.clock.asleep(t, healthEvery)
	if n := descriptors(t); n > open+2 { // a moment's difference in what the runtime holds
		t.Errorf("%d descriptors are open, %d were", n, open)
	}
	if now := descendants(t); len(now) != len(below) {
		t.Errorf("the processes are %v, they were %v", now, below)
	}
	if dirs, err := os.ReadDir(b.run); err != nil || len(dirs) != 1 {
		t.Errorf("socket directories: %v, %v", dirs, err)
	}
	all := descendants(t)
	b.stop()
	gone(t, append(all, first.PID, s.PID))
	if dirs, err := os.ReadDir(b.run); err != nil || len(dirs) != 0 {
		t.Errorf("left behind: %v, %v", dirs, err)
	}
}

// What a killed host left is cleared away by the next; what is not plainly that stays.
func TestSweep(t *testing.T) {
	dir := t.TempDir()
	dead := 1 << 22 // above what the kernel gives
	for name, keep := range map[string]bool{
		fmt.Sprintf("bcx-%d-1", dead): false, fmt.Sprintf("bcx-%d-1", os.Getpid()): true, "bcx-1-1": true, "bcx-x-1": true, "other": true,
	} {
		if err := os.Mkdir(dir+"/"+name, 0o700); err != nil {
			t.Fatal(err)
		}
		defer func() {
			if _, err := os.Stat(dir + "/" + name); (err == nil) != keep {
				t.Errorf("%s: %v", name, err)
			}
		}()
	}
	full := fmt.Sprintf("%s/bcx-%d-2", dir, dead)
	if err := os.Mkdir(full, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(full+"/file", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := sweep(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(full + "/file"); err != nil {
		t.Error(err)
	}
}
