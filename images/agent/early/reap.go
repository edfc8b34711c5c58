package early

import (
	"errors"
	"fmt"
	"os"
	"os/signal"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
)

// children starts processes and is the only one that waits for any: PID 1 inherits every orphan, and a second waiter
// would take another's exit.
type children struct {
	mu      sync.Mutex // held over start and registration, so that an exit finds its channel
	waiting map[int]chan syscall.WaitStatus
}

func newChildren() *children { return &children{waiting: map[int]chan syscall.WaitStatus{}} }

// start runs a program. The channel yields its end. Signals go through the process, never through a bare number: as root,
// a wrong number means everybody.
func (c *children) start(name string, argv []string, attr *os.ProcAttr) (*os.Process, <-chan syscall.WaitStatus, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	p, err := os.StartProcess(name, argv, attr)
	if err != nil {
		return nil, nil, fmt.Errorf("starting %q: %w", argv[0], err)
	}
	ch := make(chan syscall.WaitStatus, 1)
	c.waiting[p.Pid] = ch
	return p, ch, nil
}

// reap collects ended processes until stop is closed.
func (c *children) reap(stop <-chan struct{}) {
	sig := make(chan os.Signal, 1)
	signal.Notify(sig, unix.SIGCHLD)
	defer signal.Stop(sig)
	for {
		c.collect()
		select {
		case <-sig:
		case <-stop:
			return
		}
	}
}

// collect takes every process that has ended by now.
func (c *children) collect() {
	for {
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if errors.Is(err, syscall.EINTR) {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		c.mu.Lock()
		if ch, ok := c.waiting[pid]; ok {
			delete(c.waiting, pid)
			ch <- ws
		}
		c.mu.Unlock()
	}
}

// endOf says how a process ended.
func endOf(ws syscall.WaitStatus) string {
	if ws.Signaled() {
		return "killed by " + ws.Signal().String()
	}
	return fmt.Sprintf("exit status %d", ws.ExitStatus())
}
