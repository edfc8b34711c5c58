package child

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// parentEnv makes the test program a parent that starts a child and waits to be killed.
const parentEnv = "BCD_TEST_PARENT"

func init() {
	if os.Getenv(parentEnv) != "" {
		runtime.LockOSThread() // the first thread, which never ends, so that none of the parent's others is it
	}
}

func TestMain(m *testing.M) {
	if os.Getenv(parentEnv) == "" {
		os.Exit(m.Run())
	}
	cmd := exec.Command("sh", "-c", "read line; echo $line; exec sleep 600")
	in, err1 := cmd.StdinPipe()
	out, err2 := cmd.StdoutPipe()
	ended, thread := make(chan error), 0
	go func() {
		runtime.LockOSThread() // and never unlocked: the thread ends here, the child must not
		thread = unix.Gettid()
		ended <- Start(cmd)
	}()
	if err := errors.Join(err1, err2, <-ended); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
	for gone := false; !gone; runtime.Gosched() {
		_, err := os.Stat(fmt.Sprintf("/proc/self/task/%d", thread))
		gone = err != nil
	}
	_, _ = in.Write([]byte("alive\n"))
	if said, _ := bufio.NewReader(out).ReadString('\n'); said != "alive\n" { // a child that was killed says nothing more
		fmt.Println("the child ended with the thread that asked for it")
		os.Exit(1)
	}
	fmt.Println(cmd.Process.Pid)
	_ = cmd.Wait()
	fmt.Println("the child ended")
	os.Exit(1)
}

// A child whose parent is killed is gone, but not before: the end of a thread is not the end of the process.
func TestAChildDiesWithItsParentAlone(t *testing.T) {
	parent := exec.Command(os.Args[0])
	parent.Env = append(os.Environ(), parentEnv+"=1")
	out, err := parent.StdoutPipe()
	if err == nil {
		err = parent.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil {
		t.Fatal(line, err)
	}
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		t.Fatalf("the child ended before its parent: %v", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if over(t, fd, 0) {
		t.Error("the child ended before its parent")
	}
	_ = parent.Process.Kill()
	_ = parent.Wait()
	if !over(t, fd, time.Minute) {
		_ = syscall.Kill(pid, syscall.SIGKILL)
		t.Error("the child outlived its parent")
	}
}

// over reports whether a process has ended, or ends in time.
func over(t *testing.T, pidfd int, wait time.Duration) bool {
	t.Helper()
	for {
		n, err := unix.Poll([]unix.PollFd{{Fd: int32(pidfd), Events: unix.POLLIN}}, int(wait.Milliseconds()))
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		return n > 0
	}
}

// A child is as any other to who started it: it keeps what was asked for it, and tells how it ended.
func TestAChildIsWaitedFor(t *testing.T) {
	cmd := exec.Command("sh", "-c", "ps -o pgid= -p $$; exit 3")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	var out strings.Builder
	cmd.Stdout = &out
	if err := Start(cmd); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait()
	if got := strings.TrimSpace(out.String()); cmd.ProcessState.ExitCode() != 3 || got != strconv.Itoa(cmd.Process.Pid) {
		t.Errorf("%v, group %q of %d", cmd.ProcessState, got, cmd.Process.Pid)
	}
	if err := Start(exec.Command("/nonexistent")); err == nil {
		t.Error("a program that is not there was started")
	}
}
