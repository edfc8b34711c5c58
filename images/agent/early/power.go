package early

import (
	"errors"
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Action is an end of this boot.
type Action int

// The ends, with the reboot(2) command of each.
const (
	PowerOff Action = unix.LINUX_REBOOT_CMD_POWER_OFF
	Restart  Action = unix.LINUX_REBOOT_CMD_RESTART
)

func (a Action) String() string {
	if a == PowerOff {
		return "power off"
	}
	return "restart"
}

// syncPatience is how long a disk may hold up the end. One that hangs must not keep a machine on for ever.
const syncPatience = 15 * time.Second

// initLink is what /init is in the ramdisk, and nowhere else.
const initLink = "bbin/bcd-ramdisk"

// inRamdisk guards what would end or empty any other machine that this code should ever run on.
func inRamdisk() error {
	if to, err := os.Readlink("/init"); err != nil || to != initLink {
		return errors.New("this is not bcd's ramdisk: refusing to end its processes or its boot")
	}
	return nil
}

// killAll ends every process but PID 1, which must be the caller.
func killAll() error {
	if err := inRamdisk(); err != nil {
		return err
	}
	if os.Getpid() != 1 {
		return errors.New("only PID 1 ends all processes")
	}
	_ = unix.Kill(-1, unix.SIGKILL) // fails when there is none, which is as good
	return nil
}

// End flushes the disks and ends this boot at once. It returns only when the kernel refuses, or outside the ramdisk. Any
// process of the ramdisk may call it.
func End(a Action) error {
	if err := inRamdisk(); err != nil {
		return err
	}
	done := make(chan struct{})
	go func() {
		unix.Sync()
		close(done)
	}()
	patience := time.NewTimer(syncPatience)
	defer patience.Stop()
	select {
	case <-done:
	case <-patience.C:
	}
	if err := unix.Reboot(int(a)); err != nil {
		return fmt.Errorf("asking the kernel to %s: %w", a, err)
	}
	return nil
}
