package sandbox

import (
	"os/exec"
	"runtime"
	"sync"
)

// forker starts processes from one thread, which lives as long as any of them: the kernel sends the death signal of a child
// when the thread that forked it ends, and Go ends threads as it likes. The thread has no capabilities to hand on by exec.
type forker struct {
	mu       sync.Mutex // protects the following
	users    int
	requests chan forkRequest
}

type forkRequest struct {
	cmd  *exec.Cmd
	done chan error
}

// acquire makes the thread for its first user. Each acquire has its release.
func (f *forker) acquire() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users == 0 {
		requests, ready := make(chan forkRequest), make(chan error)
		go forkThread(requests, ready)
		if err := <-ready; err != nil {
			return err
		}
		f.requests = requests
	}
	f.users++
	return nil
}

// release ends the thread with its last user, whose processes have ended then.
func (f *forker) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.users--; f.users == 0 {
		close(f.requests)
	}
}

// start runs the command; its caller holds an acquire.
func (f *forker) start(cmd *exec.Cmd) error {
	f.mu.Lock()
	requests := f.requests
	f.mu.Unlock()
	r := forkRequest{cmd, make(chan error)}
	requests <- r
	return <-r.done
}

// forkThread never unlocks its thread, so the thread, changed as it is, ends with it.
func forkThread(requests <-chan forkRequest, ready chan<- error) {
	runtime.LockOSThread()
	err := dropAmbient()
	ready <- err
	if err != nil {
		return
	}
	for r := range requests {
		r.done <- r.cmd.Start()
	}
}
