package host

import (
	"bytes"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
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

// held is what a host holds of the system for its plugins.
type held struct {
	processes   int
	descriptors map[string]int // by sort: "socket", "pipe", ...
	sockets     int            // that are bound below the directory of sockets
	dirs        int
}

// holds counts what the host holds now.
func (b *bench) holds() held {
	b.t.Helper()
	h := held{processes: len(descendants(b.t)), descriptors: descriptors(b.t)}
	bound, err := os.ReadFile("/proc/net/unix")
	if err != nil {
		b.t.Fatal(err)
	}
	for line := range strings.Lines(string(bound)) {
		if f := strings.Fields(line); len(f) == 8 && f[3] == "00010000" && strings.HasPrefix(f[7], b.run+"/") { // it listens; others are its connections
			h.sockets++
		}
	}
	dirs, err := os.ReadDir(b.run)
	if err != nil {
		b.t.Fatal(err)
	}
	h.dirs = len(dirs)
	return h
}

// descriptors counts those that are open, by sort.
func descriptors(t *testing.T) map[string]int {
	t.Helper()
	open, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	sorts := map[string]int{}
	for _, e := range open {
		target, err := os.Readlink("/proc/self/fd/" + e.Name())
		if err != nil {
			continue // the directory that is being read
		}
		kind, _, _ := strings.Cut(strings.TrimPrefix(target, "anon_inode:"), ":")
		sorts[kind]++
	}
	return sorts
}

// settled looks until what it sees is right, since the kernel and gRPC end a connection in their own time; a minute at most.
func settled[T any](look func() (now T, right bool)) (T, bool) {
	late := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		now, right := look()
		if right {
			return now, true
		}
		select {
		case <-tick.C:
		case <-late:
			return now, false
		}
	}
}

// cycle kills a plugin that was started n times again, and starts it once more.
func (b *bench) cycle(name string, n int) error {
	s, err := b.until(name, func(s Status) bool { return s.State == Running && s.Restarts == n })
	if err != nil {
		return err
	}
	if err := syscall.Kill(s.PID, syscall.SIGKILL); err != nil {
		return err
	}
	if _, err := b.until(name, func(s Status) bool { return s.State == BackOff }); err != nil {
		return err
	}
	return b.Restart(name) // does not wait for the back-off, which grows no more either
}

// Plugins that are started and killed over and over, several at once, leave no process, socket, directory or descriptor
// behind. A thousand times with BCD_PLUGIN_CYCLES=1000.
func TestNothingIsLeftOfKilledPlugins(t *testing.T) {
	cycles := 50
	if s := os.Getenv(cyclesEnv); s != "" {
		n, err := strconv.Atoi(s)
		if err != nil {
			t.Fatal(err)
		}
		cycles = n
	}
	names := []string{"a", "b", "c", "d", "e"}
	each := cycles / len(names)
	var modes []string
	for _, n := range names {
		modes = append(modes, n+":good="+n+"@1.0.0")
	}
	b := newBench(t, modes...).start()
	atWork := func(restarts int) (pids []int) {
		t.Helper()
		for _, n := range names {
			pids = append(pids, b.await(n, func(s Status) bool { return s.State == Running && s.Restarts == restarts }).PID)
		}
		b.clock.sleeping(t, healthEvery, len(names)) // each was asked for its health: nothing is under way
		return pids
	}
	pids := atWork(0)
	before := b.holds()
	began := time.Now()
	var all sync.WaitGroup
	for _, n := range names {
		all.Go(func() {
			for i := range each {
				if err := b.cycle(n, i); err != nil {
					t.Errorf("cycle %d of %s: %v", i, n, err)
					return
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d cycles in %s", each*len(names), time.Since(began))
	pids = append(pids, atWork(each)...)
	after, same := settled(func() (held, bool) { now := b.holds(); return now, reflect.DeepEqual(before, now) })
	if !same || before.processes < len(names) || before.sockets != len(names) || before.dirs != len(names) {
		t.Errorf("before it held %+v, after it %+v", before, after)
	}
	pids = append(pids, descendants(t)...)
	b.stop()
	gone(t, pids)
	if left := b.holds(); left.processes != 0 || left.sockets != 0 || left.dirs != 0 {
		t.Errorf("left behind: %+v", left)
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
