package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/u-root/u-root/pkg/cpio"
	"golang.org/x/sys/unix"

	"github.com/better-compute/bcd/bmc/virtual"
)

// guestTests run in the guest: those of cgroup v2, and with them all that needs no other program, so that they are proven on
// the kernel that the ramdisk has, an older one than the developer's.
const guestTests = "^(TestGuest.*|TestInside|TestDeniedCalls|TestForeignABI|TestOthersAreHidden|TestDiesWithBcd|TestKillEndsAll|TestUnderTheUnit|TestUnitDies)$"

// guestEnded is what the guest says last.
const guestEnded = "guest ended with "

// guestAccounts is the guest's /etc/passwd.
const guestAccounts = "games:x:5:60::/:/bin/false\ntoor:x:0:0::/:/bin/false\n"

// guestKernel is what make ramdisk built.
const guestKernel = "../../images/ramdisk/embed/dist/lab/vmlinuz"

func init() {
	probes["eat"] = func(args []string) (any, error) { return nil, eat(args[0]) }
	probes["multiply"] = func(args []string) (any, error) { return multiply(args[0]) }
}

// guest is the first process of a machine: it makes what a system has, runs the tests and ends the machine.
func guest(m *testing.M) {
	code := 1
	defer func() {
		fmt.Printf("\n%s%d\n", guestEnded, code)
		unix.Sync()
		_ = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	}()
	for _, fs := range []struct{ kind, dir, options string }{
		{"proc", "/proc", ""}, {"sysfs", "/sys", ""}, {"devtmpfs", "/dev", ""}, {"tmpfs", "/tmp", "mode=1777"}, {"cgroup2", "/sys/fs/cgroup", ""},
	} {
		err := errors.Join(os.MkdirAll(fs.dir, 0o755), unix.Mount(fs.kind, fs.dir, fs.kind, 0, fs.options))
		if err != nil {
			fmt.Println("mounting", fs.dir, err)
			return
		}
	}
	if err := errors.Join(os.MkdirAll("/etc", 0o755), os.WriteFile("/etc/passwd", []byte(guestAccounts), 0o644)); err != nil {
		fmt.Println(err)
		return
	}
	code = m.Run()
}

// TestInGuest boots the ramdisk's kernel with this test binary as its first process.
func TestInGuest(t *testing.T) {
	if os.Getenv("BCD_QEMU") == "" {
		t.Skip("left out: cgroup v2 is tried in QEMU only with BCD_QEMU=1")
	}
	needProgram(t, "qemu-system-x86_64")
	if _, err := os.Stat(guestKernel); err != nil {
		t.Skip("left out: no ramdisk was built: make ramdisk")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-cpu", virtual.Processor, "-M", "q35", "-m", "768", "-nographic", "-no-reboot", "-net", "none",
		"-kernel", guestKernel, "-initrd", guestInitrd(ctx, t), "-append", "console=ttyS0 quiet panic=-1 -- -test.v -test.run="+guestTests)
	out, err := cmd.CombinedOutput()
	console := strings.ReplaceAll(string(out), "\r", "")
	t.Log(console)
	if err != nil || !strings.Contains(console, guestEnded+"0\n") || !strings.Contains(console, "--- PASS: TestGuestLimits") {
		t.Errorf("the tests in the guest failed: %v", err)
	}
}

// guestInitrd is an archive of this package's tests, built to need no library.
func guestInitrd(ctx context.Context, t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	bin := filepath.Join(dir, "init")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-ldflags=-s -w", "-o", bin, ".")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("building the guest's tests: %v\n%s", err, out)
	}
	b, err := os.ReadFile(bin)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	w := cpio.Newc.Writer(&archive)
	records := []cpio.Record{cpio.Directory("dev", 0o755), cpio.CharDev("dev/console", 0o600, 5, 1), cpio.StaticFile("init", string(b), 0o755)}
	if err := errors.Join(cpio.WriteRecords(w, records), cpio.WriteTrailer(w)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "initrd")
	if err := os.WriteFile(path, archive.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// service makes the cgroup that systemd would make for bcd, and gives it to bcd.
func service(t *testing.T, name string) string {
	t.Helper()
	if os.Getpid() != 1 {
		t.Skip("left out: only in the guest that TestInGuest boots, where the cgroups are the test's own")
	}
	slice := filepath.Join(cgroupRoot, "bcd.slice")
	dir := filepath.Join(slice, name+".service")
	err := errors.Join(os.MkdirAll(dir, 0o755), write(filepath.Join(cgroupRoot, "cgroup.subtree_control"), "+memory +pids"),
		write(filepath.Join(slice, "cgroup.subtree_control"), "+memory +pids"))
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// inCgroup has a process start in one.
func inCgroup(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	f, err := os.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return &syscall.SysProcAttr{UseCgroupFD: true, CgroupFD: int(f.Fd())}
}

func eat(mib string) error {
	n, err := strconv.Atoi(mib)
	if err != nil {
		return err
	}
	b := make([]byte, n<<20)
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
	return nil
}

// multiply starts a program until it cannot, and gives how often it could, and why not more often.
func multiply(program string) (any, error) {
	for n := 0; n < 1000; n++ {
		if _, err := syscall.ForkExec(program, []string{program}, &syscall.ProcAttr{}); err != nil {
			return []string{strconv.Itoa(n), errName(err)}, nil
		}
	}
	return nil, errors.New("there is no limit")
}

// pause is a program of one task that does nothing: mov eax, 34; syscall.
var pause = elf([]byte{0xb8, 34, 0, 0, 0, 0x0f, 0x05})

// TestGuestLimits holds a plugin to its memory and its tasks.
func TestGuestLimits(t *testing.T) {
	dir := service(t, "limits")
	small := filepath.Join(socketDir(t), "pause")
	if err := errors.Join(os.WriteFile(small, []byte(pause), 0o755), os.Chmod(filepath.Dir(small), 0o755)); err != nil {
		t.Fatal(err)
	}
	s := open(t, Config{Enabled: true, Landlock: true, ReadPaths: []string{small}, Cgroup: dir + "/plugins", MemoryMax: 64 << 20, PidsMax: 32})
	if len(s.State()) != 0 {
		t.Fatal(s.State())
	}
	t.Run("running", func(t *testing.T) {
		l := start(t, s, plugin(t, "alpha", "wait"))
		next[string](t, l)
		own := dir + "/plugins/bcx-alpha"
		if l.Facts.Cgroup != own || content(t, own, "memory.max") != "67108864" || content(t, own, "pids.max") != "32" || content(t, own, "cgroup.procs") != strconv.Itoa(l.Cmd.Process.Pid) {
			t.Errorf("%+v", l.Facts)
		}
		t.Log("tasks of a Go plugin: ", content(t, own, "pids.current"), " memory: ", content(t, own, "memory.current"))
	})
	t.Run("threads", func(t *testing.T) {
		if got := result[string](t, s, plugin(t, "alpha", "threads")); got != "done" {
			t.Error(got)
		}
	})
	t.Run("memory", func(t *testing.T) {
		l := start(t, s, plugin(t, "alpha", "eat", "256"))
		_ = l.Cmd.Wait()
		events := content(t, l.Facts.Cgroup, "memory.events")
		if status := l.Cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signal() != unix.SIGKILL || !strings.Contains(events, "oom_kill 1") {
			t.Errorf("it ended with %s: %s", l.Cmd.ProcessState, events)
		}
	})
	t.Run("tasks", func(t *testing.T) {
		l := start(t, s, plugin(t, "alpha", "multiply", small))
		got := next[[]string](t, l)
		if n, _ := strconv.Atoi(got[0]); n < 8 || n > 31 || got[1] != "EAGAIN" {
			t.Errorf("it started %s before %s", got[0], got[1])
		}
		_ = l.Cmd.Wait()
		if err := l.Close(); err != nil { // with its children still there
			t.Error(err)
		}
		if _, err := os.Stat(l.Facts.Cgroup); !os.IsNotExist(err) {
			t.Errorf("the cgroup is still there: %v", err)
		}
	})
	t.Run("privileged", func(t *testing.T) {
		s := open(t, Config{Enabled: true, Privileged: []string{"alpha"}, Cgroup: dir + "/plugins", PidsMax: 32})
		l := start(t, s, plugin(t, "alpha", "self"))
		if f := next[selfFacts](t, l); f.UIDs[0] != 0 || f.Status["Seccomp"] != "0" || content(t, l.Facts.Cgroup, "memory.max") != "max" {
			t.Errorf("%+v", f)
		}
	})
}

// TestGuestLeaf starts bcd in the very cgroup that plugins get theirs in: it moves into main.
func TestGuestLeaf(t *testing.T) {
	dir := service(t, "leaf")
	bcd, out := startHost(t, Config{Enabled: true, Cgroup: dir + "/plugins"}, &exec.Cmd{Dir: socketDir(t), SysProcAttr: inCgroup(t, dir)}, "wait")
	var ready string
	if err := out.Decode(&ready); err != nil {
		t.Fatal(err)
	}
	if got := content(t, "/proc", strconv.Itoa(bcd.Process.Pid), "cgroup"); got != "0::/bcd.slice/leaf.service/main" {
		t.Errorf("bcd is in %s", got)
	}
	if got := content(t, dir, "plugins/bcx-alpha/cgroup.procs"); got == "" {
		t.Error("the plugin is elsewhere")
	}
}

// TestGuestUnit is bcd as systemd 252 starts it: under its account, with the unit's capabilities, in the cgroup that was given
// to the account.
func TestGuestUnit(t *testing.T) {
	dir := service(t, "unit")
	for _, f := range []string{".", "cgroup.procs", "cgroup.subtree_control", "cgroup.threads"} {
		if err := os.Chown(filepath.Join(dir, f), bcdUID, bcdUID); err != nil {
			t.Fatal(err)
		}
	}
	attr := asUnit(unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_CHOWN)
	in := inCgroup(t, dir)
	attr.UseCgroupFD, attr.CgroupFD = true, in.CgroupFD
	cfg := Config{Enabled: true, Landlock: true, Cgroup: dir + "/plugins", MemoryMax: 256 << 20, PidsMax: 64}
	bcd, out := startHost(t, cfg, &exec.Cmd{Dir: unitDir(t), SysProcAttr: attr}, "family")
	var pids []int
	if err := out.Decode(&pids); err != nil {
		t.Fatal(err)
	}
	w := watch(t, pids)
	own := dir + "/plugins/bcx-alpha"
	if got := strings.Fields(content(t, own, "cgroup.procs")); len(got) != 4 || content(t, own, "pids.max") != "64" {
		t.Errorf("in the plugin's cgroup are %v", got)
	}
	if uid, err := owner("/proc/" + strconv.Itoa(pids[0])); uid < firstUID || err != nil {
		t.Errorf("it has uid %d: %v", uid, err)
	}
	if err := bcd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.gone(t)
}

// TestGuestDiesByCgroup kills bcd: under an account that plugins share, where no uid can be killed by, the cgroup's are.
func TestGuestDiesByCgroup(t *testing.T) {
	dir := service(t, "dies")
	bcd, out := startHost(t, Config{Enabled: true, User: "games", Cgroup: dir + "/plugins"}, &exec.Cmd{Dir: socketDir(t)}, "family")
	var pids []int
	if err := out.Decode(&pids); err != nil {
		t.Fatal(err)
	}
	w := watch(t, pids)
	if err := bcd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w.gone(t)
}

// TestGuestLeftovers kills bcd and its guard: what is left of the plugin ends when the next bcd starts it.
func TestGuestLeftovers(t *testing.T) {
	dir := service(t, "leftovers")
	cfg := Config{Enabled: true, Cgroup: dir + "/plugins"}
	bcd, out := startHost(t, cfg, &exec.Cmd{Dir: socketDir(t)}, "family")
	var pids []int
	if err := out.Decode(&pids); err != nil {
		t.Fatal(err)
	}
	w := watch(t, pids)
	guard := guardOf(t, bcd.Process.Pid)
	ended := watch(t, []int{guard})
	err := bcd.Process.Signal(unix.SIGSTOP) // or it would start another guard
	var stopped unix.WaitStatus
	_, err1 := unix.Wait4(bcd.Process.Pid, &stopped, unix.WUNTRACED, nil)
	if err := errors.Join(err, err1, unix.Kill(guard, unix.SIGKILL)); err != nil || !stopped.Stopped() {
		t.Fatal(err, stopped)
	}
	ended.gone(t)
	if err := bcd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	w[:1].gone(t) // the plugin itself, by its parent's death
	if n, err := unix.Poll(w[1:2], 0); n != 0 || err != nil {
		t.Errorf("nothing is left over: %d %v", n, err)
	}
	l := start(t, open(t, cfg), plugin(t, "alpha", "wait"))
	next[string](t, l)
	w.gone(t)
}

// guardOf finds the guard of a bcd.
func guardOf(t *testing.T, bcd int) int {
	t.Helper()
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, d := range dirs {
		stat, _ := os.ReadFile(d + "/stat")
		cmdline, _ := os.ReadFile(d + "/cmdline")
		f := bytes.Fields(stat[bytes.LastIndexByte(stat, ')')+1:])
		if len(f) > 1 && string(f[1]) == strconv.Itoa(bcd) && bytes.Contains(cmdline, []byte("\x00guard\x00")) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			return pid
		}
	}
	t.Fatal("bcd has no guard")
	return 0
}

// TestGuestUndelegated says why where the cgroup is another's, or full of others.
func TestGuestUndelegated(t *testing.T) {
	for name, tt := range map[string]struct {
		attr *syscall.SysProcAttr
		want string
	}{
		"another account's": {&syscall.SysProcAttr{Credential: &syscall.Credential{Uid: bcdUID, Gid: bcdUID}}, "it is not delegated to bcd"},
		"others in it":      {nil, "other processes are in the cgroup above it"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := service(t, strings.Fields(name)[0])
			if tt.attr == nil {
				tt.attr = inCgroup(t, dir)
				other := &exec.Cmd{Path: script(t, pause), SysProcAttr: inCgroup(t, dir)}
				if err := other.Start(); err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _ = other.Process.Kill(); _ = other.Wait() })
			}
			var said bytes.Buffer
			cmd := exec.Command("/proc/self/exe", probeArg, "host", `{"Enabled":true,"Cgroup":"`+dir+`/plugins"}`, "/tmp", "alpha", "wait")
			cmd.SysProcAttr, cmd.Stderr = tt.attr, &said
			if err := cmd.Run(); err == nil || !strings.Contains(said.String(), tt.want) {
				t.Errorf("%v: %s", err, said.String())
			}
		})
	}
}

// TestGuestAccounts gives the machine accounts that stand in the way.
func TestGuestAccounts(t *testing.T) {
	if os.Getpid() != 1 {
		t.Skip("left out: only in the guest that TestInGuest boots, whose accounts are the test's own")
	}
	if _, err := open(t, Config{Enabled: true, User: "toor"}).Prepare(t.Context(), plugin(t, "alpha", "self")); !errors.Is(err, errRoot) {
		t.Errorf("another name of root: %v", err)
	}
	given, err := uids([]string{"alpha"}, accountHas)
	if err != nil {
		t.Fatal(err)
	}
	add := func(file, text string) {
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	add("/etc/passwd", fmt.Sprintf("%sother:x:%d:1::/:/bin/false\n", guestAccounts, given["alpha"]))
	add("/etc/group", fmt.Sprintf("others:x:%d:\n", given["alpha"]+1))
	defer add("/etc/passwd", guestAccounts)
	defer add("/etc/group", "")
	f := result[selfFacts](t, open(t, Config{Enabled: true}), plugin(t, "alpha", "self"))
	if f.UIDs[0] != given["alpha"]+2 {
		t.Errorf("uid %d, past an account and a group at %d", f.UIDs[0], given["alpha"])
	}
}
