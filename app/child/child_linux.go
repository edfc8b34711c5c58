// Package child starts processes that do not outlive this one: machines and daemons of the lab, of tests and of measurements,
// which a killed program leaves behind on the host otherwise.
package child

import (
	"errors"
	"os/exec"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Start starts cmd, as its Start does, so that the kernel kills it when this process ends in whatever way. What cmd itself
// starts is not reached. Its caller must Wait for it.
//
// The kernel sends the signal when the thread ends that started the child, and Go ends threads as it likes. So a thread is
// kept until the child has ended. It is none of the caller's: the child does not see a namespace that only the caller's has.
func Start(cmd *exec.Cmd) error {
	attr := syscall.SysProcAttr{}
	if cmd.SysProcAttr != nil {
		attr = *cmd.SysProcAttr
	}
	attr.Pdeathsig = syscall.SIGKILL
	cmd.SysProcAttr = &attr
	started := make(chan error)
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := cmd.Start()
		if err != nil {
			started <- err
			return
		}
		pid := cmd.Process.Pid
		started <- nil
		outlive(pid)
	}()
	return <-started
}

// outlive returns when a child has ended, and leaves it to be waited for.
func outlive(pid int) {
	for errors.Is(unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil), unix.EINTR) {
	}
}
