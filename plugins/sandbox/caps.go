package sandbox

import (
	"fmt"

	"golang.org/x/sys/unix"
)

// asRoot are the capabilities that giving plugins uids takes: to become the uid, to signal it, and to hand it its directory.
var asRoot = []int{unix.CAP_SETUID, unix.CAP_SETGID, unix.CAP_KILL, unix.CAP_CHOWN}

// capabilities are the three sets of a thread, as capget(2) gives them: two words of bits each.
type capabilities [2]unix.CapUserData

// threadCapabilities reads those of the calling thread.
func threadCapabilities() (capabilities, error) {
	var c capabilities
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capget(&h, &c[0]); err != nil {
		return c, fmt.Errorf("reading capabilities: %w", err)
	}
	return c, nil
}

// effective reports whether each of the capabilities is in force.
func (c capabilities) effective(caps ...int) bool {
	for _, n := range caps {
		if c[n/32].Effective&(1<<(n%32)) == 0 {
			return false
		}
	}
	return true
}

// set gives them to the calling thread.
func (c capabilities) set() error {
	h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	if err := unix.Capset(&h, &c[0]); err != nil {
		return fmt.Errorf("setting capabilities: %w", err)
	}
	return nil
}

// dropAmbient takes what the calling thread would hand on by exec to another uid: the ambient and the inheritable set. The
// unit gives bcd its capabilities in the ambient one.
func dropAmbient() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("dropping ambient capabilities: %w", err)
	}
	c, err := threadCapabilities()
	if err != nil {
		return err
	}
	c[0].Inheritable, c[1].Inheritable = 0, 0
	return c.set()
}

// dropAll takes every capability from the calling thread and reads back that it has none.
func dropAll() error { return dropAllBut() }

// dropAllBut leaves the calling thread the capabilities of the first word, permitted and in force, and reads that back.
func dropAllBut(keep ...int) error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("dropping ambient capabilities: %w", err)
	}
	var want capabilities
	for _, n := range keep {
		want[0].Permitted |= 1 << n
		want[0].Effective |= 1 << n
	}
	// An effective set that setresuid has emptied is filled from what is permitted still.
	if err := want.set(); err != nil {
		return err
	}
	c, err := threadCapabilities()
	if err == nil && c != want {
		err = fmt.Errorf("dropping capabilities left %+v", c)
	}
	return err
}
