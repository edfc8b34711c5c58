package sandbox

import (
	"errors"
	"fmt"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// killer is a thread that sends SIGKILL with a plugin's uid and no other power, so that it reaches the processes of that uid
// and nobody else's, whatever it asks for. Its real and saved uid are the guard's own, which makes it deaf to the plugin's
// signals. It is made before it is needed, and is one for all: what it has to end may have left no task to make another of.
type killer struct {
	own  int
	jobs chan killJob
}

type killJob struct {
	uid, pid int
	done     chan error
}

// startKiller makes the thread with the guard's uid. Another system thread must not be changed with it.
func startKiller(own int) (*killer, error) {
	k := &killer{own, make(chan killJob)}
	ready := make(chan error)
	go k.run(ready)
	return k, <-ready
}

// stop ends the thread.
func (k *killer) stop() { close(k.jobs) }

// kill sends SIGKILL to what pid stands for in kill(2). Finding nobody to kill is no error.
func (k *killer) kill(uid, pid int) error {
	j := killJob{uid, pid, make(chan error)}
	k.jobs <- j
	return <-j.done
}

// run never unlocks its thread, which ends with it. The first thread does not end, and its uids are the process's to others,
// another guard among them: it is held while another is taken.
func (k *killer) run(ready chan<- error) {
	runtime.LockOSThread()
	if unix.Gettid() == unix.Getpid() {
		taken := make(chan error)
		go k.run(taken)
		ready <- <-taken
		runtime.UnlockOSThread()
		return
	}
	err := k.become()
	ready <- err
	if err != nil {
		return
	}
	for j := range k.jobs {
		err := k.actAs(j.uid)
		if err == nil {
			err = ignoreNobody(unix.Kill(j.pid, unix.SIGKILL))
		}
		j.done <- errors.Join(err, k.actAs(k.own))
	}
}

func ignoreNobody(err error) error {
	if errors.Is(err, unix.ESRCH) || errors.Is(err, unix.EPERM) {
		return nil
	}
	return err
}

// become takes the guard's uid, and keeps one capability, to take a plugin's.
func (k *killer) become() error {
	if err := unix.Prctl(unix.PR_SET_KEEPCAPS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("keeping capabilities: %w", err)
	}
	if err := setThreadUIDs(k.own, k.own); err != nil {
		return err
	}
	return dropAllBut(unix.CAP_SETUID)
}

// actAs takes uid for what the thread does, without the power to take another; with the guard's own it has that power. What it
// did is read back, since a kill(-1) with root's powers ends the machine.
func (k *killer) actAs(uid int) error {
	c, err := threadCapabilities()
	if err != nil {
		return err
	}
	const bit = 1 << unix.CAP_SETUID
	c[0].Effective = bit
	if err := c.set(); err != nil {
		return err
	}
	if err := setThreadUIDs(k.own, uid); err != nil {
		return err
	}
	if uid == k.own {
		return nil
	}
	c[0].Effective = 0
	if err := c.set(); err != nil {
		return err
	}
	if c, err = threadCapabilities(); err != nil || c != (capabilities{{Permitted: bit}, {}}) {
		return errors.Join(err, fmt.Errorf("acting as uid %d keeps capabilities: %+v", uid, c))
	}
	return nil
}

// setThreadUIDs changes the calling thread alone, by the system call itself: libc and Go would change every thread.
func setThreadUIDs(own, effective int) error {
	if own <= 0 || effective <= 0 {
		return fmt.Errorf("uid %d or %d is root's", own, effective)
	}
	if _, _, errno := syscall.RawSyscall(unix.SYS_SETRESUID, uintptr(own), uintptr(effective), uintptr(own)); errno != 0 {
		return fmt.Errorf("taking uid %d: %w", effective, errno)
	}
	if r, e, s := unix.Getresuid(); r != own || e != effective || s != own {
		return fmt.Errorf("taking uid %d left %d, %d and %d", effective, r, e, s)
	}
	return nil
}
