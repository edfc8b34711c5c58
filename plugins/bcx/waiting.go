//go:build unix

package bcx

import (
	"errors"
	"os"
	"syscall"
)

// readWaiting reads what a pipe holds, without waiting and whatever its deadline. It gives 0 when that is nothing.
func readWaiting(pipe *os.File, p []byte) (n int) {
	raw, err := pipe.SyscallConn()
	if err != nil || len(p) == 0 {
		return 0
	}
	err = raw.Control(func(fd uintptr) {
		for n, err = syscall.Read(int(fd), p); errors.Is(err, syscall.EINTR); {
			n, err = syscall.Read(int(fd), p)
		}
		n = max(n, 0) // -1 where it would have to wait
	})
	if err != nil { // it is closed
		return 0
	}
	return n
}
