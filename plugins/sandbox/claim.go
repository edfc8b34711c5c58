package sandbox

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// claim holds a uid for one plugin on this machine, against every other bcd on it (a lab beside the site): what is killed by
// uid must not be another's. It is a socket in the abstract namespace, which the kernel takes away with its process. Another
// network namespace has other names; there, processes that have the uid speak for it.
type claim struct{ fd int }

// errClaimed says that the uid is somebody's.
var errClaimed = errors.New("the uid is in use")

func claimUID(uid int) (*claim, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("claiming uid %d: %w", uid, err)
	}
	c := &claim{fd}
	err = unix.Bind(fd, claimAddr(uid))
	switch {
	case err == nil:
		err = unix.Listen(fd, 1) // so that another can ask whose it is
	case errors.Is(err, unix.EADDRINUSE) && claimedByPlugin(uid):
		err = nil
	case errors.Is(err, unix.EADDRINUSE):
		err = errClaimed
	}
	if err == nil {
		err = unused(uid)
	}
	if err != nil {
		return nil, errors.Join(err, c.release())
	}
	return c, nil
}

func claimAddr(uid int) *unix.SockaddrUnix {
	return &unix.SockaddrUnix{Name: "@bcx-uid-" + strconv.Itoa(uid)}
}

// claimedByPlugin reports whether the name is held by a plugin, which has no uids to claim: it wants others not to start.
func claimedByPlugin(uid int) bool {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	if err := unix.Connect(fd, claimAddr(uid)); err != nil {
		return errors.Is(err, unix.EPROTOTYPE) // of another kind than ours
	}
	peer, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED)
	return err == nil && peer.Uid >= firstUID && peer.Uid <= lastUID
}

// unused waits for processes of the uid to be gone: those of a bcd that was killed a moment ago are going.
func unused(uid int) error {
	for wait := newPatience(2 * time.Second); ; {
		pids, err := living(procRoot, charge{Own: true, UID: uid})
		if err != nil || len(pids) == 0 {
			return err
		}
		if !wait.more() {
			return errClaimed
		}
	}
}

func (c *claim) release() error {
	if c == nil {
		return nil
	}
	return unix.Close(c.fd)
}
