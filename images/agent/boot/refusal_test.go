package boot

import (
	"net"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestPortsDown turns the loopback port of a network namespace of its own off.
func TestPortsDown(t *testing.T) {
	skip := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with its namespace
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			skip <- err
			return
		}
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		if err != nil {
			t.Error(err)
			return
		}
		defer unix.Close(fd)
		up, err := unix.NewIfreq("lo")
		if err != nil {
			t.Error(err)
			return
		}
		up.SetUint16(unix.IFF_UP)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up); err != nil {
			t.Error(err)
			return
		}
		if i, err := net.InterfaceByName("lo"); err != nil || i.Flags&net.FlagUp == 0 {
			t.Errorf("before: %+v %v", i, err)
		}
		if errs := portsDown([]string{"none0", "lo", "a name that is too long for a port"}); len(errs) != 2 {
			t.Errorf("%v", errs)
		}
		if i, err := net.InterfaceByName("lo"); err != nil || i.Flags&net.FlagUp != 0 {
			t.Errorf("after: %+v %v", i, err)
		}
	}()
	<-done
	select {
	case err := <-skip:
		t.Skipf("skipping: no network namespace can be made here: %v", err)
	default:
	}
}
